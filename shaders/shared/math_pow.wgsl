// a^b by the rules of IEEE 754: 1 for b = 0 or a = 1, the sign of odd integer powers of a negative
// base, NaN for its other powers.
// Why: pow of a negative base is undefined in WGSL, so the magnitude is raised and the sign applied
// afterwards.
fn pow_f32(a: f32, b: f32) -> f32 {
    if (b == 0.0 || a == 1.0) {
        return 1.0;
    }
    let size = abs(a);
    var result = pow(size, b);
    // Drivers compute 2^(b log2 a), which needs care for 0, 1 and infinities.
    if (size == 0.0) {
        result = select(1.0 / size, 0.0, b > 0.0);
    } else if (size == 1.0) {
        result = 1.0;
    }
    let negative = (bitcast<u32>(a) >> 31u) == 1u;
    // Floats from 2^24 on are even integers.
    let whole = trunc(b) == b;
    let odd = whole && abs(b) < 16777216.0 && abs(b) - 2.0 * floor(abs(b) * 0.5) == 1.0;
    if (negative && size != 0.0 && !whole) {
        return bitcast<f32>(0x7fc00000u | (bitcast<u32>(b) & 1u));
    }
    return select(result, -result, negative && odd);
}
