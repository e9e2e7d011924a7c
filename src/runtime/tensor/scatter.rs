//! Writes and additions at given indices: the opposite of lookups.

use super::Tensor;
use super::place::here;
use crate::base::DType;
use crate::error::Error;
use crate::ir::Op;

impl Tensor {
    /// Adds slices of `source` at indices of an axis, as candle's and PyTorch's `index_add`: slice
    /// `i` of `source` is added to slice `ids[i]`. `ids` is `[n]` of `i32` or `u32`; `source` has
    /// size `n` on the axis and otherwise this tensor's sizes. Slices with an id outside the axis
    /// are dropped. The sum of several slices with one id has the order of `ids` on every device.
    ///
    /// ```
    /// # use warploom::{Runtime, Tensor};
    /// # fn main() -> warploom::Result<()> {
    /// let runtime = Runtime::auto()?;
    /// let ids = Tensor::from_vec(&runtime, vec![2, 0, 2], [3]);
    /// let source = Tensor::from_vec(&runtime, vec![1.0_f32, 2.0, 3.0], [3]);
    /// let y = Tensor::zeros(&runtime, [3]).index_add(0, &ids, &source);
    /// assert_eq!(y.to_vec::<f32>()?, [2.0, 0.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn index_add(&self, axis: isize, ids: &Tensor, source: &Tensor) -> Tensor {
        let at = here();
        self.attempt("index_add", at, || {
            let place = self.axis(axis)? as isize;
            source.check()?;
            if source.sizes().len() != self.sizes().len() {
                let (a, b) = (self.dims(), source.dims());
                return Err(Error::invalid(format!("a source {b} does not fit {a}")));
            }
            let (x, rows) = (self.movedim(place, 0), source.movedim(place, 0));
            let sum = Tensor::record("index_add", at, Op::IndexAdd, &[&x, &rows, ids]);
            Ok(sum.movedim(0, place))
        })
    }

    /// Adds each element of `source` at an index of an axis, as candle's and PyTorch's
    /// `scatter_add`: `y[.., ids[.., i, ..], ..] += source[.., i, ..]`. `ids` (`i32` or `u32`) and
    /// `source` have one shape, which on all other axes is this tensor's. Elements with an id
    /// outside the axis are dropped. A GPU compares all ids for each element of the result:
    /// [`Tensor::index_add`] is faster where whole slices are added.
    #[track_caller]
    pub fn scatter_add(&self, axis: isize, ids: &Tensor, source: &Tensor) -> Tensor {
        let at = here();
        self.attempt("scatter_add", at, || {
            self.scattered(axis, ids, source, |x, ids, rows| {
                Tensor::record("scatter_add", at, Op::IndexAdd, &[x, rows, ids])
            })
        })
    }

    /// Replaces each element at an index of an axis with one of `source`, as PyTorch's `scatter` and
    /// candle's `scatter_set`: `y[.., ids[.., i, ..], ..] = source[.., i, ..]`. Shapes are those of
    /// [`Tensor::scatter_add`]. Of several elements with one place the last counts, on every device.
    /// Elements with an id outside the axis are dropped. The ids are sorted.
    #[track_caller]
    pub fn scatter(&self, axis: isize, ids: &Tensor, source: &Tensor) -> Tensor {
        let at = here();
        self.attempt("scatter", at, || {
            self.scattered(axis, ids, source, |x, ids, rows| {
                let (count, given) = (x.count() as i32, ids.count());
                // Sorted with the ids of its places, each element of the result comes right behind the ids
                // of its own place, because those were first.
                let own = Tensor::arange(self.runtime(), 0, count, 1);
                let order = ids.concat(&[&own], 0).argsort(0, false);
                let before = order.argsort(0, false).narrow(0, given..).cast(DType::I32).sub(1);
                let last = order.gather(0, &before).cast(DType::I32);
                let is_written = before
                    .ge(0)
                    .logical_and(last.lt(given as i32))
                    .logical_and(ids.gather(0, &last).eq(&own));
                is_written.select(rows.gather(0, &last), x)
            })
        })
    }

    /// Computes the result of `combine` from this tensor, the places of ids in it and a source, each
    /// as a vector; ids outside the axis are -1.
    fn scattered(
        &self,
        axis: isize,
        ids: &Tensor,
        source: &Tensor,
        combine: impl FnOnce(&Tensor, &Tensor, &Tensor) -> Tensor,
    ) -> Result<Tensor, Error> {
        let place = self.fitting(axis, ids, source)?;
        if self.count() == 0 || ids.count() == 0 {
            return Ok(self.clone());
        }
        let flat = ids.flat_places(self.sizes(), place)?.flatten();
        let x = self.movedim(place as isize, -1);
        let sizes = x.sizes().to_vec();
        let rows = source.movedim(place as isize, -1).flatten();
        let result = combine(&x.flatten(), &flat, &rows);
        result.check()?;
        Ok(result.reshape(sizes).movedim(-1, place as isize))
    }

    /// Checks that ids and a source have one shape, which fits this tensor on all axes but one;
    /// returns that axis.
    fn fitting(&self, axis: isize, ids: &Tensor, source: &Tensor) -> Result<usize, Error> {
        let place = self.axis(axis)?;
        ids.check()?;
        source.check()?;
        let fits = |(i, (a, b)): (usize, (&usize, &usize))| i == place || a == b;
        let mut sizes = self.sizes().iter().zip(ids.sizes()).enumerate();
        let same = self.sizes().len() == ids.sizes().len() && source.sizes() == ids.sizes();
        if same && sizes.all(fits) {
            return Ok(place);
        }
        let (a, b, c) = (self.dims(), ids.dims(), source.dims());
        Err(Error::invalid(format!("ids {b} and a source {c} do not fit {a} but for axis {place}")))
    }

    /// Returns, for ids along axis `place` of a tensor of this shape, their places among its
    /// elements with that axis last; -1 for an id outside. The axis of the ids is last too.
    pub(super) fn flat_places(&self, shape: &[usize], place: usize) -> Result<Tensor, Error> {
        let elements: usize = shape.iter().product();
        let (n, rows) = (shape[place], elements / shape[place].max(1));
        let count = i32::try_from(elements)
            .map_err(|_| Error::invalid(format!("{elements} elements are over 2^31 - 1")))?;
        let ids = self.cast(DType::I32).movedim(place as isize, -1);
        // One row of n elements for each position of the other axes.
        let starts: Vec<i32> = (0..count).step_by(n.max(1)).take(rows).collect();
        let mut by_row = ids.sizes().to_vec();
        if let Some(last) = by_row.last_mut() {
            *last = 1;
        }
        let starts = Tensor::from_vec(self.runtime(), starts, by_row);
        let inside = ids.ge(0).logical_and(ids.lt(n as i32));
        Ok(inside.select(ids.add(starts), -1))
    }
}
