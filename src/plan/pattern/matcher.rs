//! The pattern matcher: walks a graph backwards from each node to find matches, and replaces each
//! match with new nodes.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::base::{Dim, Shape};
use crate::error::Result;
use crate::ir::{BinaryOp, Graph, Node, NodeId, Op, OpClass, UnaryOp, rewrite};
use crate::plan::rules::memory_of;

/// Maximum nesting depth of products that are expanded.
const DEPTH: usize = 6;

/// A graph with the readers of each node.
pub(super) struct Matcher<'a> {
    pub(super) graph: &'a Graph,
    users: Vec<SmallVec<[NodeId; 4]>>,
    wanted: Vec<bool>,
}

/// A function that adds the replacement of a match to the new graph, given its operands there.
type Build = Box<dyn Fn(&mut Graph, &[NodeId]) -> Result<NodeId>>;

/// The replacement of a match.
pub(super) struct Raised {
    /// Nodes of the old graph that are the operands of the new nodes.
    pub(super) operands: Vec<NodeId>,
    /// Inputs of the old nodes that other nodes may also read, such as tables; they are not part of
    /// the match.
    pub(super) shared: Vec<NodeId>,
    pub(super) build: Build,
}

impl Raised {
    pub(super) fn new(
        operands: impl Into<Vec<NodeId>>,
        build: impl Fn(&mut Graph, &[NodeId]) -> Result<NodeId> + 'static,
    ) -> Raised {
        Raised { operands: operands.into(), shared: Vec::new(), build: Box::new(build) }
    }
}

/// The factors of a product: a constant, multipliers and divisors.
#[derive(Default)]
pub(super) struct Factors {
    pub(super) number: f64,
    pub(super) over: SmallVec<[NodeId; 4]>,
    pub(super) under: SmallVec<[NodeId; 4]>,
}

/// Replaces the matches of `find`, the outermost first. A match is used only if nothing else reads
/// its inner nodes, so that nothing is computed twice.
pub(super) fn raise(
    graph: Graph,
    find: impl Fn(&Matcher, NodeId) -> Option<Raised>,
) -> Result<Graph> {
    let matcher = Matcher::new(&graph);
    let mut inside = vec![false; graph.nodes().len()];
    let mut found: HashMap<NodeId, Raised> = HashMap::new();
    for id in graph.ids().rev() {
        if inside[id.index()] {
            continue;
        }
        let Some(raised) = find(&matcher, id) else { continue };
        let Some(inner) = matcher.inner(id, &raised) else { continue };
        inner.iter().for_each(|id| inside[id.index()] = true);
        found.insert(id, raised);
    }
    if found.is_empty() {
        return Ok(graph);
    }
    let mut map: Vec<NodeId> = Vec::with_capacity(graph.nodes().len());
    let new = rewrite(&graph, |new, id, _, _| {
        let raised = match found.get(&id) {
            None => None,
            Some(raised) => {
                let operands: Vec<NodeId> =
                    raised.operands.iter().map(|operand| map[operand.index()]).collect();
                Some((raised.build)(new, &operands)?)
            }
        };
        map.push(raised.unwrap_or(NodeId(new.nodes().len() as u32)));
        Ok(raised)
    })?;
    Ok(crate::ir::live(&new))
}

impl<'a> Matcher<'a> {
    fn new(graph: &'a Graph) -> Matcher<'a> {
        let mut wanted = vec![false; graph.nodes().len()];
        graph.outputs().iter().for_each(|(_, id)| wanted[id.index()] = true);
        Matcher { graph, users: graph.users(), wanted }
    }

    /// Returns the inner nodes of a match, or `None` if other nodes read them, or if an operand is
    /// memory that is overwritten before the result is computed.
    fn inner(&self, root: NodeId, raised: &Raised) -> Option<Vec<NodeId>> {
        let mut inner: Vec<NodeId> = Vec::new();
        let mut open = vec![root];
        while let Some(id) = open.pop() {
            for input in &self.graph.node(id).inputs {
                let outside = raised.operands.contains(input) || raised.shared.contains(input);
                let leaf = self.graph.node(*input).op.class() == OpClass::Leaf;
                if !outside && !leaf && !inner.contains(input) {
                    inner.push(*input);
                    open.push(*input);
                }
            }
        }
        let own = |user: &NodeId| *user == root || inner.contains(user);
        let private = |id: &NodeId| !self.wanted[id.index()] && self.users(*id).iter().all(own);
        let overwritten = |operand: &NodeId| {
            memory_of(self.graph, *operand).is_some_and(|memory| {
                let update = |user: &&NodeId| self.op(**user).overwrites();
                self.users(memory).iter().filter(update).any(|update| *update < root)
            })
        };
        let fine = inner.iter().all(private) && !raised.operands.iter().any(overwritten);
        fine.then_some(inner)
    }

    pub(super) fn users(&self, id: NodeId) -> &[NodeId] {
        &self.users[id.index()]
    }

    pub(super) fn node(&self, id: NodeId) -> &'a Node {
        self.graph.node(id)
    }

    pub(super) fn op(&self, id: NodeId) -> &'a Op {
        &self.graph.node(id).op
    }

    pub(super) fn shape(&self, id: NodeId) -> &'a Shape {
        &self.graph.node(id).shape
    }

    /// Returns the first operand of a node, if it has operands.
    pub(super) fn input(&self, id: NodeId) -> Option<NodeId> {
        self.node(id).inputs.first().copied()
    }

    /// Returns the operand of a node, if the node is this operation.
    pub(super) fn unary(&self, id: NodeId, op: UnaryOp) -> Option<NodeId> {
        if *self.op(id) == Op::Unary(op) { self.input(id) } else { None }
    }

    /// Returns the operands of a node, if the node is this operation.
    pub(super) fn binary(&self, id: NodeId, op: BinaryOp) -> Option<[NodeId; 2]> {
        let node = self.node(id);
        (node.op == Op::Binary(op)).then(|| [node.inputs[0], node.inputs[1]])
    }

    /// Iterates over both orders of a node's operands, if the node is this operation.
    pub(super) fn either(&self, id: NodeId, op: BinaryOp) -> impl Iterator<Item = [NodeId; 2]> {
        let pair = self.binary(id, op);
        pair.into_iter().flat_map(|[a, b]| [[a, b], [b, a]])
    }

    /// Returns the other operand and the constant, if the node is this operation with a constant
    /// operand.
    pub(super) fn with_number(&self, id: NodeId, op: BinaryOp) -> Option<(NodeId, f64)> {
        self.either(id, op).find_map(|[other, number]| Some((other, self.number(number)?)))
    }

    /// Returns the value of an `f32` constant with equal elements, or of a view of it.
    pub(super) fn number(&self, mut id: NodeId) -> Option<f64> {
        while self.op(id).class() == OpClass::Alias {
            id = self.input(id)?;
        }
        let Op::Constant { words } = self.op(id) else { return None };
        let first = *words.first()?;
        let float = self.node(id).dtype == crate::base::DType::F32;
        (float && words.iter().all(|word| *word == first)).then(|| f64::from(f32::from_bits(first)))
    }

    /// Skips reshapes and returns the node before them, which has the same elements in the same
    /// order.
    pub(super) fn unshaped(&self, mut id: NodeId) -> NodeId {
        while let (Op::Reshape(_), Some(input)) = (self.op(id), self.input(id)) {
            id = input;
        }
        id
    }

    /// Splits a product into factors that have its shape. The node `whole` is not expanded.
    pub(super) fn factors(&self, id: NodeId, whole: Option<NodeId>) -> Factors {
        let mut factors = Factors { number: 1.0, ..Factors::default() };
        self.collect(id, id, whole, false, DEPTH, &mut factors);
        factors
    }

    fn collect(
        &self,
        root: NodeId,
        id: NodeId,
        whole: Option<NodeId>,
        under: bool,
        depth: usize,
        factors: &mut Factors,
    ) {
        let node = self.node(id);
        if let Some(number) = self.number(id) {
            factors.number *= if under { 1.0 / number } else { number };
            return;
        }
        if whole != Some(id) && depth > 0 && node.shape == *self.shape(root) {
            let (first, second) = match node.op {
                Op::Binary(BinaryOp::Mul) => (under, Some(under)),
                Op::Binary(BinaryOp::Div) => (under, Some(!under)),
                Op::Unary(UnaryOp::Reciprocal) => (!under, None),
                Op::Unary(UnaryOp::Neg) => {
                    factors.number = -factors.number;
                    (under, None)
                }
                _ => return factors.push(id, under),
            };
            self.collect(root, node.inputs[0], whole, first, depth - 1, factors);
            if let Some(second) = second {
                self.collect(root, node.inputs[1], whole, second, depth - 1, factors);
            }
            return;
        }
        factors.push(id, under);
    }
}

impl Factors {
    fn push(&mut self, id: NodeId, under: bool) {
        let list = if under { &mut self.under } else { &mut self.over };
        list.push(id);
    }
}

/// Returns whether a constant in a graph equals `want`, up to its rounding to `f32`.
pub(super) fn is_about(number: f64, want: f64) -> bool {
    (number - want).abs() <= 2e-6 * want.abs()
}

/// Returns the shape of one value per row of a tensor of this shape: the last size becomes 1.
pub(super) fn one_a_row(shape: &Shape) -> Option<Shape> {
    let mut dims = shape.dims().to_vec();
    *dims.last_mut()? = Dim::new(1);
    Some(Shape::new(dims))
}
