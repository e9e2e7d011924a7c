// The low nibbles of the four bytes of a word, as floats.
// Why conversions: nibbles or-ed into the mantissa of 2^23 and freed by a subtraction were 10% slower on an
// H200, though each conversion there costs a quarter to an eighth of an addition.
fn nibbles(word: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xU8(word & 0x0f0f0f0fu));
}
