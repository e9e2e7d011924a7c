//! Operator fusion: which nodes become one kernel.
//!
//! There are three kinds of groups. A pointwise fusion is elementwise work with reductions along
//! one kind of rows; views between its nodes are strides in the kernel. An anchor (GEMM,
//! convolution or attention) is grouped with a prologue, which is a norm of its operand or
//! elementwise work on it, and an epilogue: elementwise work, rotations (RoPE) and new rows of
//! states that are computed from its result. Every other node is a group of its own.
//!
//! Anchors come first and take what they can ([`anchor_fusion`]); pointwise fusion takes the rest
//! ([`pointwise_fusion`]). Groups form no cycles. `split` may still reduce the fusion around an
//! anchor if an engine that fuses less costs less; the removed nodes then form pointwise fusions.

mod anchor_fusion;
mod cast_elision;
mod dep_graph;
mod epilogues;
mod expr_builder;
mod pointwise_fusion;

use std::collections::HashSet;
use std::rc::Rc;

pub(super) use dep_graph::{Deps, readers};

use super::builder::PlanBuilder;
use crate::engine::{Body, Fusion, PreparedOperand, SegmentBody, View};
use crate::error::{Result, broken_invariant};
use crate::ir::{NodeId, Op};
use crate::provider::DeviceKind;

/// Nodes that one engine executes.
#[derive(Clone)]
pub(super) struct Group {
    /// The nodes, ascending.
    pub(super) nodes: Vec<NodeId>,
    /// The node that represents the group: the anchor, or the last node.
    pub(super) root: NodeId,
    /// The nodes as one body, if they are a pointwise fusion.
    pub(super) body: Option<Body>,
    /// Prologue and epilogue around the root, if it is an anchor with fused work.
    pub(super) fused: Option<Fused>,
    /// The first operand of the root as an earlier kernel quantises it, if `fuse_quant` has
    /// arranged that.
    pub(super) given: Option<PreparedOperand>,
}

/// The fusion around an anchor, and its nodes.
#[derive(Clone)]
pub(super) struct Fused {
    pub(super) fusion: Fusion,
    /// Views that the anchor reads instead of its first and second operand, if any.
    pub(super) operands: [Option<View>; 2],
    /// Prologue nodes.
    pub(super) before: Vec<NodeId>,
    /// Epilogue nodes.
    pub(super) after: Vec<NodeId>,
}

impl Group {
    fn single(node: NodeId, body: Option<Body>) -> Group {
        Group { nodes: vec![node], root: node, body, fused: None, given: None }
    }
}

/// Returns the dependency graph, which is computed once per plan.
fn known(builder: &mut PlanBuilder) -> Rc<Deps> {
    if let Some(deps) = &builder.deps {
        return deps.clone();
    }
    let deps = Rc::new(Deps::new(builder));
    builder.deps = Some(deps.clone());
    deps
}

/// Proposes groups, in a valid order.
pub(super) fn fuse(builder: &mut PlanBuilder) -> Result<()> {
    if builder.options.deterministic && builder.profile.kind != DeviceKind::Cpu {
        // Profitable fusions depend on sizes, and sharing a kernel decides which operations a
        // driver contracts. The CPU's functions round each operation.
        singles(builder);
        return Ok(());
    }
    let deps = known(builder);
    let mut taken = HashSet::new();
    let mut groups = anchor_fusion::anchors(builder, &deps, &mut taken);
    let rest: Vec<NodeId> =
        builder.graph.ids().filter(|id| deps.computes[id.index()] && !taken.contains(id)).collect();
    groups.extend(pointwise_fusion::loops(builder, &deps, &rest, &groups));
    builder.groups = ordered(builder, &deps, groups);
    Ok(())
}

/// Makes each node a group of its own.
pub(super) fn singles(builder: &mut PlanBuilder) {
    let deps = known(builder);
    let nodes = builder.graph.ids().filter(|id| deps.computes[id.index()]);
    let groups =
        nodes.map(|id| Group::single(id, pointwise_fusion::single(builder, &deps, id))).collect();
    builder.groups = ordered(builder, &deps, groups);
}

/// Returns the groups that replace an anchor's group, with only `fused` around the anchor.
pub(super) fn shrink(builder: &mut PlanBuilder, group: &Group, fused: Option<Fused>) -> Vec<Group> {
    let mut nodes = vec![group.root];
    nodes.extend(fused.iter().flat_map(|f| f.before.iter().chain(&f.after)));
    nodes.sort_unstable();
    let part = Group { nodes, root: group.root, body: None, fused, given: None };
    with_rest(builder, group, part)
}

/// Returns a smaller fusion around a group's anchor that the vendor GEMM can execute, if there is
/// one.
pub(super) fn casts_only(builder: &mut PlanBuilder, group: &Group) -> Option<Fused> {
    let deps = known(builder);
    cast_elision::casts_only(builder, &deps, group)
}

/// Returns the segment that stores an anchor's result.
pub(super) fn stored(builder: &PlanBuilder, anchor: NodeId) -> Option<SegmentBody> {
    epilogues::stored(builder, anchor, anchor).map(|(segment, _)| segment)
}

/// Returns the groups that replace a pointwise fusion, with one of its nodes separate.
pub(super) fn split(builder: &mut PlanBuilder, group: &Group, id: NodeId) -> Vec<Group> {
    let deps = known(builder);
    let alone = Group::single(id, pointwise_fusion::single(builder, &deps, id));
    with_rest(builder, group, alone)
}

/// Returns `part`, and pointwise fusions of the group's other nodes.
fn with_rest(builder: &mut PlanBuilder, group: &Group, part: Group) -> Vec<Group> {
    let deps = known(builder);
    let apart = |id: &&NodeId| !part.nodes.contains(id);
    let rest: Vec<NodeId> = group.nodes.iter().filter(apart).copied().collect();
    // Without a body nothing merges with it again.
    let fixed = Group { body: None, ..part.clone() };
    let mut groups = pointwise_fusion::loops(builder, &deps, &rest, &[fixed]);
    groups.push(part);
    groups
}

/// Sorts the groups topologically; ties are in the order of their roots.
pub(super) fn in_order(builder: &mut PlanBuilder, groups: Vec<Group>) -> Vec<Group> {
    let deps = known(builder);
    ordered(builder, &deps, groups)
}

fn ordered(builder: &PlanBuilder, deps: &Deps, groups: Vec<Group>) -> Vec<Group> {
    let mut owner: Vec<Vec<usize>> = vec![Vec::new(); builder.graph.nodes().len()];
    for (g, group) in groups.iter().enumerate() {
        for node in &group.nodes {
            owner[node.index()].push(g);
        }
    }
    // A node shared by several groups is produced by those that do not have it in a prologue: there
    // it is elided or recomputed for that anchor alone, and not stored.
    let in_front = |g: usize, node: NodeId| {
        groups[g].fused.as_ref().is_some_and(|fused| fused.before.contains(&node))
    };
    let makers: Vec<Vec<usize>> = owner
        .iter()
        .zip(builder.graph.ids())
        .map(|(owners, node)| match owners.iter().any(|g| !in_front(*g, node)) {
            true => owners.iter().copied().filter(|g| !in_front(*g, node)).collect(),
            false => owners.clone(),
        })
        .collect();
    let mut waits: Vec<HashSet<usize>> = vec![HashSet::new(); groups.len()];
    let mut opens: Vec<Vec<usize>> = vec![Vec::new(); groups.len()];
    for (g, group) in groups.iter().enumerate() {
        let before = group.nodes.iter().flat_map(|node| &deps.before[node.index()]);
        // A group that computes a node itself does not wait for another one that does too.
        let others = before.filter(|node| !owner[node.index()].contains(&g));
        for from in others.flat_map(|node| &makers[node.index()]) {
            if waits[g].insert(*from) {
                opens[*from].push(g);
            }
        }
    }
    let key = |g: usize| std::cmp::Reverse((groups[g].root, g));
    let mut ready: std::collections::BinaryHeap<_> =
        (0..groups.len()).filter(|g| waits[*g].is_empty()).map(key).collect();
    let mut order = Vec::with_capacity(groups.len());
    while let Some(std::cmp::Reverse((_, g))) = ready.pop() {
        order.push(g);
        for next in opens[g].clone() {
            waits[next].remove(&g);
            if waits[next].is_empty() {
                ready.push(key(next));
            }
        }
    }
    if order.len() != groups.len() {
        broken_invariant(format_args!("{} groups wait for themselves", groups.len() - order.len()));
    }
    let mut groups: Vec<Option<Group>> = groups.into_iter().map(Some).collect();
    order.into_iter().filter_map(|g| groups[g].take()).collect()
}

/// Returns the node whose value a node writes: for an update, that of the new rows; else the node
/// itself.
fn result(builder: &PlanBuilder, id: NodeId) -> NodeId {
    let node = builder.graph.node(id);
    if matches!(node.op, Op::Update { .. }) { node.inputs[1] } else { id }
}

/// Returns the view that a node of a group writes to.
fn written(builder: &PlanBuilder, id: NodeId) -> View {
    let view = &builder.views[id.index()];
    let node = builder.graph.node(id);
    let Op::Update { at } = &node.op else { return view.clone() };
    let shape = builder.graph.node(node.inputs[1]).shape.clone();
    let mut part = View { shape, ..view.clone() };
    part.layout.offset = view.layout.offset.clone() + view.layout.strides[0].clone() * at.clone();
    part
}
