//! Elementwise operations with NumPy's broadcasting.

use super::place::here;
use super::{Operand, Place, Tensor};
use crate::base::{DType, Shape};
use crate::error::{Error, Result};
use crate::ir::{BinaryOp, Op, UnaryOp};

/// Methods with one operand.
macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self) -> Tensor {
                self.unary(UnaryOp::$op, here())
            }
        )*}
    };
}

unary! {
    /// Computes `-x` of floats or `i32`.
    neg Neg;
    /// Computes `|x|` of floats or `i32`.
    abs Abs;
    /// Computes `e^x`.
    exp Exp;
    /// Computes the natural logarithm.
    log Log;
    /// Computes the square root.
    sqrt Sqrt;
    /// Computes `1 / sqrt(x)`.
    rsqrt Rsqrt;
    /// Computes `1 / x`.
    reciprocal Reciprocal;
    /// Computes the sine of angles in radians.
    sin Sin;
    /// Computes the cosine of angles in radians.
    cos Cos;
    /// Computes the hyperbolic tangent.
    tanh Tanh;
    /// Computes the Gauss error function.
    erf Erf;
    /// Rounds down to an integer.
    floor Floor;
    /// Rounds up to an integer.
    ceil Ceil;
    /// Rounds to the nearest integer, ties to even.
    round Round;
    /// Computes `1 / (1 + e^-x)`.
    sigmoid Sigmoid;
    /// Computes `x * sigmoid(x)`.
    silu Silu;
    /// Computes `x * (1 + erf(x / sqrt(2))) / 2`.
    gelu Gelu;
    /// Computes the tanh approximation of GELU.
    gelu_tanh GeluTanh;
    /// Computes `max(x, 0)`.
    relu Relu;
    /// Negates each `bool`.
    logical_not Not;
}

/// Methods with two operands.
macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self, other: impl Into<Operand>) -> Tensor {
                self.binary(BinaryOp::$op, other.into(), here())
            }
        )*}
    };
}

binary! {
    /// Adds elementwise; integers wrap.
    add Add;
    /// Subtracts elementwise; integers wrap.
    sub Sub;
    /// Multiplies elementwise; integers wrap. [`Tensor::matmul`] is the matrix product.
    mul Mul;
    /// Divides elementwise. Integer division truncates and, if the divisor is 0, yields the
    /// dividend.
    div Div;
    /// Computes the remainder, with the sign of the dividend; for integers, 0 if the divisor is 0.
    rem Rem;
    /// Computes `x^y`, for floats only.
    pow Pow;
    /// Selects the smaller of two elements. [`Tensor::min`] reduces along axes.
    minimum Min;
    /// Selects the larger of two elements. [`Tensor::max`] reduces along axes.
    maximum Max;
    /// Computes `x == y`, as `bool`.
    eq Eq;
    /// Computes `x != y`, as `bool`.
    ne Ne;
    /// Computes `x < y`, as `bool`.
    lt Lt;
    /// Computes `x <= y`, as `bool`.
    le Le;
    /// Computes `x > y`, as `bool`.
    gt Gt;
    /// Computes `x >= y`, as `bool`.
    ge Ge;
    /// Computes the logical AND of two `bool` elements.
    logical_and And;
    /// Computes the logical OR of two `bool` elements.
    logical_or Or;
}

impl Tensor {
    /// Computes `x * x`.
    #[track_caller]
    pub fn square(&self) -> Tensor {
        self.binary(BinaryOp::Mul, self.into(), here())
    }

    /// Limits each element to `low..=high`.
    #[track_caller]
    pub fn clamp(&self, low: impl Into<Operand>, high: impl Into<Operand>) -> Tensor {
        let at = here();
        self.binary(BinaryOp::Max, low.into(), at).binary(BinaryOp::Min, high.into(), at)
    }

    /// Selects the element of `a` where this `bool` tensor is true, and that of `b` elsewhere. All
    /// three broadcast.
    ///
    /// ```
    /// # use warploom::{Runtime, Tensor};
    /// # fn main() -> warploom::Result<()> {
    /// let x = Tensor::from_vec(&Runtime::auto()?, vec![-1.0_f32, 4.0], [2]);
    /// let y = x.gt(0.0).select(x.sqrt(), 0.0);
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn select(&self, a: impl Into<Operand>, b: impl Into<Operand>) -> Tensor {
        let (a, b, at) = (a.into(), b.into(), here());
        self.attempt("select", at, || {
            let dtype = match (&a, &b) {
                (Operand::Tensor(tensor), _) | (_, Operand::Tensor(tensor)) => tensor.dtype(),
                (Operand::Scalar(scalar), _) => scalar.dtype(),
            };
            let (a, b) = (self.other(a, dtype, at)?, self.other(b, dtype, at)?);
            if let Some(failed) = [&a, &b].into_iter().find(|side| side.node.is_failed()) {
                return Ok(failed.clone());
            }
            broadcast(&a, &b)?;
            Ok(Tensor::record("select", at, Op::Select, &[self, &a, &b]))
        })
    }

    /// Converts the elements to `dtype`. Floats convert to integers by truncation, with saturation;
    /// nonzero values convert to `true`; `f16` and `bf16` are rounded to nearest.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Tensor {
        let at = here();
        self.attempt("cast", at, || {
            if dtype == self.dtype() {
                return Ok(self.clone());
            }
            Ok(self.cast_at(dtype, at))
        })
    }

    fn cast_at(&self, dtype: DType, at: Place) -> Tensor {
        Tensor::record("cast", at, Op::Cast(dtype), &[self])
    }

    pub(super) fn unary(&self, op: UnaryOp, at: Place) -> Tensor {
        Tensor::record(op.name(), at, Op::Unary(op), &[self])
    }

    pub(super) fn binary(&self, op: BinaryOp, other: Operand, at: Place) -> Tensor {
        self.attempt(op.name(), at, || {
            let other = self.other(other, self.dtype(), at)?;
            if other.node.is_failed() {
                return Ok(other);
            }
            if self.dtype() != other.dtype() {
                let (a, b) = (self.dtype(), other.dtype());
                return Err(Error::invalid(format!("a tensor of {a} and one of {b}: cast one")));
            }
            broadcast(self, &other)?;
            Ok(Tensor::record(op.name(), at, Op::Binary(op), &[self, &other]))
        })
    }

    /// Records `left op self`, for the operators with a scalar on the left.
    pub(super) fn binary_of(&self, op: BinaryOp, left: Operand, at: Place) -> Tensor {
        self.attempt(op.name(), at, || {
            let left = self.other(left, self.dtype(), at)?;
            Ok(left.binary(op, self.into(), at))
        })
    }

    /// Converts an operand to a tensor; a scalar becomes a tensor of `dtype`.
    fn other(&self, operand: Operand, dtype: DType, at: Place) -> Result<Tensor> {
        match operand {
            Operand::Tensor(tensor) => Ok(tensor),
            Operand::Scalar(scalar) => {
                // Graph constants are four bytes.
                let wide = if dtype.is_half() { DType::F32 } else { dtype };
                let (shape, word) = (Shape::default(), scalar.word(wide)?);
                let number = Tensor::constant(self.runtime(), shape, wide, "scalar", at, word);
                Ok(if wide == dtype { number } else { number.cast_at(dtype, at) })
            }
        }
    }
}

/// Checks that two tensors broadcast; the error names the first axis of the result where they do
/// not.
fn broadcast(a: &Tensor, b: &Tensor) -> Result<()> {
    let rank = a.sizes().len().max(b.sizes().len());
    let size = |tensor: &Tensor, axis: usize| {
        (axis + tensor.sizes().len()).checked_sub(rank).map_or(1, |axis| tensor.sizes()[axis])
    };
    for axis in 0..rank {
        let (m, n) = (size(a, axis), size(b, axis));
        if m != n && m != 1 && n != 1 {
            return Err(Error::invalid(format!(
                "shapes {} and {} do not broadcast: axis {axis} is {m} and {n}",
                a.dims(),
                b.dims()
            )));
        }
    }
    Ok(())
}
