//! Memory map of a plan, derived from its recording.

use serde::Serialize;

use super::units;
use crate::engine::TensorRole;
use crate::plan::{Plan, SlotRole};
use crate::provider::Command;

/// The memory map of a plan; sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    /// The buffers of intermediates.
    pub arena: Vec<ArenaBuffer>,
    /// Total bytes of the arena buffers.
    pub arena_bytes: u64,
    /// Maximum bytes of intermediates that are live at the same step: a lower bound on the size of
    /// any arena.
    pub peak_bytes: u64,
    /// Bytes of weights.
    pub weight_bytes: u64,
    /// Bytes of states.
    pub state_bytes: u64,
    /// Bytes of inputs.
    pub input_bytes: u64,
    /// Bytes of outputs that are bound to buffers.
    pub output_bytes: u64,
    /// Bytes of constants of the graph and of counter words.
    pub constant_bytes: u64,
}

/// One arena buffer for intermediates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArenaBuffer {
    /// Name in the recording.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// The tensors in it, sorted by offset, then by first step.
    pub tensors: Vec<Placed>,
}

/// An intermediate with its location and lifetime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// Name for display.
    pub name: String,
    /// Offset of its first byte in the buffer.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Index of the first step that touches it.
    pub first: usize,
    /// Index of the last step that touches it; the number of steps if it is downloaded.
    pub last: usize,
}

pub(super) fn of(plan: &Plan) -> Memory {
    let placed = placed(plan);
    let mut memory = Memory::default();
    for (index, (role, slot)) in plan.slots.iter().zip(&plan.recording.slots).enumerate() {
        match role {
            SlotRole::Arena(_) => {
                let here = placed.iter().filter(|(at, _)| *at == index);
                let mut tensors: Vec<Placed> = here.map(|(_, p)| p.clone()).collect();
                tensors.sort_by_key(|p| (p.offset, p.first));
                let (name, bytes) = (slot.name.clone(), slot.bytes);
                memory.arena.push(ArenaBuffer { name, bytes, tensors });
                memory.arena_bytes += bytes;
            }
            SlotRole::Weight(_) | SlotRole::Merged(_) => memory.weight_bytes += slot.bytes,
            SlotRole::State(_) => memory.state_bytes += slot.bytes,
            SlotRole::Inputs | SlotRole::Input(_) => memory.input_bytes += slot.bytes,
            SlotRole::Output(_) => memory.output_bytes += slot.bytes,
            SlotRole::Constants(_) | SlotRole::Counters => memory.constant_bytes += slot.bytes,
        }
    }
    let alive = |at: usize| {
        let here = placed.iter().filter(|(_, p)| p.first <= at && at <= p.last);
        here.map(|(_, p)| p.bytes).sum::<u64>()
    };
    memory.peak_bytes = (0..=plan.steps.len()).map(alive).max().unwrap_or(0);
    memory
}

/// Returns every intermediate that a step touches, with the index of its slot.
fn placed(plan: &Plan) -> Vec<(usize, Placed)> {
    let mut found: Vec<Option<(usize, Placed)>> = vec![None; plan.tensors.len()];
    for (at, (step, dispatch)) in plan.steps.iter().zip(plan.dispatches()).enumerate() {
        for (binding, bound) in step.bindings.iter().zip(&dispatch.bindings) {
            let tensor = &plan.tensors[binding.tensor.index()];
            if tensor.role != TensorRole::Intermediate {
                continue;
            }
            let place = &mut found[binding.tensor.index()];
            let (_, placed) = place.get_or_insert_with(|| {
                let offset = bound.offset.saturating_sub(binding.offset);
                let (name, bytes) = (tensor.name.clone(), tensor.bytes);
                (bound.slot as usize, Placed { name, offset, bytes, first: at, last: at })
            });
            placed.last = at;
        }
    }
    let mut found: Vec<(usize, Placed)> = found.into_iter().flatten().collect();
    for command in &plan.recording.commands {
        let Command::Download { from } = command else { continue };
        let Some(offset) = plan.class.upper(&from.offset).ok() else { continue };
        // Of several tensors at this place, the last one is downloaded.
        let here = found.iter_mut().filter(|(slot, placed)| {
            let place = placed.offset..placed.offset + placed.bytes;
            *slot == from.slot as usize && place.contains(&offset)
        });
        if let Some((_, placed)) = here.max_by_key(|(_, placed)| placed.first) {
            placed.last = plan.steps.len();
        }
    }
    found
}

/// Maximum columns and the rows of a map, in characters.
const MAP: (usize, usize) = (72, 12);

impl ArenaBuffer {
    /// Draws a map, with steps to the right and offsets downwards: a letter for a live tensor (`*`
    /// if tensors share a cell), a dot for free memory. Below it, the text names the tensor of each
    /// letter.
    pub(super) fn map(&self, steps: usize) -> String {
        let (columns, rows) = (MAP.0.min(steps + 1).max(1), MAP.1);
        let mut cells = vec![vec![b'.'; columns]; rows];
        let column = |step: usize| (step * columns / (steps + 1)).min(columns - 1);
        let row = |byte: u64| {
            let row = u128::from(byte) * rows as u128 / u128::from(self.bytes.max(1));
            (row as usize).min(rows - 1)
        };
        for (i, tensor) in self.tensors.iter().enumerate() {
            let last = tensor.offset + tensor.bytes.max(1) - 1;
            for line in &mut cells[row(tensor.offset)..=row(last)] {
                for cell in &mut line[column(tensor.first)..=column(tensor.last)] {
                    *cell = if *cell == b'.' { letter(i) } else { b'*' };
                }
            }
        }
        let mut text = String::new();
        for (i, line) in cells.iter().enumerate() {
            let from = self.bytes * i as u64 / rows as u64;
            text.push_str(&format!("{:>9} |{}|\n", from, String::from_utf8_lossy(line)));
        }
        for (i, tensor) in self.tensors.iter().enumerate() {
            text.push_str(&format!(
                "{:>9} {} {:<28} {:>9} at {:<9} steps {} to {}\n",
                "",
                char::from(letter(i)),
                tensor.name,
                units::bytes(tensor.bytes as f64),
                tensor.offset,
                tensor.first,
                tensor.last
            ));
        }
        text
    }
}

fn letter(index: usize) -> u8 {
    const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    LETTERS[index % LETTERS.len()]
}
