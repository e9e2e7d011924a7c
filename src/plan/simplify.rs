//! Passes on the graph alone.

use std::collections::HashMap;

use super::draft::Draft;
use crate::base::Dim;
use crate::error::Result;
use crate::ir::{CommonKey, Graph, Node, NodeId, common_key, live, rewrite, verify};

/// Puts in the symbols that are numbers in this class, then verifies.
pub(super) fn infer(draft: &mut Draft) -> Result<()> {
    for (symbol, low, high) in draft.class.ranges() {
        if low == high {
            draft.graph = draft.graph.substitute(*symbol, &Dim::from(*low));
        }
    }
    verify(&draft.graph)
}

/// Merges equal nodes and drops those that nothing needs.
pub(super) fn simplify(draft: &mut Draft) -> Result<()> {
    draft.graph = simplified(&draft.graph)?;
    Ok(())
}

/// As the pass, on any graph.
pub(super) fn simplified(graph: &Graph) -> Result<Graph> {
    let mut known: HashMap<CommonKey, NodeId> = HashMap::new();
    let merged = rewrite(graph, |new, _, node, inputs| {
        let Some(key) = common_key(node, inputs) else { return Ok(None) };
        Ok(Some(
            *known
                .entry(key)
                .or_insert_with(|| new.push(Node { inputs: inputs.into(), ..node.clone() })),
        ))
    })?;
    Ok(live(&merged))
}
