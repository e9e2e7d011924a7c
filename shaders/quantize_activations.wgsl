// quantize_activations: activation quantisation (kin to llama.cpp's quantize_q8_1): rows of x rounded to 8
// bits in blocks of 32 columns, as base::ComputeMode::Int8 defines. x [rows, k] with a row stride,
// k a multiple of 32. A row of y is words of four codes, ordered as units of the weight's format
// (dequant_*) use them (prequant_layout); then each block's scale, k / 32 floats as bits, padded to a
// multiple of four; then as many floats: each block's sum of codes times its scale.
// Work split: eight neighbouring threads per block with subgroups (quantize_quads), else one
// (quantize_blocks). With a norm, one workgroup per row whose threads take blocks in turn; else
// workgroups take blocks of all rows. Folded over grid x and y.
// Why: every workgroup of matvec_prequant_* and matvec_mma_* reads y and quantises nothing itself.
// norm: scales are divided by the root mean square of x; the codes do not depend on it.
// planes: plane layout with per-lane factors; for units of two groups of four neighbours.
// tiles: eight interleaved rows for matvec_mma_*. y has room for a multiple of eight rows; k is a
// multiple of 64; not with planes.
// vec4: x_offset and x_stride are multiples of 4, and the range of x is a multiple of 16 bytes.
#import rounding
#import prequant_layout

override WG: u32 = 256;
// Of the format: groups per unit, parts per group, and how many of those are neighbours.
override GROUPS: u32 = 1;
override RUN: u32 = 2;
override CHUNK: u32 = 1;
// Whether the two loads of a unit are apart.
override APART: u32 = 0;

const OWN_READS: u32 = 1u;
const SUMS: u32 = 1u;
const TEAMS: u32 = 1u;
const SUB: u32 = 4u;
const PARTIAL: bool = false;

struct Params {
    rows: u32,
    k: u32,
    x_offset: u32,
    x_stride: u32,
#import fusion_params
}

override ATTACHED: u32 = 0;

@group(0) @binding(0) var<uniform> params: Params;
#ifdef vec4
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
#else
@group(0) @binding(1) var<storage, read> x: array<f32>;
#endif
@group(0) @binding(1u + OWN_READS + ATTACHED) var<storage, read_write> y: array<u32>;

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

#import fusion_x
#import matvec_sum

// One word per 32 columns, padded to a multiple of four.
fn padded() -> u32 {
    return (params.k + 127u) / 128u * 4u;
}

#ifdef planes
fn code_words() -> u32 {
    return plane_words(params.k);
}

fn place_of(block: u32, j: u32) -> u32 {
    return plane_place(block, j);
}

// Stores the factors of half a block.
fn put_half(words: u32, block: u32, half: u32, d: f32, sum: i32) {
    let at = words + plane_lane(params.k, block, half);
    if (block % 2u == 0u) {
        y[at] = bitcast<u32>(d);
    } else {
        y[at + 1u] = bitcast<u32>(d / 16.0);
        y[at + 2u] = plane_begin(sum);
    }
}

// Stores a block's sum of codes times its scale.
fn put_sum(words: u32, block: u32, sum: f32) {
    y[words + plane_lane(params.k, block, block % 2u) + 3u] = bitcast<u32>(sum);
}

// Scales what put_half and put_sum stored for a block.
fn scale_f16(words: u32, block: u32, scale: f32) {
    let sum = words + plane_lane(params.k, block, block % 2u) + 3u;
    y[sum] = bitcast<u32>(bitcast<f32>(y[sum]) * scale);
    for (var half = 0u; half < 2u; half++) {
        let at = words + plane_lane(params.k, block, half) + block % 2u;
        y[at] = bitcast<u32>(bitcast<f32>(y[at]) * scale);
    }
}
#else
fn code_words() -> u32 {
    return params.k / 4u;
}

fn place_of(block: u32, j: u32) -> u32 {
    if (APART != 0u) {
        return apart_place(block, j);
    }
    return code_place(block, j, GROUPS, RUN, CHUNK);
}

fn put_half(words: u32, block: u32, half: u32, d: f32, sum: i32) {
}

fn put_sum(words: u32, block: u32, sum: f32) {
}

fn scale_f16(words: u32, block: u32, scale: f32) {
}
#endif

fn row_words() -> u32 {
    return code_words() + 2u * padded();
}

#import quant_row_layout

#ifdef subgroup
#import quantize_quads
#else
#import quantize_blocks
#endif
