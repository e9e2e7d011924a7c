// Maximum and minimum of floats, NaN if one of both is NaN, as in IEEE 754-2019 and NumPy. WGSL's max
// and min may return the other.
// Why == and not !=: naga writes != of floats as a comparison that is false for NaN.
var<private> nan_bits: u32 = 0x7fc00000u;

fn max_f32(a: f32, b: f32) -> f32 {
    return select(a, b, b > a || !(b == b));
}

fn min_f32(a: f32, b: f32) -> f32 {
    return select(a, b, b < a || !(b == b));
}

fn nan_if(is_nan: bool, x: f32) -> f32 {
    return select(x, bitcast<f32>(nan_bits), is_nan);
}
