//! Dependency graph: which nodes compute, what depends on what, and what must be in memory.

use smallvec::SmallVec;

use crate::ir::{Graph, NodeId, Op, OpClass};
use crate::plan::builder::PlanBuilder;

/// Dependencies between the nodes that compute; views are transparent.
pub(in crate::plan) struct Deps {
    /// For each node: whether it computes.
    pub(in crate::plan) computes: Vec<bool>,
    /// For each node that computes: the nodes that depend on it.
    pub(in crate::plan) users: Vec<SmallVec<[NodeId; 4]>>,
    /// For each node that computes: the nodes it depends on.
    pub(in crate::plan) before: Vec<SmallVec<[NodeId; 4]>>,
    /// For each node that computes: the readers of its result (users without those that are only
    /// ordered after it).
    pub(in crate::plan) readers: Vec<SmallVec<[NodeId; 4]>>,
    /// For each node: whether its result is needed in memory regardless of readers, as an output or
    /// as rows of a state.
    pub(in crate::plan) kept: Vec<bool>,
}

impl Deps {
    pub(in crate::plan) fn new(builder: &PlanBuilder) -> Deps {
        let graph = &builder.graph;
        let count = graph.nodes().len();
        let computes = |id: NodeId| match graph.node(id).op.class() {
            OpClass::Leaf => false,
            OpClass::Alias => builder.copies.contains(&id),
            _ => !builder.absorbed.contains(&id),
        };
        let computes: Vec<bool> = graph.ids().map(computes).collect();
        let mut deps = Deps {
            users: vec![SmallVec::new(); count],
            before: vec![SmallVec::new(); count],
            readers: vec![SmallVec::new(); count],
            kept: vec![false; count],
            computes,
        };
        let seen_by = readers(&builder.graph);
        for (id, node) in graph.ids().zip(graph.nodes()) {
            if let (Op::Update { .. }, false) = (&node.op, deps.computes[id.index()])
                && let Some(writer) = deps.producer(builder, id)
            {
                deps.kept[writer.index()] = true;
            }
            if !deps.computes[id.index()] {
                continue;
            }
            for input in &node.inputs {
                if let Some(from) = deps.producer(builder, *input) {
                    add(&mut deps.readers[from.index()], id);
                    deps.edge(from, id);
                }
            }
            if node.op.overwrites() {
                deps.kept[id.index()] = true;
                for reader in &seen_by[node.inputs[0].index()] {
                    if *reader != id && deps.computes[reader.index()] {
                        deps.edge(*reader, id);
                    }
                }
            }
        }
        for (_, id) in graph.outputs() {
            if let Some(from) = deps.producer(builder, *id) {
                deps.kept[from.index()] = true;
            }
        }
        deps
    }

    fn edge(&mut self, from: NodeId, to: NodeId) {
        add(&mut self.users[from.index()], to);
        add(&mut self.before[to.index()], from);
    }

    /// Returns the node that computes the value seen at `id`, or `None` for leaves.
    pub(in crate::plan) fn producer(
        &self,
        builder: &PlanBuilder,
        mut id: NodeId,
    ) -> Option<NodeId> {
        loop {
            if self.computes[id.index()] {
                return Some(id);
            }
            let node = builder.graph.node(id);
            id = match (&node.op, node.op.class()) {
                (_, OpClass::Leaf) => return None,
                // The producer of its new rows computes them in place.
                (Op::Update { .. }, _) => node.inputs[1],
                _ => node.inputs[0],
            };
        }
    }
}

fn add(list: &mut SmallVec<[NodeId; 4]>, id: NodeId) {
    if !list.contains(&id) {
        list.push(id);
    }
}

/// Returns the nodes that read each node, directly or through views; a view itself has no readers.
pub(in crate::plan) fn readers(graph: &Graph) -> Vec<Vec<NodeId>> {
    let mut seen: Vec<NodeId> = Vec::with_capacity(graph.nodes().len());
    let mut readers = vec![Vec::new(); graph.nodes().len()];
    for (id, node) in graph.ids().zip(graph.nodes()) {
        seen.push(match node.op.class() {
            OpClass::Alias => seen[node.inputs[0].index()],
            _ => id,
        });
        for input in &node.inputs {
            readers[seen[input.index()].index()].push(id);
        }
    }
    readers
}
