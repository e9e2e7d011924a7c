// sin and cos of x = high + low for |x| up to about 10^5: x = q pi/2 + r (Cody-Waite reduction),
// then Taylor series in r.
// Why: WGSL promises accuracy only within pi, and drivers lose digits beyond it; positions reach
// thousands of radians. pi/2 is split into short parts, so that q times the first two is exact.
struct SinCos {
    sin: f32,
    cos: f32,
}

fn sin_cos(high: f32, low: f32) -> SinCos {
    let q = round(high * 0.63661977);
    let r = (((high - q * 1.5703125) - q * 4.837512969970703e-4) - q * 7.549533620476723e-8)
        - q * 2.563344e-12 + low;
    let z = r * r;
    let s = r + r * z * (-0.16666667 + z * (8.3333333e-3 + z * (-1.9841270e-4 + z * 2.7557319e-6)));
    let c = 1.0 + z * (-0.5 + z * (4.1666667e-2 + z * (-1.3888889e-3 + z * (2.4801587e-5 - z * 2.7557319e-7))));
    let quadrant = i32(q) & 3;
    let swapped = (quadrant & 1) == 1;
    let sine = select(s, c, swapped);
    let cosine = select(c, s, swapped);
    return SinCos(
        select(sine, -sine, quadrant > 1),
        select(cosine, -cosine, quadrant == 1 || quadrant == 2),
    );
}
