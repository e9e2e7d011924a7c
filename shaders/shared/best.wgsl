// The best of numbers with their places: the largest, of equals the first; NaN is below every number. Floats are
// compared as integers in an order that has every number once.
struct Best {
    key: u32,
    index: u32,
}

// Bits of a float to an integer of the same order; NaN to 0, -0 and 0 to one value.
fn ordered(bits: u32) -> u32 {
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return 0u;
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
