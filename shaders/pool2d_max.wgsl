// pool2d_max: the largest x; -inf where the window is wholly outside. One of the operations of pool2d.wgsl.
// WGSL has no literal for an infinity and no constant may be one, so its bits are a variable.
var<private> infinity: u32 = 0xff800000u;

fn identity() -> f32 {
    return bitcast<f32>(infinity);
}

fn combine(a: f32, b: f32) -> f32 {
    return max(a, b);
}

fn finish(value: f32, count: u32) -> f32 {
    return value;
}
