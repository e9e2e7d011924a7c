//! Lowering: the steps of each group, by its chosen engine.

use std::collections::HashMap;

use super::builder::{NodeChoice, PlanBuilder};
use super::choose::{operands, query};
use super::estimate;
use super::fusion::Group;
use crate::broken_invariant;
use crate::engine::{Cost, EngineId, Lowering, Query, TensorRole, View, copy, tensor_bytes};
use crate::error::Result;
use crate::ir::{NodeId, Op};

pub(super) fn lower(builder: &mut PlanBuilder) -> Result<()> {
    let siblings = siblings(builder);
    for (choice, group) in builder.choices.clone().into_iter().zip(builder.groups.clone()) {
        let siblings = match siblings.get(&group.root) {
            Some(Sibling::First(others)) => others.as_slice(),
            // The first sibling's launch covers it.
            Some(Sibling::Other) => continue,
            None => &[],
        };
        let operands = operands(builder, &group);
        let mut tensors = std::mem::take(&mut builder.tensors);
        let mut steps = std::mem::take(&mut builder.steps);
        let first = steps.len();
        let mut out = Lowering {
            profile: builder.profile,
            class: builder.class,
            engine: choice.engine.clone().unwrap_or_else(|| EngineId::new("fused.copy")),
            label: choice.label.clone(),
            tensors: &mut tensors,
            steps: &mut steps,
        };
        let cost = lower_group(builder, &group, &choice, (&operands, siblings), &mut out)?;
        builder.tensors = tensors;
        builder.steps = steps;
        let output = builder.views[group.root.index()].clone();
        estimate::note(builder, first, &operands, &output, cost);
    }
    outputs(builder)
}

/// The role of a node among the results of one kernel.
enum Sibling {
    /// The node that launches it, and the destinations of the others.
    First(Vec<(u32, View)>),
    Other,
}

/// Results of one user kernel, produced by one launch.
fn siblings(builder: &PlanBuilder) -> HashMap<NodeId, Sibling> {
    let mut found: HashMap<NodeId, Sibling> = HashMap::new();
    let mut firsts: Vec<NodeId> = Vec::new();
    for (group, choice) in builder.groups.iter().zip(&builder.choices) {
        let (id, node) = (group.root, builder.graph.node(group.root));
        let Op::Custom(custom) = &node.op else { continue };
        let view = &builder.views[id.index()];
        let alone = !view.layout.offset.is(0) || !view.is_contiguous();
        let first = firsts.iter().find(|first| {
            let other = builder.graph.node(**first);
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
    builder: &PlanBuilder,
    group: &Group,
    choice: &NodeChoice,
    (operands, siblings): (&[View], &[(u32, View)]),
    out: &mut Lowering,
) -> Result<Option<Cost>> {
    let node = builder.graph.node(group.root);
    let output = &builder.views[group.root.index()];
    let Some(id) = &choice.engine else {
        let to = match &node.op {
            // Row-major order is the same: copy under the operand's shape.
            Op::Reshape(_) => {
                let shape = operands[0].shape.clone();
                View::whole(output.tensor, shape, output.dtype, output.format)
            }
            _ => output.clone(),
        };
        return copy(&operands[0], &to, out).map(|()| None);
    };
    let Some(engine) = builder.options.registry.get(id) else {
        broken_invariant(format_args!("engine {id} was chosen and is not registered"));
    };
    let query = query(builder, group, &choice.label, operands);
    let query = Query { knobs: choice.knobs(builder.options), siblings, ..query };
    engine.lower(&query, out).map_err(|e| e.context(&choice.label))?;
    Ok(Some(engine.cost(&query)))
}

/// Outputs are downloaded as one range, so those with gaps are copied. A bound output is computed
/// in its buffer, unless it is part of something else: then it is copied there.
fn outputs(builder: &mut PlanBuilder) -> Result<()> {
    let wanted = builder.graph.outputs().to_vec();
    for (name, id) in wanted {
        let view = builder.views[id.index()].clone();
        let operand = view.clone();
        let first = builder.steps.len();
        let is_bound = builder.options.bound.outputs.contains(&name);
        let whole = is_bound && is_whole(builder, &view)?;
        let mut out = Lowering {
            profile: builder.profile,
            class: builder.class,
            engine: EngineId::new("fused.copy"),
            label: format!("output {name}"),
            tensors: &mut builder.tensors,
            steps: &mut builder.steps,
        };
        if !is_bound {
            // A download begins at a whole word.
            let view = match view.dtype.is_half() && !view.layout.offset.is_multiple_of(2) {
                true => out.copied(&view)?,
                false => out.contiguous(&view)?,
            };
            estimate::note(builder, first, &[operand], &view, None);
            builder.output_views.push((name, view));
            continue;
        }
        let mut tensor = view.tensor;
        if !whole {
            let copied = out.temp(name.clone(), &view.shape, view.dtype)?;
            copy(&view, &copied, &mut out)?;
            tensor = copied.tensor;
            estimate::note(builder, first, &[operand], &copied, None);
        }
        builder.bound_outputs.push((name, tensor));
    }
    Ok(())
}

/// Whether a view covers an intermediate entirely, and is no other output.
fn is_whole(builder: &PlanBuilder, view: &View) -> Result<bool> {
    let tensor = &builder.tensors[view.tensor.index()];
    let taken = builder.bound_outputs.iter().any(|(_, other)| *other == view.tensor);
    Ok(tensor.role == TensorRole::Intermediate
        && !taken
        && view.is_contiguous()
        && view.layout.offset.is(0)
        && tensor.bytes == tensor_bytes(builder.class, &view.shape, view.dtype)?)
}
