//! Steps for each node, by the engine that was chosen.

use std::collections::HashMap;

use super::choose::{operands, query};
use super::draft::{Draft, NodeChoice};
use super::estimate;
use super::group::Group;
use crate::broken_invariant;
use crate::engine::{Cost, EngineId, Lowering, Query, TensorRole, View, copy, tensor_bytes};
use crate::error::Result;
use crate::ir::{NodeId, Op};

pub(super) fn lower(draft: &mut Draft) -> Result<()> {
    let siblings = siblings(draft);
    for (choice, group) in draft.choices.clone().into_iter().zip(draft.groups.clone()) {
        let siblings = match siblings.get(&group.root) {
            Some(Sibling::First(others)) => others.as_slice(),
            // Its steps are those of the first.
            Some(Sibling::Other) => continue,
            None => &[],
        };
        let operands = operands(draft, &group);
        let mut tensors = std::mem::take(&mut draft.tensors);
        let mut steps = std::mem::take(&mut draft.steps);
        let first = steps.len();
        let mut out = Lowering {
            profile: draft.profile,
            class: draft.class,
            engine: choice.engine.clone().unwrap_or_else(|| EngineId::new("fused.copy")),
            label: choice.label.clone(),
            tensors: &mut tensors,
            steps: &mut steps,
        };
        let cost = lower_group(draft, &group, &choice, (&operands, siblings), &mut out)?;
        draft.tensors = tensors;
        draft.steps = steps;
        let output = draft.views[group.root.index()].clone();
        estimate::note(draft, first, &operands, &output, cost);
    }
    outputs(draft)
}

/// What a node is among the results of one kernel.
enum Sibling {
    /// The one that launches it, and where the others go.
    First(Vec<(u32, View)>),
    Other,
}

/// Results of one kernel of a user, which one launch makes.
fn siblings(draft: &Draft) -> HashMap<NodeId, Sibling> {
    let mut found: HashMap<NodeId, Sibling> = HashMap::new();
    let mut firsts: Vec<NodeId> = Vec::new();
    for (group, choice) in draft.groups.iter().zip(&draft.choices) {
        let (id, node) = (group.root, draft.graph.node(group.root));
        let Op::Custom(custom) = &node.op else { continue };
        let view = &draft.views[id.index()];
        let alone = !view.layout.offset.is(0) || !view.is_contiguous();
        let first = firsts.iter().find(|first| {
            let other = draft.graph.node(**first);
            let Op::Custom(of) = &other.op else { return false };
            let taken = match found.get(first) {
                Some(Sibling::First(others)) => others.iter().any(|(n, _)| *n == custom.output),
                _ => false,
            };
            !alone && !taken && other.inputs == node.inputs && of.is_sibling(custom)
        });
        match (first, &choice.engine) {
            (Some(first), Some(_)) => {
                let others = found.entry(*first).or_insert_with(|| Sibling::First(Vec::new()));
                if let Sibling::First(others) = others {
                    others.push((custom.output, view.clone()));
                }
                found.insert(id, Sibling::Other);
            }
            _ => firsts.push(id),
        }
    }
    found
}

fn lower_group(
    draft: &Draft,
    group: &Group,
    choice: &NodeChoice,
    (operands, siblings): (&[View], &[(u32, View)]),
    out: &mut Lowering,
) -> Result<Option<Cost>> {
    let node = draft.graph.node(group.root);
    let output = &draft.views[group.root.index()];
    let Some(id) = &choice.engine else {
        let to = match &node.op {
            // The elements in row-major order are the same: copy under the operand's shape.
            Op::Reshape(_) => {
                let shape = operands[0].shape.clone();
                View::whole(output.tensor, shape, output.dtype, output.format)
            }
            _ => output.clone(),
        };
        return copy(&operands[0], &to, out).map(|()| None);
    };
    let Some(engine) = draft.options.registry.get(id) else {
        broken_invariant(format_args!("engine {id} was chosen and is not registered"));
    };
    let query = query(draft, group, &choice.label, operands);
    let query = Query { knobs: choice.knobs(draft.options), siblings, ..query };
    engine.lower(&query, out).map_err(|e| e.context(&choice.label))?;
    Ok(Some(engine.cost(&query)))
}

/// Outputs are downloaded in one piece, so those with gaps are copied. One that is bound to a
/// buffer is computed there, unless it is part of something else: then it is copied there.
fn outputs(draft: &mut Draft) -> Result<()> {
    let wanted = draft.graph.outputs().to_vec();
    for (name, id) in wanted {
        let view = draft.views[id.index()].clone();
        let operand = view.clone();
        let first = draft.steps.len();
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
            // A download begins at a whole word.
            let view = match view.dtype.is_half() && !view.layout.offset.is_multiple_of(2) {
                true => out.copied(&view)?,
                false => out.contiguous(&view)?,
            };
            estimate::note(draft, first, &[operand], &view, None);
            draft.output_views.push((name, view));
            continue;
        }
        let mut tensor = view.tensor;
        if !whole {
            let copied = out.temp(name.clone(), &view.shape, view.dtype)?;
            copy(&view, &copied, &mut out)?;
            tensor = copied.tensor;
            estimate::note(draft, first, &[operand], &copied, None);
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
