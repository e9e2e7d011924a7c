//! Tensors over the application's own `wgpu::Buffer`s, without a copy.

use super::device::{Buffer, WebGpuDevice};
use super::{Provider, as_webgpu};
use crate::base::DType;
use crate::error::{Error, Result};
use crate::provider::{BufferId, BufferRange, GRANULE};
use crate::runtime::Runtime;
use crate::tensor::{Sizes, Tensor};

/// Usages that kernels and copies need.
const USAGES: wgpu::BufferUsages = wgpu::BufferUsages::STORAGE
    .union(wgpu::BufferUsages::COPY_SRC)
    .union(wgpu::BufferUsages::COPY_DST);

impl Provider {
    /// Returns a tensor whose elements are in a buffer of the application, from byte `offset` on, in
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
    /// use warploom::DType;
    /// use warploom::webgpu::Provider;
    ///
    /// let positions = Provider::tensor_of(runtime, positions, 0, DType::F32, [1000, 3])?;
    /// let centre = positions.mean(0).to_vec::<f32>()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Invalid if the runtime is on a device of another provider; if the buffer lacks one of the
    /// usages `STORAGE`, `COPY_SRC` and `COPY_DST`; if `offset` is not a multiple of 256; or if the
    /// buffer ends before the elements do, rounded up to 16 bytes. A buffer of another `wgpu::Device`
    /// is an error of the first read.
    #[track_caller]
    pub fn tensor_of(
        runtime: &Runtime,
        buffer: &wgpu::Buffer,
        offset: u64,
        dtype: DType,
        shape: impl Sizes,
    ) -> Result<Tensor> {
        let device = as_webgpu(&**runtime.device()).ok_or_else(|| {
            let id = runtime.device().profile().id();
            Error::invalid(format!(
                "a buffer of wgpu on {id}, which is a device of another provider"
            ))
        })?;
        Tensor::over(runtime, dtype, shape, |bytes| {
            let whole = bytes.next_multiple_of(GRANULE);
            if !offset.is_multiple_of(256) {
                return Err(Error::invalid(format!(
                    "an offset of {offset} bytes, it must be a multiple of 256"
                )));
            }
            if offset.checked_add(whole).is_none_or(|end| end > buffer.size()) {
                return Err(Error::invalid(format!(
                    "{bytes} bytes, rounded up to {whole}, from {offset} on in a buffer of {}",
                    buffer.size()
                )));
            }
            let id = device.adopt(buffer)?;
            Ok(BufferRange { buffer: id, offset, bytes })
        })
    }
}

impl WebGpuDevice {
    /// Adds a buffer that is not this device's to destroy.
    fn adopt(&self, gpu: &wgpu::Buffer) -> Result<BufferId> {
        let lacks = USAGES.difference(gpu.usage());
        if !lacks.is_empty() {
            return Err(Error::invalid(format!("the buffer lacks the usage {lacks:?}")));
        }
        let buffer = Buffer { gpu: gpu.clone(), bytes: gpu.size(), is_foreign: true };
        let (index, generation) = self.state().buffers.insert(buffer);
        Ok(BufferId { index, generation })
    }
}
