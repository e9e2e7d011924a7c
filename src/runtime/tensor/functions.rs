//! Elementwise functions composed of the operations of [`super::elementwise`]. Each is one fused
//! kernel.

use std::f32::consts::{FRAC_PI_2, FRAC_PI_4, LN_2, PI};

use super::place::here;
use super::{Operand, Place, Tensor};
use crate::base::DType;
use crate::error::Error;

/// Coefficients of `(asin(x) - x) / x^3` as a polynomial of `x^2`, up to a half; of the library Cephes.
const ASIN: [f32; 5] = [4.216_32e-2, 2.418_131_2e-2, 4.547_002_6e-2, 7.495_3e-2, 1.666_675_2e-1];
/// Coefficients of `(atan(x) - x) / x^3` as a polynomial of `x^2`, up to tan(pi/8); of Cephes.
const ATAN: [f32; 4] = [8.053_744_5e-2, -1.387_768_6e-1, 1.997_771_1e-1, -3.333_295e-1];

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
    /// Computes the angle in radians, from -pi/2 to pi/2, whose sine is `x`; NaN beyond -1 and 1.
    asin(x) {
        let a = x.abs();
        let far = a.gt(0.5);
        let near = x.add(x.mul(x.square()).mul(x.square().horner(&ASIN)));
        // Half of the angle to pi/2. What is not taken is kept away from 0, where a square root has
        // no gradient.
        let z = far.select(a.mul(-0.5).add(0.5), 0.25);
        let s = z.sqrt();
        let rest = s.add(s.mul(&z).mul(z.horner(&ASIN))).mul(2.0);
        let angle = rest.mul(-1.0).add(FRAC_PI_2);
        far.select(x.lt(0.0).select(angle.neg(), &angle), near)
    };
    /// Computes the angle in radians, from 0 to pi, whose cosine is `x`; NaN beyond -1 and 1.
    acos(x) {
        // Near 1 and -1 the difference of pi/2 and the arc sine would lose digits.
        let far = x.abs().gt(0.5);
        let angle = far.select(x.abs().mul(-0.5).add(0.5), 0.25).sqrt().asin().mul(2.0);
        let angle = x.lt(0.0).select(angle.mul(-1.0).add(PI), &angle);
        far.select(angle, far.select(0.0, x).asin().mul(-1.0).add(FRAC_PI_2))
    };
    /// Computes the angle in radians, from -pi/2 to pi/2, whose tangent is `x`.
    atan(x) {
        let a = x.abs();
        let (steep, middle) = (a.gt(2.414_213_6), a.gt(0.414_213_57));
        // tan(y + pi/4) and tan(y + pi/2) in terms of tan(y).
        let turned = steep.select(steep.select(&a, 1.0).reciprocal().neg(), a.sub(1.0).div(a.add(1.0)));
        let part = middle.select(turned, x);
        let z = part.square();
        let angle = part.add(part.mul(&z).mul(z.horner(&ATAN)));
        let whole = angle.add(steep.select(FRAC_PI_2, x.zeros_like().add(FRAC_PI_4)));
        middle.select(x.lt(0.0).select(whole.neg(), &whole), angle)
    };
    /// Computes the inverse of [`Tensor::sinh`].
    asinh(x) {
        let (near, large) = (x.abs().lt(1.0), x.abs().gt(1e9));
        let a = near.select(x, large.select(1.0, x.abs()));
        let value = a.add(a.square().div(a.square().add(1.0).sqrt().add(1.0))).log1p();
        // The square of large numbers overflows.
        let value = large.select(near.select(1.0, x.abs()).log().add(LN_2), value);
        near.logical_or(x.gt(0.0)).select(&value, value.neg())
    };
    /// Computes the inverse of [`Tensor::cosh`], 0 or more; NaN below 1.
    acosh(x) {
        let large = x.gt(1e9);
        let t = large.select(1.0, x.sub(1.0));
        let value = t.add(t.mul(2.0).add(t.square()).sqrt()).log1p();
        large.select(large.select(x, 1.0).log().add(LN_2), value)
    };
    /// Computes the inverse of [`Tensor::tanh`]; NaN beyond -1 and 1.
    atanh(x) {
        let near = x.abs().lt(0.5);
        let a = near.select(x, x.abs());
        let value = a.mul(2.0).div(a.mul(-1.0).add(1.0)).log1p().mul(0.5);
        near.logical_or(x.gt(0.0)).select(&value, value.neg())
    };
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
            let last = self.sizes().last().copied().unwrap_or(1);
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

    /// Computes the angle in radians, from -pi to pi, of the point (`x`, `self`), as C's `atan2`
    /// does.
    #[track_caller]
    pub fn atan2(&self, x: &Tensor) -> Tensor {
        self.composed("atan2", here(), |y| {
            // Also true for -0.
            let negative =
                |v: &Tensor| v.lt(0.0).logical_or(v.eq(0.0).logical_and(v.reciprocal().lt(0.0)));
            let (a, b) = (x.abs(), y.abs());
            let (low, high) = (a.minimum(&b), a.maximum(&b));
            // Both are 0, or both are infinite.
            let ratio = low.eq(&high).select(low.gt(0.0).cast(low.dtype()), low.div(&high));
            let angle = ratio.atan();
            let angle = b.gt(&a).select(angle.mul(-1.0).add(FRAC_PI_2), &angle);
            let angle = negative(x).select(angle.mul(-1.0).add(PI), &angle);
            negative(y).select(angle.neg(), &angle)
        })
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
            let keep = Tensor::rand(self.runtime(), self.sizes(), seed).ge(p);
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
