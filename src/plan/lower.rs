//! The pass `lower`: the chosen engine of each group emits the group's steps.

use std::collections::HashMap;

use super::builder::{NodeChoice, PlanBuilder};
use super::estimate;
use super::fusion::Group;
use super::group_query::{GroupQuery, operands};
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
        let cost = lower_group(builder, &group, &choice, siblings, &mut out)?;
        builder.tensors = tensors;
        builder.steps = steps;
        let output = builder.views[group.root.index()].clone();
        let operands = operands(builder, &group);
        estimate::note(builder, first, &operands, &output, cost);
    }
    outputs(builder)
}

/// The role of a node among the results of one kernel.
enum Sibling {
    /// The node that launches the kernel, with the destinations of the other results.
    First(Vec<(u32, View)>),
    Other,
}

/// Finds the nodes that are results of the same user kernel, so that one launch computes them.
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
    siblings: &[(u32, View)],
    out: &mut Lowering,
) -> Result<Option<Cost>> {
    let node = builder.graph.node(group.root);
    let output = &builder.views[group.root.index()];
    let seen = GroupQuery::new(builder, group, &choice.label);
    let Some(id) = &choice.engine else {
        let to = match &node.op {
            // Row-major order is the same: copy under the operand's shape.
            Op::Reshape(_) => {
                let shape = seen.operands()[0].shape.clone();
                View::whole(output.tensor, shape, output.dtype, output.format)
            }
            _ => output.clone(),
        };
        return copy(&seen.operands()[0], &to, out).map(|()| None);
    };
    let Some(engine) = builder.options.registry.get(id) else {
        broken_invariant(format_args!("engine {id} was chosen and is not registered"));
    };
    let query = Query { knobs: choice.knobs(builder.options), siblings, ..seen.query() };
    engine.lower(&query, out).map_err(|e| e.context(&choice.label))?;
    Ok(Some(engine.cost(&query)))
}

/// Adds the copies that outputs need. An output is downloaded as one range, so one with gaps is
/// copied. A bound output is computed in its buffer, or copied there if it does not have a tensor
/// to itself.
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

/// Returns whether a view covers an intermediate entirely, and no other bound output does.
fn is_whole(builder: &PlanBuilder, view: &View) -> Result<bool> {
    let tensor = &builder.tensors[view.tensor.index()];
    let taken = builder.bound_outputs.iter().any(|(_, other)| *other == view.tensor);
    Ok(tensor.role == TensorRole::Intermediate
        && !taken
        && view.is_contiguous()
        && view.layout.offset.is(0)
        && tensor.bytes == tensor_bytes(builder.class, &view.shape, view.dtype)?)
}
