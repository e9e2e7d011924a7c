// matmul_*: tiled GEMM with packed weights: y[i, r] = sum over c of w[r, c] * x[i, c]. w [n, k]
// packed, x [m, k], y [m, n], many rows i.
// Work split: one workgroup per BM x BN tile of y. 256 threads stage 16 columns of both operands as
// vec4s along k in workgroup memory; thread (tx, ty) computes rows ty + 16 a, columns tx + 16 b.
// Why: weights are decoded once per BM rows. vec4s along k need no transposition, and a row stride
// of five vec4s avoids bank conflicts. 16 KiB hold up to BM + BN = 204.
// vec4: k, x_offset and x_stride are multiples of 4, and the range of x is a multiple of 16 bytes.
#import dequant_*

override BM: u32 = 64;
override BN: u32 = 64;

const THREADS: u32 = 256u;
const K4: u32 = 4u;
const STRIDE: u32 = 5u;
const ROWS: u32 = BM / 16u;
const COLS: u32 = BN / 16u;
const OWN_READS: u32 = 2u;
const TASK_ROWS: u32 = BN;
// Rounds in which each thread loads one vec4 of x, and of w.
const X_LOADS: u32 = (BM * K4 + THREADS - 1u) / THREADS;
const W_LOADS: u32 = (BN * K4 + THREADS - 1u) / THREADS;
const_assert BM % 16u == 0u && BN % 16u == 0u && BM >= 16u && BN >= 16u && BM + BN <= 204u;

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

var<workgroup> x_tile: array<vec4<f32>, BM * STRIDE>;
var<workgroup> w_tile: array<vec4<f32>, BN * STRIDE>;

fn weight_word(i: u32) -> WeightWord {
    return w[i];
}

// x[i, c .. c + 4], zero from k on.
#ifdef vec4
fn load_x(start: u32, c: u32) -> vec4<f32> {
    return select(vec4(0.0), x[(start + min(c, params.k - 4u)) >> 2u], c < params.k);
}
#else
fn x_at(start: u32, c: u32) -> f32 {
    return select(0.0, x[start + min(c, params.k - 1u)], c < params.k);
}

fn load_x(start: u32, c: u32) -> vec4<f32> {
    return vec4(x_at(start, c), x_at(start, c + 1u), x_at(start, c + 2u), x_at(start, c + 3u));
}
#endif

fn load_w(start: u32, c: u32) -> vec4<f32> {
    return select(vec4(0.0), weights4(start, c, params.k), c < params.k);
}

fn accumulate(sum: f32, a: vec4<f32>, b: vec4<f32>) -> f32 {
    return a.w * b.w + (a.z * b.z + (a.y * b.y + (a.x * b.x + sum)));
}

#import fusion_x
#import fusion_rows

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let task = task_of(wid.x);
    let first_i = wid.y * BM;
    if (!exists(task) || first_i >= params.m) {
        return;
    }
    let tx = lid & 15u;
    let ty = lid >> 4u;
    var starts: array<u32, W_LOADS>;
    for (var t = 0u; t < W_LOADS; t++) {
        starts[t] = row_start(row_of(task, min(t * (THREADS / K4) + lid / K4, BN - 1u)), params.k);
    }
    var sums: array<f32, ROWS * COLS>;
    for (var c = 0u; c < params.k; c += K4 * 4u) {
        // All loads come before the first store, so that their latencies overlap. In the last round
        // some threads may have no element.
        let column = c + (lid % K4) * 4u;
#repeat t X_LOADS
        let has_x$t = $tu * THREADS + THREADS <= BM * K4 || $tu * THREADS + lid < BM * K4;
        var x$t = vec4(0.0);
        if (has_x$t) {
            let i = min(first_i + ($tu * THREADS + lid) / K4, params.m - 1u);
            x$t = prologue4(i, column, load_x(params.x_offset + i * params.x_stride, column));
        }
#end
#repeat t W_LOADS
        let has_w$t = $tu * THREADS + THREADS <= BN * K4 || $tu * THREADS + lid < BN * K4;
        var w$t = vec4(0.0);
        if (has_w$t) {
            w$t = load_w(starts[$tu], column);
        }
#end
#repeat t X_LOADS
        if (has_x$t) {
            x_tile[($tu * THREADS + lid) / K4 * STRIDE + lid % K4] = x$t;
        }
#end
#repeat t W_LOADS
        if (has_w$t) {
            w_tile[($tu * THREADS + lid) / K4 * STRIDE + lid % K4] = w$t;
        }
#end
        workgroupBarrier();
        for (var j = 0u; j < K4; j++) {
            var ws: array<vec4<f32>, COLS>;
            for (var b = 0u; b < COLS; b++) {
                ws[b] = w_tile[(tx + 16u * b) * STRIDE + j];
            }
            for (var a = 0u; a < ROWS; a++) {
                let xs = x_tile[(ty + 16u * a) * STRIDE + j];
                for (var b = 0u; b < COLS; b++) {
                    sums[a * COLS + b] = accumulate(sums[a * COLS + b], xs, ws[b]);
                }
            }
        }
        workgroupBarrier();
    }
    // Unrolled: a dynamically indexed array may be placed in slow memory, with all sums.
#repeat b COLS
    {
        let e = tx + 16u * $bu;
        // The second product of an evaluation is half a tile further, so it belongs to this thread.
        if (e < evaluations(task)) {
#repeat a ROWS
            store(
                task,
                e,
                first_i + ty + 16u * $au,
                sums[$au * COLS + $bu],
                sums[$au * COLS + ($bu + COLS / 2u) % COLS],
            );
#end
        }
    }
#end
}
