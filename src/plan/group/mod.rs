//! Which nodes become one kernel.
//!
//! Three kinds of groups. A *loop* is elementwise work with reductions along one kind of rows;
//! whatever views lie between its nodes are strides in the kernel. An *anchor* is a product,
//! convolution or attention with what is fused around it: the norm or elementwise work on what it
//! reads, and elementwise work, rotations and new rows of states on what it makes. Everything
//! else is a group of its own.
//!
//! Anchors come first and take what they can ([`anchors`]); loops take the rest ([`loops`]). A group
//! never waits for itself through another one. `choose` may still cut what is around an anchor,
//! where an engine that does less costs less; the nodes that are cut then become loops.

mod anchors;
mod deps;
mod halves;
mod loops;
mod segments;
mod trace;

use std::collections::HashSet;
use std::rc::Rc;

pub(super) use deps::{Deps, readers};

use super::draft::Draft;
use crate::engine::{Around, Body, Given, SegmentBody, View};
use crate::error::{Result, broken_invariant};
use crate::ir::{NodeId, Op};
use crate::provider::DeviceKind;

/// Nodes that one engine executes.
#[derive(Clone)]
pub(super) struct Group {
    /// The nodes, ascending.
    pub(super) nodes: Vec<NodeId>,
    /// The one that stands for the group: the anchor, or the last.
    pub(super) root: NodeId,
    /// The nodes as one body, where they are a loop.
    pub(super) body: Option<Body>,
    /// What is fused around the root.
    pub(super) fused: Option<Fused>,
    /// The root's first operand as what comes before rounds it, once `choose` has found that.
    pub(super) given: Option<Given>,
}

/// What is fused around an anchor, and which nodes that is.
#[derive(Clone)]
pub(super) struct Fused {
    pub(super) around: Around,
    /// What the anchor reads in the place of its first two operands.
    pub(super) operands: [Option<View>; 2],
    /// Nodes whose work is done as the anchor reads.
    pub(super) before: Vec<NodeId>,
    /// Nodes whose work is done as the anchor writes.
    pub(super) after: Vec<NodeId>,
}

impl Group {
    fn single(node: NodeId, body: Option<Body>) -> Group {
        Group { nodes: vec![node], root: node, body, fused: None, given: None }
    }
}

/// The dependencies between nodes, found once for a plan.
fn known(draft: &mut Draft) -> Rc<Deps> {
    if let Some(deps) = &draft.deps {
        return deps.clone();
    }
    let deps = Rc::new(Deps::new(draft));
    draft.deps = Some(deps.clone());
    deps
}

/// Proposes groups, in an order in which they can execute.
pub(super) fn group(draft: &mut Draft) -> Result<()> {
    if draft.options.deterministic && draft.profile.kind != DeviceKind::Cpu {
        // What pays follows from sizes, and what shares a kernel decides which operations a driver contracts.
        // The CPU's functions round each.
        singles(draft);
        return Ok(());
    }
    let deps = known(draft);
    let mut taken = HashSet::new();
    let mut groups = anchors::anchors(draft, &deps, &mut taken);
    let rest: Vec<NodeId> =
        draft.graph.ids().filter(|id| deps.computes[id.index()] && !taken.contains(id)).collect();
    groups.extend(loops::loops(draft, &deps, &rest, &groups));
    draft.groups = ordered(draft, &deps, groups);
    Ok(())
}

/// Every node by itself.
pub(super) fn singles(draft: &mut Draft) {
    let deps = known(draft);
    let nodes = draft.graph.ids().filter(|id| deps.computes[id.index()]);
    let groups = nodes.map(|id| Group::single(id, loops::single(draft, &deps, id))).collect();
    draft.groups = ordered(draft, &deps, groups);
}

/// The groups that take the place of an anchor's, with less fused around it.
pub(super) fn cut(draft: &mut Draft, group: &Group, fused: Option<Fused>) -> Vec<Group> {
    let mut nodes = vec![group.root];
    nodes.extend(fused.iter().flat_map(|f| f.before.iter().chain(&f.after)));
    nodes.sort_unstable();
    let part = Group { nodes, root: group.root, body: None, fused, given: None };
    beside(draft, group, part)
}

/// What is fused around an anchor with less behind it, where engines of libraries may do that much.
pub(super) fn rounded(draft: &mut Draft, group: &Group) -> Option<Fused> {
    let deps = known(draft);
    halves::rounded(draft, &deps, group)
}

/// The segment that stores what an anchor makes.
pub(super) fn stored(draft: &Draft, anchor: NodeId) -> Option<SegmentBody> {
    segments::stored(draft, anchor, anchor).map(|(segment, _)| segment)
}

/// The groups that take the place of a loop's, with one of its nodes by itself.
pub(super) fn split(draft: &mut Draft, group: &Group, id: NodeId) -> Vec<Group> {
    let deps = known(draft);
    let alone = Group::single(id, loops::single(draft, &deps, id));
    beside(draft, group, alone)
}

/// A part of a group, and loops of the rest.
fn beside(draft: &mut Draft, group: &Group, part: Group) -> Vec<Group> {
    let deps = known(draft);
    let apart = |id: &&NodeId| !part.nodes.contains(id);
    let rest: Vec<NodeId> = group.nodes.iter().filter(apart).copied().collect();
    // Without a body nothing joins it again.
    let fixed = Group { body: None, ..part.clone() };
    let mut groups = loops::loops(draft, &deps, &rest, &[fixed]);
    groups.push(part);
    groups
}

/// The groups in an order in which each comes after those it waits for; otherwise by first node.
pub(super) fn in_order(draft: &mut Draft, groups: Vec<Group>) -> Vec<Group> {
    let deps = known(draft);
    ordered(draft, &deps, groups)
}

fn ordered(draft: &Draft, deps: &Deps, groups: Vec<Group>) -> Vec<Group> {
    let mut owner: Vec<Vec<usize>> = vec![Vec::new(); draft.graph.nodes().len()];
    for (g, group) in groups.iter().enumerate() {
        for node in &group.nodes {
            owner[node.index()].push(g);
        }
    }
    // Of a node that several groups have, those make it that do not have it in front of an anchor: there it
    // is left out or done for that anchor alone, and nothing of it is stored.
    let in_front = |g: usize, node: NodeId| {
        groups[g].fused.as_ref().is_some_and(|fused| fused.before.contains(&node))
    };
    let makers: Vec<Vec<usize>> = owner
        .iter()
        .zip(draft.graph.ids())
        .map(|(owners, node)| match owners.iter().any(|g| !in_front(*g, node)) {
            true => owners.iter().copied().filter(|g| !in_front(*g, node)).collect(),
            false => owners.clone(),
        })
        .collect();
    let mut waits: Vec<HashSet<usize>> = vec![HashSet::new(); groups.len()];
    let mut opens: Vec<Vec<usize>> = vec![Vec::new(); groups.len()];
    for (g, group) in groups.iter().enumerate() {
        let before = group.nodes.iter().flat_map(|node| &deps.before[node.index()]);
        // What a group does for itself is at hand, even where another one does it as well.
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

/// The node whose value a node writes: of an update, its new rows.
fn result(draft: &Draft, id: NodeId) -> NodeId {
    let node = draft.graph.node(id);
    if matches!(node.op, Op::Update { .. }) { node.inputs[1] } else { id }
}

/// The view that a node of a group writes to.
fn written(draft: &Draft, id: NodeId) -> View {
    let view = &draft.views[id.index()];
    let node = draft.graph.node(id);
    let Op::Update { at } = &node.op else { return view.clone() };
    let shape = draft.graph.node(node.inputs[1]).shape.clone();
    let mut part = View { shape, ..view.clone() };
    part.layout.offset = view.layout.offset.clone() + view.layout.strides[0].clone() * at.clone();
    part
}
