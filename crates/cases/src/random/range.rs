//! Interval analysis of the values of a node: bounds, the largest deviation of a device from the
//! reference, and whether the values are exact.
//!
//! Multiples of `2^-grid` below `2^(24 - grid)` pass through additions, products and sums without
//! rounding, in any order and on any device. Discontinuous operations (comparisons, rounding,
//! conversions to integers, argmax) are applied only to such values. All others carry an error
//! bound, and an operation that would make it useless is not generated.

use warploom_core::base::DType;
use warploom_core::ir::{BinaryOp, PoolKind, ReduceOp, UnaryOp};

/// The unit in the last place of an `f32` near 1.
const EPS: f64 = f32::EPSILON as f64;
/// Bound on the magnitude of values.
const MOST: f64 = 3000.0;
/// Bound on errors, relative to the largest magnitude or, if it is below 1, to 1.
const USEFUL: f64 = 5e-4;

/// The range of a node's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub(super) low: f64,
    pub(super) high: f64,
    /// Largest deviation of a correct result from the reference.
    pub(super) error: f64,
    /// `g` if every value is an exact multiple of `2^-g`.
    pub(super) grid: Option<i32>,
}

impl Range {
    /// Returns the range of exact values on a grid.
    pub(super) fn exact(low: f64, high: f64, grid: i32) -> Range {
        Range { low, high, error: 0.0, grid: Some(grid) }
    }

    /// Returns the range of values that equal the reference's but are on no grid.
    pub(super) fn given(low: f64, high: f64) -> Range {
        Range { low, high, error: 0.0, grid: None }
    }

    pub(super) fn is_exact(&self) -> bool {
        self.grid.is_some()
    }

    /// Returns the largest magnitude.
    pub(super) fn most(&self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    /// Returns the range of a result of `f32` arithmetic with this error, or `None` if the values
    /// or the error are too large.
    pub(super) fn rounded(low: f64, high: f64, error: f64) -> Option<Range> {
        // The bounds are those of the reference, whose own roundings are within one ulp.
        let most = low.abs().max(high.abs());
        let fine = most <= MOST && error <= USEFUL * most.max(1.0);
        let slack = EPS * most;
        fine.then_some(Range { low: low - slack, high: high + slack, error, grid: None })
    }

    /// Returns the union of both ranges.
    pub(super) fn union(self, other: Range) -> Range {
        Range {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
            error: self.error.max(other.error),
            grid: self.grid.zip(other.grid).map(|(a, b)| a.max(b)),
        }
    }

    /// Returns the range after rounding to a 2-byte type; an inexact value may round to either
    /// neighbour.
    pub(super) fn halved(self, dtype: DType) -> Range {
        let bits = if dtype == DType::F16 { 11 } else { 8 };
        let most = self.most();
        if self.grid.is_some_and(|grid| most * 2f64.powi(grid) <= 2f64.powi(bits) && grid <= 14) {
            return self;
        }
        let place = most * 2f64.powi(1 - bits) + 2f64.powi(-24);
        let error = if self.error == 0.0 { 0.0 } else { self.error + place };
        Range { low: self.low - place, high: self.high + place, error, grid: None }
    }

    /// Returns an exact range, if the bounds fit in 24 bits of this grid.
    fn on_grid(low: f64, high: f64, grid: Option<i32>) -> Option<Range> {
        let grid = grid?;
        let fits = low.abs().max(high.abs()) * 2f64.powi(grid) <= 16_777_216.0 && grid <= 16;
        fits.then(|| Range::exact(low, high, grid))
    }
}

/// Returns the range of `op(x)` for floats, or `None` if it is not bounded well enough.
pub(super) fn unary(op: UnaryOp, x: Range) -> Option<Range> {
    use UnaryOp as U;
    let Range { low, high, error, grid } = x;
    let (size, e) = (x.most(), error);
    let monotone = |f: fn(f64) -> f64, slope: f64, own: f64| {
        let (a, b) = (f(low), f(high));
        Range::rounded(a.min(b), a.max(b), slope * e + own * (1.0 + a.abs().max(b.abs())))
    };
    match op {
        U::Neg => Some(Range { low: -high, high: -low, ..x }),
        U::Abs | U::Relu => {
            let least = if low <= 0.0 && high >= 0.0 { 0.0 } else { low.abs().min(high.abs()) };
            let (least, most) = match op {
                U::Abs => (least, size),
                _ => (low.max(0.0), high.max(0.0)),
            };
            Some(Range { low: least, high: most, error, grid })
        }
        U::Floor | U::Ceil | U::Round => {
            grid?;
            Some(Range::exact(low.floor(), high.ceil(), 0))
        }
        U::Exp => {
            monotone(f64::exp, high.min(9.0).exp(), 1e-6 * (1.0 + size)).filter(|_| high < 6.0)
        }
        U::Log => positive(low - e, 0.05).and_then(|d| monotone(f64::ln, 1.0 / d, 2e-6)),
        U::Sqrt => positive(low - e, 0.01).and_then(|d| monotone(f64::sqrt, 0.5 / d.sqrt(), 1e-6)),
        U::Rsqrt => positive(low - e, 0.04)
            .and_then(|d| monotone(|x| 1.0 / x.sqrt(), 0.5 * d.powf(-1.5), 1e-6)),
        U::Reciprocal => {
            let least = if low > 0.0 { low } else { -high };
            positive(least - e, 0.1).and_then(|d| monotone(|x| 1.0 / x, 1.0 / (d * d), 1e-6))
        }
        U::Sin | U::Cos => {
            if size > 12.0 {
                return None;
            }
            Range::rounded(-1.0, 1.0, e + 6e-6)
        }
        U::Tanh => monotone(f64::tanh, 1.0, 1e-6),
        U::Erf => Range::rounded(-1.0, 1.0, 1.13 * e + 2e-6),
        U::Sigmoid => monotone(|x| 1.0 / (1.0 + (-x).exp()), 0.25, 1e-6),
        U::Silu | U::Gelu | U::GeluTanh => {
            let least = if low < 0.0 { -0.3 } else { 0.0 };
            Range::rounded(least, high.max(0.0), 1.15 * e + 4e-6 + 1.2e-5 * size)
        }
        U::Not => None,
    }
}

fn positive(least: f64, enough: f64) -> Option<f64> {
    (least >= enough).then_some(least)
}

/// Returns the range of `op(a, b)` for floats, or `None` if it is not bounded well enough. `same`
/// is set if both operands are the same node.
pub(super) fn binary(op: BinaryOp, a: Range, b: Range, same: bool) -> Option<Range> {
    use BinaryOp as B;
    let corners = |f: fn(f64, f64) -> f64| {
        let all = [f(a.low, b.low), f(a.low, b.high), f(a.high, b.low), f(a.high, b.high)];
        let low = all.into_iter().fold(f64::INFINITY, f64::min);
        (low, all.into_iter().fold(f64::NEG_INFINITY, f64::max))
    };
    let both = a.grid.zip(b.grid);
    match op {
        B::Add | B::Sub => {
            let (low, high) = corners(if op == B::Add { |x, y| x + y } else { |x, y| x - y });
            let grid = both.map(|(x, y)| x.max(y));
            let error = a.error + b.error + EPS * low.abs().max(high.abs());
            Range::on_grid(low, high, grid).or_else(|| Range::rounded(low, high, error))
        }
        B::Mul => {
            let (mut low, high) = corners(|x, y| x * y);
            if same {
                low = if a.low <= 0.0 && a.high >= 0.0 { 0.0 } else { low.max(0.0) };
            }
            let error = a.most() * b.error + b.most() * a.error + a.error * b.error;
            let error = error + EPS * low.abs().max(high.abs());
            let grid = both.map(|(x, y)| x + y);
            Range::on_grid(low, high, grid).or_else(|| Range::rounded(low, high, error))
        }
        B::Div => {
            let least = if b.low > 0.0 { b.low } else { -b.high };
            let d = positive(least - b.error, 0.1)?;
            let (low, high) = corners(|x, y| x / y);
            let error = a.error / d + a.most() * b.error / (d * d) + 1e-6 * a.most() / d;
            Range::rounded(low, high, error)
        }
        B::Pow => {
            let d = positive(a.low - a.error, 0.1)?;
            if b.most() > 3.0 {
                return None;
            }
            let (low, high) = corners(f64::powf);
            let log = a.low.ln().abs().max(a.high.ln().abs());
            let share = b.most() * a.error / d + log * b.error + 5e-5;
            Range::rounded(low, high, high * share)
        }
        B::Min | B::Max => {
            let (low, high) = corners(if op == B::Min { f64::min } else { f64::max });
            let error = a.error.max(b.error);
            Some(Range { low, high, error, grid: both.map(|(x, y)| x.max(y)) })
        }
        // Only by a power of two, for which quotients are exact.
        B::Rem => {
            both?;
            let power = b.low == b.high && b.low > 0.0 && b.low.log2().fract() == 0.0;
            let grid = both.map(|(x, y)| x.max(y));
            power.then(|| Range { low: -b.high, high: b.high, error: 0.0, grid })
        }
        _ if op.is_comparison() => both.map(|_| Range::exact(0.0, 1.0, 0)),
        _ => None,
    }
}

/// Returns the range of `op(a, b)` for integers, which wrap.
pub(super) fn integers(op: BinaryOp, dtype: DType, a: Range, b: Range) -> Range {
    use BinaryOp as B;
    if op.is_comparison() {
        return Range::exact(0.0, 1.0, 0);
    }
    let all = |f: fn(f64, f64) -> f64| {
        [f(a.low, b.low), f(a.low, b.high), f(a.high, b.low), f(a.high, b.high)]
    };
    let ends = match op {
        B::Add => all(|x, y| x + y),
        B::Sub => all(|x, y| x - y),
        B::Mul => all(|x, y| x * y),
        B::Min | B::Max => [a.low, a.high, b.low, b.high],
        // Division by zero gives the dividend; the remainder has the sign of the dividend.
        _ => [-a.most(), a.most(), 0.0, 0.0],
    };
    let low = ends.into_iter().fold(f64::INFINITY, f64::min);
    let high = ends.into_iter().fold(f64::NEG_INFINITY, f64::max);
    let whole = whole(dtype);
    match dtype {
        DType::U32 if matches!(op, B::Div | B::Rem) => Range::exact(0.0, high, 0),
        _ if low >= whole.low && high <= whole.high => Range::exact(low, high, 0),
        _ => whole,
    }
}

/// Returns the full range of an integer type or of `bool`.
pub(super) fn whole(dtype: DType) -> Range {
    match dtype {
        DType::U32 => Range::exact(0.0, f64::from(u32::MAX), 0),
        DType::I32 => Range::exact(f64::from(i32::MIN), f64::from(i32::MAX), 0),
        _ => Range::exact(0.0, 1.0, 0),
    }
}

/// Returns the range of a conversion, or `None` if results could differ between devices or be too
/// large.
pub(super) fn cast(from: DType, to: DType, x: Range) -> Option<Range> {
    // A 2-byte float is an f32 with fewer digits.
    let from = if from.is_half() { DType::F32 } else { from };
    // A negative number wraps to an unsigned one.
    let fits = |low: f64, high: f64| x.low >= low && x.high <= high;
    match (from, to) {
        (_, DType::Bool) => x.grid.map(|_| Range::exact(0.0, 1.0, 0)),
        (DType::F32, DType::F32) => Some(x),
        (_, DType::F32) => fits(-4096.0, 4096.0).then_some(x),
        (DType::F32, DType::I32) => x.grid.map(|_| Range::exact(x.low.trunc(), x.high.trunc(), 0)),
        (DType::F32, DType::U32) => {
            x.grid.map(|_| Range::exact(x.low.max(0.0).trunc(), x.high.max(0.0).trunc(), 0))
        }
        (_, DType::U32) => Some(if x.low >= 0.0 { x } else { whole(to) }),
        (_, DType::I32) => Some(if fits(0.0, 2e9) || from == DType::I32 { x } else { whole(to) }),
        (_, DType::F16 | DType::BF16) => fits(-4096.0, 4096.0).then_some(x),
    }
}

/// Returns the error of a sum of `n` values in ulps.
fn places(n: f64) -> f64 {
    16.0 + n.sqrt()
}

/// Returns the range of a reduction over `least` to `most` values.
pub(super) fn reduce(op: ReduceOp, x: Range, least: f64, most: f64) -> Option<Range> {
    match op {
        ReduceOp::Sum => {
            let ends = [x.low * least, x.low * most, x.high * least, x.high * most];
            let low = ends.into_iter().fold(f64::INFINITY, f64::min);
            let high = ends.into_iter().fold(f64::NEG_INFINITY, f64::max);
            let error = most * x.error + places(most) * EPS * most * x.most();
            let sums = most * x.most();
            let exact = Range::on_grid(-sums, sums, x.grid);
            exact.map(|_| Range { low, high, ..x }).or_else(|| Range::rounded(low, high, error))
        }
        _ if least < 1.0 => None,
        ReduceOp::Mean => {
            Range::rounded(x.low, x.high, x.error + (places(most) + 2.0) * EPS * x.most())
        }
        ReduceOp::Prod => {
            let size = x.most().max(1.0).powf(most);
            let error = most * x.most().max(1.0).powf(most - 1.0) * x.error + most * EPS * size;
            Range::rounded(if x.low < 0.0 { -size } else { 0.0 }, size, error)
        }
        ReduceOp::Max | ReduceOp::Min => Some(x),
    }
}

/// Returns the range of sums of `k` products.
pub(super) fn products(a: Range, b: Range, k: f64) -> Option<Range> {
    let most = k * a.most() * b.most();
    let error =
        k * (a.most() * b.error + b.most() * a.error + a.error * b.error) + places(k) * EPS * most;
    let low = if a.low >= 0.0 && b.low >= 0.0 { 0.0 } else { -most };
    let grid = a.grid.zip(b.grid).map(|(x, y)| x + y);
    Range::on_grid(low, most, grid).or_else(|| Range::rounded(low, most, error))
}

/// Returns the range of a softmax.
pub(super) fn softmax(x: Range) -> Option<Range> {
    let spread = (x.high - x.low).min(100.0);
    Range::rounded(0.0, 1.0, x.error + 2e-6 * (1.0 + spread))
}

/// Returns the range of RMSNorm or LayerNorm along rows of `n` values, before the weight.
pub(super) fn norm(x: Range, n: f64, eps: f64) -> Option<Range> {
    let most = n.sqrt().min(2.0 * x.most() / eps.sqrt());
    let scale = 1.0 / eps.sqrt();
    // The mean is subtracted first, with rounding errors relative to the numbers.
    let error = scale * (x.error + 4.0 * EPS * x.most()) * (2.0 + 2.0 * n.sqrt());
    Range::rounded(-most, most, error + 2.0 * places(n) * EPS * most)
}

/// Returns the range of pooling over windows of `n` values.
pub(super) fn pool(kind: PoolKind, x: Range, n: f64) -> Option<Range> {
    match kind {
        PoolKind::Max => Some(x),
        PoolKind::Mean => {
            // Counted padding contributes zeros.
            let (low, high) = (x.low.min(0.0), x.high.max(0.0));
            Range::rounded(low, high, x.error + (places(n) + 2.0) * EPS * x.most())
        }
    }
}

/// Returns the range of pairs rotated by up to `angle`.
pub(super) fn rope(x: Range, angle: f64) -> Option<Range> {
    let most = 1.42 * x.most();
    Range::rounded(-most, most, 1.42 * x.error + (6e-6 + EPS * angle) * most)
}

/// Returns the range of attention with heads of `n` elements.
pub(super) fn attention(q: Range, k: Range, v: Range, n: f64, scale: f64) -> Option<Range> {
    let scores = products(q, k, n)?;
    let score_error = scale * scores.error + EPS * scale * scores.most();
    let weight = 2.0 * score_error + 4e-6 * (1.0 + (scale * scores.most()).min(50.0));
    Range::rounded(v.low, v.high, v.error + 2.0 * v.most() * weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_products_of_a_grid_are_exact_while_they_fit() {
        let x = Range::exact(-4.0, 4.0, 2);
        let y = binary(BinaryOp::Mul, x, x, true).unwrap();
        assert_eq!(y, Range::exact(0.0, 16.0, 4));
        assert_eq!(reduce(ReduceOp::Sum, y, 1.0, 100.0).unwrap().grid, Some(4));
        let far = Range::exact(-2000.0, 2000.0, 6);
        let product = binary(BinaryOp::Mul, far, Range::exact(0.0, 1.0, 12), false).unwrap();
        assert!(product.grid.is_none() && product.error > 0.0);
    }

    #[test]
    fn what_would_be_useless_is_refused() {
        let near_zero = Range::given(-1.0, 1.0);
        assert!(unary(UnaryOp::Log, near_zero).is_none());
        assert!(binary(BinaryOp::Div, near_zero, near_zero, false).is_none());
        assert!(binary(BinaryOp::Lt, near_zero, near_zero, false).is_none());
        assert!(unary(UnaryOp::Exp, Range::given(0.0, 50.0)).is_none());
        let wrong = Range { error: 0.1, ..near_zero };
        assert!(binary(BinaryOp::Add, wrong, wrong, false).is_none());
    }

    #[test]
    fn integers_wrap() {
        let x = Range::exact(0.0, 5.0, 0);
        assert_eq!(integers(BinaryOp::Sub, DType::U32, x, x), whole(DType::U32));
        assert_eq!(integers(BinaryOp::Sub, DType::I32, x, x), Range::exact(-5.0, 5.0, 0));
        assert!(cast(DType::U32, DType::F32, whole(DType::U32)).is_none());
    }
}
