//! The application's own `wgpu::Buffer`s as memory of a device.

use super::device::{Buffer, WebGpuDevice};
use super::{Provider, as_webgpu};
use crate::error::{Error, Result};
use crate::provider::{BufferId, Device};

/// Usages that kernels and copies need.
const USAGES: wgpu::BufferUsages = wgpu::BufferUsages::STORAGE
    .union(wgpu::BufferUsages::COPY_SRC)
    .union(wgpu::BufferUsages::COPY_DST);

impl Provider {
    /// Makes a buffer of the application memory of the device that made it. Freeing it leaves the
    /// buffer as it is.
    ///
    /// # Errors
    /// Invalid for a device of another provider, and if the buffer lacks a usage.
    pub(crate) fn adopt(device: &dyn Device, buffer: &wgpu::Buffer) -> Result<BufferId> {
        match as_webgpu(device) {
            Some(device) => device.adopt(buffer),
            None => {
                let id = device.profile().id();
                let text =
                    format!("a buffer of wgpu on {id}, which is a device of another provider");
                Err(Error::invalid(text))
            }
        }
    }
}

impl WebGpuDevice {
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
