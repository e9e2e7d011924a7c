// erf(x) and erfc(x) = 1 - erf(x). Below 1: the Maclaurin series. From 1: e^-x^2 times a polynomial
// in t = 1 / (1 + x / 2), fitted to e^x^2 erfc(x) on 0.9 to 4.6 with a relative error below 4e-8.
// Why: absolute errors stay near one rounding, and erfc keeps its digits for GELU of negative x.
fn erf_small(x: f32) -> f32 {
    let z = x * x;
    var s = 1.3122533e-8;
    s = -1.4503852e-7 + z * s;
    s = 1.4589169e-6 + z * s;
    s = -1.3227513e-5 + z * s;
    s = 1.0683761e-4 + z * s;
    s = -7.5757576e-4 + z * s;
    s = 4.6296296e-3 + z * s;
    s = -2.3809524e-2 + z * s;
    s = 0.1 + z * s;
    s = -0.33333333 + z * s;
    return 1.1283792 * (x + x * z * s);
}

// For x >= 1.
fn erfc_large(x: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.5 * x);
    var p = 0.08936555;
    p = -0.36837858 + t * p;
    p = 0.41405964 + t * p;
    p = 0.015121133 + t * p;
    p = 0.29186271 + t * p;
    p = 0.27528985 + t * p;
    p = 0.28252738 + t * p;
    return exp(-x * x) * (t * p);
}

// select instead of clamp, so that NaN passes through.
fn erf_f32(x: f32) -> f32 {
    let size = abs(x);
    let large = 1.0 - erfc_large(select(select(size, 6.0, size > 6.0), 1.0, size < 1.0));
    return select(select(large, -large, x < 0.0), erf_small(clamp(x, -1.0, 1.0)), size < 1.0);
}

fn erfc_f32(x: f32) -> f32 {
    let large = erfc_large(select(abs(x), 1.0, abs(x) < 1.0));
    return select(select(large, 2.0 - large, x < 0.0), 1.0 - erf_small(clamp(x, -1.0, 1.0)), abs(x) < 1.0);
}
