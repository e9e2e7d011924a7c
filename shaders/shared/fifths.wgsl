// Four 5-bit quants: the low nibbles of a word's bytes, with fifth bits from the low four bits of
// `high`.
fn fifth_codes(word: u32, high: u32) -> u32 {
    // Four copies of the bits, seven positions apart: bit i of copy i is the lowest of byte i.
    let bits = ((high & 15u) * 0x00204081u) & 0x01010101u;
    return (word & 0x0f0f0f0fu) | (bits << 4u);
}

// The same as floats.
fn fifths(word: u32, high: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xU8(fifth_codes(word, high)));
}
