//! The pass `pattern`: composite operations replace the primitives that spell them out, and one
//! matrix product replaces several of the same operand.
//!
//! The patterns are functions from graph to graph, with one file per family. Each leaves dead nodes
//! behind, which [`crate::ir::live`] removes.

mod activation;
mod attention;
mod matcher;
mod norm;
mod products;
mod rope;
#[cfg(test)]
mod tests;

use matcher::raise;

use super::builder::PlanBuilder;
use super::simplify::simplified;
use crate::error::Result;
use crate::ir::{Graph, Op};
use crate::provider::DeviceProfile;

pub(super) fn pattern(builder: &mut PlanBuilder) -> Result<()> {
    // Weights bound at each run are separate buffers.
    let most = if builder.options.bound.weights { 0 } else { builder.profile.max_buffer_bytes };
    builder.graph = found(&builder.graph, most)?;
    Ok(())
}

/// Replaces all patterns; `max_merged` is the maximum bytes of merged weights, 0 to merge none.
fn found(graph: &Graph, max_merged: u64) -> Result<Graph> {
    let graph = raised(graph.clone())?;
    match max_merged {
        0 => simplified(&graph),
        most => simplified(&products::merged(&graph, most)?),
    }
}

/// Replaces composite operations, inner ones first.
fn raised(graph: Graph) -> Result<Graph> {
    let graph = raise(graph, activation::simple)?;
    let graph = raise(graph, activation::gated)?;
    // An RMSNorm of centred rows is a LayerNorm, the larger match.
    let graph = raise(graph, norm::layer_norm)?;
    let graph = raise(graph, norm::rms_norm)?;
    let graph = raise(graph, norm::softmax)?;
    let graph = raise(graph, rope::rope)?;
    let graph = simplified(&graph)?;
    let graph = raise(graph, rope::partial)?;
    raise(graph, attention::attention)
}

/// Returns the names of the weights that plans of this graph merge, in order. Uploading them
/// consecutively saves the device a copy.
///
/// # Errors
/// Invalid for a graph that does not verify.
pub fn merged_weights(graph: &Graph, profile: &DeviceProfile) -> Result<Vec<Vec<String>>> {
    crate::ir::verify(graph)?;
    let graph = found(&simplified(graph)?, profile.max_buffer_bytes)?;
    let merged = graph.nodes().iter().filter(|node| matches!(node.op, Op::Merged { .. }));
    Ok(merged.map(|node| node.op.bound_names().map(String::from).collect()).collect())
}
