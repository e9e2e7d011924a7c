//! What a graph means: composite operations in place of the primitives that spell them, and one
//! product in place of several that read the same.
//!
//! Functions from graph to graph, one file a family. Each leaves nodes behind that nobody reads
//! any more; [`crate::ir::live`] takes them away.

mod products;

use super::draft::Draft;
use super::simplify::simplified;
use crate::error::Result;
use crate::ir::{Graph, Op, live};
use crate::provider::DeviceProfile;

pub(super) fn pattern(draft: &mut Draft) -> Result<()> {
    draft.graph = found(&draft.graph, draft.profile)?;
    Ok(())
}

fn found(graph: &Graph, profile: &DeviceProfile) -> Result<Graph> {
    let graph = products::merged(graph, profile.max_buffer_bytes)?;
    Ok(live(&graph))
}

/// Names of the weights that plans of this graph read as one, in their order there: who uploads
/// them one after another saves the device a copy.
///
/// # Errors
/// Invalid, for a graph that does not verify.
pub fn merged_weights(graph: &Graph, profile: &DeviceProfile) -> Result<Vec<Vec<String>>> {
    crate::ir::verify(graph)?;
    let graph = found(&simplified(graph)?, profile)?;
    let merged = graph.nodes().iter().filter(|node| matches!(node.op, Op::Merged { .. }));
    Ok(merged.map(|node| node.op.bound_names().map(String::from).collect()).collect())
}
