// Remainder of floats: a - b trunc(a / b), with the sign of a; a if |b| is infinite. Exact if the
// quotient is below 2^24.
// Why: a / b may round up to the next integer, so one step of b corrects the range. The product is
// subtracted in exact 12-bit parts, since not every target fuses fma.
fn rem_f32(a: f32, b: f32) -> f32 {
    let x = abs(a);
    let d = abs(b);
    let q = trunc(x / d);
    let q_high = floor(q * 0.000244140625) * 4096.0;
    let q_low = q - q_high;
    let d_high = bitcast<f32>(bitcast<u32>(d) & 0xfffff000u);
    let d_low = d - d_high;
    var r = (((x - q_high * d_high) - q_low * d_high) - q_high * d_low) - q_low * d_low;
    r = select(r, r + d, r < 0.0);
    r = select(r, r - d, r >= d);
    r = select(r, x, x < d);
    return select(r, -r, (bitcast<u32>(a) >> 31u) == 1u);
}
