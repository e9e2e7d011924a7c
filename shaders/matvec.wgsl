// matvec_*: dequantising GEMV: y[i, r] = sum over c of w[r, c] * x[i, c]. w [n, k] packed, x
// [m, k], y [m, n], few rows i.
// Work split: one workgroup per ROWS rows of w and M rows of x. Threads take units of the k columns
// in turn (coalesced); their sums are reduced at the end.
// Why: weights are read once; a decoded part serves M rows of x, a loaded part of x serves ROWS
// rows.
// norm: RMS norm fused in: sums x^2 with the products and scales them when they are stored.
// ahead: the first weights are loaded before anything else is read.
// vec4: k, x_offset and x_stride are multiples of 4, and the range of x is a multiple of 16 bytes.
#import dequant_*

override WG: u32 = 64;
override ROWS: u32 = 4;
override M: u32 = 1;

const OUTPUTS: u32 = ROWS * M;
const OWN_READS: u32 = 2u;
const TASK_ROWS: u32 = ROWS;
const TEAMS: u32 = 1u;
const SUB: u32 = 4u;

struct Params {
    m: u32,
    n: u32,
    k: u32,
    x_offset: u32,
    x_stride: u32,
    y_offset: u32,
    y_stride: u32,
#import fusion_params
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> w: array<WeightWord>;
#ifdef vec4
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
#else
@group(0) @binding(2) var<storage, read> x: array<f32>;
#endif

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

#import matvec_scale

#import fusion_x
#import fusion_rows
#import matvec_sum
#import fusion_fetch

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    place: Place,
) {
    let task = task_of(wid.y * grid.x + wid.x);
    let first_i = wid.z * M;
    if (!exists(task) || first_i >= params.m) {
        return;
    }
    // Unrolled: a dynamically indexed array may be placed in slow memory. Rows past the end repeat
    // the last one and are not stored.
#repeat r ROWS
    let start$r = row_start(row_of(task, $ru), params.k);
#repeat i M
    var sum$r_$i = 0.0;
#end
#end
#repeat i M
    let i$i = min(first_i + $iu, params.m - 1u);
    let x_start$i = params.x_offset + i$i * params.x_stride;
    var squares$i = 0.0;
#end

    let units = (params.k + UNIT_LEN - 1u) / UNIT_LEN;
#ifdef ahead
    // Weights are constant, so the first loads are issued while the previous launch still computes
    // x.
    var turn = 0u;
#repeat r ROWS
    var next$r = Unit();
    if (units > 0u) {
        next$r = load_unit(start$r, min(place.lid, units - 1u), params.k);
    }
#end
#endif
    // Epilogue operands of a one-row product are loaded early.
    let count = evaluations(task) * M;
    var fetched = Fetched();
    if (M == 1u && place.lid < count) {
        fetched = fetch(task, place.lid, first_i);
    }
    for (var u = place.lid; u < units; u += WG) {
#ifdef ahead
        if (turn > 0u) {
#repeat r ROWS
            next$r = load_unit(start$r, u, params.k);
#end
        }
        turn++;
#repeat r ROWS
        let unit$r = next$r;
#end
#else
#repeat r ROWS
        let unit$r = load_unit(start$r, u, params.k);
#end
#endif
#repeat p PARTS
        {
            let c = part_column(u, $pu);
#repeat i M
            var x$i = prologue4(i$i, c, load_x(x_start$i, c));
#end
#ifdef norm
            let gain = norm_weight(c);
#repeat i M
            squares$i = accumulate(squares$i, x$i, x$i);
            x$i *= gain;
#end
#endif
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
#ifdef norm
#repeat i M
    put(OUTPUTS + $iu, squares$i, place);
#end
#endif
    workgroupBarrier();
    reduce_sums(place);
    for (var o = place.lid; o < count; o += WG) {
        if (M > 1u || o >= WG) {
            fetched = fetch(task, o / M, first_i + o % M);
        }
        let factor = scale(o % M, place);
        var second = 0.0;
        if (ANCHORS == 2u) {
            second = total(min(o + count, OUTPUTS - 1u), place) * factor;
        }
        finish(task, o / M, first_i + o % M, total(o, place) * factor, second, fetched);
    }
}
