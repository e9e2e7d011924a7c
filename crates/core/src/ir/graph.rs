//! The graph: nodes in topological order, each after its operands.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::infer;
use super::op::Op;
use crate::base::{DType, Dim, Format, Shape};
use crate::error::{Error, Result};

/// The id of a node in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Returns the index in [`Graph::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// One operation on tensors, with the shape and type of its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// Operands; all are earlier nodes.
    pub inputs: SmallVec<[NodeId; 4]>,
    /// Shape of the result.
    pub shape: Shape,
    /// Element type of the result.
    pub dtype: DType,
    /// Human-readable name, such as `blk.0.attn_q`; may be empty.
    pub label: String,
}

/// A graph of tensor operations with named outputs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// Name for messages.
    pub name: String,
    nodes: Vec<Node>,
    outputs: Vec<(String, NodeId)>,
}

impl Graph {
    /// Creates an empty graph.
    pub fn new(name: impl Into<String>) -> Graph {
        Graph { name: name.into(), nodes: Vec::new(), outputs: Vec::new() }
    }

    /// Returns all nodes, operands before their users.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns one node.
    ///
    /// # Panics
    /// Panics if the graph has no node with this id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Iterates over the ids of all nodes, in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// Returns the name and node of every output. State updates are executed even if no output
    /// needs them.
    pub fn outputs(&self) -> &[(String, NodeId)] {
        &self.outputs
    }

    /// Makes a node an output with this name.
    ///
    /// # Errors
    /// Invalid if the name is taken.
    pub fn output(&mut self, name: impl Into<String>, node: NodeId) -> Result<()> {
        let name = name.into();
        if self.outputs.iter().any(|(other, _)| *other == name) {
            return Err(Error::invalid(format!("graph {}: output {name:?} twice", self.name)));
        }
        self.outputs.push((name, node));
        Ok(())
    }

    /// Adds an operation on earlier nodes, and infers the shape and type of its result.
    ///
    /// # Errors
    /// Invalid if an operand does not exist or the operands violate the rule of the operation; the
    /// message names the operation and the shapes.
    pub fn add(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        let operands: Vec<&Node> = inputs
            .iter()
            .map(|id| {
                self.nodes.get(id.index()).ok_or_else(|| {
                    Error::invalid(format!("graph {}: operand {id} does not exist", self.name))
                })
            })
            .collect::<Result<_>>()?;
        let (shape, dtype) = infer::infer(&op, &operands)?;
        Ok(self.push(Node { op, inputs: inputs.into(), shape, dtype, label: String::new() }))
    }

    /// Adds a node without checks, for passes and importers that know its shape; `verify` checks
    /// the whole graph.
    pub fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId((self.nodes.len() - 1) as u32)
    }

    /// Sets a node's human-readable label, and returns its id.
    ///
    /// # Panics
    /// Same as [`Graph::node`].
    pub fn label(&mut self, id: NodeId, label: impl Into<String>) -> NodeId {
        self.nodes[id.index()].label = label.into();
        id
    }

    /// Adds an input: a tensor that each run provides.
    pub fn input(&mut self, name: &str, shape: Shape, dtype: DType) -> NodeId {
        self.leaf(Op::Input { name: name.into() }, shape, dtype, name)
    }

    /// Adds a weight: a constant tensor that is bound by name. Its elements are `f32` unless the
    /// format is a plain integer.
    pub fn weight(&mut self, name: &str, shape: Shape, format: Format) -> NodeId {
        let dtype = match format {
            Format::Plain(dtype) if !dtype.is_float() => dtype,
            _ => DType::F32,
        };
        self.leaf(Op::Weight { name: name.into(), format }, shape, dtype, name)
    }

    /// Adds a state: memory that persists from run to run.
    pub fn state(&mut self, name: &str, shape: Shape, dtype: DType) -> NodeId {
        self.leaf(Op::State { name: name.into() }, shape, dtype, name)
    }

    /// Adds a constant of `f32` values: one per element, or a single one for all elements.
    pub fn constant_f32(&mut self, shape: Shape, values: &[f32]) -> NodeId {
        let words = values.iter().map(|v| v.to_bits()).collect();
        self.leaf(Op::Constant { words }, shape, DType::F32, "")
    }

    /// Adds a constant of `i32` values: one per element, or a single one for all elements.
    pub fn constant_i32(&mut self, shape: Shape, values: &[i32]) -> NodeId {
        let words = values.iter().map(|v| v.cast_unsigned()).collect();
        self.leaf(Op::Constant { words }, shape, DType::I32, "")
    }

    fn leaf(&mut self, op: Op, shape: Shape, dtype: DType, label: &str) -> NodeId {
        self.push(Node { op, inputs: SmallVec::new(), shape, dtype, label: label.into() })
    }

    /// Returns, for each node, the nodes that read it. A node is listed once per operand that
    /// refers to it.
    pub fn users(&self) -> Vec<SmallVec<[NodeId; 4]>> {
        let mut users = vec![SmallVec::new(); self.nodes.len()];
        for (id, node) in self.ids().zip(&self.nodes) {
            for input in &node.inputs {
                users[input.index()].push(id);
            }
        }
        users
    }

    /// Returns the graph with `symbol` replaced with `by` in every size.
    pub fn substitute(&self, symbol: crate::base::Symbol, by: &Dim) -> Graph {
        let mut graph = self.clone();
        for node in &mut graph.nodes {
            let shape = &node.shape;
            node.shape = shape.dims().iter().map(|d| d.substitute(symbol, by)).collect();
            node.op.substitute(symbol, by);
        }
        graph
    }
}

impl Op {
    /// Replaces `symbol` with `by` in every size of the operation.
    pub fn substitute(&mut self, symbol: crate::base::Symbol, by: &Dim) {
        let shape = |s: &Shape| s.dims().iter().map(|d| d.substitute(symbol, by)).collect();
        match self {
            Op::Reshape(s) | Op::Expand(s) => *s = shape(s),
            Op::Attention { past: dim, .. } | Op::Update { at: dim } => {
                *dim = dim.substitute(symbol, by);
            }
            Op::Slice { start, len, .. } => {
                *start = start.substitute(symbol, by);
                *len = len.substitute(symbol, by);
            }
            Op::Custom(custom) => custom.map_dims(&|dim| dim.substitute(symbol, by)),
            _ => {}
        }
    }
}
