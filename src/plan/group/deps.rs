//! Which nodes compute, who waits for whom, and what must be in memory.

use smallvec::SmallVec;

use crate::ir::{NodeId, Op, OpClass};
use crate::plan::draft::Draft;

/// Dependencies between the nodes that compute; views are looked through.
pub(super) struct Deps {
    /// Whether a node computes.
    pub(super) computes: Vec<bool>,
    /// For each node that computes: those that wait for it.
    pub(super) users: Vec<SmallVec<[NodeId; 4]>>,
    /// For each node that computes: those it waits for.
    pub(super) before: Vec<SmallVec<[NodeId; 4]>>,
    /// For each node that computes: those that read its result (users without those that only
    /// have to come later).
    pub(super) readers: Vec<SmallVec<[NodeId; 4]>>,
    /// Whether a result is needed in memory whoever reads it: an output, or rows of a state.
    pub(super) kept: Vec<bool>,
}

impl Deps {
    pub(super) fn new(draft: &Draft) -> Deps {
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
            if matches!(node.op, Op::Update { .. }) {
                deps.kept[id.index()] = true;
                for reader in readers_of(draft, node.inputs[0]) {
                    if reader != id && deps.computes[reader.index()] {
                        deps.edge(reader, id);
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
    pub(super) fn producer(&self, draft: &Draft, mut id: NodeId) -> Option<NodeId> {
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

/// Nodes that read `id` itself, through views.
fn readers_of(draft: &Draft, id: NodeId) -> Vec<NodeId> {
    let graph = &draft.graph;
    let sees = |mut at: NodeId| {
        while at != id && graph.node(at).op.class() == OpClass::Alias {
            at = graph.node(at).inputs[0];
        }
        at == id
    };
    let reads = |reader: &NodeId| graph.node(*reader).inputs.iter().any(|input| sees(*input));
    graph.ids().filter(reads).collect()
}
