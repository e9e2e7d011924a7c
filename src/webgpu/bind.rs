//! Resolves slots to buffers, ranges and grids to values, and bindings to bind groups, with checks.

use smallvec::SmallVec;

use super::compile::Kernel;
use super::device::{State, WebGpuDevice};
use super::prepare::{Bound, Num, ParamPlace, Range, Slot};
use crate::error::{Error, Result};
use crate::kernel::Access;
use crate::provider::{Binding, BufferRange, Recording};

/// Resolves the slots of a recording with the buffers bound to them.
pub(super) fn bind_slots(
    state: &State,
    work: &Recording,
    given: &[Option<BufferRange>],
) -> Result<Vec<Slot>> {
    if given.len() != work.slots.len() {
        let (need, have) = (work.slots.len(), given.len());
        return Err(Error::invalid(format!("the recording has {need} slots, {have} were given")));
    }
    let pairs = work.slots.iter().zip(given);
    pairs
        .map(|(decl, range)| {
            let bound = match range {
                Some(range) => Some(bind_slot(state, &decl.name, decl.bytes, *range)?),
                None => None,
            };
            Ok(Slot { name: decl.name.clone(), bytes: decl.bytes, bound })
        })
        .collect()
}

/// Checks and resolves `range` as the buffer of the slot `name`, which needs `bytes` bytes.
pub(super) fn bind_slot(
    state: &State,
    name: &str,
    bytes: u64,
    range: BufferRange,
) -> Result<Bound> {
    let buffer = state.buffer(range).map_err(|e| e.context(format!("slot {name:?}")))?;
    if range.bytes < bytes || !range.offset.is_multiple_of(4) {
        return Err(Error::invalid(format!(
            "slot {name:?} needs {bytes} bytes at a multiple of 4, given {} at {}",
            range.bytes, range.offset
        )));
    }
    Ok(Bound { range, gpu: buffer.gpu.clone() })
}

/// Returns the error for a slot index that the recording lacks.
pub(super) fn no_slot(slot: u32, slots: &[Slot]) -> Error {
    Error::invalid(format!("slot {slot} is not among the {} of the recording", slots.len()))
}

/// Checks that a range consists of whole words within its slot, with varying sizes taken from
/// `values`. Returns its offset and size in bytes.
pub(super) fn check_range(slots: &[Slot], range: Range, values: &[i64]) -> Result<(u64, u64)> {
    let slot = slots.get(range.slot as usize).ok_or_else(|| no_slot(range.slot, slots))?;
    let (offset, bytes) = (range.offset.get(values), range.bytes.get(values));
    // Buffers end on a whole word.
    let limit = slot.bytes.next_multiple_of(4);
    let fits = offset.checked_add(bytes).is_some_and(|end| end <= limit);
    if !fits || !offset.is_multiple_of(4) || !bytes.is_multiple_of(4) {
        return Err(Error::invalid(format!(
            "{bytes} bytes at {offset} of slot {:?} ({} bytes): past its end, or not whole words",
            slot.name, slot.bytes
        )));
    }
    Ok((offset, bytes))
}

/// Evaluates the workgroup counts in x, y and z and checks that each is at most `most`.
pub(super) fn eval_grid(sizes: &[Num; 3], values: &[i64], most: u32) -> Result<[u32; 3]> {
    let [x, y, z] = sizes.map(|size| size.get(values));
    let fits = |size: u64| u32::try_from(size).is_ok_and(|size| size <= most);
    if !(fits(x) && fits(y) && fits(z)) {
        return Err(Error::invalid(format!(
            "a grid of {x} x {y} x {z} workgroups, the device takes {most} in a dimension"
        )));
    }
    Ok([x as u32, y as u32, z as u32])
}

/// Builds the bind group of a dispatch; `bound` finds the buffer of a slot.
pub(super) fn bind_group<'b>(
    device: &WebGpuDevice,
    kernel: &Kernel,
    params: Option<&'b ParamPlace>,
    bindings: &[Binding],
    bound: impl Fn(u32) -> Option<&'b Bound>,
) -> Result<wgpu::BindGroup> {
    let alignment = u64::from(device.profile.binding_alignment.max(4));
    let mut entries: SmallVec<[wgpu::BindGroupEntry<'_>; 9]> = SmallVec::new();
    let mut places: SmallVec<[(BufferRange, Access); 8]> = SmallVec::new();
    let mut push = |binding: usize, buffer: &'b wgpu::Buffer, offset, bytes| {
        let size = std::num::NonZeroU64::new(bytes);
        let resource = wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size });
        entries.push(wgpu::BindGroupEntry { binding: binding as u32, resource });
    };
    if let Some(place) = params {
        push(0, &place.buffer, place.offset, place.bytes);
    }
    for (i, binding) in bindings.iter().enumerate() {
        let slot = bound(binding.slot)
            .ok_or_else(|| Error::invalid(format!("slot {} has no buffer", binding.slot)))?;
        let offset = slot.range.offset.saturating_add(binding.offset);
        if !offset.is_multiple_of(alignment) {
            return Err(Error::invalid(format!(
                "binding {i} starts at byte {offset}, not a multiple of {alignment}"
            )));
        }
        let place = BufferRange { buffer: slot.range.buffer, offset, bytes: binding.bytes };
        check_alias(&places, place, binding.access, i)?;
        places.push((place, binding.access));
        push(i + 1, &slot.gpu, offset, binding.bytes);
    }
    Ok(device.gpu.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some(&kernel.name),
        layout: &kernel.layout.group,
        entries: &entries,
    }))
}

/// Checks that a dispatch does not read and write one buffer through two bindings, or write
/// overlapping ranges.
fn check_alias(
    before: &[(BufferRange, Access)],
    place: BufferRange,
    access: Access,
    binding: usize,
) -> Result<()> {
    for (i, (other, other_access)) in before.iter().enumerate() {
        if other.buffer != place.buffer || (access, *other_access) == (Access::Read, Access::Read) {
            continue;
        }
        let apart = |a: &BufferRange, b: &BufferRange| a.offset + a.bytes <= b.offset;
        if access != *other_access || !(apart(other, &place) || apart(&place, other)) {
            return Err(Error::invalid(format!(
                "bindings {i} ({other_access:?}) and {binding} ({access:?}) share {:?}",
                place.buffer
            )));
        }
    }
    Ok(())
}
