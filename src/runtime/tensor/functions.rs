//! Elementwise functions composed of the operations of [`super::elementwise`]. Each is one fused
//! kernel.

use super::place::here;
use super::{Operand, Place, Tensor};
use crate::base::DType;
use crate::error::Error;

/// Methods whose arguments are numbers. Errors carry the method's own name and source location.
macro_rules! composed {
    ($($(#[$doc:meta])* $name:ident($x:ident $(, $arg:ident: $ty:ty)*) $body:expr;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self $(, $arg: $ty)*) -> Tensor {
                let at = here();
                self.composed(stringify!($name), at, |$x| $body)
            }
        )*}
    };
}

composed! {
    /// Computes `e^x - 1`, accurately near 0.
    expm1(x) {
        // Taylor's series: within 0.5 of 0 the rest is below half a unit in the last place.
        let near = x.horner(&[1.0 / 40_320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0]);
        x.abs().lt(0.5).select(near.mul(x), x.exp().sub(1.0))
    };
    /// Computes `log(1 + x)`, accurately near 0.
    log1p(x) {
        // 2 atanh(s) with s = x / (2 + x); within 0.5 of 0, s^11 / 11 is below half a unit.
        let s = x.div(x.add(2.0));
        let odd = s.square().horner(&[1.0 / 9.0, 1.0 / 7.0, 0.2, 1.0 / 3.0, 1.0]);
        x.abs().lt(0.5).select(odd.mul(&s).mul(2.0), x.add(1.0).log())
    };
    /// Computes `2^x`.
    exp2(x) x.mul(std::f32::consts::LN_2).exp();
    /// Computes the logarithm to base 2.
    log2(x) x.log().mul(std::f32::consts::LOG2_E);
    /// Computes the logarithm to base 10.
    log10(x) x.log().mul(std::f32::consts::LOG10_E);
    /// Computes the tangent of angles in radians.
    tan(x) x.sin().div(x.cos());
    /// Computes the hyperbolic sine.
    sinh(x) x.expm1().sub(x.neg().expm1()).mul(0.5);
    /// Computes the hyperbolic cosine.
    cosh(x) x.exp().add(x.neg().exp()).mul(0.5);
    /// Returns -1, 0 or 1 by the sign of floats or `i32`; NaN for NaN.
    sign(x) x.gt(0).select(1, x.lt(0).select(-1, x));
    /// Rounds towards zero to an integer.
    trunc(x) x.lt(0.0).select(x.ceil(), x.floor());
    /// Returns whether each float is NaN, as `bool`.
    is_nan(x) x.ne(x);
    /// Returns whether each float is neither infinite nor NaN, as `bool`.
    is_finite(x) x.abs().le(largest(x.dtype()));
    /// Returns whether each float is infinite, as `bool`.
    is_infinite(x) x.abs().gt(largest(x.dtype()));
    /// Computes `log(1 + e^x)`, without overflow.
    softplus(x) x.relu().add(x.abs().neg().exp().log1p());
    /// Computes `x / (1 + |x|)`.
    softsign(x) x.div(x.abs().add(1.0));
    /// Computes `x * tanh(softplus(x))`.
    mish(x) x.mul(x.softplus().tanh());
    /// Computes `x` above 0 and `slope * x` elsewhere.
    leaky_relu(x, slope: f32) x.gt(0.0).select(x, x.mul(slope));
    /// Computes `min(max(x, 0), 6)`.
    relu6(x) x.relu().minimum(6.0);
    /// Computes `x` above 0 and `alpha * (e^x - 1)` elsewhere.
    elu(x, alpha: f32) x.gt(0.0).select(x, x.minimum(0.0).expm1().mul(alpha));
    /// Computes the self-normalising ELU of Klambauer et al. (2017).
    selu(x) x.elu(1.673_263_2).mul(1.050_701);
    /// Computes `min(max(x / 6 + 0.5, 0), 1)`.
    hard_sigmoid(x) x.div(6.0).add(0.5).clamp(0.0, 1.0);
    /// Computes `x * hard_sigmoid(x)`.
    hard_swish(x) x.mul(x.hard_sigmoid());
    /// Computes `factor * x + term`.
    affine(x, factor: f32, term: f32) x.mul(factor).add(term);
}

/// Returns the largest finite number of a type of floats.
fn largest(dtype: DType) -> f32 {
    match dtype {
        DType::F16 => 65_504.0,
        DType::BF16 => 3.389_531_4e38,
        _ => f32::MAX,
    }
}

impl Tensor {
    /// Splits the last axis into two equal parts `a` and `b`, and computes `silu(a) * b`.
    #[track_caller]
    pub fn swiglu(&self) -> Tensor {
        let at = here();
        self.attempt("swiglu", at, || {
            let last = self.shape().last().copied().unwrap_or(1);
            if !last.is_multiple_of(2) {
                let shape = self.dims();
                return Err(Error::invalid(format!("the last axis of {shape} has no two halves")));
            }
            let parts = self.split(-1, &[last / 2, last / 2]);
            let product = parts[0].silu().mul(&parts[1]);
            product.check()?;
            Ok(product)
        })
    }

    /// Computes `self + weight * (other - self)`.
    #[track_caller]
    pub fn lerp(&self, other: &Tensor, weight: impl Into<Operand>) -> Tensor {
        let weight = weight.into();
        self.composed("lerp", here(), |x| x.add(other.sub(x).mul(weight)))
    }

    /// Computes `log(e^x + e^y)`, without overflow.
    #[track_caller]
    pub fn logaddexp(&self, other: &Tensor) -> Tensor {
        let at = here();
        self.composed("logaddexp", at, |x| {
            let apart = x.sub(other).abs();
            // The distance of equal infinities is NaN; their sum is themselves.
            let more = apart.neg().exp().log1p();
            x.eq(other).select(x.add(std::f32::consts::LN_2), x.maximum(other).add(more))
        })
    }

    /// Zeroes each element with probability `p`, by a seed, and divides the others by `1 - p`.
    #[track_caller]
    pub fn dropout(&self, p: f32, seed: u64) -> Tensor {
        let at = here();
        self.attempt("dropout", at, || {
            if !(0.0..1.0).contains(&p) {
                return Err(Error::invalid(format!(
                    "the probability {p} is not in 0 to 1, without 1"
                )));
            }
            let keep = Tensor::rand(self.runtime(), self.shape(), seed).ge(p);
            let kept = keep.select(self.mul(1.0 / (1.0 - p)), 0.0);
            kept.check()?;
            Ok(kept)
        })
    }

    /// Returns what `make` composes of this tensor. An error within it is reported as that of the
    /// operation `name`.
    pub(super) fn composed(
        &self,
        name: &'static str,
        at: Place,
        make: impl FnOnce(&Tensor) -> Tensor,
    ) -> Tensor {
        self.attempt(name, at, || {
            let done = make(self);
            done.check().map_err(|error| error.context("in a part of it"))?;
            Ok(done)
        })
    }

    /// Evaluates a polynomial by Horner's rule; the coefficients begin with the highest power.
    fn horner(&self, coefficients: &[f32]) -> Tensor {
        let (first, rest) = coefficients.split_first().unwrap_or((&0.0, &[]));
        let start = self.mul(*first);
        let Some((second, rest)) = rest.split_first() else { return start };
        rest.iter().fold(start.add(*second), |sum, c| sum.mul(self).add(*c))
    }
}
