//! Products of elements of two bytes: `widen` puts conversions to `f32` before them, and an engine of a
//! library or on matrix hardware reads what those convert instead, which loses nothing.
//!
//! Proposed only where the device has either, and for all that reads a conversion or for nothing.
//! Where no engine takes it, `choose` cuts it off again, for each product by itself: a conversion may then
//! be done for one and left out for another.

use std::collections::HashMap;

use super::anchors::segments;
use super::deps::Deps;
use super::{Fused, Group};
use crate::base::{ComputeMode, DType, Format};
use crate::engine::{Around, View};
use crate::ir::{NodeId, Op, OpClass};
use crate::plan::draft::Draft;

/// What a product reads in the place of its operands, and the conversions that this leaves out.
pub(super) type Halves = ([Option<View>; 2], Vec<NodeId>);

/// The products that may read elements of two bytes.
pub(super) fn read(draft: &Draft, deps: &Deps) -> HashMap<NodeId, Halves> {
    let mut found = HashMap::new();
    if !multiplies_halves(draft) || draft.options.deterministic {
        return found;
    }
    for id in draft.graph.ids().filter(|id| deps.computes[id.index()]) {
        if let Some(halves) = of(draft, deps, id) {
            found.insert(id, halves);
        }
    }
    // A conversion that something else reads is done anyway, and then no product goes without it.
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

/// The anchor with the first thing alone that is done behind it, where that rounds its result to two bytes
/// and more follows: a call of a library stores it so, and the rest is a loop that reads half as much.
pub(super) fn rounded(draft: &Draft, deps: &Deps, group: &Group) -> Option<Fused> {
    let fused = group.fused.as_ref().filter(|fused| fused.after.len() > 1)?;
    if !multiplies_halves(draft) {
        return None;
    }
    let rounds = |id: &&NodeId| {
        let node = draft.graph.node(**id);
        matches!(node.op, Op::Cast(to) if to.is_half()) && node.inputs[..] == [group.root]
    };
    let after = vec![*fused.after.iter().find(rounds)?];
    let segments = segments(draft, deps, group.root, &after)?;
    let around = Around { segments, ..fused.around.clone() };
    Some(Fused { around, after, ..fused.clone() })
}

fn multiplies_halves(draft: &Draft) -> bool {
    draft.profile.has_gemm_library || draft.profile.has_matrix_hw
}

fn of(draft: &Draft, deps: &Deps, id: NodeId) -> Option<Halves> {
    let node = draft.graph.node(id);
    let (a, first) = converted(draft, deps, *node.inputs.first()?)?;
    let other = *node.inputs.get(1)?;
    let (b, second) = match node.op {
        Op::MatMul => converted(draft, deps, other).map(|(view, cast)| (Some(view), Some(cast)))?,
        // The weight is read as it is stored.
        Op::Linear { mode: ComputeMode::F32 | ComputeMode::F16 } => {
            let weight = &draft.views[other.index()];
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

/// What a conversion to `f32` reads, where that has two bytes, as elements of that type.
fn converted(draft: &Draft, deps: &Deps, id: NodeId) -> Option<(View, NodeId)> {
    let node = draft.graph.node(id);
    if node.op != Op::Cast(DType::F32) || !deps.computes[id.index()] {
        return None;
    }
    let source = *node.inputs.first()?;
    // A state may be written between the conversion and the product.
    if root_is_state(draft, source) {
        return None;
    }
    let view = &draft.views[source.index()];
    match view.format {
        Format::Plain(dtype) if dtype.is_half() => Some((View { dtype, ..view.clone() }, id)),
        _ => None,
    }
}

/// Whether a node's value is memory of a state, or a view of it.
fn root_is_state(draft: &Draft, id: NodeId) -> bool {
    let node = draft.graph.node(id);
    match node.op {
        Op::State { .. } | Op::Update { .. } | Op::Scatter => true,
        _ if node.op.class() == OpClass::Alias => {
            node.inputs.first().is_some_and(|input| root_is_state(draft, *input))
        }
        _ => false,
    }
}
