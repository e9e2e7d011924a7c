//! Views, and concatenation of tensors.

use std::ops::{Bound, RangeBounds};

use super::arguments::{self, Sizes};
use super::grad::Trace;
use super::place::here;
use super::{Axes, Place, Scalar, Tensor};
use crate::base::{DType, Dim, Shape};
use crate::error::{Error, Result};
use crate::ir::Op;

impl Tensor {
    /// Changes the shape and keeps the elements in row-major order; one size may be -1 and is
    /// inferred.
    ///
    /// ```
    /// # use warploom::{Runtime, Tensor};
    /// # fn main() -> warploom::Result<()> {
    /// let x = Tensor::zeros(&Runtime::auto()?, [2, 3, 4]);
    /// assert_eq!(x.reshape([6, -1]).shape(), [6, 4]);
    /// let error = x.reshape([5, -1]).check().unwrap_err().to_string();
    /// assert!(error.contains("[2, 3, 4] cannot become [5, -1]"), "{error}");
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn reshape(&self, shape: impl Sizes) -> Tensor {
        let at = here();
        self.attempt("reshape", at, || {
            let to = arguments::reshaped(&shape, self.dims(), self.count())?;
            self.reshaped(to, "reshape", at)
        })
    }

    /// Reshapes to one dimension.
    #[track_caller]
    pub fn flatten(&self) -> Tensor {
        let at = here();
        self.attempt("flatten", at, || self.reshaped(Shape::new([self.count()]), "flatten", at))
    }

    /// Removes axes, which must have size 1.
    #[track_caller]
    pub fn squeeze(&self, axes: impl Into<Axes>) -> Tensor {
        let (axes, at) = (axes.into(), here());
        self.attempt("squeeze", at, || {
            let axes = axes.resolve(self.sizes().len())?;
            if let Some(axis) = axes.iter().find(|axis| self.sizes()[**axis] != 1) {
                let size = self.sizes()[*axis];
                let shape = self.dims();
                return Err(Error::invalid(format!("axis {axis} of {shape} is {size}, not 1")));
            }
            let sizes = self.sizes().iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
            self.reshaped(sizes.map(|(_, size)| *size).collect(), "squeeze", at)
        })
    }

    /// Inserts an axis of size 1 at the index `axis` of the result; a negative index counts from
    /// the last.
    #[track_caller]
    pub fn unsqueeze(&self, axis: isize) -> Tensor {
        let at = here();
        self.attempt("unsqueeze", at, || self.widened(axis, "unsqueeze", at))
    }

    /// Reorders axes: axis `i` of the result is axis `order[i]` of the tensor.
    #[track_caller]
    pub fn permute(&self, order: impl Into<Axes> + Clone + Sizes) -> Tensor {
        let at = here();
        self.attempt("permute", at, || {
            // Checked as a set of axes, then applied in the given order.
            let rank = self.sizes().len();
            let all = order.clone().into().resolve(rank)?;
            if all.len() != rank {
                let given = order.sizes();
                let shape = self.dims();
                return Err(Error::invalid(format!(
                    "{given:?} does not name every axis of {shape}"
                )));
            }
            let places = order.sizes().into_iter();
            let places = places.filter_map(|axis| arguments::axis(axis as isize, rank)).collect();
            Ok(Tensor::record("permute", at, Op::Transpose(places), &[self]))
        })
    }

    /// Swaps two axes.
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Tensor {
        let at = here();
        self.attempt("transpose", at, || {
            let (a, b) = (self.axis(a)?, self.axis(b)?);
            let mut order: Vec<usize> = (0..self.sizes().len()).collect();
            order.swap(a, b);
            Ok(Tensor::record("transpose", at, Op::Transpose(order), &[self]))
        })
    }

    /// Swaps the last two axes: the transpose of a matrix, or of each matrix of a batch.
    #[track_caller]
    pub fn t(&self) -> Tensor {
        let at = here();
        self.attempt("t", at, || {
            let rank = self.sizes().len();
            if rank < 2 {
                return Err(Error::invalid(format!("{} is not a matrix", self.dims())));
            }
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(rank - 2, rank - 1);
            Ok(Tensor::record("t", at, Op::Transpose(order), &[self]))
        })
    }

    /// Selects a range of an axis: `x.narrow(-1, 2..5)`, `x.narrow(0, ..3)`.
    #[track_caller]
    pub fn narrow(&self, axis: isize, range: impl RangeBounds<usize>) -> Tensor {
        self.sliced("narrow", axis, &range, 1, here())
    }

    /// Selects every `step`th index of a range of an axis, starting with the first.
    #[track_caller]
    pub fn slice(&self, axis: isize, range: impl RangeBounds<usize>, step: usize) -> Tensor {
        self.sliced("slice", axis, &range, step, here())
    }

    /// Selects one index of an axis and removes the axis. A negative index counts from the last.
    #[track_caller]
    pub fn index(&self, axis: isize, index: isize) -> Tensor {
        let at = here();
        self.attempt("index", at, || {
            let axis = self.axis(axis)?;
            let size = self.sizes()[axis];
            let index = arguments::axis(index, size).ok_or_else(|| {
                Error::invalid(format!("no index {index} on axis {axis} of {}", self.dims()))
            })?;
            let one = self.part(axis, index, 1, 1, "index", at);
            let sizes = self.sizes().iter().enumerate().filter(|(i, _)| *i != axis);
            one.reshaped(sizes.map(|(_, size)| *size).collect(), "index", at)
        })
    }

    /// Broadcasts to `shape`: repeats axes of size 1 and adds leading axes.
    #[track_caller]
    pub fn expand(&self, shape: impl Sizes) -> Tensor {
        let at = here();
        self.attempt("expand", at, || {
            let to = arguments::shape(&shape)?;
            if to == *self.dims() {
                return Ok(self.clone());
            }
            Ok(Tensor::record("expand", at, Op::Expand(to), &[self]))
        })
    }

    /// Pads with `value`: `amounts` holds, for each axis, the number of elements to add before and
    /// after.
    #[track_caller]
    pub fn pad(&self, amounts: &[(usize, usize)], value: impl Into<Scalar>) -> Tensor {
        let (value, at) = (value.into(), here());
        self.attempt("pad", at, || {
            if self.dtype().is_half() {
                // A padding value is four bytes.
                let wide = self.cast(DType::F32).pad(amounts, value);
                wide.check()?;
                return Ok(wide.cast(self.dtype()));
            }
            let word = value.word(self.dtype())?;
            let amounts = amounts.iter().map(|(a, b)| (*a as u64, *b as u64)).collect();
            Ok(Tensor::record("pad", at, Op::Pad { amounts, word }, &[self]))
        })
    }

    /// Concatenates this tensor and others along an axis; the sizes of all other axes must be
    /// equal.
    #[track_caller]
    pub fn concat(&self, others: &[&Tensor], axis: isize) -> Tensor {
        let at = here();
        self.attempt("concat", at, || {
            let axis = self.axis(axis)?;
            let all: Vec<&Tensor> = std::iter::once(self).chain(others.iter().copied()).collect();
            Ok(Tensor::record("concat", at, Op::Concat { axis }, &all))
        })
    }

    /// Stacks this tensor and others of the same shape along a new axis, at the index `axis` of the
    /// result; a negative index counts from the last.
    #[track_caller]
    pub fn stack(&self, others: &[&Tensor], axis: isize) -> Tensor {
        let at = here();
        self.attempt("stack", at, || {
            let place = self.new_axis(axis)?;
            let mut wide = vec![self.widened(axis, "stack", at)?];
            for other in others {
                if other.node.is_failed() {
                    return Ok(Tensor::clone(other));
                }
                if other.sizes() != self.sizes() {
                    let (a, b) = (self.dims(), other.dims());
                    return Err(Error::invalid(format!("shapes {a} and {b} are not equal")));
                }
                wide.push(other.widened(axis, "stack", at)?);
            }
            let wide: Vec<&Tensor> = wide.iter().collect();
            Ok(Tensor::record("stack", at, Op::Concat { axis: place }, &wide))
        })
    }

    /// Splits an axis into parts of these sizes, whose sum must be the size of the axis.
    #[track_caller]
    pub fn split(&self, axis: isize, sizes: &[usize]) -> Vec<Tensor> {
        let at = here();
        let place = self.axis(axis).and_then(|place| {
            let (sum, size) = (sizes.iter().sum::<usize>(), self.sizes()[place]);
            match sum == size {
                true => Ok(place),
                false => Err(Error::invalid(format!(
                    "parts {sizes:?} are {sum}, axis {place} of {} is {size}",
                    self.dims()
                ))),
            }
        });
        let mut start = 0;
        let part = |len: &usize| {
            let from = start;
            start += len;
            self.attempt("split", at, || match &place {
                Ok(place) => Ok(self.part(*place, from, *len, 1, "split", at)),
                Err(error) => Err(error.duplicate()),
            })
        };
        sizes.iter().map(part).collect()
    }

    /// Splits an axis into at most `count` parts of equal size; the last may be smaller. An axis of
    /// size 5 with `count` 4 is split into parts of 2, 2 and 1.
    #[track_caller]
    pub fn chunk(&self, axis: isize, count: usize) -> Vec<Tensor> {
        let size = self.axis(axis).map_or(0, |place| self.sizes()[place]);
        let length = size.div_ceil(count.max(1)).max(1);
        let starts = (0..size.max(1)).step_by(length);
        let sizes: Vec<usize> = starts.map(|start| length.min(size - start)).collect();
        self.split(axis, &sizes)
    }

    /// Returns the tensor with a different shape of as many elements; shares the memory if the
    /// tensor is on the device and not packed.
    pub(super) fn reshaped(&self, to: Shape, name: &'static str, at: Place) -> Result<Tensor> {
        if to == *self.dims() {
            return Ok(self.clone());
        }
        match self.node.stored()? {
            Some(stored) if !stored.format.is_quantised() => {
                let trace = Trace::of(&Op::Reshape(to.clone()), name, at, self.dtype(), &[self]);
                let same = Tensor::from_stored(self.runtime(), to, self.dtype(), name, at, stored);
                Ok(Tensor { trace, ..same })
            }
            _ => Ok(Tensor::record(name, at, Op::Reshape(to), &[self])),
        }
    }

    pub(super) fn widened(&self, axis: isize, name: &'static str, at: Place) -> Result<Tensor> {
        let place = self.new_axis(axis)?;
        let mut sizes = self.dims().dims().to_vec();
        sizes.insert(place, Dim::new(1));
        self.reshaped(sizes.into_iter().collect(), name, at)
    }

    /// Returns the index of an axis to insert; a negative index counts from the last.
    fn new_axis(&self, axis: isize) -> Result<usize> {
        arguments::axis(axis, self.sizes().len() + 1).ok_or_else(|| {
            Error::invalid(format!("no place {axis} for an axis in {}", self.dims()))
        })
    }

    fn sliced(
        &self,
        name: &'static str,
        axis: isize,
        range: &impl RangeBounds<usize>,
        step: usize,
        at: Place,
    ) -> Tensor {
        self.attempt(name, at, || {
            let axis = self.axis(axis)?;
            let size = self.sizes()[axis];
            let start = match range.start_bound() {
                Bound::Included(start) => *start,
                Bound::Excluded(before) => before.saturating_add(1),
                Bound::Unbounded => 0,
            };
            let end = match range.end_bound() {
                Bound::Included(last) => last.saturating_add(1),
                Bound::Excluded(end) => *end,
                Bound::Unbounded => size,
            };
            if start > end || end > size || step == 0 {
                let shape = self.dims();
                return Err(Error::invalid(format!(
                    "no {start}..{end} by {step} on axis {axis} of {shape}"
                )));
            }
            Ok(self.part(axis, start, (end - start).div_ceil(step), step, name, at))
        })
    }

    /// Selects `len` indices of an axis, `step` apart; returns the tensor itself for the whole
    /// axis.
    pub(super) fn part(
        &self,
        axis: usize,
        start: usize,
        len: usize,
        step: usize,
        name: &'static str,
        at: Place,
    ) -> Tensor {
        if len == self.sizes()[axis] {
            return self.clone();
        }
        let (start, len) = (Dim::from(start), Dim::from(len));
        Tensor::record(name, at, Op::Slice { axis, start, len, step: step as u64 }, &[self])
    }
}
