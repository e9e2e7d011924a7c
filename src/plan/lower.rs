//! Steps for each node, by the engine that was chosen.

use super::draft::Draft;
use crate::broken_invariant;
use crate::engine::{EngineId, Lowering, Query, TensorRole, View, copy, tensor_bytes};
use crate::error::{Error, Result};
use crate::ir::Op;

pub(super) fn lower(draft: &mut Draft) -> Result<()> {
    for i in 0..draft.choices.len() {
        let choice = draft.choices[i].clone();
        let node = draft.graph.node(choice.node).clone();
        let operands: Vec<View> =
            node.inputs.iter().map(|input| draft.views[input.index()].clone()).collect();
        let output = draft.views[choice.node.index()].clone();
        let mut out = Lowering {
            profile: draft.profile,
            class: draft.class,
            engine: choice.engine.clone().unwrap_or_else(|| EngineId::new("fused.copy")),
            label: choice.label.clone(),
            tensors: &mut draft.tensors,
            steps: &mut draft.steps,
        };
        let Some(id) = &choice.engine else {
            let from = match &node.op {
                // The elements in row-major order are the same: copy under the operand's shape.
                Op::Reshape(_) => {
                    let shape = operands[0].shape.clone();
                    View::whole(output.tensor, shape, output.dtype, output.format)
                }
                _ => output.clone(),
            };
            copy(&operands[0], &from, &mut out)?;
            continue;
        };
        let Some(engine) = draft.options.registry.get(id) else {
            broken_invariant(format_args!("engine {id} was chosen and is not registered"));
        };
        let query = Query {
            op: &node.op,
            label: &choice.label,
            operands: &operands,
            output: &output,
            profile: draft.profile,
            class: draft.class,
        };
        engine.lower(&query, &mut out).map_err(|e| e.context(&choice.label))?;
    }
    outputs(draft)
}

/// Outputs are downloaded in one piece, so those with gaps are copied. One that is bound to a
/// buffer is computed there, unless it is part of something else: then it is copied there.
fn outputs(draft: &mut Draft) -> Result<()> {
    let wanted = draft.graph.outputs().to_vec();
    for (name, id) in wanted {
        let view = draft.views[id.index()].clone();
        let is_bound = draft.options.bound.outputs.contains(&name);
        let whole = is_bound && is_whole(draft, &view)?;
        let mut out = Lowering {
            profile: draft.profile,
            class: draft.class,
            engine: EngineId::new("fused.copy"),
            label: format!("output {name}"),
            tensors: &mut draft.tensors,
            steps: &mut draft.steps,
        };
        if !is_bound {
            let view = out.contiguous(&view)?;
            draft.output_views.push((name, view));
            continue;
        }
        let mut tensor = view.tensor;
        if !whole {
            if view.dtype.bytes() != 4 {
                let what = format!("output {name:?} is a part of {} elements", view.dtype);
                return Err(Error::unsupported(format!("{what}: no kernel copies those")));
            }
            let copied = out.temp(name.clone(), &view.shape, view.dtype)?;
            copy(&view, &copied, &mut out)?;
            tensor = copied.tensor;
        }
        draft.bound_outputs.push((name, tensor));
    }
    Ok(())
}

/// Whether a view is all of an intermediate, which is no other output.
fn is_whole(draft: &Draft, view: &View) -> Result<bool> {
    let tensor = &draft.tensors[view.tensor.index()];
    let taken = draft.bound_outputs.iter().any(|(_, other)| *other == view.tensor);
    Ok(tensor.role == TensorRole::Intermediate
        && !taken
        && view.is_contiguous()
        && view.layout.offset.is(0)
        && tensor.bytes == tensor_bytes(draft.class, &view.shape, view.dtype)?)
}
