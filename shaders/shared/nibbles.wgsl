// The low nibbles n of the four bytes of a word: (n0, 256 n1, n2, 256 n3), to be multiplied by
// NIBBLE_SCALE. Exact.
// Why: a nibble or-ed into the mantissa of 2^23 needs one logic operation and one subtraction;
// conversion from integers runs at a quarter of that rate or less on current GPUs.
const NIBBLE_SCALE: vec4<f32> = vec4<f32>(1.0, 0.00390625, 1.0, 0.00390625);

fn nibbles(word: u32) -> vec4<f32> {
    let upper = word >> 16u;
    let bits = vec4(word & 0xfu, word & 0xf00u, upper & 0xfu, upper & 0xf00u) | vec4(0x4b000000u);
    return bitcast<vec4<f32>>(bits) - vec4(8388608.0);
}
