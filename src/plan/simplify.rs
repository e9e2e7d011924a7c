//! Passes on the graph alone.

use std::collections::HashMap;

use super::draft::Draft;
use super::fold;
use crate::base::Dim;
use crate::error::Result;
use crate::ir::{CommonKey, Graph, Node, NodeId, Op, common_key, live, rewrite, verify};

/// Puts in the symbols that are numbers in this class, then verifies.
pub(super) fn infer(draft: &mut Draft) -> Result<()> {
    for (symbol, low, high) in draft.class.ranges() {
        if low == high {
            draft.graph = draft.graph.substitute(*symbol, &Dim::from(*low));
        }
    }
    verify(&draft.graph)
}

/// Merges equal nodes, folds those that do nothing or are constant, drops what nothing needs.
pub(super) fn simplify(draft: &mut Draft) -> Result<()> {
    draft.graph = simplified(&draft.graph)?;
    Ok(())
}

/// As the pass, on any graph.
pub(super) fn simplified(graph: &Graph) -> Result<Graph> {
    let mut known: HashMap<CommonKey, NodeId> = HashMap::new();
    let new = rewrite(graph, |new, _, node, inputs| {
        simple(new, &mut known, Node { inputs: inputs.into(), ..node.clone() }).map(Some)
    })?;
    Ok(live(&new))
}

/// A node of the new graph that is this one, the simplest there is.
fn simple(
    new: &mut Graph,
    known: &mut HashMap<CommonKey, NodeId>,
    mut node: Node,
) -> Result<NodeId> {
    while let Some(shorter) = fold::shorter(new, &node)? {
        node = shorter;
    }
    if let Some(same) = fold::same(new, &node) {
        return Ok(same);
    }
    if let Some(once) = fold::unexpanded(new, &node) {
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
