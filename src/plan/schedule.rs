//! The pass `schedule`: records uploads, dispatches in order, and downloads.

use super::builder::PlanBuilder;
use super::{PlanInput, PlanOutput};
use crate::base::{DType, Dim, Shape};
use crate::error::Result;
use crate::ir::Op;
use crate::provider::{Binding, Command, Dispatch, ParamBlock, SlotRange, UploadSource};

pub(super) fn schedule(builder: &mut PlanBuilder) -> Result<()> {
    uploads(builder);
    for step in &builder.steps {
        let kernel = builder.recording.kernel(step.kernel.clone());
        let params = builder.recording.param_block(ParamBlock(step.params.clone()));
        let bindings = step
            .bindings
            .iter()
            .map(|binding| {
                let place = builder.places[binding.tensor.index()];
                let all = builder.tensors[binding.tensor.index()].bytes;
                Binding {
                    slot: place.slot,
                    offset: place.offset + binding.offset,
                    bytes: binding.bytes.unwrap_or(all - binding.offset),
                    access: binding.access,
                }
            })
            .collect();
        builder.recording.commands.push(Command::Dispatch(Dispatch {
            kernel,
            params,
            bindings,
            grid: step.grid.clone(),
            label: step.label.clone(),
        }));
    }
    downloads(builder);
    Ok(())
}

/// Returns the size in bytes of a tensor, rounded up to whole words: half of the last word may be
/// padding.
fn whole_words(shape: &Shape, dtype: DType) -> Dim {
    match dtype.is_half() {
        true => shape.elements().ceil_div(&Dim::new(2)) * Dim::new(4),
        false => shape.elements() * Dim::from(dtype.bytes()),
    }
}

fn uploads(builder: &mut PlanBuilder) {
    for (node, view) in builder.graph.nodes().iter().zip(&builder.views) {
        let Op::Input { name } = &node.op else { continue };
        if builder.options.bound.inputs.contains(name) {
            continue;
        }
        let place = builder.places[view.tensor.index()];
        let source = UploadSource::Arg(builder.inputs.len() as u32);
        let to = SlotRange {
            slot: place.slot,
            offset: Dim::from(place.offset),
            bytes: whole_words(&node.shape, node.dtype),
        };
        builder.recording.commands.push(Command::Upload { to, source });
        builder.inputs.push(PlanInput {
            name: name.clone(),
            shape: node.shape.clone(),
            dtype: node.dtype,
        });
    }
}

fn downloads(builder: &mut PlanBuilder) {
    for (name, view) in &builder.output_views {
        let place = builder.places[view.tensor.index()];
        let before = view.layout.offset.clone() * Dim::from(view.dtype.bytes());
        let from = SlotRange {
            slot: place.slot,
            offset: Dim::from(place.offset) + before,
            bytes: whole_words(&view.shape, view.dtype),
        };
        builder.recording.commands.push(Command::Download { from });
        builder.outputs.push(PlanOutput {
            name: name.clone(),
            shape: view.shape.clone(),
            dtype: view.dtype,
        });
    }
}
