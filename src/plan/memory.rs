//! The pass `memory`: assigns a location to every tensor.
//!
//! Intermediates share a few arena buffers (buffer colouring). GPU interfaces track the use of
//! whole buffers, and a dispatch may not read and write one buffer through different bindings, so
//! the tensor that a step writes never shares a buffer with one that it reads. The algorithms are
//! in `crate::memory`.

use super::SlotRole;
use super::builder::{Place, PlanBuilder};
use crate::broken_invariant;
use crate::engine::{Step, TensorRole};
use crate::error::{Error, Result};
use crate::kernel;
use crate::memory::arena::{Item, arena};
use crate::memory::lifetime::{Access, lifetimes};

/// Alignment of offsets: WebGPU's binding alignment.
pub(super) const ALIGN: u64 = 256;

pub(super) fn memory(builder: &mut PlanBuilder) -> Result<()> {
    let touched: Vec<Access> = builder.steps.iter().map(touched).collect();
    let kept: Vec<usize> = builder.output_views.iter().map(|(_, v)| v.tensor.index()).collect();
    let lives = lifetimes(&touched, builder.tensors.len(), &kept);
    let is_bound = |i: usize| builder.bound_outputs.iter().any(|(_, tensor)| tensor.index() == i);
    let items: Vec<Option<Item>> = builder
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
    let align = ALIGN.max(u64::from(builder.profile.binding_alignment));
    let sizes = items.iter().flatten().map(|item| item.bytes.checked_next_multiple_of(align));
    if sizes.into_iter().try_fold(0u64, |sum, bytes| sum.checked_add(bytes?)).is_none() {
        return Err(Error::invalid("the sizes of intermediates do not fit 64 bits"));
    }
    let arena = arena(&touched, &items, align);
    let first = builder.slots.len() as u32;
    for (buffer, bytes) in arena.buffers.iter().enumerate() {
        builder.slots.push(SlotRole::Arena(buffer as u32));
        builder.recording.slot(format!("arena {buffer}"), *bytes);
    }
    let mut places: Vec<Option<Place>> = arena
        .places
        .iter()
        .map(|place| place.map(|(buffer, offset)| Place { slot: first + buffer as u32, offset }))
        .collect();
    for (name, tensor) in &builder.bound_outputs {
        places[tensor.index()] = Some(Place { slot: builder.slots.len() as u32, offset: 0 });
        builder.slots.push(SlotRole::Output(name.clone()));
        builder.recording.slot(name.clone(), builder.tensors[tensor.index()].bytes);
    }
    fixed(builder, align, &mut places);
    builder.places = places
        .into_iter()
        .zip(&builder.tensors)
        .map(|(place, tensor)| match (place, &tensor.role) {
            (Some(place), _) => place,
            // Created, but touched by no step: it needs no memory.
            (None, TensorRole::Intermediate) => Place { slot: u32::MAX, offset: 0 },
            (None, role) => broken_invariant(format_args!("no place for {role:?}")),
        })
        .collect();
    Ok(())
}

/// Adds slots for uploaded inputs, constants and counters, one buffer each, and for weights, states
/// and bound inputs, one buffer per tensor.
fn fixed(builder: &mut PlanBuilder, align: u64, places: &mut [Option<Place>]) {
    let (mut inputs, mut counters, mut constants) = (0, 0, Vec::new());
    let mut input_places = Vec::new();
    let mut constant_places = Vec::new();
    let mut counter_places = Vec::new();
    for (i, tensor) in builder.tensors.iter().enumerate() {
        match &tensor.role {
            TensorRole::Intermediate => {}
            TensorRole::Input(name) if builder.options.bound.inputs.contains(name) => {
                builder.slots.push(SlotRole::Input(name.clone()));
                let slot = builder.recording.slot(name.clone(), tensor.bytes);
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
                builder.slots.push(SlotRole::Weight(name.clone()));
                let slot = builder.recording.slot(name.clone(), tensor.bytes);
                places[i] = Some(Place { slot, offset: 0 });
            }
            TensorRole::Merged(names) => {
                builder.slots.push(SlotRole::Merged(names.clone()));
                let slot = builder.recording.slot(tensor.name.clone(), tensor.bytes);
                places[i] = Some(Place { slot, offset: 0 });
            }
            TensorRole::State(name) => {
                builder.slots.push(SlotRole::State(name.clone()));
                let slot = builder.recording.slot(name.clone(), tensor.bytes);
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
        builder.slots.push(role);
        let slot = builder.recording.slot(name, bytes);
        for (i, offset) in members {
            places[i] = Some(Place { slot, offset });
        }
    }
}

/// Returns the tensors that a step reads and writes.
fn touched(step: &Step) -> Access {
    let of = |access| {
        let bindings = step.bindings.iter().filter(move |b| b.access == access);
        bindings.map(|b| b.tensor.index()).collect()
    };
    Access { reads: of(kernel::Access::Read), writes: of(kernel::Access::ReadWrite) }
}
