// f16 to f32: the two f16 of a 32-bit word, exactly.
// Why: f16 types are optional, and one software driver returns 0 for the second value of
// unpack2x16float, so each is moved to the first.
fn f16_low(word: u32) -> f32 {
    return unpack2x16float(word & 0xffffu).x;
}

fn f16_high(word: u32) -> f32 {
    return unpack2x16float(word >> 16u).x;
}
