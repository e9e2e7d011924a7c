// matvec_int8_*: y[i, r] = sum over c of w[r, c] * x[i, c]; w [n, k] packed, x [m, k], y [m, n], few rows i; x is
// rounded to 8 bits in blocks of 32 columns first, as base::ComputeMode::Int8 says. k is at most K.
// Work split: that of matvec_*, with products of four codes at a time; matvec_lanes and matvec_rounds say where x
// is rounded with subgroups and without.
// Why: a whole-number product of four takes one instruction where floats take a conversion and a product
// each; rounding again in each workgroup saves a step of its own.
// norm: the sum of x^2 is made beside the rounding, and the products are scaled by its root when they are
// stored: rounding does not see a common factor.
// vec4: k, x_offset and x_stride are multiples of 4 and the range of x is whole vec4s.
#import dequant_*
#import rounding

override WG: u32 = 64;
override ROWS: u32 = 4;
override M: u32 = 1;
override PASSES: u32 = 1;
// Turns over the columns whose weights are asked for at once, with subgroups.
override AHEAD: u32 = 1;
override K: u32 = 1024;

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
#import attached_params
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
fn load_x(start: u32, c: u32) -> vec4<f32> {
    let i = start + c;
    return vec4(x[i], x[i + 1u], x[i + 2u], x[i + 3u]);
}
#endif

#import matvec_scale

#import attached_x
#import attached_rows
#import matvec_sum
#import attached_fetch

#ifdef subgroup
#import matvec_lanes
#else
#import matvec_rounds
#endif
