// Four quants of 5 bits: the low nibbles of the bytes of a word, and the lowest four bits of another.
fn fifth_codes(word: u32, high: u32) -> u32 {
    // Four copies of the bits, seven places apart: bit i of copy i lies lowest in byte i.
    let bits = ((high & 15u) * 0x00204081u) & 0x01010101u;
    return (word & 0x0f0f0f0fu) | (bits << 4u);
}

// The same as floats.
fn fifths(word: u32, high: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xU8(fifth_codes(word, high)));
}
