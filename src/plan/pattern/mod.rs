//! What a graph means: composite operations in place of the primitives that spell them, and one
//! product in place of several that read the same.
//!
//! Functions from graph to graph, one file a family. Each leaves nodes behind that nobody reads
//! any more; [`crate::ir::live`] takes them away.

mod activation;
mod attention;
mod matcher;
mod norm;
mod products;
mod rope;
#[cfg(test)]
mod tests;

use matcher::raise;

use super::draft::Draft;
use super::simplify::simplified;
use crate::error::Result;
use crate::ir::{Graph, Op};
use crate::provider::DeviceProfile;

pub(super) fn pattern(draft: &mut Draft) -> Result<()> {
    // Weights that each run binds lie apart.
    let most = if draft.options.bound.weights { 0 } else { draft.profile.max_buffer_bytes };
    draft.graph = found(&draft.graph, most)?;
    Ok(())
}

/// `max_merged`: bytes of weights that may be read as one.
fn found(graph: &Graph, max_merged: u64) -> Result<Graph> {
    let graph = raised(graph.clone())?;
    match max_merged {
        0 => simplified(&graph),
        most => simplified(&products::merged(&graph, most)?),
    }
}

/// The graph with composite operations, the inner ones of each other first.
fn raised(graph: Graph) -> Result<Graph> {
    let graph = raise(graph, activation::simple)?;
    let graph = raise(graph, activation::gated)?;
    // Of centred rows an RMSNorm is a LayerNorm, which is the larger match.
    let graph = raise(graph, norm::layer_norm)?;
    let graph = raise(graph, norm::rms_norm)?;
    let graph = raise(graph, norm::softmax)?;
    let graph = raise(graph, rope::rope)?;
    let graph = simplified(&graph)?;
    let graph = raise(graph, rope::partial)?;
    raise(graph, attention::attention)
}

/// Names of the weights that plans of this graph read as one, in their order there: who uploads
/// them one after another saves the device a copy.
///
/// # Errors
/// Invalid, for a graph that does not verify.
pub fn merged_weights(graph: &Graph, profile: &DeviceProfile) -> Result<Vec<Vec<String>>> {
    crate::ir::verify(graph)?;
    let graph = found(&simplified(graph)?, profile.max_buffer_bytes)?;
    let merged = graph.nodes().iter().filter(|node| matches!(node.op, Op::Merged { .. }));
    Ok(merged.map(|node| node.op.bound_names().map(String::from).collect()).collect())
}
