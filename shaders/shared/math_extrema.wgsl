// Maximum and minimum of floats, NaN if one of both is NaN, as in IEEE 754-2019 and NumPy. WGSL's max
// and min may return the other.
// Why bits and not b == b: NVIDIA's Vulkan compiler takes comparisons of floats in a row of selects for
// a clamp, which drops NaN.
var<private> nan_bits: u32 = 0x7fc00000u;

fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn max_f32(a: f32, b: f32) -> f32 {
    return select(a, b, b > a || is_nan(b));
}

fn min_f32(a: f32, b: f32) -> f32 {
    return select(a, b, b < a || is_nan(b));
}

fn nan_if(is_nan: bool, x: f32) -> f32 {
    return select(x, bitcast<f32>(nan_bits), is_nan);
}
