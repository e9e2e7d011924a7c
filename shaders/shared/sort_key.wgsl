// Maps the bits of an element to an integer by which it is sorted; `order` is that of argsort. NaN
// ranks above every number, and -0 equals 0.
fn sort_key(bits: u32, order: u32) -> u32 {
    var key = bits;
    if ((order & 2u) != 0u) {
        key = bits ^ 0x80000000u;
    } else if ((order & 4u) == 0u) {
        let magnitude = bits & 0x7fffffffu;
        key = select(bits | 0x80000000u, ~bits, bits != magnitude);
        key = select(key, 0x80000000u, magnitude == 0u);
        key = select(key, 0xffffffffu, magnitude > 0x7f800000u);
    }
    return select(key, ~key, (order & 1u) != 0u);
}
