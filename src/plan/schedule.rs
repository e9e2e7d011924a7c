//! The recording: uploads, dispatches in order, downloads.

use super::draft::Draft;
use super::{PlanInput, PlanOutput};
use crate::base::{DType, Dim, Shape};
use crate::error::Result;
use crate::ir::Op;
use crate::provider::{Binding, Command, Dispatch, ParamBlock, SlotRange, UploadSource};

pub(super) fn schedule(draft: &mut Draft) -> Result<()> {
    uploads(draft);
    for step in &draft.steps {
        let kernel = draft.recording.kernel(step.kernel.clone());
        let params = draft.recording.param_block(ParamBlock(step.params.clone()));
        let bindings = step
            .bindings
            .iter()
            .map(|binding| {
                let place = draft.places[binding.tensor.index()];
                let all = draft.tensors[binding.tensor.index()].bytes;
                Binding {
                    slot: place.slot,
                    offset: place.offset + binding.offset,
                    bytes: binding.bytes.unwrap_or(all - binding.offset),
                    access: binding.access,
                }
            })
            .collect();
        draft.recording.commands.push(Command::Dispatch(Dispatch {
            kernel,
            params,
            bindings,
            grid: step.grid.clone(),
            label: step.label.clone(),
        }));
    }
    downloads(draft);
    Ok(())
}

/// Bytes of a tensor; the second half of a last word may be nothing.
fn whole_words(shape: &Shape, dtype: DType) -> Dim {
    match dtype.is_half() {
        true => shape.elements().ceil_div(&Dim::new(2)) * Dim::new(4),
        false => shape.elements() * Dim::from(dtype.bytes()),
    }
}

fn uploads(draft: &mut Draft) {
    for (node, view) in draft.graph.nodes().iter().zip(&draft.views) {
        let Op::Input { name } = &node.op else { continue };
        if draft.options.bound.inputs.contains(name) {
            continue;
        }
        let place = draft.places[view.tensor.index()];
        let source = UploadSource::Arg(draft.inputs.len() as u32);
        let to = SlotRange {
            slot: place.slot,
            offset: Dim::from(place.offset),
            bytes: whole_words(&node.shape, node.dtype),
        };
        draft.recording.commands.push(Command::Upload { to, source });
        draft.inputs.push(PlanInput {
            name: name.clone(),
            shape: node.shape.clone(),
            dtype: node.dtype,
        });
    }
}

fn downloads(draft: &mut Draft) {
    for (name, view) in &draft.output_views {
        let place = draft.places[view.tensor.index()];
        let before = view.layout.offset.clone() * Dim::from(view.dtype.bytes());
        let from = SlotRange {
            slot: place.slot,
            offset: Dim::from(place.offset) + before,
            bytes: whole_words(&view.shape, view.dtype),
        };
        draft.recording.commands.push(Command::Download { from });
        draft.outputs.push(PlanOutput {
            name: name.clone(),
            shape: view.shape.clone(),
            dtype: view.dtype,
        });
    }
}
