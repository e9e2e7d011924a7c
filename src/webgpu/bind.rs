//! Builds bind groups from checked bindings.

use smallvec::SmallVec;

use super::compile::Kernel;
use super::device::{State, WebGpuDevice};
use super::prepare::ParamPlace;
use crate::error::Result;
use crate::provider::BufferRange;

/// Builds the bind group of a launch; `ranges` are the buffer ranges of its bindings, in order.
///
/// # Errors
/// Invalid if a buffer is not live.
pub(super) fn bind_group(
    device: &WebGpuDevice,
    state: &State,
    kernel: &Kernel,
    params: Option<&ParamPlace>,
    ranges: &[BufferRange],
) -> Result<wgpu::BindGroup> {
    let mut entries: SmallVec<[wgpu::BindGroupEntry<'_>; 9]> = SmallVec::new();
    let entry = |binding: usize, buffer, offset, bytes| {
        let size = std::num::NonZeroU64::new(bytes);
        let resource = wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size });
        wgpu::BindGroupEntry { binding: binding as u32, resource }
    };
    if let Some(place) = params {
        entries.push(entry(0, &place.buffer, place.offset, place.bytes));
    }
    for (i, range) in ranges.iter().enumerate() {
        let buffer = &state.buffer(*range)?.gpu;
        entries.push(entry(i + 1, buffer, range.offset, range.bytes));
    }
    Ok(device.gpu.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some(&kernel.name),
        layout: &kernel.layout.group,
        entries: &entries,
    }))
}
