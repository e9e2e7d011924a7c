//! Order: sorting, the largest elements, quantiles and distinct values.

use super::place::here;
use super::{Place, Tensor};
use crate::base::DType;
use crate::error::{Error, Result};
use crate::ir::Op;

/// Largest number of elements that are searched for one by one rather than sorted.
const SEARCHED: usize = 16;

impl Tensor {
    /// Returns the indices along an axis in the order of their elements, as `u32`, like NumPy's
    /// `argsort` with `stable`: equal elements keep the order of their indices, in both directions.
    /// NaN counts as the largest element. Elements are numbers.
    #[track_caller]
    pub fn argsort(&self, axis: isize, descending: bool) -> Tensor {
        let at = here();
        self.attempt("argsort", at, || self.sorted_ids(self.axis(axis)?, descending, "argsort", at))
    }

    /// Sorts the elements along an axis; NaN counts as the largest. Gradients flow to where the
    /// elements came from.
    ///
    /// ```
    /// # use warploom::{Runtime, Tensor};
    /// # fn main() -> warploom::Result<()> {
    /// let runtime = Runtime::auto()?;
    /// let x = Tensor::from_vec(&runtime, vec![3.0_f32, 1.0, 2.0], [3]);
    /// assert_eq!(x.sort(0, false).to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    /// assert_eq!(x.argsort(0, true).to_vec::<u32>()?, [0, 2, 1]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn sort(&self, axis: isize, descending: bool) -> Tensor {
        let at = here();
        self.attempt("sort", at, || {
            let ids = self.sorted_ids(self.axis(axis)?, descending, "sort", at)?;
            Ok(self.take_along_axis(axis, &ids))
        })
    }

    /// Returns the `k` largest elements along an axis, the largest first, and their indices as
    /// `u32`, the lowest first among equals. NaN counts as the largest.
    #[track_caller]
    pub fn top_k(&self, k: usize, axis: isize) -> (Tensor, Tensor) {
        let at = here();
        let ids = self.attempt("top_k", at, || {
            let place = self.axis(axis)?;
            let count = self.sizes()[place];
            if k > count {
                return Err(Error::invalid(format!("the {k} largest of {count} elements")));
            }
            if k > SEARCHED || !self.dtype().is_float() {
                let ids = self.sorted_ids(place, true, "top_k", at)?;
                return Ok(ids.narrow(axis, ..k));
            }
            let last = self.detach().with_last(place, at);
            Ok(Tensor::record("top_k", at, Op::TopK { k }, &[&last]).with_last(place, at))
        });
        match ids.check() {
            Ok(()) => (self.take_along_axis(axis, &ids), ids),
            Err(_) => (ids.clone(), ids),
        }
    }

    /// Computes the median along an axis, the mean of the two middle elements of an even number;
    /// NaN if an element is NaN. Removes the axis.
    #[track_caller]
    pub fn median(&self, axis: isize) -> Tensor {
        let at = here();
        self.attempt("median", at, || self.quantile_of(axis, 0.5, "median", at))
    }

    /// Computes the quantile `q`, from 0 to 1, along an axis, interpolated linearly between two
    /// elements as NumPy does; NaN if an element is NaN. Removes the axis.
    #[track_caller]
    pub fn quantile(&self, q: f32, axis: isize) -> Tensor {
        let at = here();
        self.attempt("quantile", at, || {
            if !(0.0..=1.0).contains(&q) {
                return Err(Error::invalid(format!("the quantile {q} is not from 0 to 1")));
            }
            self.quantile_of(axis, f64::from(q), "quantile", at)
        })
    }

    /// Returns the distinct elements in ascending order, and how often each occurs, as `u32`. All
    /// NaN are one element, the last. Waits for the device, which sorts the elements.
    ///
    /// # Errors
    /// Same as [`Tensor::to_vec`]; invalid for elements that are not numbers.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn unique(&self) -> Result<(Tensor, Tensor)> {
        crate::base::platform::block_on(self.unique_async())
    }

    /// Async version of [`Tensor::unique`]; see [`crate::tensor`].
    ///
    /// # Errors
    /// Same as [`Tensor::unique`].
    pub async fn unique_async(&self) -> Result<(Tensor, Tensor)> {
        let sorted = self.detach().flatten().sort(0, false);
        let narrow = self.dtype().is_half();
        match self.dtype() {
            DType::I32 => distinct::<i32>(&sorted, |a, b| a == b).await,
            DType::U32 => distinct::<u32>(&sorted, |a, b| a == b).await,
            _ => {
                let wide = if narrow { sorted.cast(DType::F32) } else { sorted };
                let same = |a: &f32, b: &f32| a == b || (a.is_nan() && b.is_nan());
                let (values, counts) = distinct::<f32>(&wide, same).await?;
                Ok((if narrow { values.cast(self.dtype()) } else { values }, counts))
            }
        }
    }

    fn sorted_ids(
        &self,
        axis: usize,
        descending: bool,
        name: &'static str,
        at: Place,
    ) -> Result<Tensor> {
        // Indices have no gradient.
        let last = self.detach().with_last(axis, at);
        let ids = Tensor::record(name, at, Op::ArgSort { descending }, &[&last]);
        ids.check()?;
        Ok(ids.with_last(axis, at))
    }

    fn quantile_of(&self, axis: isize, q: f64, name: &'static str, at: Place) -> Result<Tensor> {
        let place = self.axis(axis)?;
        let count = self.sizes()[place];
        if !self.dtype().is_float() {
            return Err(Error::invalid(format!("needs floats, not {}: cast before", self.dtype())));
        }
        if count == 0 {
            return Err(Error::invalid(format!("axis {place} of {} is empty", self.dims())));
        }
        let ids = self.sorted_ids(place, false, name, at)?;
        let sorted = self.take_along_axis(axis, &ids);
        let exact = q * (count - 1) as f64;
        let low = (exact.floor() as usize).min(count - 1);
        let at_index = |index: usize| sorted.narrow(axis, index..=index).squeeze(axis);
        let (below, above) = (at_index(low), at_index((low + 1).min(count - 1)));
        let weight = (exact - low as f64) as f32;
        // An infinity minus itself would be NaN.
        let between = match weight {
            0.0 => below,
            _ => below.eq(&above).select(&below, below.lerp(&above, weight)),
        };
        let last = at_index(count - 1);
        Ok(last.is_nan().select(&last, between))
    }
}

/// Returns the distinct values of a sorted vector and their numbers.
async fn distinct<T: super::Element>(
    sorted: &Tensor,
    same: impl Fn(&T, &T) -> bool,
) -> Result<(Tensor, Tensor)> {
    let all = sorted.to_vec_async::<T>().await?;
    let (mut values, mut counts): (Vec<T>, Vec<u32>) = (Vec::new(), Vec::new());
    for value in all {
        match (values.last(), counts.last_mut()) {
            (Some(last), Some(count)) if same(last, &value) => *count += 1,
            _ => {
                values.push(value);
                counts.push(1);
            }
        }
    }
    let (runtime, count) = (sorted.runtime(), values.len());
    Ok((Tensor::from_vec(runtime, values, [count]), Tensor::from_vec(runtime, counts, [count])))
}
