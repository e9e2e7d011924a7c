// Scales and minima of sub-blocks 2 g and 2 g + 1 of a Q4_K or Q5_K block, from its first 16 bytes:
// f16 d and dmin, then 8 scales and 8 minima of 6 bits. Returns d * s twice, then dmin * m twice.
// Needs half.
fn pair_scales(header: vec4<u32>, g: u32) -> vec4<f32> {
    let bytes = header.yzw >> vec3((g & 1u) * 16u);
    // Sub-blocks 0 to 3 have whole bytes; 4 to 7 a nibble and the two bits that those leave unused.
    let low = bytes.xy & vec2(0x3f3fu);
    let high = (vec2(bytes.z, bytes.z >> 4u) & vec2(0x0f0fu)) | ((bytes.xy >> vec2(2u)) & vec2(0x3030u));
    let pair = select(low, high, g > 1u);
    let values = vec4<f32>(vec4(pair.x & 0xffu, pair.x >> 8u, pair.y & 0xffu, pair.y >> 8u));
    let d = f16_low(header.x);
    let dmin = f16_high(header.x);
    return values * vec4(d, d, dmin, dmin);
}
