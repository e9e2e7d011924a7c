// f32 to f16 and bf16, and back: a 16-bit value is its bits, in the low half of a word. Rounds to
// nearest, ties to even; overflow gives infinity, NaN stays NaN.
// Why in integers: pack2x16float may round either way, and enable f16 is optional.
fn f16_of(x: f32) -> u32 {
    let word = bitcast<u32>(x);
    let size = word & 0x7fffffffu;
    // Normal, from 2^-14: 13 bits are rounded away, and a carry increments the exponent.
    let normal = (size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u;
    // Subnormal: multiples of 2^-24, from a mantissa with its leading bit.
    let mantissa = (size & 0x7fffffu) | 0x800000u;
    let shift = clamp(126u - min(size >> 23u, 126u), 1u, 25u);
    let kept = mantissa >> shift;
    let rest = (mantissa & ((1u << shift) - 1u)) + (kept & 1u);
    let small = kept + select(0u, 1u, rest > (1u << (shift - 1u)));
    let finite = select(small, normal, size >= 0x38800000u);
    let infinite = select(0x7c00u, 0x7e00u, size > 0x7f800000u);
    return ((word >> 16u) & 0x8000u) | select(finite, infinite, size >= 0x477ff000u);
}

fn bf16_of(x: f32) -> u32 {
    let word = bitcast<u32>(x);
    let rounded = (word + 0x7fffu + ((word >> 16u) & 1u)) >> 16u;
    return select(rounded, (word >> 16u) | 0x40u, (word & 0x7fffffffu) > 0x7f800000u);
}

// Only .x: one software driver returns 0 for the second value.
fn f32_of_f16(bits: u32) -> f32 {
    return unpack2x16float(bits).x;
}

fn f32_of_bf16(bits: u32) -> f32 {
    return bitcast<f32>(bits << 16u);
}
