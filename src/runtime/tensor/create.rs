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
}

/// Returns the tensor that `make` creates, or a tensor with the error of `make`.
pub(super) fn made(
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
pub(super) fn filled<T>(count: usize, value: impl FnMut(usize) -> T) -> Result<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| {
        let bytes = (count as u64).saturating_mul(size_of::<T>() as u64);
        Error::out_of_memory("the memory of the host", bytes, 0)
    })?;
    values.extend((0..count).map(value));
    Ok(values)
}

pub(super) fn row<T: Element>(
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
