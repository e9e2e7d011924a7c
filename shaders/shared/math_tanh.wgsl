// tanh(x). Why: the built-in may overflow for large x and cancel for small x. Small: a continued
// fraction of five terms; else 1 - 2 / (e^2|x| + 1), which is 1 from |x| = 15.
fn tanh_f32(x: f32) -> f32 {
    let z = min(x * x, 1.0);
    let small = x * (10395.0 + z * (1260.0 + z * 21.0)) / (10395.0 + z * (4725.0 + z * (210.0 + z)));
    // select instead of min and clamp, which may lose NaN.
    let size = 1.0 - 2.0 / (exp(2.0 * select(abs(x), 15.0, abs(x) > 15.0)) + 1.0);
    return select(select(size, -size, x < 0.0), small, abs(x) < 0.6);
}
