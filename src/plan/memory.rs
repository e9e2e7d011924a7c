//! Where every tensor lies.
//!
//! Intermediates live in a few arena buffers, the colours. A GPU interface tracks use by whole
//! buffers, and a dispatch may not read and write one buffer through different bindings, so the
//! tensor a step writes never shares a buffer with one it reads. The arithmetic is in `memory`.

use super::SlotRole;
use super::draft::{Draft, Place};
use crate::broken_invariant;
use crate::engine::{Step, Tensor, TensorRole};
use crate::error::Result;
use crate::kernel;
use crate::memory::arena::{Item, pack};
use crate::memory::lifetime::{Access, colour, lifetimes};

/// Buffers that intermediates are spread over. Five operands and a result always find room, and
/// more buffers let more independent steps run without a barrier.
const COLOURS: usize = 6;
/// Offsets are multiples of this, which is WebGPU's own binding alignment.
const ALIGN: u64 = 256;

pub(super) fn memory(draft: &mut Draft) -> Result<()> {
    let touched: Vec<Access> = draft.steps.iter().map(touched).collect();
    let kept: Vec<usize> = draft.output_views.iter().map(|(_, v)| v.tensor.index()).collect();
    let lives = lifetimes(&touched, draft.tensors.len(), &kept);
    let is_arena = |tensor: &Tensor| tensor.role == TensorRole::Intermediate;
    let arena: Vec<bool> = draft.tensors.iter().map(is_arena).collect();
    let Some(colours) = colour(&touched, &arena, COLOURS) else {
        broken_invariant(format_args!("a step reads {COLOURS} buffers"));
    };
    let align = ALIGN.max(u64::from(draft.profile.binding_alignment));
    let mut places: Vec<Option<Place>> = vec![None; draft.tensors.len()];

    for colour in 0..COLOURS {
        let members: Vec<(usize, Item)> = (0..draft.tensors.len())
            .filter(|i| colours[*i] == Some(colour))
            .filter_map(|i| Some((i, Item { bytes: draft.tensors[i].bytes, life: lives[i]? })))
            .collect();
        if members.is_empty() {
            continue;
        }
        let slot = draft.slots.len() as u32;
        let items: Vec<Item> = members.iter().map(|(_, item)| *item).collect();
        let (offsets, bytes) = pack(&items, align);
        for ((i, _), offset) in members.iter().zip(offsets) {
            places[*i] = Some(Place { slot, offset });
        }
        draft.slots.push(SlotRole::Arena(colour as u32));
        draft.recording.slot(format!("arena {colour}"), bytes);
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

/// Slots for inputs and constants, one buffer each, and for weights and states, one each.
fn fixed(draft: &mut Draft, align: u64, places: &mut [Option<Place>]) {
    let (mut inputs, mut constants) = (0, Vec::new());
    let mut input_places = Vec::new();
    let mut constant_places = Vec::new();
    for (i, tensor) in draft.tensors.iter().enumerate() {
        match &tensor.role {
            TensorRole::Intermediate => {}
            TensorRole::Input(_) => {
                input_places.push((i, inputs));
                inputs += tensor.bytes.next_multiple_of(align);
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
