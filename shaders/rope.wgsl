// rope_*: rotary position embedding: each pair (a, b) of the first rot_dim elements of a head is
// rotated by t = positions[token] * freqs[j]: (a cos t - b sin t, a sin t + b cos t); the rest is copied. x
// [tokens, heads, head_dim] strided, positions [tokens] i32, freqs [rot_dim / 2], y
// [tokens, heads, head_dim].
// Work split: one thread per pair or two copied elements, workgroups of 64 folded over grid x and
// y.
// Why: the angle is a sum of two floats; a single float loses 10^-3 radians at position ten
// thousand.
#import rope_*
#import math_trig

const WG: u32 = 64u;

struct Params {
    tokens: u32,
    heads: u32,
    head_dim: u32,
    rot_dim: u32,
    x_offset: u32,
    x_token_stride: u32,
    x_head_stride: u32,
    pos_offset: u32,
    freq_offset: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> positions: array<i32>;
@group(0) @binding(3) var<storage, read> freqs: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

// position * freq as a rounded product and its error, from exact products of 12-bit parts (Dekker;
// fma is not fused on every target). Exact for positions below 2^24.
fn product(position: i32, freq: f32) -> vec2<f32> {
    let upper = position / 4096 * 4096;
    let p_high = f32(upper);
    let p_low = f32(position - upper);
    let f_high = bitcast<f32>(bitcast<u32>(freq) & 0xfffff000u);
    let f_low = freq - f_high;
    let rounded = f32(position) * freq;
    let error = (((p_high * f_high - rounded) + p_high * f_low) + p_low * f_high) + p_low * f_low;
    return vec2(rounded, error);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let pairs = (params.head_dim + 1u) / 2u;
    let e = (wid.y * grid.x + wid.x) * WG + lid;
    if (e >= params.tokens * params.heads * pairs) {
        return;
    }
    let j = e % pairs;
    let head = (e / pairs) % params.heads;
    let token = e / pairs / params.heads;
    let source = params.x_offset + token * params.x_token_stride + head * params.x_head_stride;
    let to = params.y_offset + (token * params.heads + head) * params.head_dim;
    if (j < params.rot_dim / 2u) {
        let places = pair(j, params.rot_dim);
        let angle = product(positions[params.pos_offset + token], freqs[params.freq_offset + j]);
        let turn = sin_cos(angle.x, angle.y);
        let a = x[source + places.x];
        let b = x[source + places.y];
        y[to + places.x] = a * turn.cos - b * turn.sin;
        y[to + places.y] = a * turn.sin + b * turn.cos;
    } else {
        y[to + 2u * j] = x[source + 2u * j];
        if (2u * j + 1u < params.head_dim) {
            y[to + 2u * j + 1u] = x[source + 2u * j + 1u];
        }
    }
}
