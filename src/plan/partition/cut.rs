//! Graph partitioning: splits a graph whose nodes have slots into segments, each with a graph.

use std::collections::{BTreeSet, HashMap};

use super::assign::Assigned;
use super::{Action, Passed, rebuilt};
use crate::broken_invariant;
use crate::error::{Error, Result};
use crate::ir::{Graph, Node, NodeId, Op, OpClass};
use crate::plan::builder::describe;
use crate::plan::fusion::readers;

/// The result of splitting a graph.
pub(super) struct Parts {
    pub(super) segments: Vec<Part>,
    pub(super) passed: Vec<Passed>,
    pub(super) actions: Vec<Action>,
}

/// A segment, with its graph.
pub(super) struct Part {
    pub(super) slot: usize,
    /// The segment's nodes, by their ids in the whole graph, in order.
    pub(super) nodes: Vec<NodeId>,
    pub(super) graph: Graph,
}

/// Splits a graph into segments: as much as one slot can execute, then the next slot.
pub(super) fn cut(graph: &Graph, assigned: &Assigned) -> Result<Parts> {
    let rebuilt = rebuilt(graph);
    let lists = segments(graph, &assigned.slots, &rebuilt)?;
    let mut whole = Whole {
        graph,
        rebuilt,
        segment: vec![usize::MAX; graph.nodes().len()],
        place: HashMap::new(),
        passed: Vec::new(),
    };
    for (i, (_, list)) in lists.iter().enumerate() {
        list.iter().for_each(|id| whole.segment[id.index()] = i);
    }
    whole.pass(&lists);
    let mut actions = Vec::new();
    let mut segments = Vec::with_capacity(lists.len());
    for (i, (slot, list)) in lists.iter().enumerate() {
        actions.push(Action::Run(i));
        for tensor in list.iter().filter_map(|id| whole.place.get(id)) {
            let others = whole.passed[*tensor].slots[1..].iter();
            actions.extend(others.map(|to| Action::Transfer { tensor: *tensor, to: *to }));
        }
        let name = match lists.len() {
            1 => graph.name.clone(),
            _ => format!("{} segment {i}", graph.name),
        };
        let part = whole.part(name, i, list)?;
        segments.push(Part { slot: *slot, nodes: list.clone(), graph: part });
    }
    Ok(Parts { segments, passed: whole.passed, actions })
}

/// Slot and nodes of each segment, in order.
type Lists = Vec<(usize, Vec<NodeId>)>;

/// Tries every slot as the first one and returns the split with the fewest segments.
fn segments(graph: &Graph, slots: &[usize], rebuilt: &[bool]) -> Result<Lists> {
    let count = slots.iter().max().map_or(1, |most| most + 1);
    let mut best: Option<Lists> = None;
    for first in 0..count {
        let lists = segments_from(graph, slots, rebuilt, first, count)?;
        if best.as_ref().is_none_or(|best| lists.len() < best.len()) {
            best = Some(lists);
        }
    }
    Ok(best.unwrap_or_default())
}

/// Collects all nodes that are ready on one slot, then on the next slot that has ready nodes.
fn segments_from(
    graph: &Graph,
    slots: &[usize],
    rebuilt: &[bool],
    mut slot: usize,
    count: usize,
) -> Result<Lists> {
    let mut left: Vec<NodeId> = graph.ids().filter(|id| !rebuilt[id.index()]).collect();
    let mut done: Vec<bool> =
        graph.nodes().iter().map(|node| node.op.class() == OpClass::Leaf).collect();
    // A view is ready when its operand is.
    let mut seen: Vec<NodeId> = Vec::with_capacity(done.len());
    for (id, node) in graph.ids().zip(graph.nodes()) {
        let of = node.inputs.first().map_or(id, |of| seen[of.index()]);
        let is_view = rebuilt[id.index()] && node.op.class() == OpClass::Alias;
        seen.push(if is_view { of } else { id });
    }
    let readers = readers(graph);
    let is_view = |id: &NodeId| graph.node(*id).op.class() == OpClass::Alias;
    let (mut lists, mut idle) = (Lists::new(), 0);
    while let Some(next) = left.first() {
        if idle == count {
            return Err(Error::unsupported(format!(
                "{} waits for itself: a state is updated before all reads of its old contents",
                describe(graph, *next)
            )));
        }
        let mut list: Vec<NodeId> = Vec::new();
        left.retain(|id| {
            let node = graph.node(*id);
            let ready = |other: &NodeId| done[seen[other.index()].index()];
            // Readers of a state's old value come before its update.
            let first = node.op.overwrites().then(|| node.inputs[0]);
            let mut before = first.into_iter().flat_map(|of| &readers[of.index()]);
            let now = slots[id.index()] == slot
                && node.inputs.iter().all(ready)
                && before.all(|reader| reader == id || is_view(reader) || ready(reader));
            if now {
                done[id.index()] = true;
                list.push(*id);
            }
            !now
        });
        idle += 1;
        if !list.is_empty() {
            lists.push((slot, list));
            idle = 0;
        }
        slot = (slot + 1) % count;
    }
    if lists.is_empty() {
        // Nothing computes; outputs may still be wanted.
        lists.push((slot, Vec::new()));
    }
    Ok(lists)
}

/// A graph that is being split.
struct Whole<'g> {
    graph: &'g Graph,
    rebuilt: Vec<bool>,
    /// The segment of each node that is not rebuilt.
    segment: Vec<usize>,
    /// For each node whose result is passed between segments: its index in `passed`.
    place: HashMap<NodeId, usize>,
    passed: Vec<Passed>,
}

impl Whole<'_> {
    /// Finds the tensors that are passed between segments, and their slots.
    fn pass(&mut self, lists: &[(usize, Vec<NodeId>)]) {
        let mut wanted: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.graph.nodes().len()];
        for (i, (slot, list)) in lists.iter().enumerate() {
            for id in self.needed(i, list) {
                let from = self.segment[id.index()];
                if from != usize::MAX && from != i && !self.is_update(id) {
                    wanted[id.index()].insert(*slot);
                }
            }
        }
        let bound = self.graph.nodes().iter().flat_map(|node| node.op.bound_names());
        let outputs = self.graph.outputs().iter().map(|(name, _)| name.as_str());
        let mut taken: BTreeSet<String> = bound.chain(outputs).map(String::from).collect();
        for id in self.graph.ids().filter(|id| !wanted[id.index()].is_empty()) {
            let node = self.graph.node(id);
            let own = lists[self.segment[id.index()]].0;
            let others = wanted[id.index()].iter().copied().filter(|slot| *slot != own);
            let slots = std::iter::once(own).chain(others).collect();
            let mut name = describe(self.graph, id);
            while !taken.insert(name.clone()) {
                name.push('\'');
            }
            self.place.insert(id, self.passed.len());
            self.passed.push(Passed { name, shape: node.shape.clone(), dtype: node.dtype, slots });
        }
    }

    fn is_update(&self, id: NodeId) -> bool {
        self.graph.node(id).op.overwrites()
    }

    /// Iterates over the outputs of the graph that a segment computes.
    fn outputs(&self, segment: usize) -> impl Iterator<Item = &(String, NodeId)> {
        self.graph.outputs().iter().filter(move |(_, id)| {
            let mut id = *id;
            while self.rebuilt[id.index()] {
                match self.graph.node(id).inputs.first() {
                    Some(of) => id = *of,
                    None => return segment == self.home(id),
                }
            }
            self.segment[id.index()] == segment
        })
    }

    /// Returns the first segment that may have a leaf as an output: for a state, one on its slot.
    fn home(&self, leaf: NodeId) -> usize {
        let users = self.graph.ids().filter(|id| self.graph.node(*id).inputs.contains(&leaf));
        let computed = users.map(|id| self.segment[id.index()]).filter(|s| *s != usize::MAX);
        match self.graph.node(leaf).op {
            Op::State { .. } => computed.min().unwrap_or(0),
            _ => 0,
        }
    }

    /// Returns every node that a segment contains, in order: its own nodes and those that they
    /// read.
    fn needed(&self, segment: usize, list: &[NodeId]) -> Vec<NodeId> {
        let mut needed = vec![false; self.graph.nodes().len()];
        list.iter().for_each(|id| needed[id.index()] = true);
        self.outputs(segment).for_each(|(_, id)| needed[id.index()] = true);
        for id in self
            .graph
            .ids()
            .rev()
            .filter(|id| self.rebuilt[id.index()] || self.segment[id.index()] == segment)
        {
            if needed[id.index()] {
                self.graph.node(id).inputs.iter().for_each(|input| needed[input.index()] = true);
            }
        }
        self.graph.ids().filter(|id| needed[id.index()]).collect()
    }

    /// Builds the graph of a segment.
    fn part(&self, name: String, segment: usize, list: &[NodeId]) -> Result<Graph> {
        let mut graph = Graph::new(name);
        let mut new: HashMap<NodeId, NodeId> = HashMap::new();
        for id in self.needed(segment, list) {
            let node = self.graph.node(id);
            let own = self.rebuilt[id.index()] || self.segment[id.index()] == segment;
            let made = match self.place.get(&id) {
                _ if own => {
                    let inputs = node.inputs.iter().map(|input| new[input]).collect();
                    graph.push(Node { inputs, ..node.clone() })
                }
                Some(tensor) => {
                    graph.input(&self.passed[*tensor].name, node.shape.clone(), node.dtype)
                }
                // Updated by an earlier segment of this slot.
                None => {
                    let state = self.state(id);
                    match new.get(&state) {
                        Some(known) => *known,
                        None => {
                            let leaf = graph.push(self.graph.node(state).clone());
                            new.insert(state, leaf);
                            leaf
                        }
                    }
                }
            };
            new.insert(id, made);
        }
        for id in list {
            if let Some(tensor) = self.place.get(id) {
                graph.output(self.passed[*tensor].name.clone(), new[id])?;
            }
        }
        for (name, id) in self.outputs(segment) {
            graph.output(name.clone(), new[id])?;
        }
        Ok(graph)
    }

    /// Returns the state at the root of a chain of updates and views.
    fn state(&self, mut id: NodeId) -> NodeId {
        while !matches!(self.graph.node(id).op, Op::State { .. }) {
            match self.graph.node(id).inputs.first() {
                Some(of) => id = *of,
                None => broken_invariant(format_args!("{id} does not update a state")),
            }
        }
        id
    }
}
