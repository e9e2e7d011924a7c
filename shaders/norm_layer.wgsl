// norm_layer: layer norm: y[r, c] = (x[r, c] - mean) / sqrt(variance + eps) * weight[c] + bias[c],
// mean and variance of row r. x [rows, cols] with a row stride, weight and bias [cols], y
// [rows, cols].
// Work split: that of row_passes: the mean, the variance, the store.
// Why: variance from differences avoids cancellation with a large mean.
override WG: u32 = 128;

const PASSES: u32 = 2u;
const FIRST: f32 = 0.0;

struct Params {
    rows: u32,
    cols: u32,
    x_offset: u32,
    x_stride: u32,
    w_offset: u32,
    b_offset: u32,
    y_offset: u32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

fn first(value: f32, v: f32) -> f32 {
    return value + v;
}

fn first_total(value: f32, place: Place) -> f32 {
    return block_sum(value, place) / f32(params.cols);
}

fn second(v: f32, mean: f32) -> f32 {
    return (v - mean) * (v - mean);
}

fn second_total(value: f32, place: Place) -> f32 {
    let variance = block_sum(value, place) / f32(params.cols);
    return 1.0 / sqrt(variance + params.eps);
}

fn operands(c: u32) -> vec2<f32> {
    return vec2(weight[params.w_offset + c], bias[params.b_offset + c]);
}

fn output(v: f32, operands: vec2<f32>, mean: f32, factor: f32) -> f32 {
    return (v - mean) * factor * operands.x + operands.y;
}

#import row_passes
