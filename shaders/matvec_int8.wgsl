// matvec_int8_*: int8 GEMV with activation quantisation inside: y[i, r] = sum over c of
// w[r, c] * x[i, c]. w [n, k] packed, x [m, k], y [m, n], few rows i, k at most K. x is rounded to
// 8 bits in blocks of 32 columns as base::ComputeMode::Int8 defines.
// Work split: that of matvec_*, with packed products of four. x is rounded in matvec_int8_subgroup with
// subgroups, in matvec_int8_workgroup without.
// Why: a packed int8 dot product takes one instruction, floats a conversion and a product per
// weight. Quantising again in each workgroup saves a launch.
// norm: sums x^2 while rounding and scales the products when they are stored; a common factor does
// not change the codes.
// vec4: k, x_offset and x_stride are multiples of 4, and the range of x is a multiple of 16 bytes.
#import dequant_*
#import rounding

override WG: u32 = 64;
override ROWS: u32 = 4;
override M: u32 = 1;
override PASSES: u32 = 1;
// Turns whose weights are loaded at once, with subgroups.
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
fn load_x(start: u32, c: u32) -> vec4<f32> {
    let i = start + c;
    return vec4(x[i], x[i + 1u], x[i + 2u], x[i + 3u]);
}
#endif

#import matvec_scale

#import fusion_x
#import fusion_rows
#import matvec_sum
#import fusion_fetch

#ifdef subgroup
#import matvec_int8_subgroup
#else
#import matvec_int8_workgroup
#endif
