//! Measurements for the tuner: recordings of a task as one engine executes it, and the initial
//! contents of the task's memory.

use super::builder::PlanBuilder;
use super::piece::Piece;
use crate::base::{DType, Dim, Format, SymbolValues};
use crate::engine::{Step, Tensor, TensorRole, View};
use crate::error::Result;
use crate::ir::Op;
use crate::provider::{Binding, Command, Dispatch, ParamBlock, Recording, SlotRange};

/// A symbol whose upper end exceeds this multiple of its lower end is measured at two points.
const WIDE: u64 = 16;
/// Divisor of the upper end that yields the second point.
const BELOW: u64 = 8;

/// A tensor of a task, with its contents before a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// Name for display.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Contents before a run.
    pub fill: Fill,
    /// Element type, if a run writes the tensor; what it writes is then compared.
    pub written: Option<DType>,
    /// Whether it is a weight or a state that is only read. The other groups of a plan read
    /// different ones, so it is not cached when the group runs.
    pub resident: bool,
}

/// Contents of a tensor before a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// Arbitrary, since the tensor is only written.
    Nothing,
    /// These 32-bit words.
    Words(Vec<u32>),
    /// Floats in a storage format.
    Numbers(Format),
    /// Integers from 0 up to, but not including, this value.
    Below(u32),
    /// 0, 1, 2 and so on.
    Counting,
    /// Spans of keys: pairs of 0 and this value.
    Spans(u32),
}

/// A task as one engine executes it, lowered to steps.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The task's tensors, then the engine's temporaries.
    pub tensors: Vec<Tensor>,
    /// The launches.
    pub(super) steps: Vec<Step>,
    /// Number of the task's tensors.
    pub(super) own: usize,
}

impl Measurement {
    /// Returns the number of the task's tensors, which come first.
    pub fn own(&self) -> usize {
        self.own
    }

    /// Records `runs` consecutive runs. Resident tensors exist `copies` times, and each run uses
    /// the next copy, so that caches stay cold. `stamps` adds a timestamp before the first run and
    /// after the last one. Also returns the tensor and the copy that each slot of the recording
    /// stands for.
    pub fn recording(
        &self,
        contents: &[Content],
        (copies, runs): (usize, usize),
        stamps: bool,
    ) -> (Recording, Vec<(usize, usize)>) {
        let label = self.steps.first().map(|step| step.label.clone()).unwrap_or_default();
        let mut recording = Recording { label, ..Recording::default() };
        let (mut places, mut slots) = (Vec::new(), Vec::new());
        for (i, tensor) in self.tensors.iter().enumerate() {
            let resident = contents.get(i).is_some_and(|content| content.resident);
            let count = if resident { copies } else { 1 };
            slots.push((recording.slots.len() as u32, count));
            for copy in 0..count {
                recording.slot(&tensor.name, tensor.bytes);
                places.push((i, copy));
            }
        }
        if stamps {
            recording.commands.push(Command::Timestamp);
        }
        for run in 0..runs {
            for step in &self.steps {
                let bindings = step.bindings.iter().map(|binding| {
                    let (slot, count) = slots[binding.tensor.index()];
                    let all = self.tensors[binding.tensor.index()].bytes;
                    Binding {
                        slot: slot + (run % count) as u32,
                        offset: binding.offset,
                        bytes: binding.bytes.unwrap_or(all - binding.offset),
                        access: binding.access,
                    }
                });
                let bindings = bindings.collect();
                let dispatch = Dispatch {
                    kernel: recording.kernel(step.kernel.clone()),
                    params: recording.param_block(ParamBlock(step.params.clone())),
                    bindings,
                    grid: step.grid.clone(),
                    label: step.label.clone(),
                };
                recording.commands.push(Command::Dispatch(dispatch));
            }
        }
        if stamps {
            recording.commands.push(Command::Timestamp);
        }
        (recording, places)
    }

    /// Returns a recording that downloads the first copy of each tensor that the task writes, and
    /// the indices of these tensors.
    pub fn downloads(contents: &[Content]) -> (Recording, Vec<usize>) {
        let mut recording = Recording { label: "results".into(), ..Recording::default() };
        let mut tensors = Vec::new();
        for (i, content) in contents.iter().enumerate().filter(|(_, c)| c.written.is_some()) {
            let slot = recording.slot(&content.name, content.bytes);
            let from = SlotRange { slot, offset: Dim::new(0), bytes: Dim::from(content.bytes) };
            recording.commands.push(Command::Download { from });
            tensors.push(i);
        }
        (recording, tensors)
    }

    /// Returns the size in bytes of the engine's temporaries.
    pub fn workspace(&self) -> u64 {
        self.tensors[self.own..].iter().map(|tensor| tensor.bytes).sum()
    }
}

/// Determines the contents of a task's memory before a run.
pub(super) fn contents(
    piece: &Piece,
    tensors: &[Tensor],
    points: &[SymbolValues],
) -> Result<Vec<Content>> {
    let mut all: Vec<Content> = tensors
        .iter()
        .map(|tensor| Content {
            name: tensor.name.clone(),
            bytes: tensor.bytes,
            fill: match &tensor.role {
                TensorRole::Constant(words) => Fill::Words(words.clone()),
                TensorRole::Counters => Fill::Words(vec![0; tensor.bytes as usize / 4]),
                _ => Fill::Nothing,
            },
            written: None,
            resident: matches!(
                tensor.role,
                TensorRole::Weight(_) | TensorRole::Merged(_) | TensorRole::State(_)
            ),
        })
        .collect();
    let bodies = piece.body.iter();
    let fusion = piece.fusion.iter();
    let bodies = bodies.chain(fusion.clone().flat_map(|fusion| {
        fusion.prologue.iter().chain(fusion.segments.iter().map(|segment| &segment.body))
    }));
    let replaced = piece.body.is_some() || fusion.clone().any(|fusion| !fusion.segments.is_empty());
    for (view, _) in bodies.clone().flat_map(|body| &body.outputs) {
        all[view.tensor.index()].written = Some(view.dtype);
    }
    if !replaced {
        all[piece.output.tensor.index()].written = Some(piece.output.dtype);
    }
    let norms = fusion.flat_map(|fusion| fusion.norm.iter().map(|(view, _)| view));
    let mut read: Vec<(&View, Option<usize>)> = match piece.body.is_some() {
        true => Vec::new(),
        false => piece.operands.iter().enumerate().map(|(i, view)| (view, Some(i))).collect(),
    };
    read.extend(bodies.flat_map(|body| &body.inputs).chain(norms).map(|view| (view, None)));
    // Runs that write to separate copies would not wait for each other, as steps of a plan do.
    for content in all.iter_mut().filter(|content| content.written.is_some()) {
        content.resident = false;
    }
    for (view, operand) in read {
        let content = &mut all[view.tensor.index()];
        if content.fill == Fill::Nothing {
            content.fill = match view.dtype.is_float() {
                true => Fill::Numbers(view.format),
                false => whole_numbers(piece, view, operand, points)?,
            };
        }
    }
    Ok(all)
}

/// Returns integers that are valid for the operation that reads them, such as existing rows or
/// spans of keys.
fn whole_numbers(
    piece: &Piece,
    view: &View,
    operand: Option<usize>,
    points: &[SymbolValues],
) -> Result<Fill> {
    let least = |view: &View, axis: usize| -> Result<u32> {
        let sizes = points.iter().map(|point| view.shape[axis].eval_size(point));
        let least = sizes.collect::<Result<Vec<u64>>>()?.into_iter().min().unwrap_or(1);
        Ok(u32::try_from(least).unwrap_or(u32::MAX))
    };
    Ok(match (&piece.op, operand) {
        (Op::Gather { axis }, Some(1)) => Fill::Below(least(&piece.operands[0], *axis)?.max(1)),
        (Op::Scatter, Some(2)) => Fill::Counting,
        (Op::TakeAlong, Some(1)) => {
            let last = piece.operands[0].shape.rank().saturating_sub(1);
            Fill::Below(least(&piece.operands[0], last)?.max(1))
        }
        (Op::ExpertLinear { .. }, Some(2)) => Fill::Below(least(&piece.operands[1], 0)?.max(1)),
        (Op::IndexAdd, Some(2)) => Fill::Below(least(&piece.operands[0], 0)?.max(1)),
        (op, Some(i)) if op.attention_operands(piece.operands.len())[0] == Some(i) => {
            Fill::Spans(least(&piece.operands[1], 0)?)
        }
        _ if view.dtype == DType::Bool => Fill::Below(2),
        _ => Fill::Below(64),
    })
}

/// Returns the symbol values to measure at; see [`super::Task::points`].
pub(super) fn points(builder: &PlanBuilder) -> Result<Vec<SymbolValues>> {
    let ranges = builder.class.ranges();
    let mut top = SymbolValues::new();
    for (symbol, _, high) in ranges {
        top.set(*symbol, *high);
    }
    // Reduces incompatible values, the largest first, until they fit together.
    while !fits(builder, &top)? {
        let widest = ranges.iter().filter(|(s, low, _)| top.get(*s).is_some_and(|v| v > *low));
        let Some((symbol, low, _)) = widest.max_by_key(|(symbol, ..)| top.get(*symbol)) else {
            break;
        };
        let value = top.get(*symbol).unwrap_or(*low);
        top.set(*symbol, low + (value - low) / 2);
    }
    let mut below = top.clone();
    for (symbol, low, _) in ranges {
        let value = top.get(*symbol).unwrap_or(*low);
        if value / WIDE > *low {
            below.set(*symbol, (value / BELOW).max(*low));
        }
    }
    let two = below != top && fits(builder, &below)?;
    Ok(if two { vec![top, below] } else { vec![top] })
}

/// Returns whether slices and updates are in bounds for these symbol values.
fn fits(builder: &PlanBuilder, values: &SymbolValues) -> Result<bool> {
    for node in builder.graph.nodes() {
        let size =
            |i: usize, axis: usize| builder.graph.node(node.inputs[i]).shape[axis].eval(values);
        let (end, all) = match &node.op {
            Op::Slice { axis, start, len, step } => {
                let (start, len) = (start.eval(values)?, len.eval(values)?);
                (start + (len - 1).max(0) * *step as i64 + i64::from(len > 0), size(0, *axis)?)
            }
            Op::Update { at } => (at.eval(values)? + size(1, 0)?, size(0, 0)?),
            _ => continue,
        };
        if end > all {
            return Ok(false);
        }
    }
    Ok(true)
}
