//! A device on wgpu's no-op backend, to measure host overhead.

use std::sync::Arc;

use super::device::{Source, WebGpuDevice};
use crate::provider::{Device, OpenOptions};

/// Creates a device that validates and encodes like any other but executes nothing; its kind is
/// `Null`. Downloads return undefined contents of the staging memory, so it is only for timing and
/// counting.
pub fn noop_device(options: &OpenOptions) -> Arc<dyn Device> {
    let (gpu, queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor::default());
    WebGpuDevice::open(gpu, queue, Source::default(), options)
}
