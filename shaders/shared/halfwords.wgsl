// Unaligned loads for blocks that start at any half-word: 16 or 32 bits at half-word index h. Needs
// weight_word(i), 32-bit word i of the weights. Reads only words that hold wanted bits.
fn weight_u16(h: u32) -> u32 {
    return (weight_word(h >> 1u) >> ((h & 1u) * 16u)) & 0xffffu;
}

fn weight_u32(h: u32) -> u32 {
    let low = weight_word(h >> 1u);
    if ((h & 1u) == 0u) {
        return low;
    }
    return (low >> 16u) | (weight_word((h >> 1u) + 1u) << 16u);
}

// 64 bits at h.
fn weight_u64(h: u32) -> vec2<u32> {
    let i = h >> 1u;
    let odd = h & 1u;
    let a = weight_word(i);
    let b = weight_word(i + 1u);
    // If h is even the third word may be outside the buffer, so the second is read again.
    let c = weight_word(i + 1u + odd);
    return select(vec2(a, b), vec2((a >> 16u) | (b << 16u), (b >> 16u) | (c << 16u)), odd == 1u);
}
