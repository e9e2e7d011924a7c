// softmax: y[r, c] = exp(x[r, c] - max) / sum over c of exp(x[r, c] - max), max of row r. x
// [rows, cols] with a row stride, y [rows, cols]. A row of only -inf gives zeros.
// Work split: that of row_passes: the maximum, the sum, the store.
// Why: the maximum starts at the lowest finite number, so -inf - max is -inf and never NaN.
override WG: u32 = 128;

const PASSES: u32 = 2u;
const FIRST: f32 = -3.4028234e38;

struct Params {
    rows: u32,
    cols: u32,
    x_offset: u32,
    x_stride: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

fn first(value: f32, v: f32) -> f32 {
    return max(value, v);
}

fn first_total(value: f32, place: Place) -> f32 {
    return block_max(value, place);
}

fn second(v: f32, largest: f32) -> f32 {
    return exp(v - largest);
}

fn second_total(value: f32, place: Place) -> f32 {
    let total = block_sum(value, place);
    // The sum is at least 1, or 0 if every element is -inf.
    return select(1.0 / total, 0.0, total == 0.0);
}

fn operands(c: u32) -> f32 {
    return 0.0;
}

fn output(v: f32, operands: f32, largest: f32, factor: f32) -> f32 {
    return exp(v - largest) * factor;
}

#import row_passes
