//! Steps for each node, by the engine that was chosen.

use super::draft::Draft;
use super::estimate;
use crate::broken_invariant;
use crate::engine::{EngineId, Lowering, Query, View, copy};
use crate::error::Result;
use crate::ir::Op;

pub(super) fn lower(draft: &mut Draft) -> Result<()> {
    for i in 0..draft.choices.len() {
        let choice = draft.choices[i].clone();
        let node = draft.graph.node(choice.node).clone();
        let operands: Vec<View> =
            node.inputs.iter().map(|input| draft.views[input.index()].clone()).collect();
        let output = draft.views[choice.node.index()].clone();
        let first = draft.steps.len();
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
            estimate::note(draft, first, &operands, &output, None);
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
        let cost = engine.cost(&query);
        estimate::note(draft, first, &operands, &output, Some(cost));
    }
    outputs(draft)
}

/// Outputs are downloaded in one piece, so those with gaps are copied.
fn outputs(draft: &mut Draft) -> Result<()> {
    let wanted = draft.graph.outputs().to_vec();
    for (name, id) in wanted {
        let operand = draft.views[id.index()].clone();
        let first = draft.steps.len();
        let mut out = Lowering {
            profile: draft.profile,
            class: draft.class,
            engine: EngineId::new("fused.copy"),
            label: format!("output {name}"),
            tensors: &mut draft.tensors,
            steps: &mut draft.steps,
        };
        let view = out.contiguous(&operand)?;
        estimate::note(draft, first, &[operand], &view, None);
        draft.output_views.push((name, view));
    }
    Ok(())
}
