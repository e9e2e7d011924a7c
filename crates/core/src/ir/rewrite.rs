//! Helpers for passes, which turn a graph into a new graph and keep the node order if possible.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use smallvec::SmallVec;

use super::graph::{Graph, Node, NodeId};
use super::op::Op;
use super::verify::root_of;
use crate::base::{ComputeMode, DType, Format, Shape};
use crate::error::{Error, Result};

/// Rebuilds the graph, node by node in order.
///
/// `replace` receives the new graph, the old id, the old node and its operands in the new graph. It
/// returns the replacement in the new graph, or `None` to copy the node. A replacement must have
/// the same shape and type, and inherits the node's label if it has none. Unread nodes remain:
/// [`live`] removes them.
///
/// # Errors
/// Invalid if a replacement does not exist or has a different shape or type, or if a node precedes
/// one of its operands. Any error of `replace` is passed on.
pub fn rewrite(
    graph: &Graph,
    mut replace: impl FnMut(&mut Graph, NodeId, &Node, &[NodeId]) -> Result<Option<NodeId>>,
) -> Result<Graph> {
    let mut new = Graph::new(graph.name.clone());
    let mut map: Vec<NodeId> = Vec::with_capacity(graph.nodes().len());
    for (id, node) in graph.ids().zip(graph.nodes()) {
        let inputs = mapped(graph, &map, &node.inputs)?;
        let to = match replace(&mut new, id, node, &inputs)? {
            Some(to) => taken(&mut new, id, node, to).map_err(|e| e.context(&graph.name))?,
            None => new.push(Node { inputs, ..node.clone() }),
        };
        map.push(to);
    }
    for (name, id) in graph.outputs() {
        let to = mapped(graph, &map, &[*id])?;
        new.output(name.clone(), to[0])?;
    }
    Ok(new)
}

fn mapped(graph: &Graph, map: &[NodeId], ids: &[NodeId]) -> Result<SmallVec<[NodeId; 4]>> {
    let find = |id: &NodeId| {
        map.get(id.index()).copied().ok_or_else(|| {
            Error::invalid(format!("graph {}: {id} is read before it is computed", graph.name))
        })
    };
    ids.iter().map(find).collect()
}

/// Checks the replacement `to` of a node, and gives it the node's label if it has none.
fn taken(new: &mut Graph, id: NodeId, node: &Node, to: NodeId) -> Result<NodeId> {
    let by = new
        .nodes()
        .get(to.index())
        .ok_or_else(|| Error::invalid(format!("{id} is replaced by {to}, which does not exist")))?;
    if (&by.shape, by.dtype) != (&node.shape, node.dtype) {
        return Err(Error::invalid(format!(
            "{id} {} {}{} is replaced by {} {}{}",
            node.op.name(),
            node.dtype,
            node.shape,
            by.op.name(),
            by.dtype,
            by.shape
        )));
    }
    if by.label.is_empty() {
        new.label(to, node.label.clone());
    }
    Ok(to)
}

/// Returns the graph with `mode` as the compute mode of every product with a packed weight. Unless
/// `mode` is [`ComputeMode::F32`], products with weights of 2-byte floats and attention with `f16`
/// keys use [`ComputeMode::F16`]. All other nodes are unchanged.
///
/// # Errors
/// Same as [`rewrite`].
pub fn computing_in(graph: &Graph, mode: ComputeMode) -> Result<Graph> {
    rewrite(graph, |new, _, node, inputs| {
        let Some(w) = node.inputs.get(1) else { return Ok(None) };
        if let Op::Attention { .. } = &node.op {
            let mut op = node.op.clone();
            if let Op::Attention { mode: own, .. } = &mut op
                && graph.node(*w).dtype == DType::F16
                && mode != ComputeMode::F32
            {
                *own = ComputeMode::F16;
            }
            return new.add(op, inputs).map(Some);
        }
        let mode = match graph.node(*w).op.stored() {
            Some(format) if format.is_quantised() => mode,
            Some(Format::Plain(dtype)) if dtype.is_half() && mode != ComputeMode::F32 => {
                ComputeMode::F16
            }
            _ => return Ok(None),
        };
        let op = match node.op {
            Op::ExpertLinear { .. } => Op::ExpertLinear { mode },
            _ => Op::Linear { mode },
        };
        new.add(op, inputs).map(Some)
    })
}

/// Removes every node that neither an output nor a state update needs, including unread inputs,
/// weights and states.
pub fn live(graph: &Graph) -> Graph {
    let mut alive = vec![false; graph.nodes().len()];
    for (_, id) in graph.outputs() {
        alive[id.index()] = true;
    }
    for (id, node) in graph.ids().rev().zip(graph.nodes().iter().rev()) {
        if alive[id.index()] || node.op.overwrites() {
            alive[id.index()] = true;
            for input in &node.inputs {
                alive[input.index()] = true;
            }
        }
    }
    let kept: Vec<NodeId> = graph.ids().filter(|id| alive[id.index()]).collect();
    renumbered(graph, &kept)
}

/// Rebuilds the graph from the nodes of `order`, which must contain their operands and all outputs.
fn renumbered(graph: &Graph, order: &[NodeId]) -> Graph {
    let mut new = Graph::new(graph.name.clone());
    let mut map = vec![NodeId(0); graph.nodes().len()];
    for (i, id) in order.iter().enumerate() {
        map[id.index()] = NodeId(i as u32);
    }
    for id in order {
        let node = graph.node(*id);
        let inputs = node.inputs.iter().map(|input| map[input.index()]).collect();
        new.push(Node { inputs, ..node.clone() });
    }
    for (name, id) in graph.outputs() {
        // Names were unique in the original graph.
        let _ = new.output(name.clone(), map[id.index()]);
    }
    new
}

/// Sorts the nodes so that operands precede their users and every reader of a state precedes the
/// update that overwrites it. Otherwise the order is kept.
///
/// This function is for passes that append nodes in any order.
///
/// # Errors
/// Invalid if no such order exists (a cycle, or two updates of the same state), or if an operand or
/// output does not exist.
pub fn topological(graph: &Graph) -> Result<Graph> {
    let count = graph.nodes().len();
    let used = graph.nodes().iter().flat_map(|node| node.inputs.iter());
    let wanted = graph.outputs().iter().map(|(_, id)| id);
    if let Some(id) = used.chain(wanted).find(|id| id.index() >= count) {
        return Err(Error::invalid(format!("graph {}: {id} does not exist", graph.name)));
    }
    let plain = ordered(graph, &operand_edges(graph))?;
    // The memory of a view is known only once its operands are ordered.
    let mut roots = vec![None; count];
    for id in &plain {
        roots[id.index()] = root_of(graph, &roots, *id, graph.node(*id));
    }
    let mut edges = operand_edges(graph);
    for (id, node) in graph.ids().zip(graph.nodes()) {
        let (true, Some(state)) = (node.op.overwrites(), node.inputs.first()) else { continue };
        for (reader, other) in graph.ids().zip(graph.nodes()) {
            if reader != id && other.inputs.iter().any(|i| roots[i.index()] == Some(*state)) {
                edges[reader.index()].push(id);
            }
        }
    }
    Ok(renumbered(graph, &ordered(graph, &edges)?))
}

fn operand_edges(graph: &Graph) -> Vec<Vec<NodeId>> {
    graph.users().into_iter().map(|users| users.to_vec()).collect()
}

/// Orders every node after its predecessors; among ready nodes, the lowest id comes first. `edges`
/// lists the successors of each node.
fn ordered(graph: &Graph, edges: &[Vec<NodeId>]) -> Result<Vec<NodeId>> {
    let mut waits = vec![0usize; edges.len()];
    for to in edges.iter().flatten() {
        waits[to.index()] += 1;
    }
    let mut ready: BinaryHeap<Reverse<NodeId>> =
        graph.ids().filter(|id| waits[id.index()] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(edges.len());
    while let Some(Reverse(id)) = ready.pop() {
        order.push(id);
        for to in &edges[id.index()] {
            waits[to.index()] -= 1;
            if waits[to.index()] == 0 {
                ready.push(Reverse(*to));
            }
        }
    }
    match graph.ids().find(|id| waits[id.index()] > 0) {
        None => Ok(order),
        Some(id) => Err(Error::invalid(format!(
            "graph {}: no order of nodes: {id} waits for itself, or is overwritten before it is \
             read",
            graph.name
        ))),
    }
}

/// Identity of a computation: nodes with equal keys may be merged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CommonKey {
    // Operations contain floats, which are neither `Eq` nor `Hash`; their text form is exact.
    op: String,
    inputs: SmallVec<[NodeId; 4]>,
    shape: Shape,
    dtype: DType,
}

/// Returns the key of a node with these operands, or `None` if the node writes memory, so that
/// merging it would change the result.
pub fn common_key(node: &Node, inputs: &[NodeId]) -> Option<CommonKey> {
    if node.op.overwrites() {
        return None;
    }
    Some(CommonKey {
        op: format!("{:?}", node.op),
        inputs: inputs.into(),
        shape: node.shape.clone(),
        dtype: node.dtype,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::base::Dim;
    use crate::ir::{BinaryOp, UnaryOp, verify};

    fn neg() -> Op {
        Op::Unary(UnaryOp::Neg)
    }

    #[test]
    fn double_negation_disappears() {
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new([3]), DType::F32);
        let a = g.add(neg(), &[x]).unwrap();
        let b = g.add(neg(), &[a]).unwrap();
        g.label(b, "b");
        let c = g.add(Op::Unary(UnaryOp::Exp), &[b]).unwrap();
        g.output("c", c).unwrap();
        let new = rewrite(&g, |new, _, node, inputs| {
            let inner = inputs.first().map(|input| new.node(*input));
            Ok(match inner {
                Some(inner) if node.op == neg() && inner.op == neg() => Some(inner.inputs[0]),
                _ => None,
            })
        })
        .unwrap();
        let new = live(&new);
        verify(&new).unwrap();
        assert_eq!(
            new.to_string(),
            "graph g\n%0: f32[3] = input \"x\"\n%1: f32[3] = exp(%0)\noutput \"c\" = %1\n"
        );
    }

    #[test]
    fn attention_to_f16_computes_in_f16_if_products_round() {
        let mut g = Graph::new("g");
        let q = g.input("q", Shape::new([3, 2, 16]), DType::F32);
        for dtype in [DType::F16, DType::F32] {
            let k = g.input(&format!("k{dtype}"), Shape::new([3, 2, 16]), dtype);
            let y = g.add(Op::attention(0.5, true, None, Dim::new(0)), &[q, k, k]).unwrap();
            g.output(dtype.to_string(), y).unwrap();
        }
        for (mode, of_f16) in [
            (ComputeMode::F32, ""),
            (ComputeMode::Int8, " mode=f16"),
            (ComputeMode::F16, " mode=f16"),
        ] {
            let text = computing_in(&g, mode).unwrap().to_string();
            for (place, more) in [("%2", of_f16), ("%4", "")] {
                let line = text.lines().find(|line| line.starts_with(place)).unwrap();
                assert!(line.ends_with(&format!(" past=0{more}")), "{mode}: {line}");
            }
        }
    }

    #[test]
    fn a_replacement_keeps_the_shape() {
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new([3]), DType::F32);
        g.add(Op::Cast(DType::I32), &[x]).unwrap();
        let error = rewrite(&g, |_, id, _, inputs| Ok((id.0 == 1).then(|| inputs[0])));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("%1 cast i32[3] is replaced by input f32[3]"), "{error}");
    }

    #[test]
    fn updates_live_without_a_reader() {
        let mut g = Graph::new("g");
        let state = g.state("s", Shape::new([3]), DType::F32);
        let x = g.input("x", Shape::new([1]), DType::F32);
        g.input("unused", Shape::new([1]), DType::F32);
        let y = g.add(neg(), &[x]).unwrap();
        g.add(neg(), &[x]).unwrap();
        g.add(Op::Update { at: Dim::new(0) }, &[state, y]).unwrap();
        let new = live(&g);
        assert_eq!(new.nodes().len(), 4);
        verify(&new).unwrap();
    }

    #[test]
    fn order_puts_readers_before_the_update() {
        let mut g = Graph::new("g");
        let state = g.state("s", Shape::new([3]), DType::F32);
        let x = g.input("x", Shape::new([1]), DType::F32);
        let update = g.add(Op::Update { at: Dim::new(0) }, &[state, x]).unwrap();
        let view = Op::Slice { axis: 0, start: Dim::new(1), len: Dim::new(2), step: 1 };
        let view = g.add(view, &[state]).unwrap();
        let read = g.add(neg(), &[view]).unwrap();
        g.output("old", read).unwrap();
        g.output("new", update).unwrap();
        verify(&g).unwrap_err();
        let new = topological(&g).unwrap();
        verify(&new).unwrap();
        assert!(matches!(new.nodes()[4].op, Op::Update { .. }), "{new}");
        g.add(Op::Update { at: Dim::new(1) }, &[state, x]).unwrap();
        assert!(topological(&g).is_err());
    }

    #[test]
    fn order_finds_cycles_and_late_operands() {
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new([3]), DType::F32);
        let y = g.add(neg(), &[x]).unwrap();
        let mut late = g.node(y).clone();
        late.inputs = [NodeId(3)].as_slice().into();
        g.push(late);
        g.add(neg(), &[y]).unwrap();
        verify(&topological(&g).unwrap()).unwrap();
        let mut cycle = g.node(y).clone();
        cycle.inputs = [NodeId(4)].as_slice().into();
        g.push(cycle);
        assert!(topological(&g).unwrap_err().to_string().contains("%4"));
    }

    #[test]
    fn equal_keys_share_a_node() {
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new([3]), DType::F32);
        let a = g.add(Op::Softmax, &[x]).unwrap();
        let b = g.add(Op::Softmax, &[x]).unwrap();
        let c = g.add(Op::Binary(BinaryOp::Add), &[a, b]).unwrap();
        g.output("c", c).unwrap();
        let mut seen: HashMap<CommonKey, NodeId> = HashMap::new();
        let new = rewrite(&g, |new, _, node, inputs| {
            let Some(key) = common_key(node, inputs) else { return Ok(None) };
            let next = NodeId(new.nodes().len() as u32);
            let found = *seen.entry(key).or_insert(next);
            Ok((found != next).then_some(found))
        })
        .unwrap();
        assert_eq!(new.nodes().len(), 3);
        assert_eq!(new.node(NodeId(2)).inputs.as_slice(), [NodeId(1), NodeId(1)]);
    }
}
