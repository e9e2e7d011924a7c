// matmul_*: y[i, r] = sum over c of w[r, c] * x[i, c]; w [n, k] packed, x [m, k], y [m, n], many rows i.
// Work split: a workgroup makes BM x BN of y; 256 threads load 16 columns of both at a time as vec4s of
// neighbouring columns into workgroup memory; thread (tx, ty) makes rows ty + 16 a, columns tx + 16 b.
// Why: weights are decoded once for BM rows; vec4s along k need no transposition, and a row stride of
// five vec4s keeps the reads free of bank conflicts. 16 KiB hold up to BM + BN = 204.
// vec4: k, x_offset and x_stride are multiples of 4 and the range of x is whole vec4s.
#import dequant_*

override BM: u32 = 64;
override BN: u32 = 64;

const THREADS: u32 = 256u;
const K4: u32 = 4u;
const STRIDE: u32 = 5u;
const ROWS: u32 = BM / 16u;
const COLS: u32 = BN / 16u;
const_assert BM % 16u == 0u && BN % 16u == 0u && BM >= 16u && BN >= 16u && BM + BN <= 204u;

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

fn load_w(row: u32, c: u32) -> vec4<f32> {
    return select(vec4(0.0), weights4(row_start(row, params.k), c, params.k), c < params.k);
}

fn accumulate(sum: f32, a: vec4<f32>, b: vec4<f32>) -> f32 {
    return a.w * b.w + (a.z * b.z + (a.y * b.y + (a.x * b.x + sum)));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let first_row = wid.x * BN;
    let first_i = wid.y * BM;
    if (first_row >= params.n || first_i >= params.m) {
        return;
    }
    let tx = lid & 15u;
    let ty = lid >> 4u;
    var sums: array<f32, ROWS * COLS>;
    for (var c = 0u; c < params.k; c += K4 * 4u) {
        for (var l = lid; l < BM * K4; l += THREADS) {
            let i = min(first_i + l / K4, params.m - 1u);
            x_tile[(l / K4) * STRIDE + l % K4] =
                load_x(params.x_offset + i * params.x_stride, c + (l % K4) * 4u);
        }
        for (var l = lid; l < BN * K4; l += THREADS) {
            let row = min(first_row + l / K4, params.n - 1u);
            w_tile[(l / K4) * STRIDE + l % K4] = load_w(row, c + (l % K4) * 4u);
        }
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
    for (var a = 0u; a < ROWS; a++) {
        for (var b = 0u; b < COLS; b++) {
            let i = first_i + ty + 16u * a;
            let row = first_row + tx + 16u * b;
            if (i < params.m && row < params.n) {
                y[params.y_offset + i * params.y_stride + row] = sums[a * COLS + b];
            }
        }
    }
}
