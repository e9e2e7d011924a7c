// The low nibbles of a word's four bytes, as floats.
// Why conversions: inserting nibbles into the mantissa of 2^23 and subtracting was 10% slower on an
// H200, though conversions run there at a quarter to an eighth of the rate of additions.
fn nibbles(word: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xU8(word & 0x0f0f0f0fu));
}
