//! Reductions along axes.

use super::place::here;
use super::{Axes, Place, Tensor};
use crate::base::Dim;
use crate::error::{Error, Result};
use crate::ir::{BinaryOp, Op, ReduceOp, UnaryOp};

macro_rules! reduction {
    ($($(#[$doc:meta])* $name:ident $keep:ident $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// Removes the axes: `x.sum(-1)`, `x.sum([0, 2])`, `x.sum(..)` for all.
            #[track_caller]
            pub fn $name(&self, axes: impl Into<Axes>) -> Tensor {
                self.reduce(ReduceOp::$op, axes.into(), false, here())
            }

            $(#[$doc])*
            ///
            /// Keeps the axes with size 1, so that the result broadcasts with the tensor.
            #[track_caller]
            pub fn $keep(&self, axes: impl Into<Axes>) -> Tensor {
                self.reduce(ReduceOp::$op, axes.into(), true, here())
            }
        )*}
    };
}

reduction! {
    /// Computes the sum of numbers along axes; 0 for an empty axis. Integers wrap.
    sum sum_keep Sum;
    /// Computes the arithmetic mean of floats along axes; NaN for an empty axis.
    mean mean_keep Mean;
    /// Computes the product of numbers along axes; 1 for an empty axis. Integers wrap.
    prod prod_keep Prod;
    /// Computes the largest number along axes, NaN if one is NaN; -inf, or the least integer, for
    /// an empty axis.
    max max_keep Max;
    /// Computes the smallest number along axes, NaN if one is NaN; inf, or the largest integer, for
    /// an empty axis.
    min min_keep Min;
}

impl Tensor {
    /// Returns the index of the largest element along an axis as `u32`, the lowest on ties. Removes
    /// the axis. NaN counts as the largest.
    #[track_caller]
    pub fn argmax(&self, axis: isize) -> Tensor {
        let at = here();
        self.attempt("argmax", at, || {
            if !self.dtype().is_float() {
                return self.first_of(axis, ReduceOp::Max, at);
            }
            let last = self.with_last(self.axis(axis)?, at);
            Ok(Tensor::record("argmax", at, Op::ArgMax, &[&last]))
        })
    }

    /// Returns the index of the smallest element along an axis as `u32`, the lowest on ties.
    /// Removes the axis. NaN counts as the smallest.
    #[track_caller]
    pub fn argmin(&self, axis: isize) -> Tensor {
        let at = here();
        self.attempt("argmin", at, || {
            if !self.dtype().is_float() {
                return self.first_of(axis, ReduceOp::Min, at);
            }
            let last = self.with_last(self.axis(axis)?, at).unary(UnaryOp::Neg, at);
            Ok(Tensor::record("argmin", at, Op::ArgMax, &[&last]))
        })
    }

    /// Returns the lowest index of the largest or smallest integer along an axis.
    fn first_of(&self, axis: isize, op: ReduceOp, at: Place) -> Result<Tensor> {
        let place = self.axis(axis)?;
        let count = self.sizes()[place];
        if count == 0 {
            return Err(Error::invalid(format!(
                "has no maximum of zero elements of {}",
                self.dims()
            )));
        }
        let best = self.reduce(op, Axes::from(axis), true, at);
        best.check()?;
        let mut sizes = vec![1; self.sizes().len()];
        sizes[place] = count;
        let ids = Tensor::arange(self.runtime(), 0_u32, count as u32, 1).reshape(sizes);
        let first = self.eq(&best).select(ids.expand(self.sizes()), u32::MAX);
        Ok(first.reduce(ReduceOp::Min, Axes::from(axis), false, at))
    }

    /// Computes `e^x / sum(e^x)` along an axis; a row of only -inf yields zeros.
    #[track_caller]
    pub fn softmax(&self, axis: isize) -> Tensor {
        let at = here();
        self.attempt("softmax", at, || {
            let axis = self.axis(axis)?;
            let done = Tensor::record("softmax", at, Op::Softmax, &[&self.with_last(axis, at)]);
            // Swapping two axes is its own inverse.
            Ok(done.with_last(axis, at))
        })
    }

    /// Computes `log(softmax(x))` along an axis, accurately even for small probabilities.
    #[track_caller]
    pub fn log_softmax(&self, axis: isize) -> Tensor {
        let at = here();
        let axes = Axes::from(axis);
        // The result does not depend on what is subtracted: gradients need not pass through it.
        let max = self.reduce(ReduceOp::Max, axes.clone(), true, at).detach();
        let below = self.binary(BinaryOp::Sub, max.into(), at);
        let sum = below.unary(UnaryOp::Exp, at).reduce(ReduceOp::Sum, axes, true, at);
        below.binary(BinaryOp::Sub, sum.unary(UnaryOp::Log, at).into(), at)
    }

    pub(super) fn reduce(&self, op: ReduceOp, axes: Axes, keep: bool, at: Place) -> Tensor {
        self.attempt(op.name(), at, || {
            let axes = axes.resolve(self.sizes().len())?;
            if axes.is_empty() {
                return self.unreduced(op, at);
            }
            Ok(Tensor::record(op.name(), at, Op::Reduce { op, axes, keep }, &[self]))
        })
    }

    /// Records a reduction over no axes: each element is its own sum, mean, product, maximum and
    /// minimum.
    fn unreduced(&self, op: ReduceOp, at: Place) -> Result<Tensor> {
        let mut sizes = self.dims().dims().to_vec();
        sizes.push(Dim::new(1));
        let one = self.reshaped(sizes.into_iter().collect(), op.name(), at)?;
        let axes = vec![self.sizes().len()];
        Ok(Tensor::record(op.name(), at, Op::Reduce { op, axes, keep: false }, &[&one]))
    }

    /// Swaps an axis with the last.
    pub(super) fn with_last(&self, axis: usize, at: Place) -> Tensor {
        // A tensor that failed has no axes; its error is kept.
        let last = self.sizes().len().saturating_sub(1);
        if axis >= last {
            return self.clone();
        }
        let mut order: Vec<usize> = (0..=last).collect();
        order.swap(axis, last);
        Tensor::record("transpose", at, Op::Transpose(order), &[self])
    }
}
