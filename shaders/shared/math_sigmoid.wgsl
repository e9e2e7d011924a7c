// sigmoid(x) = 1 / (1 + e^-x). Why: e^-|x| cannot overflow, and small results keep their digits.
fn sigmoid(x: f32) -> f32 {
    let e = exp(-abs(x));
    return select(e, 1.0, x >= 0.0) / (1.0 + e);
}
