//! Rearrangements composed of the views of [`super::movement`].

use std::ops::Range;

use super::arguments::Sizes;
use super::place::here;
use super::{Operand, Place, Scalar, Tensor};
use crate::base::DType;
use crate::error::{Error, Result};
use crate::ir::{BinaryOp, Op};

impl Tensor {
    /// Concatenates tensors along an axis; the sizes of all other axes must be equal.
    ///
    /// # Errors
    /// Invalid if the list is empty. Other errors are deferred.
    #[track_caller]
    pub fn cat<T: AsRef<Tensor>>(tensors: &[T], axis: isize) -> Result<Tensor> {
        let (first, rest) = split_first(tensors, "cat")?;
        Ok(first.concat(&rest, axis))
    }

    /// Stacks tensors of one shape along a new axis, at the index `axis` of the result.
    ///
    /// # Errors
    /// Invalid if the list is empty. Other errors are deferred.
    #[track_caller]
    pub fn stack_all<T: AsRef<Tensor>>(tensors: &[T], axis: isize) -> Result<Tensor> {
        let (first, rest) = split_first(tensors, "stack_all")?;
        Ok(first.stack(&rest, axis))
    }

    /// Reverses the order of the elements along an axis.
    #[track_caller]
    pub fn flip(&self, axis: isize) -> Tensor {
        let at = here();
        self.attempt("flip", at, || {
            let size = u32::try_from(self.sizes()[self.axis(axis)?]).unwrap_or(u32::MAX);
            let ids: Vec<u32> = (0..size).rev().collect();
            Ok(self.index_select(axis, &ids))
        })
    }

    /// Moves the elements along an axis by `distance`; those that leave at one end enter at the
    /// other. A negative distance moves towards the first.
    #[track_caller]
    pub fn roll(&self, axis: isize, distance: isize) -> Tensor {
        let at = here();
        self.attempt("roll", at, || {
            let place = self.axis(axis)?;
            let size = self.sizes()[place];
            if size == 0 {
                return Ok(self.clone());
            }
            let moved = distance.rem_euclid(isize::try_from(size).unwrap_or(isize::MAX)) as usize;
            if moved == 0 {
                return Ok(self.clone());
            }
            let last = self.part(place, size - moved, moved, 1, "roll", at);
            let first = self.part(place, 0, size - moved, 1, "roll", at);
            Ok(Tensor::record("roll", at, Op::Concat { axis: place }, &[&last, &first]))
        })
    }

    /// Repeats the whole tensor `counts[i]` times along axis `i`, as NumPy's `tile`; more counts
    /// than axes add leading axes.
    ///
    /// ```
    /// # use warploom::{Runtime, Tensor};
    /// # fn main() -> warploom::Result<()> {
    /// let x = Tensor::from_vec(&Runtime::auto()?, vec![1, 2], [2]);
    /// assert_eq!(x.repeat([2, 2]).to_vec::<i32>()?, [1, 2, 1, 2, 1, 2, 1, 2]);
    /// assert_eq!(x.repeat_interleave(0, 2).to_vec::<i32>()?, [1, 1, 2, 2]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn repeat(&self, counts: impl Sizes) -> Tensor {
        let at = here();
        self.attempt("repeat", at, || {
            let counts = sizes_of(&counts)?;
            let rank = counts.len().max(self.sizes().len());
            let at_axis = |sizes: &[usize], axis: usize| {
                (axis + sizes.len()).checked_sub(rank).map_or(1, |axis| sizes[axis])
            };
            let (mut apart, mut wide, mut merged) = (Vec::new(), Vec::new(), Vec::new());
            for axis in 0..rank {
                let (count, size) = (at_axis(&counts, axis), at_axis(self.sizes(), axis));
                apart.extend([1, size]);
                wide.extend([count, size]);
                merged.push(count.checked_mul(size).ok_or_else(|| {
                    Error::invalid(format!("{count} times the size {size} overflows"))
                })?);
            }
            Ok(self.reshape(apart).expand(wide).reshape(merged))
        })
    }

    /// Repeats each element `count` times along an axis, as NumPy's `repeat`.
    #[track_caller]
    pub fn repeat_interleave(&self, axis: isize, count: usize) -> Tensor {
        let at = here();
        self.attempt("repeat_interleave", at, || {
            let place = self.axis(axis)?;
            let mut wide = self.sizes().to_vec();
            wide.insert(place + 1, count);
            let mut merged = self.sizes().to_vec();
            merged[place] = merged[place].checked_mul(count).ok_or_else(|| {
                Error::invalid(format!("{count} times the size {} overflows", merged[place]))
            })?;
            let apart = self.widened(place as isize + 1, "repeat_interleave", at)?;
            Ok(apart.expand(wide).reshape(merged))
        })
    }

    /// Enlarges the last two axes by whole factors; each element becomes a block of equal ones.
    #[track_caller]
    pub fn upsample_nearest2d(&self, rows: usize, columns: usize) -> Tensor {
        let at = here();
        self.composed("upsample_nearest2d", at, |x| {
            x.repeat_interleave(-2, rows).repeat_interleave(-1, columns)
        })
    }

    /// Moves the axis at index `from` to index `to`; the other axes keep their order.
    #[track_caller]
    pub fn movedim(&self, from: isize, to: isize) -> Tensor {
        let at = here();
        self.attempt("movedim", at, || {
            let (from, to) = (self.axis(from)?, self.axis(to)?);
            let mut order: Vec<usize> = (0..self.sizes().len()).collect();
            let moved = order.remove(from);
            order.insert(to, moved);
            Ok(Tensor::record("movedim", at, Op::Transpose(order), &[self]))
        })
    }

    /// Merges the axes `first..=last` into one.
    #[track_caller]
    pub fn flatten_range(&self, first: isize, last: isize) -> Tensor {
        let at = here();
        self.attempt("flatten_range", at, || {
            let (first, last) = (self.axis(first)?, self.axis(last)?);
            if first > last {
                return Err(Error::invalid(format!("axis {first} is after axis {last}")));
            }
            let mut sizes = self.sizes().to_vec();
            let merged: usize = sizes.drain(first..=last).product();
            sizes.insert(first, merged);
            self.reshaped(sizes.into_iter().collect(), "flatten_range", at)
        })
    }

    /// Returns every window of `size` neighbours along an axis, `step` apart: the axis holds the
    /// windows, and a new last axis the elements of each.
    #[track_caller]
    pub fn unfold(&self, axis: isize, size: usize, step: usize) -> Tensor {
        let at = here();
        self.attempt("unfold", at, || {
            let place = self.axis(axis)?;
            let len = self.sizes()[place];
            if size == 0 || step == 0 || size > len {
                let shape = self.dims();
                return Err(Error::invalid(format!(
                    "no windows of {size} by {step} on axis {place} of {shape}"
                )));
            }
            let windows = (len - size) / step + 1;
            let id = |i: usize| u32::try_from(i / size * step + i % size).unwrap_or(u32::MAX);
            let ids: Vec<u32> = (0..windows * size).map(id).collect();
            let mut sizes = self.sizes().to_vec();
            sizes.splice(place..=place, [windows, size]);
            let apart = self.index_select(axis, &ids).reshape(sizes);
            Ok(apart.movedim(place as isize + 1, -1))
        })
    }

    /// Returns the tensor with the elements of a block replaced by `source`: `ranges[i]` is the
    /// block's range on axis `i`, the axes after them are whole.
    ///
    /// ```
    /// # use warploom::{Runtime, Tensor};
    /// # fn main() -> warploom::Result<()> {
    /// let runtime = Runtime::auto()?;
    /// let x = Tensor::zeros(&runtime, [2, 3]).slice_assign(&[0..1, 1..3], &Tensor::ones(&runtime, [1, 2]));
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn slice_assign(&self, ranges: &[Range<usize>], source: &Tensor) -> Tensor {
        let at = here();
        self.attempt("slice_assign", at, || {
            let mut sizes = self.sizes().to_vec();
            if ranges.len() > sizes.len() {
                let (given, shape) = (ranges.len(), self.dims());
                return Err(Error::invalid(format!("{given} ranges for the shape {shape}")));
            }
            for (axis, range) in ranges.iter().enumerate() {
                if range.start > range.end || range.end > sizes[axis] {
                    let (shape, Range { start, end }) = (self.dims(), range);
                    let what = format!("no {start}..{end} on axis {axis} of {shape}");
                    return Err(Error::invalid(what));
                }
                sizes[axis] = range.len();
            }
            source.check()?;
            if source.sizes() != sizes {
                let shape = source.dims();
                return Err(Error::invalid(format!("the block is {sizes:?}, the source {shape}")));
            }
            if source.dtype() != self.dtype() {
                let (a, b) = (self.dtype(), source.dtype());
                return Err(Error::invalid(format!("a tensor of {a} and one of {b}: cast one")));
            }
            Ok(self.assigned(0, ranges, source, at))
        })
    }

    fn assigned(&self, axis: usize, ranges: &[Range<usize>], source: &Tensor, at: Place) -> Tensor {
        let Some((range, rest)) = ranges.split_first() else { return source.clone() };
        let size = self.sizes()[axis];
        let part =
            |start: usize, end: usize| self.part(axis, start, end - start, 1, "slice_assign", at);
        let inner = part(range.start, range.end).assigned(axis + 1, rest, source, at);
        let mut parts = vec![inner];
        if range.start > 0 {
            parts.insert(0, part(0, range.start));
        }
        if range.end < size {
            parts.push(part(range.end, size));
        }
        match &parts[..] {
            [whole] => whole.clone(),
            _ => {
                let parts: Vec<&Tensor> = parts.iter().collect();
                Tensor::record("slice_assign", at, Op::Concat { axis }, &parts)
            }
        }
    }

    /// Zeroes the elements above diagonal `diagonal` of each matrix: 0 is the main diagonal, 1 the
    /// one above it.
    #[track_caller]
    pub fn tril(&self, diagonal: i32) -> Tensor {
        self.triangle("tril", BinaryOp::Le, diagonal, here())
    }

    /// Zeroes the elements below diagonal `diagonal` of each matrix; see [`Tensor::tril`].
    #[track_caller]
    pub fn triu(&self, diagonal: i32) -> Tensor {
        self.triangle("triu", BinaryOp::Ge, diagonal, here())
    }

    fn triangle(&self, name: &'static str, op: BinaryOp, diagonal: i32, at: Place) -> Tensor {
        self.attempt(name, at, || {
            let [.., rows, columns] = *self.sizes() else {
                return Err(Error::invalid(format!("{} is not a matrix", self.dims())));
            };
            let indices = |count: usize| -> Vec<i32> {
                (0..i32::try_from(count).unwrap_or(i32::MAX)).collect()
            };
            let row = Tensor::from_vec(self.runtime(), indices(rows), [rows, 1]);
            let column = Tensor::from_vec(self.runtime(), indices(columns), [1, columns]);
            let kept = column.sub(row).binary(op, Operand::from(diagonal), at);
            Ok(kept.select(self, Operand::Scalar(zero_of(self.dtype()))))
        })
    }

    /// Returns the main diagonal of a matrix, or the matrix with a vector on its diagonal and zeros
    /// elsewhere.
    #[track_caller]
    pub fn diag(&self) -> Tensor {
        let at = here();
        self.attempt("diag", at, || match *self.sizes() {
            [n] => {
                // Each row is the vector's element and n zeros, of which the last row's n are cut.
                let column = self.reshape([n, 1]).pad(&[(0, 0), (0, n)], zero_of(self.dtype()));
                Ok(column.flatten().narrow(0, ..n * n).reshape([n, n]))
            }
            [rows, columns] => {
                let count = rows.min(columns);
                let last = count.saturating_sub(1) * (columns + 1) + usize::from(count > 0);
                Ok(self.flatten().slice(0, ..last, columns + 1))
            }
            _ => Err(Error::invalid(format!("{} is neither vector nor matrix", self.dims()))),
        })
    }

    /// Broadcasts vectors against each other: result `i` varies along axis `i` as vector `i` does,
    /// like NumPy's `meshgrid` with `indexing="ij"`.
    #[track_caller]
    pub fn meshgrid(vectors: &[&Tensor]) -> Vec<Tensor> {
        let at = here();
        let sizes: Vec<usize> = vectors.iter().map(|vector| vector.count()).collect();
        let grid = |(axis, vector): (usize, &&Tensor)| {
            vector.attempt("meshgrid", at, || {
                if vector.sizes().len() != 1 {
                    return Err(Error::invalid(format!("{} is not a vector", vector.dims())));
                }
                let mut lone = vec![1; sizes.len()];
                lone[axis] = sizes[axis];
                Ok(vector.reshape(lone).expand(sizes.clone()))
            })
        };
        vectors.iter().enumerate().map(grid).collect()
    }

    /// Returns, for each id (`i32` or `u32`), a row of `classes` `f32` values: 1 at the id, 0
    /// elsewhere. An id outside the row yields zeros.
    #[track_caller]
    pub fn one_hot(&self, classes: usize) -> Tensor {
        let at = here();
        self.attempt("one_hot", at, || {
            let count = i32::try_from(classes)
                .map_err(|_| Error::invalid(format!("{classes} classes are over 2^31 - 1")))?;
            let ids = self.cast(DType::I32);
            ids.check()?;
            let all = Tensor::from_vec(self.runtime(), (0..count).collect::<Vec<i32>>(), [classes]);
            Ok(ids.unsqueeze(-1).eq(all).cast(DType::F32))
        })
    }

    /// Selects one element per id along an axis, like NumPy's `take_along_axis` and PyTorch's
    /// `gather`: `y[.., i, ..] = x[.., ids[.., i, ..], ..]`. All other sizes of `ids` (`i32` or
    /// `u32`) must be those of the tensor. An id outside the axis yields zero.
    #[track_caller]
    pub fn take_along_axis(&self, axis: isize, ids: &Tensor) -> Tensor {
        let at = here();
        self.attempt("take_along_axis", at, || {
            let place = self.axis(axis)?;
            ids.check()?;
            let fits = |(i, (a, b)): (usize, (&usize, &usize))| i == place || a == b;
            let sizes = self.sizes().iter().zip(ids.sizes()).enumerate();
            if self.sizes().len() != ids.sizes().len() || !sizes.into_iter().all(fits) {
                let (a, b) = (self.dims(), ids.dims());
                return Err(Error::invalid(format!("ids {b} do not fit {a} but for axis {place}")));
            }
            if self.count() == 0 {
                return Ok(Tensor::zeros(self.runtime(), ids.sizes()).cast(self.dtype()));
            }
            let flat = ids.flat_places(self.sizes(), place)?;
            let values = self.movedim(place as isize, -1).flatten().gather(0, &flat);
            Ok(values.movedim(-1, place as isize))
        })
    }
}

fn zero_of(dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool(false),
        DType::I32 | DType::U32 => Scalar::I32(0),
        _ => Scalar::F32(0.0),
    }
}

fn split_first<'a, T: AsRef<Tensor>>(
    tensors: &'a [T],
    name: &str,
) -> Result<(&'a Tensor, Vec<&'a Tensor>)> {
    let mut all = tensors.iter().map(AsRef::as_ref);
    let first = all.next().ok_or_else(|| Error::invalid(format!("{name} of no tensors")))?;
    Ok((first, all.collect()))
}

/// Returns the sizes of a list of counts.
fn sizes_of(counts: &impl Sizes) -> Result<Vec<usize>> {
    let counts = counts.sizes();
    let size = |count: &i64| {
        usize::try_from(*count)
            .map_err(|_| Error::invalid(format!("the count {count} in {counts:?}")))
    };
    counts.iter().map(size).collect()
}
