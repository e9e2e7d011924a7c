//! Creation of tensors.

use super::arguments::{self, Sizes};
use super::eval::upload;
use super::place::here;
use super::{Element, Number, Place, Scalar, Tensor};
use crate::base::{DType, Dim, Format, Shape};
use crate::error::{Error, Result};
use crate::provider::Usage;
use crate::runtime::Runtime;

impl Tensor {
    /// Creates a tensor from values in row-major order, which are copied to the device immediately.
    ///
    /// ```
    /// # use warploom::{Runtime, Tensor};
    /// # fn main() -> warploom::Result<()> {
    /// let x = Tensor::from_vec(&Runtime::auto()?, vec![1, 2, 3, 4], [2, 2]);
    /// assert_eq!((x.shape(), x.dtype().name()), (&[2, 2][..], "i32"));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn from_vec<T: Element>(runtime: &Runtime, values: Vec<T>, shape: impl Sizes) -> Tensor {
        Tensor::from_slice(runtime, &values, shape)
    }

    /// Creates a tensor from values in row-major order, which are copied to the device immediately.
    #[track_caller]
    pub fn from_slice<T: Element>(runtime: &Runtime, values: &[T], shape: impl Sizes) -> Tensor {
        let at = here();
        made(runtime, "from_slice", at, || {
            let shape = arguments::shape(&shape)?;
            if shape.elements() != Dim::from(values.len()) {
                let (have, want) = (values.len(), shape.elements());
                return Err(Error::invalid(format!(
                    "{have} numbers for the shape {shape} of {want}"
                )));
            }
            let bytes = T::encode(values)?;
            let stored = upload(runtime, &bytes, Format::Plain(T::DTYPE), Usage::Working)?;
            Ok(Tensor::from_stored(runtime, shape, T::DTYPE, "from_slice", at, stored))
        })
    }

    /// Creates a zero-dimensional tensor whose value is on the device. Unlike a scalar in an
    /// expression, it is never compiled in.
    #[track_caller]
    pub fn scalar<T: Element>(runtime: &Runtime, value: T) -> Tensor {
        Tensor::from_slice(runtime, &[value], ())
    }

    /// Creates a weight matrix from bytes in a storage format, such as the blocks of a GGUF file.
    /// `shape` is `[rows, columns]` in elements. Only [`Tensor::linear`] and row lookup by
    /// [`Tensor::gather`] along axis 0 read packed weights.
    #[track_caller]
    pub fn quantised(runtime: &Runtime, format: Format, bytes: &[u8], shape: impl Sizes) -> Tensor {
        let at = here();
        made(runtime, "quantised", at, || {
            let shape = arguments::shape(&shape)?;
            let row = shape.dims().last().and_then(Dim::as_const).unwrap_or(1);
            if !row.unsigned_abs().is_multiple_of(format.block_len()) {
                let block = format.block_len();
                let what = format!("rows of {row} are not whole {format} blocks of {block}");
                return Err(Error::invalid(what));
            }
            let elements = shape.elements().as_const().unwrap_or(0).unsigned_abs();
            let want = format.bytes(elements).unwrap_or(u64::MAX);
            if bytes.len() as u64 != want {
                let have = bytes.len();
                let what = format!("{have} bytes for {shape} in format {format}, not {want}");
                return Err(Error::invalid(what));
            }
            let dtype = match format {
                Format::Plain(dtype) => dtype,
                _ => DType::F32,
            };
            let stored = upload(runtime, bytes, format, Usage::Weights)?;
            Ok(Tensor::from_stored(runtime, shape, dtype, "quantised", at, stored))
        })
    }

    /// Creates a tensor with the same value in every element; it uses no device memory until it is
    /// evaluated.
    #[track_caller]
    pub fn full(runtime: &Runtime, shape: impl Sizes, value: impl Into<Scalar>) -> Tensor {
        let (at, value) = (here(), value.into());
        made(runtime, "full", at, || {
            let shape = arguments::shape(&shape)?;
            let word = value.word(value.dtype())?;
            Ok(Tensor::constant(runtime, shape, value.dtype(), "full", at, word))
        })
    }

    /// Creates a tensor of `f32` zeros; see [`Tensor::full`].
    #[track_caller]
    pub fn zeros(runtime: &Runtime, shape: impl Sizes) -> Tensor {
        Tensor::full(runtime, shape, 0.0)
    }

    /// Creates a tensor of `f32` ones; see [`Tensor::full`].
    #[track_caller]
    pub fn ones(runtime: &Runtime, shape: impl Sizes) -> Tensor {
        Tensor::full(runtime, shape, 1.0)
    }

    /// Creates a tensor `[n]` with the values `start`, `start + step` and so on, below `end` (above
    /// it for a negative step), in the type of the arguments.
    #[track_caller]
    pub fn arange<T: Number>(runtime: &Runtime, start: T, end: T, step: T) -> Tensor {
        let at = here();
        made(runtime, "arange", at, || {
            let [start, end, step] = [start, end, step].map(Number::to_f64);
            let count = ((end - start) / step).ceil();
            if !count.is_finite() || count > f64::from(i32::MAX) {
                let what = format!("from {start} to {end} by {step} is not a finite row");
                return Err(Error::invalid(what));
            }
            let number = |i: usize| T::from_f64(start + i as f64 * step);
            let values = filled(count.max(0.0) as usize, number)?;
            row(runtime, "arange", at, &values)
        })
    }

    /// Creates an `f32` tensor `[count]` of evenly spaced values from `start` to `end`, both
    /// included.
    #[track_caller]
    pub fn linspace(runtime: &Runtime, start: f32, end: f32, count: usize) -> Tensor {
        let at = here();
        made(runtime, "linspace", at, || {
            let (start, end) = (f64::from(start), f64::from(end));
            let step = (end - start) / count.saturating_sub(1).max(1) as f64;
            let values = filled(count, |i| (start + i as f64 * step) as f32)?;
            row(runtime, "linspace", at, &values)
        })
    }

    /// Creates the `f32` identity matrix `[n, n]`.
    #[track_caller]
    pub fn eye(runtime: &Runtime, n: usize) -> Tensor {
        let at = here();
        made(runtime, "eye", at, || {
            let shape = arguments::shape(&[n, n])?;
            let values = filled(n * n, |i| if i % (n + 1) == 0 { 1.0_f32 } else { 0.0 })?;
            let bytes = f32::encode(&values)?;
            let stored = upload(runtime, &bytes, Format::F32, Usage::Working)?;
            Ok(Tensor::from_stored(runtime, shape, DType::F32, "eye", at, stored))
        })
    }

    /// Creates a tensor `[n]` of the values of an iterator.
    #[track_caller]
    pub fn from_values<T: Element>(
        runtime: &Runtime,
        values: impl IntoIterator<Item = T>,
    ) -> Tensor {
        let at = here();
        let values: Vec<T> = values.into_iter().collect();
        made(runtime, "from_values", at, || row(runtime, "from_values", at, &values))
    }

    /// Creates a tensor of the shape and type of this one, with the same value in every element.
    #[track_caller]
    pub fn full_like(&self, value: impl Into<Scalar>) -> Tensor {
        let (at, value) = (here(), value.into());
        self.attempt("full_like", at, || {
            // Graph constants are four bytes.
            let wide = if self.dtype().is_half() { DType::F32 } else { self.dtype() };
            let (shape, word) = (self.dims().clone(), value.word(wide)?);
            let full = Tensor::constant(self.runtime(), shape, wide, "full_like", at, word);
            Ok(full.cast(self.dtype()))
        })
    }

    /// Creates a tensor of zeros, or of `false`, of the shape and type of this one.
    #[track_caller]
    pub fn zeros_like(&self) -> Tensor {
        match self.dtype() {
            DType::Bool => self.full_like(false),
            _ => self.full_like(0),
        }
    }

    /// Creates a tensor of ones, or of `true`, of the shape and type of this one.
    #[track_caller]
    pub fn ones_like(&self) -> Tensor {
        match self.dtype() {
            DType::Bool => self.full_like(true),
            _ => self.full_like(1),
        }
    }

    /// Creates a tensor of uniformly distributed `i32` values of a range, by a seed.
    #[track_caller]
    pub fn rand_int(
        runtime: &Runtime,
        range: std::ops::Range<i32>,
        shape: impl Sizes,
        seed: u64,
    ) -> Tensor {
        let at = here();
        made(runtime, "rand_int", at, || {
            let shape = arguments::shape(&shape)?;
            let size = i64::from(range.end) - i64::from(range.start);
            if size <= 0 {
                let std::ops::Range { start, end } = range;
                return Err(Error::invalid(format!("no integer in {start}..{end}")));
            }
            let mut state = seed;
            // The high half of a 64-bit product: the bias is below 2^-32.
            let number = |bits: u64| ((u128::from(bits) * size as u128) >> 64) as i64;
            let count = shape.elements().as_const().unwrap_or(0);
            let numbers = (0..count).map(|_| number(splitmix(&mut state)) + i64::from(range.start));
            let values: Vec<i32> = numbers.map(|number| number as i32).collect();
            let format = Format::Plain(DType::I32);
            let stored = upload(runtime, &i32::encode(&values)?, format, Usage::Working)?;
            Ok(Tensor::from_stored(runtime, shape, DType::I32, "rand_int", at, stored))
        })
    }

    /// Creates a tensor `[n]` of the `u32` values 0 to `n - 1` in random order, by a seed.
    #[track_caller]
    pub fn permutation(runtime: &Runtime, n: usize, seed: u64) -> Tensor {
        let at = here();
        made(runtime, "permutation", at, || {
            let count = u32::try_from(n)
                .map_err(|_| Error::invalid(format!("{n} values do not fit u32")))?;
            let mut values = filled(count as usize, |i| i as u32)?;
            let mut state = seed;
            // Fisher and Yates.
            for i in (1..values.len()).rev() {
                let j = (u128::from(splitmix(&mut state)) * (i as u128 + 1)) >> 64;
                values.swap(i, j as usize);
            }
            row(runtime, "permutation", at, &values)
        })
    }

    /// Creates a tensor of uniformly distributed `f32` values in [0, 1). A seed yields the same
    /// values on every platform.
    #[track_caller]
    pub fn rand(runtime: &Runtime, shape: impl Sizes, seed: u64) -> Tensor {
        random(runtime, "rand", here(), &shape, seed, |bits| unit(bits()) as f32)
    }

    /// Creates a tensor of normally distributed `f32` values with mean 0 and variance 1 from a
    /// seed.
    #[track_caller]
    pub fn randn(runtime: &Runtime, shape: impl Sizes, seed: u64) -> Tensor {
        random(runtime, "randn", here(), &shape, seed, |bits| {
            // Box-Muller; the logarithm needs a nonzero value.
            let (u, v) = (1.0 - unit(bits()), unit(bits()));
            ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
        })
    }
}

/// Returns the tensor that `make` creates, or a tensor with the error of `make`.
fn made(
    runtime: &Runtime,
    name: &'static str,
    at: Place,
    make: impl FnOnce() -> Result<Tensor>,
) -> Tensor {
    make().unwrap_or_else(|error| Tensor::failed(runtime, name, at, error))
}

/// Computes the values of a row on the host.
///
/// # Errors
/// Out of memory if they do not fit the memory of the host.
fn filled<T>(count: usize, value: impl Fn(usize) -> T) -> Result<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| {
        let bytes = (count as u64).saturating_mul(size_of::<T>() as u64);
        Error::out_of_memory("the memory of the host", bytes, 0)
    })?;
    values.extend((0..count).map(value));
    Ok(values)
}

fn row<T: Element>(
    runtime: &Runtime,
    name: &'static str,
    at: Place,
    values: &[T],
) -> Result<Tensor> {
    let format = Format::Plain(T::DTYPE);
    let stored = upload(runtime, &T::encode(values)?, format, Usage::Working)?;
    let shape = Shape::new([values.len()]);
    Ok(Tensor::from_stored(runtime, shape, T::DTYPE, name, at, stored))
}

fn random(
    runtime: &Runtime,
    name: &'static str,
    at: Place,
    sizes: &impl Sizes,
    seed: u64,
    number: impl Fn(&mut dyn FnMut() -> u64) -> f32,
) -> Tensor {
    made(runtime, name, at, || {
        let shape = arguments::shape(sizes)?;
        let count = shape.elements().as_const().unwrap_or(0);
        let mut state = seed;
        let mut bits = || splitmix(&mut state);
        let values: Vec<f32> = (0..count).map(|_| number(&mut bits)).collect();
        let stored = upload(runtime, &f32::encode(&values)?, Format::F32, Usage::Working)?;
        Ok(Tensor::from_stored(runtime, shape, DType::F32, name, at, stored))
    })
}

/// Advances SplitMix64 (Steele, Lea and Flood, 2014), which works with every seed.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Maps random bits to [0, 1), to a value that `f32` represents exactly.
fn unit(bits: u64) -> f64 {
    (bits >> 40) as f64 / f64::from(1 << 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_is_the_published_one() {
        let mut state = 1_234_567;
        let first = [splitmix(&mut state), splitmix(&mut state)];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }
}
