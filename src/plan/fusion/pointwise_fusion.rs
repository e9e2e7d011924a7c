//! Pointwise and row-reduction fusion: elementwise nodes and reductions along rows become one
//! generated kernel (a loop).

use std::collections::HashSet;

use smallvec::SmallVec;

use super::dep_graph::Deps;
use super::expr_builder::{RowSpace, Trace};
use super::{Group, result, written};
use crate::base::Shape;
use crate::codegen::MAX_RANK;
use crate::engine::{Body, View};
use crate::ir::{NodeId, Op, OpClass};
use crate::kernel::Value;
use crate::plan::builder::PlanBuilder;

/// Maximum operations that are recomputed for each element to which a smaller tensor is broadcast.
const REPEATED: usize = 8;
/// Minimum rows of a large tensor for which row and element work is fused: with fewer, one
/// workgroup per row would leave the device idle (occupancy).
const FEW_ROWS: u64 = 32;
/// Number of elements above which a tensor is large in the sense of [`FEW_ROWS`].
const LARGE: u64 = 1 << 20;

/// Returns whether a node can be part of a pointwise fusion.
pub(super) fn loopable(builder: &PlanBuilder, id: NodeId) -> bool {
    let node = builder.graph.node(id);
    match &node.op {
        op if op.class() == OpClass::Elementwise => true,
        Op::Reduce { .. } | Op::Softmax | Op::RmsNorm { .. } | Op::LayerNorm { .. } => true,
        Op::Update { .. } => true,
        _ => false,
    }
}

/// Returns the body of one node, if it can be a pointwise fusion.
pub(super) fn single(builder: &PlanBuilder, deps: &Deps, id: NodeId) -> Option<Body> {
    body(builder, deps, &[id])
}

/// Groups these nodes, which are ascending, into pointwise fusions and single nodes. `others` are
/// existing groups.
pub(super) fn loops(
    builder: &PlanBuilder,
    deps: &Deps,
    nodes: &[NodeId],
    others: &[Group],
) -> Vec<Group> {
    let mut grouping = Grouping {
        builder,
        deps,
        owner: vec![SmallVec::new(); builder.graph.nodes().len()],
        groups: others.iter().cloned().map(Some).collect(),
    };
    let first = others.len();
    for (g, group) in others.iter().enumerate() {
        for node in &group.nodes {
            grouping.owner[node.index()].push(g);
        }
    }
    for id in nodes {
        let body = if loopable(builder, *id) { single(builder, deps, *id) } else { None };
        grouping.owner[id.index()].push(grouping.groups.len());
        let is_loop = body.is_some();
        grouping.groups.push(Some(Group::single(*id, body)));
        if !is_loop {
            continue;
        }
        let mut producers: Vec<NodeId> = builder
            .graph
            .node(*id)
            .inputs
            .iter()
            .filter_map(|input| deps.producer(builder, *input))
            .collect();
        producers.sort_unstable();
        producers.dedup();
        for producer in producers.into_iter().rev() {
            grouping.merge(producer, *id);
        }
    }
    grouping.groups.drain(first..).flatten().collect()
}

struct Grouping<'d, 'a> {
    builder: &'d PlanBuilder<'a>,
    deps: &'d Deps,
    /// For each node, the groups that compute it: several, if each recomputes it.
    owner: Vec<SmallVec<[usize; 1]>>,
    groups: Vec<Option<Group>>,
}

impl Grouping<'_, '_> {
    /// Merges the groups of a producer and a reader, if that is valid and faster.
    fn merge(&mut self, producer: NodeId, reader: NodeId) {
        let ([a], [b]) = (&self.owner[producer.index()][..], &self.owner[reader.index()][..])
        else {
            return;
        };
        let (a, b) = (*a, *b);
        let (Some(from), Some(to)) = (&self.groups[a], &self.groups[b]) else { return };
        if a == b || from.body.is_none() || to.body.is_none() {
            return;
        }
        let mut nodes: Vec<NodeId> = from.nodes.iter().chain(&to.nodes).copied().collect();
        nodes.sort_unstable();
        if self.waits_for_itself(a, b) {
            return;
        }
        let Some(body) = body(self.builder, self.deps, &nodes) else { return };
        // In deterministic mode reductions have separate kernels with one order.
        let apart = self.builder.options.deterministic && body.has_reductions();
        if apart || !self.pays(from, to, &body) {
            return;
        }
        let root = nodes[nodes.len() - 1];
        for node in &nodes {
            self.owner[node.index()] = SmallVec::from_slice(&[b]);
        }
        self.groups[a] = None;
        self.groups[b] = Some(Group { nodes, root, body: Some(body), fused: None, given: None });
    }

    /// Returns whether merging groups `a` and `b` would form a cycle through another group.
    fn waits_for_itself(&self, a: usize, b: usize) -> bool {
        let mut seen: HashSet<usize> = HashSet::new();
        let mut open: Vec<usize> = Vec::new();
        let next = |g: usize| {
            let nodes = self.groups[g].iter().flat_map(|group| &group.nodes);
            nodes.flat_map(|node| &self.deps.users[node.index()])
        };
        // Users of the nodes that have a group already; later nodes come after all of them.
        for user in next(a).chain(next(b)) {
            open.extend(self.owner[user.index()].iter().filter(|g| **g != a && **g != b));
        }
        while let Some(g) = open.pop() {
            if !seen.insert(g) {
                continue;
            }
            for user in next(g) {
                for owner in &self.owner[user.index()] {
                    if *owner == a || *owner == b {
                        return true;
                    }
                    open.push(*owner);
                }
            }
        }
        false
    }

    fn pays(&self, from: &Group, to: &Group, body: &Body) -> bool {
        let (Some(one), Some(other)) = (&from.body, &to.body) else { return false };
        let upper = |shape: &Shape| self.builder.class.upper(&shape.elements()).unwrap_or(u64::MAX);
        if body.has_reductions() {
            let rows = self.builder.class.upper(&body.rows()).unwrap_or(u64::MAX);
            let elements = upper(&body.space);
            if rows < FEW_ROWS && elements > LARGE {
                return false;
            }
            // Rows of another kind would be reduced again for each element.
            return one.space.elements() == other.space.elements()
                || !one.has_reductions()
                || one.rows() == other.space.elements()
                || one.rows() == other.rows();
        }
        let repeats = upper(&one.space) < upper(&other.space);
        !repeats || operations(one) <= REPEATED
    }
}

fn operations(body: &Body) -> usize {
    let one = |value: &&Value| !matches!(value, Value::Input(_) | Value::Constant(..));
    body.values.iter().filter(one).count()
}

/// Builds one body of these nodes; `None` if strides cannot express it or a kernel cannot execute
/// it.
fn body(builder: &PlanBuilder, deps: &Deps, nodes: &[NodeId]) -> Option<Body> {
    let members: HashSet<NodeId> = nodes.iter().copied().collect();
    let mut rows: Option<RowSpace> = None;
    for id in nodes {
        let Some(found) = RowSpace::of(builder, builder.graph.node(*id)) else { continue };
        if rows.as_ref().is_some_and(|rows| *rows != found) {
            return None;
        }
        rows = Some(found);
    }
    if let Some(rows) = rows {
        let space = rows.space.clone();
        return over(builder, deps, nodes, Trace::new(builder, &members, space, Some(rows)));
    }
    // If strides cannot express a reshape in the last node's shape, another node's shape may do.
    let last = written(builder, *nodes.last()?).shape;
    let elements = last.elements();
    let mut spaces = vec![last];
    for id in nodes.iter().rev() {
        let shape = written(builder, *id).shape;
        if !spaces.contains(&shape) && shape.elements() == elements {
            spaces.push(shape);
        }
    }
    let mut trace = spaces.into_iter().map(|space| Trace::new(builder, &members, space, None));
    trace.find_map(|trace| over(builder, deps, nodes, trace))
}

/// Builds the body over the index space of a trace.
fn over(builder: &PlanBuilder, deps: &Deps, nodes: &[NodeId], mut trace: Trace) -> Option<Body> {
    let mut outputs = Vec::new();
    for id in nodes {
        let needed = deps.kept[id.index()]
            || deps.readers[id.index()].iter().any(|reader| !nodes.contains(reader));
        if !needed {
            continue;
        }
        let to = written(builder, *id);
        let chain = trace.root(&to.shape)?;
        let value = trace.value(result(builder, *id), &chain)?;
        let to = trace.seen(&to, &chain)?;
        outputs.push((to.clone(), trace.for_output(value, &to)?));
    }
    let (body, _) = trace.finish(outputs);
    fits(builder, &body).then_some(body)
}

/// Returns whether a kernel can execute a body: it has enough buffers and dimensions, and no tensor
/// is both read and written, or written twice.
pub(super) fn fits(builder: &PlanBuilder, body: &Body) -> bool {
    let (reads, writes) = (body.reads(), body.writes());
    let buffers = (reads.len() + writes.len()) as u32;
    let apart = writes.iter().all(|tensor| !reads.contains(tensor));
    let once = |(i, (view, _)): (usize, &(View, u32))| {
        body.outputs[..i].iter().all(|(other, _)| other.tensor != view.tensor)
    };
    !body.outputs.is_empty()
        && buffers <= builder.profile.max_storage_buffers
        && apart
        && body.outputs.iter().enumerate().all(once)
        && body.merged(&[]).sizes.len() <= MAX_RANK as usize
}
