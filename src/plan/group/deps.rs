//! Which nodes compute, who waits for whom, and what must be in memory.

use smallvec::SmallVec;

use crate::ir::{Graph, NodeId, Op, OpClass};
use crate::plan::draft::Draft;

/// Dependencies between the nodes that compute; views are looked through.
pub(in crate::plan) struct Deps {
    /// Whether a node computes.
    pub(in crate::plan) computes: Vec<bool>,
    /// For each node that computes: those that wait for it.
    pub(in crate::plan) users: Vec<SmallVec<[NodeId; 4]>>,
    /// For each node that computes: those it waits for.
    pub(in crate::plan) before: Vec<SmallVec<[NodeId; 4]>>,
    /// For each node that computes: those that read its result (users without those that only
    /// have to come later).
    pub(in crate::plan) readers: Vec<SmallVec<[NodeId; 4]>>,
    /// Whether a result is needed in memory whoever reads it: an output, or rows of a state.
    pub(in crate::plan) kept: Vec<bool>,
}

impl Deps {
    pub(in crate::plan) fn new(draft: &Draft) -> Deps {
        let graph = &draft.graph;
        let count = graph.nodes().len();
        let computes = |id: NodeId| match graph.node(id).op.class() {
            OpClass::Leaf => false,
            OpClass::Alias => draft.copies.contains(&id),
            _ => !draft.absorbed.contains(&id),
        };
        let computes: Vec<bool> = graph.ids().map(computes).collect();
        let mut deps = Deps {
            users: vec![SmallVec::new(); count],
            before: vec![SmallVec::new(); count],
            readers: vec![SmallVec::new(); count],
            kept: vec![false; count],
            computes,
        };
        let seen_by = readers(&draft.graph);
        for (id, node) in graph.ids().zip(graph.nodes()) {
            if let (Op::Update { .. }, false) = (&node.op, deps.computes[id.index()])
                && let Some(writer) = deps.producer(draft, id)
            {
                deps.kept[writer.index()] = true;
            }
            if !deps.computes[id.index()] {
                continue;
            }
            for input in &node.inputs {
                if let Some(from) = deps.producer(draft, *input) {
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
            if let Some(from) = deps.producer(draft, *id) {
                deps.kept[from.index()] = true;
            }
        }
        deps
    }

    fn edge(&mut self, from: NodeId, to: NodeId) {
        add(&mut self.users[from.index()], to);
        add(&mut self.before[to.index()], from);
    }

    /// The node that computes what is seen at `id`; `None` for leaves.
    pub(in crate::plan) fn producer(&self, draft: &Draft, mut id: NodeId) -> Option<NodeId> {
        loop {
            if self.computes[id.index()] {
                return Some(id);
            }
            let node = draft.graph.node(id);
            id = match (&node.op, node.op.class()) {
                (_, OpClass::Leaf) => return None,
                // Its new rows are computed where they belong, by what makes them.
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

/// For each node that is no view: the nodes that read it, through views.
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
