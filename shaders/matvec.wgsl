// matvec_*: y[i, r] = sum over c of w[r, c] * x[i, c]; w [n, k] packed, x [m, k], y [m, n], few rows i.
// Work split: a workgroup makes ROWS rows of w for M rows of x; its threads take units of the k columns
// in turn, so neighbours read neighbouring words, and their sums meet at the end.
// Why: weights are read once; a decoded part serves M rows of x, a loaded part of x serves ROWS rows.
// vec4: k, x_offset and x_stride are multiples of 4 and the range of x is whole vec4s.
#import dequant_*

override WG: u32 = 64;
override ROWS: u32 = 4;
override M: u32 = 1;

const OUTPUTS: u32 = ROWS * M;

struct Params {
    m: u32,
    n: u32,
    k: u32,
    x_offset: u32,
    x_stride: u32,
    y_offset: u32,
    y_stride: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> w: array<WeightWord>;
#ifdef vec4
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
#else
@group(0) @binding(2) var<storage, read> x: array<f32>;
#endif
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

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

// Output o = r * M + i of the workgroup, where it exists.
fn store(o: u32, first_row: u32, first_i: u32, sum: f32) {
    let row = first_row + o / M;
    let i = first_i + o % M;
    if (row < params.n && i < params.m) {
        y[params.y_offset + i * params.y_stride + row] = sum;
    }
}

#import matvec_sum

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    place: Place,
) {
    let first_row = (wid.y * grid.x + wid.x) * ROWS;
    let first_i = wid.z * M;
    if (first_row >= params.n || first_i >= params.m) {
        return;
    }
    // Everything below is spelled out: an array that a loop indexes may end up in slow memory. Rows past
    // the end repeat the last one and are not stored.
#repeat r ROWS
    let start$r = row_start(min(first_row + $ru, params.n - 1u), params.k);
#repeat i M
    var sum$r_$i = 0.0;
#end
#end
#repeat i M
    let x_start$i = params.x_offset + min(first_i + $iu, params.m - 1u) * params.x_stride;
#end

    let count = (params.k + UNIT_LEN - 1u) / UNIT_LEN;
    for (var u = place.lid; u < count; u += WG) {
#repeat r ROWS
        let unit$r = load_unit(start$r, u, params.k);
#end
#repeat p PARTS
        {
            let c = part_column(u, $pu);
#repeat i M
            let x$i = load_x(x_start$i, c);
#end
#repeat r ROWS
            let w$r = part_weights(unit$r, $pu);
#repeat i M
            sum$r_$i = accumulate(sum$r_$i, w$r, x$i);
#end
#end
        }
#end
    }

#repeat r ROWS
#repeat i M
    put($ru * M + $iu, sum$r_$i, place);
#end
#end
    workgroupBarrier();
    finish(first_row, first_i, place);
}
