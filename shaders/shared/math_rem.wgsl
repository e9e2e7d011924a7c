// Remainder of floats: a - b trunc(a / b), with the sign of a; a where |b| is infinite.
// Why: a / b may round up to the next integer, so one step of b puts the result back into range.
fn rem_f32(a: f32, b: f32) -> f32 {
    let x = abs(a);
    let d = abs(b);
    var r = fma(-trunc(x / d), d, x);
    r = select(r, r + d, r < 0.0);
    r = select(r, r - d, r >= d);
    r = select(r, x, x < d);
    return select(r, -r, (bitcast<u32>(a) >> 31u) == 1u);
}
