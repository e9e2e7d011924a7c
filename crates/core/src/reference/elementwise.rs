//! Elementwise operations: `y[i] = op(x[i])`, `op(a[i], b[i])`, `c[i] ? a[i] : b[i]`.
//!
//! Operands broadcast as in NumPy. Floats are computed in `f64`; integers wrap.

use super::Call;
use super::index::broadcast;
use super::tensor::{Data, Tensor};
use crate::base::DType;
use crate::error::{Error, Result};
use crate::ir::{BinaryOp, UnaryOp};

/// Computes `op(x)` for every element.
pub(super) fn unary(call: &Call<'_>, op: UnaryOp) -> Result<Tensor> {
    match (&call.operands[0].data, op) {
        (Data::Bool(v), UnaryOp::Not) => call.result(Data::Bool(v.iter().map(|x| !x).collect())),
        (Data::I32(v), UnaryOp::Neg) => {
            call.result(Data::I32(v.iter().map(|x| x.wrapping_neg()).collect()))
        }
        (Data::I32(v), UnaryOp::Abs) => {
            call.result(Data::I32(v.iter().map(|x| x.wrapping_abs()).collect()))
        }
        _ if call.operands[0].dtype().is_float() && op != UnaryOp::Not => {
            call.floats(call.operands[0].floats().into_iter().map(|x| of_float(op, x)).collect())
        }
        _ => Err(undefined(call, op.name())),
    }
}

fn undefined(call: &Call<'_>, op: &str) -> Error {
    Error::invalid(format!("{op} is not defined on {}", call.operands[0].dtype()))
}

fn of_float(op: UnaryOp, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Reciprocal => 1.0 / x,
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Erf => erf(x),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Round => x.round_ties_even(),
        UnaryOp::Sigmoid => sigmoid(x),
        UnaryOp::Silu => x * sigmoid(x),
        UnaryOp::Gelu => x * (1.0 + erf(x / std::f64::consts::SQRT_2)) / 2.0,
        UnaryOp::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            x * (1.0 + inner.tanh()) / 2.0
        }
        UnaryOp::Relu => larger(x, 0.0),
        UnaryOp::Not => f64::NAN,
    }
}

/// Computes the error function:
/// `erf(x) = 2 / sqrt(pi) * e^(-x^2) * sum over n of 2^n x^(2n+1) / (1 * 3 * .. * (2n+1))`.
///
/// For positive x all terms of the sum are positive, so there is no cancellation.
fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    // Beyond 6, the difference from 1 is below 2e-17.
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
}

/// Computes `op(a, b)` for every pair of elements.
pub(super) fn binary(call: &Call<'_>, op: BinaryOp) -> Result<Tensor> {
    let (a, b) = (call.operands[0], call.operands[1]);
    let to = call.out_dims();
    let (ia, ib) = (broadcast(&call.dims(0), &to), broadcast(&call.dims(1), &to));
    let pairs = || ia.iter().copied().zip(ib.iter().copied());
    macro_rules! each_pair {
        ($a:ident, $b:ident, $of:ident, $variant:ident) => {
            if op.is_comparison() {
                let values = pairs().map(|(i, j)| compared(op, &$a[i], &$b[j])).collect();
                call.result(Data::Bool(values))
            } else {
                let values: Option<Vec<_>> = pairs().map(|(i, j)| $of(op, $a[i], $b[j])).collect();
                call.result(Data::$variant(values.ok_or_else(|| undefined(call, op.name()))?))
            }
        };
    }
    match (&a.data, &b.data) {
        (Data::I32(a), Data::I32(b)) => each_pair!(a, b, of_i32, I32),
        (Data::U32(a), Data::U32(b)) => each_pair!(a, b, of_u32, U32),
        (Data::Bool(a), Data::Bool(b)) => each_pair!(a, b, of_bool, Bool),
        _ if a.dtype().is_float() && a.dtype() == b.dtype() => {
            let (a, b) = (a.floats(), b.floats());
            if op.is_comparison() {
                let values = pairs().map(|(i, j)| compared(op, &a[i], &b[j])).collect();
                return call.result(Data::Bool(values));
            }
            let values: Option<Vec<f64>> =
                pairs().map(|(i, j)| of_floats(op, a[i], b[j])).collect();
            call.floats(values.ok_or_else(|| undefined(call, op.name()))?)
        }
        _ => Err(Error::invalid("operands have different types")),
    }
}

fn compared<T: PartialOrd>(op: BinaryOp, a: &T, b: &T) -> bool {
    match op {
        BinaryOp::Eq => a == b,
        BinaryOp::Ne => a != b,
        BinaryOp::Lt => a < b,
        BinaryOp::Le => a <= b,
        BinaryOp::Gt => a > b,
        _ => a >= b,
    }
}

/// Returns the larger of both, or NaN if one is NaN.
pub(super) fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// Returns the smaller of both, or NaN if one is NaN.
pub(super) fn smaller(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

fn of_floats(op: BinaryOp, a: f64, b: f64) -> Option<f64> {
    Some(match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Rem => a % b,
        BinaryOp::Pow => a.powf(b),
        BinaryOp::Min => smaller(a, b),
        BinaryOp::Max => larger(a, b),
        _ => return None,
    })
}

/// Computes `op(a, b)` as in WGSL: for a zero divisor the quotient is the dividend and the
/// remainder is 0, and `MIN / -1` is `MIN`. Returns `None` if `op` is not integer arithmetic.
fn of_i32(op: BinaryOp, a: i32, b: i32) -> Option<i32> {
    Some(match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div if b == 0 => a,
        BinaryOp::Div => a.wrapping_div(b),
        BinaryOp::Rem if b == 0 => 0,
        BinaryOp::Rem => a.wrapping_rem(b),
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        _ => return None,
    })
}

fn of_u32(op: BinaryOp, a: u32, b: u32) -> Option<u32> {
    Some(match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div => a.checked_div(b).unwrap_or(a),
        BinaryOp::Rem => a.checked_rem(b).unwrap_or(0),
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        _ => return None,
    })
}

fn of_bool(op: BinaryOp, a: bool, b: bool) -> Option<bool> {
    match op {
        BinaryOp::And => Some(a && b),
        BinaryOp::Or => Some(a || b),
        _ => None,
    }
}

/// Computes `if condition { a } else { b }` for every element.
pub(super) fn select(call: &Call<'_>) -> Result<Tensor> {
    let Data::Bool(condition) = &call.operands[0].data else {
        return Err(undefined(call, "select"));
    };
    let to = call.out_dims();
    let which = broadcast(&call.dims(0), &to);
    let (ia, ib) = (broadcast(&call.dims(1), &to), broadcast(&call.dims(2), &to));
    let places: Vec<(bool, usize)> = which
        .iter()
        .zip(ia.iter().zip(&ib))
        .map(|(c, (i, j))| if condition[*c] { (false, *i) } else { (true, *j) })
        .collect();
    call.result(call.operands[1].data.merge(&call.operands[2].data, &places)?)
}

/// Converts every element to type `to`. Float to integer truncates and saturates, and NaN becomes
/// 0; integer to integer keeps the bits; any non-zero value is true. Conversion to `f16` and `bf16`
/// goes through `f32`.
pub(super) fn cast(call: &Call<'_>, to: DType) -> Result<Tensor> {
    let from = &call.operands[0].data;
    let floats = || call.operands[0].floats().into_iter();
    let data = match (from, to) {
        _ if to.is_float() => return call.floats(floats().collect()),
        (_, DType::Bool) => Data::Bool(floats().map(|x| x != 0.0).collect()),
        (Data::U32(v), DType::I32) => Data::I32(v.iter().map(|x| x.cast_signed()).collect()),
        (Data::I32(v), DType::U32) => Data::U32(v.iter().map(|x| x.cast_unsigned()).collect()),
        (_, DType::I32) => Data::I32(floats().map(|x| x as i32).collect()),
        _ => Data::U32(floats().map(|x| x as u32).collect()),
    };
    call.result(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_is_right_to_fifteen_digits() {
        // Abramowitz and Stegun, table 7.1, and its complement at 3 and 5.
        let known = [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (3.0, 1.0 - 2.209_049_699_858_544e-5),
            (5.0, 1.0 - 1.537_459_794_428_035e-12),
        ];
        for (x, want) in known {
            assert!((erf(x) - want).abs() < 1e-15, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert_eq!(erf(7.0), 1.0);
        assert!(erf(f64::NAN).is_nan());
    }

    #[test]
    fn activations() {
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        close(of_float(UnaryOp::Silu, 1.0), 0.731_058_578_630_004_9);
        close(of_float(UnaryOp::Gelu, 1.0), 0.841_344_746_068_542_9);
        close(of_float(UnaryOp::GeluTanh, 1.0), 0.841_191_990_608_276);
        close(of_float(UnaryOp::Sigmoid, -800.0), 0.0);
        close(of_float(UnaryOp::Round, 2.5), 2.0);
        close(of_float(UnaryOp::Round, -0.5), 0.0);
    }

    #[test]
    fn integers_divide_as_wgsl_does() {
        assert_eq!(of_i32(BinaryOp::Div, 7, 0), Some(7));
        assert_eq!(of_i32(BinaryOp::Div, i32::MIN, -1), Some(i32::MIN));
        assert_eq!(of_i32(BinaryOp::Rem, -7, 3), Some(-1));
        assert_eq!(of_i32(BinaryOp::Rem, 7, 0), Some(0));
        assert_eq!(of_u32(BinaryOp::Div, 7, 0), Some(7));
        assert_eq!(of_u32(BinaryOp::Sub, 0, 1), Some(u32::MAX));
        assert_eq!(of_i32(BinaryOp::Pow, 2, 2), None);
    }
}
