//! A device on wgpu's backend that executes nothing, for measuring the host's share of the work.

use std::sync::Arc;

use super::device::{Source, WebGpuDevice};
use crate::provider::{Device, OpenOptions};

/// A device that validates and encodes as any other and executes nothing; its kind is `Null`.
/// Downloads bring whatever lies in the staging memory: it is for timing and counting only.
pub fn noop_device(options: &OpenOptions) -> Arc<dyn Device> {
    let (gpu, queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor::default());
    WebGpuDevice::open(gpu, queue, Source::default(), options)
}
