// Rounding to 8 bits, as base::ComputeMode::Int8 defines: per 32 values d = largest / 127, and each
// value becomes the nearest integer multiple of d.
fn most_of(v: vec4<f32>) -> u32 {
    // As bits, infinities and NaN compare above every number.
    let bits = bitcast<vec4<u32>>(v) & vec4(0x7fffffffu);
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

// 127 / largest, and d; `most` is the largest magnitude as bits.
fn rounding(most: u32) -> vec2<f32> {
    let largest = bitcast<f32>(most);
    if (most >= 0x7f800000u) {
        return vec2(0.0, bitcast<f32>(most | 0x7fc00000u));
    }
    return select(vec2(0.0), vec2(127.0 / largest, largest / 127.0), largest > 1e-30);
}

fn rounded4(v: vec4<f32>, by: f32) -> u32 {
    return pack4xI8(vec4<i32>(round(v * by)));
}
