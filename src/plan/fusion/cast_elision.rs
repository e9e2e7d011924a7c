//! Cast elision for products of two-byte elements: legalisation inserts conversions to `f32`, and
//! the vendor GEMM or a tensor-core kernel reads the unconverted operand, which loses nothing.
//!
//! Elision is proposed only if the device has either, and for all readers of a conversion or none.
//! If no engine accepts the unconverted operand, `split` undoes the elision for each product
//! separately, so a conversion may be computed for one reader and elided for another.

use std::collections::HashMap;

use super::anchor_fusion::segments;
use super::dep_graph::Deps;
use super::{Fused, Group};
use crate::base::{ComputeMode, DType, Format};
use crate::engine::{Fusion, View};
use crate::ir::{NodeId, Op, OpClass};
use crate::plan::builder::PlanBuilder;

/// Operands that a product reads instead of its own, and the conversions that this elides.
pub(super) type Halves = ([Option<View>; 2], Vec<NodeId>);

/// Finds the products that may read two-byte elements, with what each reads instead.
pub(super) fn read(builder: &PlanBuilder, deps: &Deps) -> HashMap<NodeId, Halves> {
    let mut found = HashMap::new();
    if !multiplies_f16(builder) || builder.options.deterministic {
        return found;
    }
    for id in builder.graph.ids().filter(|id| deps.computes[id.index()]) {
        if let Some(halves) = of(builder, deps, id) {
            found.insert(id, halves);
        }
    }
    // A conversion with another reader is computed anyway, so then no product elides it.
    loop {
        let left = |cast: &NodeId| {
            !deps.kept[cast.index()]
                && deps.readers[cast.index()].iter().all(|reader| found.contains_key(reader))
        };
        let lost: Vec<NodeId> = found
            .iter()
            .filter(|(_, (_, casts))| !casts.iter().all(left))
            .map(|(id, _)| *id)
            .collect();
        if lost.is_empty() {
            return found;
        }
        for id in lost {
            found.remove(&id);
        }
    }
}

/// Reduces the epilogue of an anchor to the node that converts its result to two bytes, if more
/// nodes follow: the vendor GEMM stores that type, and the rest is a pointwise fusion with half the
/// traffic.
pub(super) fn casts_only(builder: &PlanBuilder, deps: &Deps, group: &Group) -> Option<Fused> {
    let fused = group.fused.as_ref().filter(|fused| fused.after.len() > 1)?;
    if !multiplies_f16(builder) {
        return None;
    }
    let rounds = |id: &&NodeId| {
        let node = builder.graph.node(**id);
        matches!(node.op, Op::Cast(to) if to.is_half()) && node.inputs[..] == [group.root]
    };
    let after = vec![*fused.after.iter().find(rounds)?];
    let segments = segments(builder, deps, group.root, &after)?;
    let fusion = Fusion { segments, ..fused.fusion.clone() };
    Some(Fused { fusion, after, ..fused.clone() })
}

fn multiplies_f16(builder: &PlanBuilder) -> bool {
    builder.profile.has_gemm_library || builder.profile.has_matrix_hw
}

fn of(builder: &PlanBuilder, deps: &Deps, id: NodeId) -> Option<Halves> {
    let node = builder.graph.node(id);
    let (a, first) = converted(builder, deps, *node.inputs.first()?)?;
    let other = *node.inputs.get(1)?;
    let (b, second) = match node.op {
        Op::MatMul => {
            converted(builder, deps, other).map(|(view, cast)| (Some(view), Some(cast)))?
        }
        // The weight is read as stored.
        Op::Linear { mode: ComputeMode::F32 | ComputeMode::F16 } => {
            let weight = &builder.views[other.index()];
            (weight.format == a.format).then_some((None, None))?
        }
        _ => return None,
    };
    if b.as_ref().is_some_and(|b| b.format != a.format) {
        return None;
    }
    let mut casts: Vec<NodeId> = [first].into_iter().chain(second).collect();
    casts.sort_unstable();
    casts.dedup();
    Some(([Some(a), b], casts))
}

/// Returns the two-byte source of a conversion to `f32`, as a view of its own type, and the
/// conversion.
fn converted(builder: &PlanBuilder, deps: &Deps, id: NodeId) -> Option<(View, NodeId)> {
    let node = builder.graph.node(id);
    if node.op != Op::Cast(DType::F32) || !deps.computes[id.index()] {
        return None;
    }
    let source = *node.inputs.first()?;
    // A state may be written between the conversion and the product.
    if root_is_state(builder, source) {
        return None;
    }
    let view = &builder.views[source.index()];
    match view.format {
        Format::Plain(dtype) if dtype.is_half() => Some((View { dtype, ..view.clone() }, id)),
        _ => None,
    }
}

/// Returns whether a node's value lies in the memory of a state.
fn root_is_state(builder: &PlanBuilder, id: NodeId) -> bool {
    let node = builder.graph.node(id);
    match node.op {
        Op::State { .. } | Op::Update { .. } | Op::Scatter => true,
        _ if node.op.class() == OpClass::Alias => {
            node.inputs.first().is_some_and(|input| root_is_state(builder, *input))
        }
        _ => false,
    }
}
