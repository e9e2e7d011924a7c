//! Reductions and scans composed of those of [`super::reduce`].

use super::place::here;
use super::{Axes, Place, Tensor};
use crate::base::DType;
use crate::error::{Error, Result};
use crate::ir::{BinaryOp, Op, ReduceOp};

impl Tensor {
    /// Computes the population variance along axes: the mean squared distance from the mean.
    /// Removes the axes. [`Tensor::var_ddof`] computes that of a sample.
    #[track_caller]
    pub fn var(&self, axes: impl Into<Axes>) -> Tensor {
        self.variance("var", axes.into(), 0, false, here())
    }

    /// Same as [`Tensor::var`], and keeps the axes with size 1.
    #[track_caller]
    pub fn var_keep(&self, axes: impl Into<Axes>) -> Tensor {
        self.variance("var_keep", axes.into(), 0, true, here())
    }

    /// Computes the sum of squared distances from the mean, divided by `n - ddof` for `n` elements.
    /// `ddof` 1 is the unbiased variance of a sample, the default of PyTorch and candle. Removes
    /// the axes.
    #[track_caller]
    pub fn var_ddof(&self, axes: impl Into<Axes>, ddof: usize) -> Tensor {
        self.variance("var_ddof", axes.into(), ddof, false, here())
    }

    /// Computes the population standard deviation along axes: the square root of [`Tensor::var`].
    #[track_caller]
    pub fn std(&self, axes: impl Into<Axes>) -> Tensor {
        self.variance("std", axes.into(), 0, false, here()).sqrt()
    }

    /// Same as [`Tensor::std`], and keeps the axes with size 1.
    #[track_caller]
    pub fn std_keep(&self, axes: impl Into<Axes>) -> Tensor {
        self.variance("std_keep", axes.into(), 0, true, here()).sqrt()
    }

    /// Computes `log(sum(e^x))` along axes, without overflow. Removes the axes.
    #[track_caller]
    pub fn logsumexp(&self, axes: impl Into<Axes>) -> Tensor {
        self.log_sum("logsumexp", axes.into(), false, here())
    }

    /// Same as [`Tensor::logsumexp`], and keeps the axes with size 1.
    #[track_caller]
    pub fn logsumexp_keep(&self, axes: impl Into<Axes>) -> Tensor {
        self.log_sum("logsumexp_keep", axes.into(), true, here())
    }

    /// Computes the Euclidean norm along axes: the square root of the sum of squares. Removes the
    /// axes.
    #[track_caller]
    pub fn norm(&self, axes: impl Into<Axes>) -> Tensor {
        self.composed("norm", here(), |x| x.square().sum(axes).sqrt())
    }

    /// Returns whether any `bool` element along axes is true; false for an empty axis. Removes the
    /// axes.
    #[track_caller]
    pub fn any(&self, axes: impl Into<Axes>) -> Tensor {
        self.truth("any", ReduceOp::Max, axes.into(), here())
    }

    /// Returns whether every `bool` element along axes is true; true for an empty axis. Removes
    /// the axes.
    #[track_caller]
    pub fn all(&self, axes: impl Into<Axes>) -> Tensor {
        self.truth("all", ReduceOp::Min, axes.into(), here())
    }

    /// Computes the sum of each element and all before it along an axis. Integers wrap. It takes
    /// `log2(n)` additions of the whole tensor for an axis of size `n`.
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Tensor {
        self.scan("cumsum", BinaryOp::Add, axis, here())
    }

    /// Computes the product of each element and all before it along an axis; see
    /// [`Tensor::cumsum`].
    #[track_caller]
    pub fn cumprod(&self, axis: isize) -> Tensor {
        self.scan("cumprod", BinaryOp::Mul, axis, here())
    }

    /// Computes the difference of each element and the one before it along an axis, which becomes
    /// one shorter.
    #[track_caller]
    pub fn diff(&self, axis: isize) -> Tensor {
        let at = here();
        self.attempt("diff", at, || {
            let place = self.axis(axis)?;
            let size = self.sizes()[place];
            if size == 0 {
                let shape = self.dims();
                return Err(Error::invalid(format!("axis {place} of {shape} has no elements")));
            }
            let (later, earlier) = (self.narrow(axis, 1..), self.narrow(axis, ..size - 1));
            Ok(later.binary(BinaryOp::Sub, earlier.into(), at))
        })
    }

    fn variance(
        &self,
        name: &'static str,
        axes: Axes,
        ddof: usize,
        keep: bool,
        at: Place,
    ) -> Tensor {
        self.attempt(name, at, || {
            let count: usize =
                axes.resolve(self.sizes().len())?.iter().map(|axis| self.sizes()[*axis]).product();
            if ddof > 0 && count <= ddof {
                return Err(Error::invalid(format!("{count} elements less {ddof} is not above 0")));
            }
            let mean = self.reduce(ReduceOp::Mean, axes.clone(), true, at);
            let squares = self.binary(BinaryOp::Sub, mean.into(), at).square();
            let variance = squares.reduce(ReduceOp::Mean, axes, keep, at);
            variance.check()?;
            match ddof {
                0 => Ok(variance),
                _ => Ok(variance.mul(count as f32 / (count - ddof) as f32)),
            }
        })
    }

    fn log_sum(&self, name: &'static str, axes: Axes, keep: bool, at: Place) -> Tensor {
        self.composed(name, at, |x| {
            // The result does not depend on what is subtracted: gradients need not pass through it.
            let max = x.reduce(ReduceOp::Max, axes.clone(), true, at).detach();
            // Distances from an infinity are NaN.
            let max = max.is_finite().select(&max, 0.0);
            let sum = x.sub(&max).exp().reduce(ReduceOp::Sum, axes.clone(), keep, at);
            let max = if keep { max } else { max.reduce(ReduceOp::Max, axes, false, at) };
            sum.log().add(max)
        })
    }

    fn truth(&self, name: &'static str, op: ReduceOp, axes: Axes, at: Place) -> Tensor {
        self.attempt(name, at, || {
            if self.dtype() != DType::Bool {
                return Err(Error::invalid(format!("a tensor of {}, not bool", self.dtype())));
            }
            let numbers = self.cast(DType::F32).reduce(op, axes, false, at);
            numbers.check()?;
            Ok(numbers.gt(0.5))
        })
    }

    /// Hillis and Steele's scan: after the step of distance `d`, each element holds the result for
    /// the `2 d` elements that end with it.
    fn scan(&self, name: &'static str, op: BinaryOp, axis: isize, at: Place) -> Tensor {
        self.attempt(name, at, || {
            let place = self.axis(axis)?;
            let size = self.sizes()[place];
            let mut sums = self.clone();
            let mut distance = 1;
            while distance < size {
                sums = sums.scanned(op, place, distance, at)?;
                distance *= 2;
            }
            sums.check()?;
            Ok(sums)
        })
    }

    fn scanned(&self, op: BinaryOp, axis: usize, distance: usize, at: Place) -> Result<Tensor> {
        let size = self.sizes()[axis];
        let part = |start: usize, len: usize| self.part(axis, start, len, 1, op.name(), at);
        let first = part(0, distance);
        let earlier = part(0, size - distance);
        let rest = part(distance, size - distance).binary(op, earlier.into(), at);
        rest.check()?;
        Ok(Tensor::record(op.name(), at, Op::Concat { axis }, &[&first, &rest]))
    }
}
