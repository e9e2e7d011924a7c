// norm_rms: RMS norm: y[r, c] = x[r, c] / sqrt(mean over c of x[r, c]^2 + eps) * weight[c]. x
// [rows, cols] with a row stride, weight [cols], y [rows, cols].
// Work split: that of row_passes: the sum of squares, the store.
// Why: see row_passes.
override WG: u32 = 128;

const PASSES: u32 = 1u;
const FIRST: f32 = 0.0;

struct Params {
    rows: u32,
    cols: u32,
    x_offset: u32,
    x_stride: u32,
    w_offset: u32,
    y_offset: u32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

fn first(value: f32, v: f32) -> f32 {
    return value + v * v;
}

fn first_total(value: f32, place: Place) -> f32 {
    let mean = block_sum(value, place) / f32(params.cols);
    return 1.0 / sqrt(mean + params.eps);
}

fn second(v: f32, factor: f32) -> f32 {
    return 0.0;
}

fn second_total(value: f32, place: Place) -> f32 {
    return 0.0;
}

fn operands(c: u32) -> f32 {
    return weight[params.w_offset + c];
}

fn output(v: f32, gain: f32, factor: f32, unused: f32) -> f32 {
    return v * factor * gain;
}

#import row_passes
