//! Elementwise operations with NumPy's broadcasting.

use std::panic::Location;

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
                self.unary(UnaryOp::$op, Location::caller())
            }
        )*}
    };
}

unary! {
    /// `-x`, of floats or `i32`.
    neg Neg;
    /// `|x|`, of floats or `i32`.
    abs Abs;
    /// `e^x`.
    exp Exp;
    /// Natural logarithm.
    log Log;
    /// Square root.
    sqrt Sqrt;
    /// `1 / sqrt(x)`.
    rsqrt Rsqrt;
    /// `1 / x`.
    reciprocal Reciprocal;
    /// Sine of radians.
    sin Sin;
    /// Cosine of radians.
    cos Cos;
    /// Hyperbolic tangent.
    tanh Tanh;
    /// Gauss error function.
    erf Erf;
    /// Largest integer not above `x`.
    floor Floor;
    /// Smallest integer not below `x`.
    ceil Ceil;
    /// Nearest integer; ties to even.
    round Round;
    /// `1 / (1 + e^-x)`.
    sigmoid Sigmoid;
    /// `x * sigmoid(x)`.
    silu Silu;
    /// `x * (1 + erf(x / sqrt(2))) / 2`.
    gelu Gelu;
    /// The tanh approximation of GELU.
    gelu_tanh GeluTanh;
    /// `max(x, 0)`.
    relu Relu;
    /// Negation of a `bool`.
    logical_not Not;
}

/// Methods with two operands.
macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self, other: impl Into<Operand>) -> Tensor {
                self.binary(BinaryOp::$op, other.into(), Location::caller())
            }
        )*}
    };
}

binary! {
    /// Sum; integers wrap.
    add Add;
    /// Difference; integers wrap.
    sub Sub;
    /// Elementwise product; integers wrap. [`Tensor::matmul`] is the matrix product.
    mul Mul;
    /// Quotient; integers truncate, and a zero divisor gives the dividend.
    div Div;
    /// Remainder with the sign of the dividend.
    rem Rem;
    /// `x^y` of floats.
    pow Pow;
    /// Smaller of two elements. [`Tensor::min`] reduces along axes.
    minimum Min;
    /// Larger of two elements. [`Tensor::max`] reduces along axes.
    maximum Max;
    /// `x == y`, as `bool`.
    eq Eq;
    /// `x != y`, as `bool`.
    ne Ne;
    /// `x < y`, as `bool`.
    lt Lt;
    /// `x <= y`, as `bool`.
    le Le;
    /// `x > y`, as `bool`.
    gt Gt;
    /// `x >= y`, as `bool`.
    ge Ge;
    /// Logical and of `bool`.
    logical_and And;
    /// Logical or of `bool`.
    logical_or Or;
}

impl Tensor {
    /// `x * x`.
    #[track_caller]
    pub fn square(&self) -> Tensor {
        self.binary(BinaryOp::Mul, self.into(), Location::caller())
    }

    /// Limits each element to `low..=high`.
    #[track_caller]
    pub fn clamp(&self, low: impl Into<Operand>, high: impl Into<Operand>) -> Tensor {
        let at = Location::caller();
        self.binary(BinaryOp::Max, low.into(), at).binary(BinaryOp::Min, high.into(), at)
    }

    /// Selects the element of `a` if this `bool` is true, else that of `b`. All three broadcast.
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
        let (a, b, at) = (a.into(), b.into(), Location::caller());
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

    /// Converts the elements to another type. Floats to integers truncate and saturate; a value to
    /// `bool` is true if nonzero; `f16` and `bf16` are rounded to nearest.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Tensor {
        let at = Location::caller();
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

    /// `scalar op self`, for a scalar on the left.
    pub(super) fn binary_of(&self, op: BinaryOp, left: Operand, at: Place) -> Tensor {
        self.attempt(op.name(), at, || {
            let left = self.other(left, self.dtype(), at)?;
            Ok(left.binary(op, self.into(), at))
        })
    }

    /// An operand as a tensor; a scalar is converted to `dtype`.
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

/// Checks that two tensors broadcast; the error names the axis of the result that does not.
fn broadcast(a: &Tensor, b: &Tensor) -> Result<()> {
    let rank = a.rank().max(b.rank());
    let size = |tensor: &Tensor, axis: usize| {
        (axis + tensor.rank()).checked_sub(rank).map_or(1, |axis| tensor.shape()[axis])
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
