// expert_matvec_*: dequantising GEMV with the matrix of an expert for each row:
// y[p, r] = sum over c of w[ids[p], r, c] * x[p / share, c]. w [count, n, k] packed: experts first ..
// first + count of total; x [pairs / share, k], ids [pairs], y [pairs, n]. An id of other experts
// writes nothing; an id from total on gives zeros, written with first = 0.
// Work split: one workgroup per ROWS rows of w and pair. Threads take units of the k columns in turn
// (coalesced); their sums are reduced at the end.
// Why: with a few tokens nearly every pair has an expert of its own, so no weights are shared.
// vec4: k, x_offset and x_stride are multiples of 4, and the range of x is a multiple of 16 bytes.
#import dequant_*

override WG: u32 = 64;
override ROWS: u32 = 4;

const SUMS: u32 = ROWS;
const TEAMS: u32 = 1u;
const SUB: u32 = 4u;

struct Params {
    pairs: u32,
    share: u32,
    first: u32,
    count: u32,
    total: u32,
    n: u32,
    k: u32,
    x_offset: u32,
    x_stride: u32,
    ids_offset: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> w: array<WeightWord>;
#ifdef vec4
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
#else
@group(0) @binding(2) var<storage, read> x: array<f32>;
#endif
@group(0) @binding(3) var<storage, read> ids: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

fn weight_word(i: u32) -> WeightWord {
    return w[i];
}

#ifdef vec4
fn load_x(start: u32, c: u32) -> vec4<f32> {
    return x[(start + c) >> 2u];
}
#else
fn x_at(start: u32, c: u32) -> f32 {
    return select(0.0, x[start + min(c, params.k - 1u)], c < params.k);
}

fn load_x(start: u32, c: u32) -> vec4<f32> {
    if (PARTIAL) {
        return vec4(x_at(start, c), x_at(start, c + 1u), x_at(start, c + 2u), x_at(start, c + 3u));
    }
    let i = start + c;
    return vec4(x[i], x[i + 1u], x[i + 2u], x[i + 3u]);
}
#endif

fn accumulate(sum: f32, a: vec4<f32>, b: vec4<f32>) -> f32 {
    return a.w * b.w + (a.z * b.z + (a.y * b.y + (a.x * b.x + sum)));
}

#import matvec_sum

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    place: Place,
) {
    let first_r = wid.x * ROWS;
    let pair = wid.z * grid.y + wid.y;
    if (first_r >= params.n || pair >= params.pairs) {
        return;
    }
    let id = ids[params.ids_offset + pair];
    let to = params.y_offset + pair * params.n + first_r;
    // All threads of the workgroup have the same id.
    if (id < params.first || id - params.first >= params.count) {
        if (id >= params.total && params.first == 0u) {
            for (var r = place.lid; r < min(ROWS, params.n - first_r); r += WG) {
                y[to + r] = 0.0;
            }
        }
        return;
    }
    let row = (id - params.first) * params.n;
    let x_start = params.x_offset + pair / params.share * params.x_stride;
    // Rows past the end repeat the last one and are not stored.
#repeat r ROWS
    let start$r = row_start(row + min(first_r + $ru, params.n - 1u), params.k);
    var sum$r = 0.0;
#end
    let units = (params.k + UNIT_LEN - 1u) / UNIT_LEN;
    for (var u = place.lid; u < units; u += WG) {
#repeat r ROWS
        let unit$r = load_unit(start$r, u, params.k);
#end
#repeat p PARTS
        {
            let values = load_x(x_start, part_column(u, $pu));
#repeat r ROWS
            sum$r = accumulate(sum$r, part_weights(unit$r, $pu), values);
#end
        }
#end
    }
#repeat r ROWS
    put($ru, sum$r, place);
#end
    workgroupBarrier();
    reduce_sums(place);
    for (var r = place.lid; r < min(ROWS, params.n - first_r); r += WG) {
        y[to + r] = total(r, place);
    }
}
