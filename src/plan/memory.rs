//! Where every tensor lies.
//!
//! Intermediates live in a few arena buffers. A GPU interface tracks use by whole buffers, and a
//! dispatch may not read and write one buffer through different bindings, so the tensor a step
//! writes never shares a buffer with one it reads. The arithmetic is in `memory`.

use super::SlotRole;
use super::draft::{Draft, Place};
use crate::broken_invariant;
use crate::engine::{Step, TensorRole};
use crate::error::{Error, Result};
use crate::kernel;
use crate::memory::arena::{Item, arena};
use crate::memory::lifetime::{Access, lifetimes};

/// Offsets are multiples of this, which is WebGPU's own binding alignment.
pub(super) const ALIGN: u64 = 256;

pub(super) fn memory(draft: &mut Draft) -> Result<()> {
    let touched: Vec<Access> = draft.steps.iter().map(touched).collect();
    let kept: Vec<usize> = draft.output_views.iter().map(|(_, v)| v.tensor.index()).collect();
    let lives = lifetimes(&touched, draft.tensors.len(), &kept);
    let is_bound = |i: usize| draft.bound_outputs.iter().any(|(_, tensor)| tensor.index() == i);
    let items: Vec<Option<Item>> = draft
        .tensors
        .iter()
        .zip(lives)
        .enumerate()
        .map(|(i, (tensor, life))| match tensor.role {
            TensorRole::Intermediate if !is_bound(i) => {
                Some(Item { bytes: tensor.bytes, life: life? })
            }
            _ => None,
        })
        .collect();
    let align = ALIGN.max(u64::from(draft.profile.binding_alignment));
    let sizes = items.iter().flatten().map(|item| item.bytes.checked_next_multiple_of(align));
    if sizes.into_iter().try_fold(0u64, |sum, bytes| sum.checked_add(bytes?)).is_none() {
        return Err(Error::invalid("the sizes of intermediates do not fit 64 bits"));
    }
    let arena = arena(&touched, &items, align);
    let first = draft.slots.len() as u32;
    for (buffer, bytes) in arena.buffers.iter().enumerate() {
        draft.slots.push(SlotRole::Arena(buffer as u32));
        draft.recording.slot(format!("arena {buffer}"), *bytes);
    }
    let mut places: Vec<Option<Place>> = arena
        .places
        .iter()
        .map(|place| place.map(|(buffer, offset)| Place { slot: first + buffer as u32, offset }))
        .collect();
    for (name, tensor) in &draft.bound_outputs {
        places[tensor.index()] = Some(Place { slot: draft.slots.len() as u32, offset: 0 });
        draft.slots.push(SlotRole::Output(name.clone()));
        draft.recording.slot(name.clone(), draft.tensors[tensor.index()].bytes);
    }
    fixed(draft, align, &mut places);
    draft.places = places
        .into_iter()
        .zip(&draft.tensors)
        .map(|(place, tensor)| match (place, &tensor.role) {
            (Some(place), _) => place,
            // Made and never touched by a step: nothing will ask for it.
            (None, TensorRole::Intermediate) => Place { slot: u32::MAX, offset: 0 },
            (None, role) => broken_invariant(format_args!("no place for {role:?}")),
        })
        .collect();
    Ok(())
}

/// Slots for uploaded inputs, constants and counters, one buffer each, and for weights, states and bound
/// inputs, one each.
fn fixed(draft: &mut Draft, align: u64, places: &mut [Option<Place>]) {
    let (mut inputs, mut counters, mut constants) = (0, 0, Vec::new());
    let mut input_places = Vec::new();
    let mut constant_places = Vec::new();
    let mut counter_places = Vec::new();
    for (i, tensor) in draft.tensors.iter().enumerate() {
        match &tensor.role {
            TensorRole::Intermediate => {}
            TensorRole::Input(name) if draft.options.bound.inputs.contains(name) => {
                draft.slots.push(SlotRole::Input(name.clone()));
                let slot = draft.recording.slot(name.clone(), tensor.bytes);
                places[i] = Some(Place { slot, offset: 0 });
            }
            TensorRole::Input(_) => {
                input_places.push((i, inputs));
                inputs += tensor.bytes.next_multiple_of(align);
            }
            TensorRole::Counters => {
                counter_places.push((i, counters));
                counters += tensor.bytes.next_multiple_of(align);
            }
            TensorRole::Constant(words) => {
                constant_places.push((i, constants.len() as u64));
                constants.extend(words.iter().flat_map(|word| word.to_le_bytes()));
                constants.resize(constants.len().max(4).next_multiple_of(align as usize), 0);
            }
            TensorRole::Weight(name) => {
                draft.slots.push(SlotRole::Weight(name.clone()));
                let slot = draft.recording.slot(name.clone(), tensor.bytes);
                places[i] = Some(Place { slot, offset: 0 });
            }
            TensorRole::Merged(names) => {
                draft.slots.push(SlotRole::Merged(names.clone()));
                let slot = draft.recording.slot(tensor.name.clone(), tensor.bytes);
                places[i] = Some(Place { slot, offset: 0 });
            }
            TensorRole::State(name) => {
                draft.slots.push(SlotRole::State(name.clone()));
                let slot = draft.recording.slot(name.clone(), tensor.bytes);
                places[i] = Some(Place { slot, offset: 0 });
            }
        }
    }
    let groups = [
        (SlotRole::Inputs, "inputs", inputs, input_places),
        (
            SlotRole::Constants(constants.clone()),
            "constants",
            constants.len() as u64,
            constant_places,
        ),
        (SlotRole::Counters, "counters", counters, counter_places),
    ];
    for (role, name, bytes, members) in groups {
        if members.is_empty() {
            continue;
        }
        draft.slots.push(role);
        let slot = draft.recording.slot(name, bytes);
        for (i, offset) in members {
            places[i] = Some(Place { slot, offset });
        }
    }
}

/// What a step reads and writes.
fn touched(step: &Step) -> Access {
    let of = |access| {
        let bindings = step.bindings.iter().filter(move |b| b.access == access);
        bindings.map(|b| b.tensor.index()).collect()
    };
    Access { reads: of(kernel::Access::Read), writes: of(kernel::Access::ReadWrite) }
}
