//! Checks a plan's memory, and compares its size with the lower bound. All results are computed
//! from the plan, independently of the planner.

use std::collections::BTreeMap;

use warploom::engine::TensorRole;
use warploom::kernel::Access;
use warploom::plan::{Plan, SlotRole};
use warploom::provider::Command;
use warploom::{Error, Result};

/// Offsets are multiples of this on every device.
const ALIGN: u64 = 256;

/// Memory of a plan's intermediates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Size of all arena buffers in bytes.
    pub arena: u64,
    /// The largest sum of the sizes of intermediates alive at one step, in bytes, each rounded up
    /// to the offset alignment. A lower bound on the size of any arena.
    pub live: u64,
}

/// An intermediate of a plan.
#[derive(Clone, Debug)]
pub struct Intermediate {
    /// Index in the plan's tensors.
    pub tensor: usize,
    /// Readable name.
    pub name: String,
    /// Index of the recording's buffer slot that holds it.
    pub slot: u32,
    /// Offset of its first byte in the slot.
    pub start: u64,
    /// One past its last byte.
    pub end: u64,
    /// Lifetime: the first and the last step that access it. A downloaded intermediate lives one
    /// step past the last step.
    pub life: (usize, usize),
}

/// Returns the intermediates that the steps of a plan access, and their memory use. Checks that no
/// two with overlapping lifetimes overlap in memory, that each lies within its buffer, and that no
/// dispatch both reads and writes one arena buffer.
///
/// # Errors
/// Invalid, naming the tensors and steps, if one of these checks fails.
pub fn intermediates(plan: &Plan) -> Result<(Vec<Intermediate>, MemoryUse)> {
    let align = ALIGN.max(u64::from(plan.profile.binding_alignment));
    let dispatches = plan.recording.commands.iter().filter_map(|command| match command {
        Command::Dispatch(dispatch) => Some(dispatch),
        _ => None,
    });
    let is_arena = |slot: u32| matches!(plan.slots[slot as usize], SlotRole::Arena(_));
    let mut pieces: BTreeMap<usize, Intermediate> = BTreeMap::new();
    for (at, (step, dispatch)) in plan.steps.iter().zip(dispatches).enumerate() {
        for (of, bound) in step.bindings.iter().zip(&dispatch.bindings) {
            let tensor = &plan.tensors[of.tensor.index()];
            if tensor.role != TensorRole::Intermediate {
                continue;
            }
            if !is_arena(bound.slot) {
                // An output bound by the caller.
                continue;
            }
            let start = bound.offset - of.offset;
            let piece = pieces.entry(of.tensor.index()).or_insert_with(|| Intermediate {
                tensor: of.tensor.index(),
                name: tensor.name.clone(),
                slot: bound.slot,
                start,
                end: start + tensor.bytes,
                life: (at, at),
            });
            piece.life.1 = at;
            if (piece.slot, piece.start) != (bound.slot, start) {
                return Err(Error::invalid(format!("step {at}: {} is elsewhere", piece.name)));
            }
        }
        let slots = |access| {
            let bound = dispatch.bindings.iter().filter(move |b| b.access == access);
            bound.map(|b| b.slot).filter(|slot| is_arena(*slot))
        };
        if let Some(slot) =
            slots(Access::Read).find(|read| slots(Access::ReadWrite).any(|w| w == *read))
        {
            let label = &step.label;
            return Err(Error::invalid(format!("step {at} {label} reads and writes slot {slot}")));
        }
    }
    keep_outputs(plan, &mut pieces);
    let pieces: Vec<Intermediate> = pieces.into_values().collect();
    check(plan, &pieces)?;
    let mut live = vec![0u64; plan.steps.len() + 1];
    for piece in &pieces {
        let bytes = (piece.end - piece.start).next_multiple_of(align);
        live[piece.life.0..=piece.life.1].iter_mut().for_each(|sum| *sum += bytes);
    }
    let live = live.into_iter().max().unwrap_or(0);
    Ok((pieces, MemoryUse { arena: plan.arena_bytes(), live }))
}

/// Returns the memory use of a plan's intermediates.
///
/// # Errors
/// Same as [`intermediates`].
pub fn memory_use(plan: &Plan) -> Result<MemoryUse> {
    intermediates(plan).map(|(_, memory)| memory)
}

/// Extends the lifetime of downloaded intermediates past the last step.
fn keep_outputs(plan: &Plan, pieces: &mut BTreeMap<usize, Intermediate>) {
    for command in &plan.recording.commands {
        let Command::Download { from } = command else { continue };
        let offset = plan.class.upper(&from.offset).unwrap_or(0);
        // Of several intermediates at that place, the last one written remains.
        let there = pieces
            .values_mut()
            .filter(|p| p.slot == from.slot && (p.start..p.end).contains(&offset))
            .max_by_key(|p| p.life.0);
        if let Some(piece) = there {
            piece.life.1 = plan.steps.len();
        }
    }
}

fn check(plan: &Plan, pieces: &[Intermediate]) -> Result<()> {
    for (i, piece) in pieces.iter().enumerate() {
        let have = plan.recording.slots[piece.slot as usize].bytes;
        if piece.end > have {
            let text = format!("{} ends at {} of {have}", piece.name, piece.end);
            return Err(Error::invalid(text));
        }
        let clash = pieces[..i].iter().find(|other| {
            piece.slot == other.slot
                && piece.start < other.end
                && other.start < piece.end
                && piece.life.0 <= other.life.1
                && other.life.0 <= piece.life.1
        });
        if let Some(other) = clash {
            return Err(Error::invalid(format!(
                "{} (steps {:?}) and {} (steps {:?}) overlap",
                piece.name, piece.life, other.name, other.life
            )));
        }
    }
    Ok(())
}
