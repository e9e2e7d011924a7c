//! KV-cache readiness: finds the attention for which earlier rows of keys and values are final
//! before a run, so that it may read them before the kernel that writes the newest rows is done
//! (overlapping launches).

use crate::base::Dim;
use crate::ir::{Graph, NodeId, Op, OpClass};

/// Returns whether the keys and values of attention are states that a run writes in one place only,
/// from the row of its first token on, so that earlier rows are final. Runs wait for each other;
/// only launches of one run may overlap.
pub(super) fn rows_before(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let Op::Attention { past, .. } = &node.op else { return false };
    // With spans, tokens can be anywhere.
    node.inputs.len() == 3 && node.inputs[1..].iter().all(|kept| is_appended(graph, *kept, past))
}

fn is_appended(graph: &Graph, kept: NodeId, past: &Dim) -> bool {
    let node = graph.node(kept);
    let (written, start) = match &node.op {
        Op::Slice { axis: 0, start, step: 1, .. } => (node.inputs[0], start.clone()),
        _ => (kept, Dim::new(0)),
    };
    let node = graph.node(written);
    let Op::Update { at } = &node.op else { return false };
    let Op::State { name } = &graph.node(node.inputs[0]).op else { return false };
    *at == start + past.clone() && writers(graph, name) == 1
}

/// Returns the number of nodes that write to a state.
fn writers(graph: &Graph, name: &str) -> usize {
    let writes = |id: NodeId| {
        let node = graph.node(id);
        node.op.overwrites() && state_of(graph, node.inputs[0]) == Some(name)
    };
    graph.ids().filter(|id| writes(*id)).count()
}

/// Returns the state that owns the memory of a node's value.
fn state_of(graph: &Graph, mut id: NodeId) -> Option<&str> {
    loop {
        let node = graph.node(id);
        match &node.op {
            Op::State { name } => return Some(name),
            op if op.overwrites() || op.class() == OpClass::Alias => id = node.inputs[0],
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{DType, Shape, Symbol};

    /// Builds attention over a cache of 64 rows, from row 8 on; the run adds row `at + past` to the
    /// cache. `more` adds nodes before the attention.
    fn attention(at: usize, mut more: impl FnMut(&mut Graph, NodeId)) -> (Graph, NodeId) {
        let mut graph = Graph::new("attention");
        let past = Dim::symbol(Symbol::new("past"));
        let new = Shape::new([1usize, 2, 32]);
        let q = graph.input("q", Shape::new([1usize, 4, 32]), DType::F32);
        let kept = ["k", "v"].map(|name| {
            let row = graph.input(&format!("{name}.new"), new.clone(), DType::F32);
            let state = graph.state(name, Shape::new([64usize, 2, 32]), DType::F32);
            let op = Op::Update { at: Dim::from(at) + past.clone() };
            let cache = graph.add(op, &[state, row]).unwrap();
            if name == "v" {
                more(&mut graph, row);
            }
            let len = past.clone() + Dim::new(1);
            graph.add(Op::Slice { axis: 0, start: Dim::new(8), len, step: 1 }, &[cache]).unwrap()
        });
        let op = Op::attention(1.0, true, None, past);
        let y = graph.add(op, &[q, kept[0], kept[1]]).unwrap();
        (graph, y)
    }

    #[test]
    fn rows_before_are_there_where_a_run_adds_behind_them_alone() {
        let (graph, y) = attention(8, |_, _| {});
        assert!(rows_before(&graph, y));
        assert!(!rows_before(&graph, graph.node(y).inputs[0]));
        let (graph, y) = attention(7, |_, _| {});
        assert!(!rows_before(&graph, y));
    }

    #[test]
    fn nor_where_something_else_writes_to_the_state_or_it_is_none() {
        let (graph, y) = attention(8, |graph, row| {
            let state = graph.state("v", Shape::new([64usize, 2, 32]), DType::F32);
            graph.add(Op::Update { at: Dim::new(0) }, &[state, row]).unwrap();
        });
        assert!(!rows_before(&graph, y));
        let (mut graph, y) = attention(8, |_, _| {});
        let [q, k] = [0, 1].map(|i| graph.node(y).inputs[i]);
        let v = graph.input("v.all", graph.node(k).shape.clone(), DType::F32);
        let op = graph.node(y).op.clone();
        let y = graph.add(op, &[q, k, v]).unwrap();
        assert!(!rows_before(&graph, y));
    }
}
