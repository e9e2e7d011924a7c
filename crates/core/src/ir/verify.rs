//! Graph validation, for graphs that are saved, loaded or planned.

use std::collections::BTreeMap;

use super::graph::{Graph, Node, NodeId};
use super::infer::{check_sizes, infer};
use super::op::{Op, OpClass};
use crate::base::{DType, Dim, Format};
use crate::error::{Error, Result};

/// Checks every rule that the rest of the crate relies on:
///
/// - operands precede their users, and the stored shape and type equal the inferred ones;
/// - names of inputs, weights and states share one namespace and are unique, except that a weight
///   may also be part of merged leaves;
/// - sizes of weights and states contain no symbols, and rows of packed weights are whole blocks;
/// - neither a state nor a view of it is read after its update (only the update's result is), and
///   no update reads the memory that it writes;
/// - outputs exist, have distinct names, and are neither packed weights nor overwritten memory.
///
/// # Errors
/// Invalid if a rule is violated; the message names the graph, and the node with its label or the
/// output.
pub fn verify(graph: &Graph) -> Result<()> {
    let mut names = BTreeMap::new();
    let mut states = StateReads::new(graph);
    for (id, node) in graph.ids().zip(graph.nodes()) {
        let context = |e: Error| e.context(place(graph, id, node));
        if let Some(late) = node.inputs.iter().find(|input| **input >= id) {
            return Err(context(Error::invalid(format!("operand {late} comes after its user"))));
        }
        match &node.op {
            Op::Input { .. } | Op::Weight { .. } | Op::Merged { .. } | Op::State { .. } => {
                for name in node.op.bound_names() {
                    match names.get(name) {
                        Some(other) if !same_weight(graph, *other, node) => {
                            let what = format!("the name {name:?} is that of {other} already");
                            return Err(context(Error::invalid(what)));
                        }
                        Some(_) if matches!(node.op, Op::Merged { .. }) => {}
                        _ => drop(names.insert(name, id)),
                    }
                }
                leaf(node).map_err(context)?;
            }
            Op::Constant { words } => constant(node, words).map_err(context)?,
            _ => inferred(graph, node).map_err(context)?,
        }
        states.visit(graph, id, node).map_err(context)?;
    }
    outputs(graph, &states)
}

fn place(graph: &Graph, id: NodeId, node: &Node) -> String {
    match node.label.as_str() {
        "" => format!("graph {}: {id} {}", graph.name, node.op.name()),
        label => format!("graph {}: {id} {} ({label})", graph.name, node.op.name()),
    }
}

/// Returns whether two leaves may share a name: at least one is merged, and both have the same
/// storage format.
fn same_weight(graph: &Graph, other: NodeId, node: &Node) -> bool {
    let other = &graph.node(other).op;
    let merged = |op: &Op| matches!(op, Op::Merged { .. });
    (merged(other) || merged(&node.op)) && other.stored() == node.op.stored()
}

fn leaf(node: &Node) -> Result<()> {
    if !node.inputs.is_empty() {
        return Err(Error::invalid("a leaf has no operands"));
    }
    if node.op.bound_names().any(str::is_empty) {
        return Err(Error::invalid("a name is missing"));
    }
    check_sizes(&node.shape)?;
    let fixed = !matches!(node.op, Op::Input { .. });
    if fixed && node.shape.dims().iter().any(|dim| dim.as_const().is_none()) {
        return Err(Error::invalid(format!("the shape {} depends on the run", node.shape)));
    }
    let Some(format) = node.op.stored() else { return Ok(()) };
    if let Op::Merged { parts, .. } = &node.op {
        let rows = parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.rows));
        if node.shape.rank() != 2 || rows.map(Dim::from).as_ref() != Some(&node.shape[0]) {
            let rows: Vec<u64> = parts.iter().map(|part| part.rows).collect();
            return Err(Error::invalid(format!("{} is not rows of {rows:?}", node.shape)));
        }
    }
    let dtype = match format {
        Format::Plain(dtype) if !dtype.is_float() => dtype,
        _ => DType::F32,
    };
    if node.dtype != dtype {
        return Err(Error::invalid(format!("format {format} has {dtype} elements")));
    }
    let row = node.shape.dims().last().and_then(Dim::as_const).unwrap_or(1);
    if row % i64::try_from(format.block_len()).unwrap_or(1) != 0 {
        return Err(Error::invalid(format!(
            "a row of {row} is not whole {format} blocks of {}",
            format.block_len()
        )));
    }
    Ok(())
}

fn constant(node: &Node, words: &[u32]) -> Result<()> {
    if !node.inputs.is_empty() {
        return Err(Error::invalid("a leaf has no operands"));
    }
    if node.dtype.bytes() != 4 {
        return Err(Error::invalid(format!("a constant has 32-bit words, not {}", node.dtype)));
    }
    if node.dtype == DType::Bool && words.iter().any(|word| *word > 1) {
        return Err(Error::invalid("a bool is 0 or 1"));
    }
    check_sizes(&node.shape)?;
    let elements = node.shape.elements();
    if words.len() != 1 && elements != Dim::from(words.len()) {
        return Err(Error::invalid(format!("{} words for {elements} elements", words.len())));
    }
    Ok(())
}

fn inferred(graph: &Graph, node: &Node) -> Result<()> {
    let operands: Vec<&Node> = node.inputs.iter().map(|input| graph.node(*input)).collect();
    let (shape, dtype) = infer(&node.op, &operands)?;
    if (&shape, dtype) != (&node.shape, node.dtype) {
        return Err(Error::invalid(format!(
            "is stored as {}{} but gives {dtype}{shape}",
            node.dtype, node.shape
        )));
    }
    Ok(())
}

fn outputs(graph: &Graph, states: &StateReads) -> Result<()> {
    let mut names = BTreeMap::new();
    for (name, id) in graph.outputs() {
        let fail = |what: String| {
            Err(Error::invalid(format!("graph {}: output {name:?} ({id}) {what}", graph.name)))
        };
        let Some(node) = graph.nodes().get(id.index()) else {
            return fail("does not exist".into());
        };
        if names.insert(name.as_str(), id).is_some() {
            return fail("stands twice".into());
        }
        if let Some(format) = node.op.stored().filter(|format| format.is_quantised()) {
            return fail(format!("is a weight in format {format}"));
        }
        if let Some(update) = states.stale(*id) {
            return fail(format!("is memory that {update} has overwritten"));
        }
    }
    Ok(())
}

/// Tracks the memory of each node, and which memory has been overwritten.
pub(super) struct StateReads {
    /// For each node, the state or update that owns its memory, if any.
    root: Vec<Option<NodeId>>,
    /// For each state and update, the update that overwrites it, if any.
    overwritten: Vec<Option<NodeId>>,
}

impl StateReads {
    pub(super) fn new(graph: &Graph) -> StateReads {
        let none = vec![None; graph.nodes().len()];
        StateReads { root: none.clone(), overwritten: none }
    }

    /// Visits the next node in order. Fails if the node reads overwritten memory or the memory that
    /// it writes.
    fn visit(&mut self, graph: &Graph, id: NodeId, node: &Node) -> Result<()> {
        for input in &node.inputs {
            if let Some(update) = self.stale(*input) {
                return Err(Error::invalid(format!(
                    "reads {input}, memory that {update} has overwritten"
                )));
            }
        }
        self.root[id.index()] = root_of(graph, &self.root, id, node);
        if let (true, [state, src, ..]) = (node.op.overwrites(), node.inputs.as_slice()) {
            if self.root[src.index()] == Some(*state) {
                return Err(Error::invalid(format!("reads {src}, the memory that it writes")));
            }
            self.overwritten[state.index()] = Some(id);
        }
        Ok(())
    }

    /// Returns the update that has overwritten the memory of this node, if any.
    fn stale(&self, id: NodeId) -> Option<NodeId> {
        self.root[id.index()].and_then(|root| self.overwritten[root.index()])
    }
}

/// Returns the state or update that owns a node's memory, if any; `roots` holds the owners for
/// earlier nodes.
pub(super) fn root_of(
    graph: &Graph,
    roots: &[Option<NodeId>],
    id: NodeId,
    node: &Node,
) -> Option<NodeId> {
    debug_assert!(id.index() < graph.nodes().len(), "a node of this graph");
    match node.op {
        Op::State { .. } | Op::Update { .. } | Op::Scatter => Some(id),
        _ if node.op.class() == OpClass::Alias => {
            node.inputs.first().and_then(|input| roots[input.index()])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Shape, Symbol};
    use crate::ir::{MergedPart, UnaryOp};

    fn error(graph: &Graph) -> String {
        let error = verify(graph).unwrap_err();
        assert!(error.is_invalid());
        error.to_string()
    }

    fn slice(len: i64) -> Op {
        Op::Slice { axis: 0, start: Dim::new(0), len: Dim::new(len), step: 1 }
    }

    /// Builds a graph with a state of 4 rows and an update of 1 row; returns the graph, the state
    /// and the update.
    fn cache() -> (Graph, NodeId, NodeId) {
        let mut g = Graph::new("cache");
        let state = g.state("kv", Shape::new([4, 2]), DType::F32);
        let x = g.input("x", Shape::new([1, 2]), DType::F32);
        let update = g.add(Op::Update { at: Dim::new(1) }, &[state, x]).unwrap();
        (g, state, update)
    }

    #[test]
    fn accepts_a_chain_of_updates() {
        let (mut g, _, update) = cache();
        let x = NodeId(1);
        let next = g.add(Op::Update { at: Dim::new(2) }, &[update, x]).unwrap();
        let view = g.add(slice(3), &[next]).unwrap();
        g.output("rows", view).unwrap();
        verify(&g).unwrap();
    }

    #[test]
    fn a_state_is_not_read_after_its_update() {
        let (mut g, state, _) = cache();
        g.add(Op::Unary(UnaryOp::Neg), &[state]).unwrap();
        assert!(error(&g).contains("reads %0, memory that %2 has overwritten"));
        let (mut g, state, _) = cache();
        g.output("old", state).unwrap();
        assert!(error(&g).contains("%2 has overwritten"));
        let (mut g, state, _) = cache();
        g.add(Op::Update { at: Dim::new(0) }, &[state, NodeId(1)]).unwrap();
        assert!(error(&g).contains("overwritten"));
    }

    #[test]
    fn a_view_of_a_state_is_the_state() {
        let mut g = Graph::new("views");
        let state = g.state("kv", Shape::new([4, 2]), DType::F32);
        let x = g.input("x", Shape::new([1, 2]), DType::F32);
        let view = g.add(slice(2), &[state]).unwrap();
        let again = g.add(Op::Transpose(vec![1, 0]), &[view]).unwrap();
        g.add(Op::Update { at: Dim::new(1) }, &[state, x]).unwrap();
        g.add(Op::Unary(UnaryOp::Neg), &[again]).unwrap();
        assert!(error(&g).contains("reads %3"));
        let mut g = Graph::new("self");
        let state = g.state("kv", Shape::new([4, 2]), DType::F32);
        let view = g.add(slice(2), &[state]).unwrap();
        g.add(Op::Update { at: Dim::new(1) }, &[state, view]).unwrap();
        assert!(error(&g).contains("the memory that it writes"));
    }

    #[test]
    fn stored_shapes_and_order_are_checked() {
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new([3]), DType::F32);
        let y = g.add(Op::Unary(UnaryOp::Neg), &[x]).unwrap();
        let mut wrong = g.node(y).clone();
        wrong.shape = Shape::new([4]);
        wrong.label = "y".into();
        let mut bad = g.clone();
        bad.push(wrong);
        assert_eq!(error(&bad), "graph g: %2 neg (y): is stored as f32[4] but gives f32[3]");
        let mut late = g.node(y).clone();
        late.inputs = [NodeId(2)].as_slice().into();
        g.push(late);
        assert!(error(&g).contains("operand %2 comes after its user"));
    }

    #[test]
    fn names_and_leaves_are_checked() {
        let mut g = Graph::new("g");
        g.input("x", Shape::new([3]), DType::F32);
        g.weight("x", Shape::new([3]), Format::F32);
        assert!(error(&g).contains("\"x\" is that of %0 already"));
        let mut g = Graph::new("g");
        g.weight("w", Shape::new([2, 48]), Format::Q8_0);
        assert!(error(&g).contains("a row of 48"));
        let mut g = Graph::new("g");
        g.state("s", Shape::new([Dim::symbol(Symbol::new("s"))]), DType::F32);
        assert!(error(&g).contains("depends on the run"));
        let mut g = Graph::new("g");
        g.constant_f32(Shape::new([3]), &[1.0, 2.0]);
        assert!(error(&g).contains("2 words for 3 elements"));
        let mut g = Graph::new("g");
        g.input("x", Shape::new([-3]), DType::F32);
        assert!(error(&g).contains("negative size -3"));
    }

    #[test]
    fn merged_weights_are_rows_of_weights() {
        let leaf = |parts: &[(&str, u64)], rows: i64| Node {
            op: Op::Merged {
                parts: parts
                    .iter()
                    .map(|(name, rows)| MergedPart { name: name.to_string(), rows: *rows })
                    .collect(),
                format: Format::Q8_0,
            },
            inputs: Default::default(),
            shape: Shape::new([rows, 32]),
            dtype: DType::F32,
            label: String::new(),
        };
        let mut g = Graph::new("g");
        g.weight("a", Shape::new([2, 32]), Format::Q8_0);
        g.push(leaf(&[("a", 2), ("b", 3)], 5));
        g.push(leaf(&[("b", 3), ("c", 1)], 4));
        verify(&g).unwrap();
        let mut bad = g.clone();
        bad.push(leaf(&[("d", 2), ("e", 3)], 6));
        assert!(error(&bad).contains("[6, 32] is not rows of [2, 3]"));
        let mut bad = g.clone();
        bad.input("c", Shape::new([3]), DType::F32);
        assert!(error(&bad).contains("\"c\" is that of %2 already"));
        g.weight("a", Shape::new([2, 32]), Format::Q8_0);
        assert!(error(&g).contains("\"a\" is that of %0 already"));
    }

    #[test]
    fn outputs_are_checked() {
        let mut g = Graph::new("g");
        g.output("y", NodeId(7)).unwrap();
        assert!(error(&g).contains("does not exist"));
        let mut g = Graph::new("g");
        let w = g.weight("w", Shape::new([2, 32]), Format::Q8_0);
        g.output("w", w).unwrap();
        assert!(error(&g).contains("format q8_0"));
    }
}
