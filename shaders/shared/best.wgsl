// Argmax of (value, index) pairs: the largest, the first of equals; NaN ranks above every number.
// Floats are compared as integers in a total order.
struct Best {
    key: u32,
    index: u32,
}

// Maps the bits of a float to an integer of the same order: NaN to the largest, -0 and 0 to one
// value.
fn ordered(bits: u32) -> u32 {
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return 0xffffffffu;
    }
    if (magnitude == 0u) {
        return 0x80000000u;
    }
    return select(bits | 0x80000000u, ~bits, bits != magnitude);
}

fn better(a: Best, b: Best) -> Best {
    if (b.key > a.key || (b.key == a.key && b.index < a.index)) {
        return b;
    }
    return a;
}

// The output word: the index, or 0 without columns. As a token (sampling::NoToken): all bits set if the
// best is minus infinity or there is none; the index with the highest bit set if it is plus
// infinity or NaN.
fn word_of(best: Best) -> u32 {
#ifdef token
    if (best.key <= 0x007fffffu) {
        return 0xffffffffu;
    }
    return select(best.index, best.index | 0x80000000u, best.key >= 0xff800000u);
#else
    return select(best.index, 0u, best.index == 0xffffffffu);
#endif
}
