// pool2d_max: the largest x, NaN if one is NaN; -inf if the window is entirely outside. One of the operations
// of pool2d.wgsl. The bits are in a variable: WGSL has no infinity literal, and no constant may be infinite.
#import math_extrema

var<private> infinity: u32 = 0xff800000u;

fn identity() -> f32 {
    return bitcast<f32>(infinity);
}

fn combine(a: f32, b: f32) -> f32 {
    return max_f32(a, b);
}

fn finish(value: f32, count: u32) -> f32 {
    return value;
}
