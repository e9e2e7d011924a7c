//! The passes `infer` and `simplify`, which change only the graph.

use std::collections::HashMap;

use super::builder::PlanBuilder;
use super::rules;
use crate::base::Dim;
use crate::error::Result;
use crate::ir::{CommonKey, Graph, Node, NodeId, Op, common_key, live, rewrite, verify};

/// Replaces symbols that have one value in the shape class with that value, then verifies the
/// graph.
pub(super) fn infer(builder: &mut PlanBuilder) -> Result<()> {
    for (symbol, low, high) in builder.class.ranges() {
        if low == high {
            builder.graph = builder.graph.substitute(*symbol, &Dim::from(*low));
        }
    }
    verify(&builder.graph)
}

/// Eliminates common subexpressions, identities and dead code, and folds constants.
pub(super) fn simplify(builder: &mut PlanBuilder) -> Result<()> {
    builder.graph = simplified(&builder.graph)?;
    Ok(())
}

/// Runs the pass `simplify` on any graph.
pub(super) fn simplified(graph: &Graph) -> Result<Graph> {
    let mut known: HashMap<CommonKey, NodeId> = HashMap::new();
    let new = rewrite(graph, |new, _, node, inputs| {
        simple(new, &mut known, Node { inputs: inputs.into(), ..node.clone() }).map(Some)
    })?;
    Ok(live(&new))
}

/// Adds the simplest equivalent of a node to the new graph and returns it.
fn simple(
    new: &mut Graph,
    known: &mut HashMap<CommonKey, NodeId>,
    mut node: Node,
) -> Result<NodeId> {
    while let Some(shorter) = rules::shorter(new, &node)? {
        node = shorter;
    }
    if let Some(same) = rules::same(new, &node) {
        return Ok(same);
    }
    if let Some(once) = rules::unexpanded(new, &node) {
        let all = once.shape == node.shape;
        let once = simple(new, known, once)?;
        let op = Op::Expand(node.shape.clone());
        let repeated = Node { op, inputs: [once].as_slice().into(), ..node };
        return if all { Ok(once) } else { simple(new, known, repeated) };
    }
    match common_key(&node, &node.inputs) {
        None => Ok(new.push(node)),
        Some(key) => Ok(*known.entry(key).or_insert_with(|| new.push(node))),
    }
}
