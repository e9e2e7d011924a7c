//! Tensors over the application's own `wgpu::Buffer`s, without a copy.

use std::sync::Arc;

use super::Tensor;
use super::arguments::{self, Sizes};
use super::node::Stored;
use super::place::here;
use crate::base::{DType, Format};
use crate::error::{Error, Result};
use crate::provider::{BufferRange, GRANULE};
use crate::runtime::Runtime;
use crate::webgpu::{Provider, wgpu};

/// Alignment of the first byte, which every adapter takes.
const ALIGNMENT: u64 = 256;

impl Tensor {
    /// Creates a tensor whose elements are in a buffer of the application, from byte `offset` on, in
    /// row-major order: 4 bytes each of `f32`, `i32`, `u32` and `bool`, 2 of `f16` and `bf16`. Nothing
    /// is copied. The runtime must be on the device that made the buffer
    /// ([`Provider::from_device`](crate::webgpu::Provider::from_device)).
    ///
    /// An operation reads the buffer when its work is submitted, so the application submits what
    /// writes the buffer before, and calls [`Runtime::flush`] before it overwrites the buffer.
    /// warploom does not write to it. The tensor holds a handle to the buffer, and never destroys it.
    ///
    /// ```no_run
    /// # fn of(runtime: &warploom::Runtime, positions: &warploom::webgpu::wgpu::Buffer)
    /// # -> warploom::Result<()> {
    /// use warploom::{DType, Tensor};
    ///
    /// let positions = Tensor::from_buffer(runtime, positions, 0, DType::F32, [1000, 3])?;
    /// let centre = positions.mean(0).to_vec::<f32>()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Invalid if the runtime is on a device of another provider; if the buffer lacks one of the
    /// usages `STORAGE`, `COPY_SRC` and `COPY_DST`; if `offset` is not a multiple of 256; if there are
    /// no elements; or if the buffer ends before the elements do, rounded up to 16 bytes. A buffer of
    /// another `wgpu::Device` is an error of the first read.
    #[track_caller]
    pub fn from_buffer(
        runtime: &Runtime,
        buffer: &wgpu::Buffer,
        offset: u64,
        dtype: DType,
        shape: impl Sizes,
    ) -> Result<Tensor> {
        let at = here();
        let shape = arguments::shape(&shape)?;
        let elements = shape.elements().as_const().unwrap_or(0).unsigned_abs();
        let bytes = elements * dtype.bytes();
        let whole = bytes.next_multiple_of(GRANULE);
        if elements == 0 {
            return Err(Error::invalid(format!("a tensor {shape} over memory has no elements")));
        }
        if !offset.is_multiple_of(ALIGNMENT) {
            return Err(Error::invalid(format!(
                "an offset of {offset} bytes, it must be a multiple of {ALIGNMENT}"
            )));
        }
        if offset.checked_add(whole).is_none_or(|end| end > buffer.size()) {
            return Err(Error::invalid(format!(
                "{bytes} bytes, rounded up to {whole}, from {offset} on in a buffer of {}",
                buffer.size()
            )));
        }
        let id = Provider::adopt(&**runtime.device(), buffer)?;
        let range = BufferRange { buffer: id, offset, bytes };
        let buffer = Arc::new(runtime.pool().adopt(range));
        let stored = Arc::new(Stored { buffer, format: Format::Plain(dtype), receipt: None });
        Ok(Tensor::from_stored(runtime, shape, dtype, "from_buffer", at, stored))
    }
}
