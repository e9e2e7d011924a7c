// Values of a word's four low nibbles in IQ4_NL and IQ4_XS: sixteen non-uniform values.
// Why selects: a dynamically indexed array may be placed in slow memory; these are four words in
// registers.
fn iq4_codes(word: u32) -> vec4<i32> {
    let places = unpack4xU8(word & 0x0f0f0f0fu);
    let upper = (places & vec4(4u)) != vec4(0u);
    // -127 -104 -83 -65, -49 -35 -22 -10; 1 13 25 38, 53 69 89 113
    let below = select(vec4(0xbfad9881u), vec4(0xf6eaddcfu), upper);
    let above = select(vec4(0x26190d01u), vec4(0x71594535u), upper);
    let four = select(below, above, places > vec4(7u));
    // Moves the selected byte to the top, and back with sign extension.
    let shift = (vec4(3u) - (places & vec4(3u))) << vec4(3u);
    return bitcast<vec4<i32>>(four << shift) >> vec4(24u);
}

fn iq4_values(word: u32) -> vec4<f32> {
    return vec4<f32>(iq4_codes(word));
}
