//! The semantics of every operation: plain loops with `f64` sums.
//!
//! This is the only oracle for everything that runs a graph. It is independent of devices and
//! layouts, and slow on purpose, except that products and attention use all cores, so that a test
//! can evaluate a whole small model. Values between nodes are rounded to the node's element type
//! ([`Precision::F32`]), or kept in `f64` throughout ([`Precision::F64`]); the logits of real
//! models are compared with the latter.
//!
//! Weights are bound in decoded form: a packed weight as the `f32` values that `quant::decode`
//! returns.

mod attention;
mod conv;
mod delta;
mod elementwise;
mod index;
mod movement;
mod norm;
mod product;
mod reduce;
mod sample;
mod tensor;

use std::borrow::Cow;
use std::collections::BTreeMap;

use half::{bf16, f16};

use crate::base::{DType, SymbolValues};
use crate::error::{Error, Result};
use crate::ir::{Graph, MergedPart, Node, NodeId, Op, ReduceOp};
pub use tensor::{Data, Tensor};

/// Precision of the values between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// `f32` results are rounded to `f32`.
    F32,
    /// `f32` results are kept in `f64`.
    F64,
}

/// Every value of a graph in one run.
#[derive(Clone, Debug)]
pub struct Evaluation<'a> {
    /// The value of each node, indexed by [`NodeId`].
    pub values: Vec<Cow<'a, Tensor>>,
    /// Contents of each state after the run, by name.
    pub states: BTreeMap<String, Tensor>,
}

impl Evaluation<'_> {
    /// Returns the value of one node.
    pub fn value(&self, id: NodeId) -> &Tensor {
        &self.values[id.index()]
    }
}

/// Evaluates a graph that passes `ir::verify`, rounding every result to its element type.
///
/// `bindings` contains every input and weight by name, with the shape that it has for these
/// symbols. Missing states are zero; unknown names are ignored.
///
/// # Errors
/// Invalid if a name or symbol is not bound, if a shape or type differs, or if an index is out of
/// bounds. Unsupported for a user's kernel, which has no reference. Out of memory for a tensor of
/// more than 2^31 elements.
pub fn eval<'a>(
    graph: &Graph,
    symbols: &SymbolValues,
    bindings: &'a BTreeMap<String, Tensor>,
) -> Result<Evaluation<'a>> {
    eval_with(graph, symbols, bindings, Precision::F32)
}

/// Evaluates a graph like [`eval`], with a choice of precision.
///
/// # Errors
/// Same as [`eval`].
pub fn eval_with<'a>(
    graph: &Graph,
    symbols: &SymbolValues,
    bindings: &'a BTreeMap<String, Tensor>,
    precision: Precision,
) -> Result<Evaluation<'a>> {
    let mut values: Vec<Cow<'a, Tensor>> = Vec::with_capacity(graph.nodes().len());
    for (id, node) in graph.ids().zip(graph.nodes()) {
        let context =
            |e: Error| e.context(format!("{}: {id} {} {}", graph.name, node.op.name(), node.label));
        let value = match &node.op {
            Op::Input { name } | Op::Weight { name, .. } | Op::State { name } => {
                bound(node, name, symbols, bindings).map_err(context)?
            }
            Op::Merged { parts, .. } => Cow::Owned(merged(node, parts, bindings).map_err(context)?),
            _ => {
                let operands = operands(node, &values).map_err(context)?;
                let call = Call::new(node, operands, symbols, precision).map_err(context)?;
                Cow::Owned(compute(&node.op, &call).map_err(context)?)
            }
        };
        values.push(value);
    }
    let states = final_states(graph, &values);
    Ok(Evaluation { values, states })
}

fn operands<'v>(node: &Node, values: &'v [Cow<'_, Tensor>]) -> Result<Vec<&'v Tensor>> {
    let find = |id: &NodeId| {
        values
            .get(id.index())
            .map(AsRef::as_ref)
            .ok_or_else(|| Error::invalid(format!("operand {id} comes after its user")))
    };
    node.inputs.iter().map(find).collect()
}

fn bound<'a>(
    node: &Node,
    name: &str,
    symbols: &SymbolValues,
    bindings: &'a BTreeMap<String, Tensor>,
) -> Result<Cow<'a, Tensor>> {
    let shape = node.shape.eval(symbols)?;
    match bindings.get(name) {
        Some(tensor) => {
            tensor.expect(&shape, node.dtype).map_err(|e| e.context(format!("{name:?}")))?;
            Ok(Cow::Borrowed(tensor))
        }
        None if matches!(node.op, Op::State { .. }) => {
            Tensor::constant(shape, node.dtype, &[0]).map(Cow::Owned)
        }
        None => Err(Error::invalid(format!("{name:?} is not bound"))),
    }
}

/// Concatenates the weights of a merged leaf.
fn merged(
    node: &Node,
    parts: &[MergedPart],
    bindings: &BTreeMap<String, Tensor>,
) -> Result<Tensor> {
    let symbols = SymbolValues::new();
    let shape = node.shape.eval(&symbols)?;
    let mut weights = Vec::with_capacity(parts.len());
    for part in parts {
        let name = &part.name;
        let tensor =
            bindings.get(name).ok_or_else(|| Error::invalid(format!("{name:?} is not bound")))?;
        let rows = [&[part.rows], &shape[1..]].concat();
        tensor.expect(&rows, node.dtype).map_err(|e| e.context(format!("{name:?}")))?;
        weights.push(tensor);
    }
    movement::concat(&Call::new(node, weights, &symbols, Precision::F32)?, 0)
}

fn final_states(graph: &Graph, values: &[Cow<'_, Tensor>]) -> BTreeMap<String, Tensor> {
    // Each state or update, and the state at the start of its chain; later updates overwrite
    // earlier ones.
    let mut owner: BTreeMap<NodeId, &str> = BTreeMap::new();
    let mut last: BTreeMap<&str, NodeId> = BTreeMap::new();
    for (id, node) in graph.ids().zip(graph.nodes()) {
        let name = match (&node.op, node.inputs.first()) {
            (Op::State { name }, _) => Some(name.as_str()),
            (op, Some(state)) if op.overwrites() => owner.get(state).copied(),
            _ => None,
        };
        if let Some(name) = name {
            owner.insert(id, name);
            last.insert(name, id);
        }
    }
    let value = |id: NodeId| values[id.index()].clone().into_owned();
    last.into_iter().map(|(name, id)| (name.to_string(), value(id))).collect()
}

/// Computes the value of one node that is not a leaf from the values of its operands.
///
/// # Errors
/// Same as [`eval`], and invalid if the node does not exist or the operands differ from those in
/// the graph in number, shape or type.
pub fn apply(
    graph: &Graph,
    id: NodeId,
    operands: &[&Tensor],
    symbols: &SymbolValues,
    precision: Precision,
) -> Result<Tensor> {
    let node = graph
        .nodes()
        .get(id.index())
        .ok_or_else(|| Error::invalid(format!("graph {} has no node {id}", graph.name)))?;
    let given = operands.len();
    if given != node.inputs.len() {
        return Err(Error::invalid(format!(
            "{id} has {} operands, not {given}",
            node.inputs.len()
        )));
    }
    for (input, tensor) in node.inputs.iter().zip(operands) {
        let of = graph.node(*input);
        tensor.expect(&of.shape.eval(symbols)?, of.dtype).map_err(|e| e.context(input))?;
    }
    compute(&node.op, &Call::new(node, operands.to_vec(), symbols, precision)?)
}

/// Computes the scale of a sum's rounding errors: the same sum over the absolute values of the
/// operands. Returns `None` for operations that are not sums.
///
/// # Errors
/// Same as [`apply`].
pub fn magnitude(
    graph: &Graph,
    id: NodeId,
    evaluation: &Evaluation<'_>,
    symbols: &SymbolValues,
) -> Result<Option<Tensor>> {
    let node = graph.node(id);
    match node.op {
        Op::Linear { .. } | Op::ExpertLinear { .. } | Op::MatMul | Op::Conv2d(_) => {}
        Op::Reduce { op: ReduceOp::Sum | ReduceOp::Mean, .. } => {}
        _ => return Ok(None),
    }
    let absolute: Vec<Tensor> =
        node.inputs.iter().map(|input| evaluation.value(*input).absolute()).collect();
    let operands: Vec<&Tensor> = absolute.iter().collect();
    apply(graph, id, &operands, symbols, Precision::F64).map(Some)
}

/// One operation in one run: the values of its operands, and the shape and type of its result.
struct Call<'a> {
    operands: Vec<&'a Tensor>,
    shape: Vec<u64>,
    dtype: DType,
    symbols: &'a SymbolValues,
    precision: Precision,
}

impl<'a> Call<'a> {
    fn new(
        node: &Node,
        operands: Vec<&'a Tensor>,
        symbols: &'a SymbolValues,
        precision: Precision,
    ) -> Result<Call<'a>> {
        let shape = node.shape.eval(symbols)?;
        index::elements(&shape)?;
        Ok(Call { operands, shape, dtype: node.dtype, symbols, precision })
    }

    /// Creates the result from `f64` values. 2-byte types are rounded through `f32`, as on a
    /// device: double rounding sometimes yields a different neighbour than direct rounding.
    fn floats(&self, values: Vec<f64>) -> Result<Tensor> {
        let narrow = values.iter().map(|v| *v as f32);
        let data = match (self.dtype, self.precision) {
            (DType::F16, _) => Data::F16(narrow.map(f16::from_f32).collect()),
            (DType::BF16, _) => Data::BF16(narrow.map(bf16::from_f32).collect()),
            (_, Precision::F32) => Data::F32(narrow.collect()),
            (_, Precision::F64) => Data::F64(values),
        };
        self.result(data)
    }

    fn result(&self, data: Data) -> Result<Tensor> {
        Tensor::new(self.shape.clone(), data)
    }

    /// Returns the shape of an operand.
    fn dims(&self, operand: usize) -> Vec<usize> {
        self.operands[operand].shape.iter().map(|d| *d as usize).collect()
    }

    /// Returns the shape of the result.
    fn out_dims(&self) -> Vec<usize> {
        self.shape.iter().map(|d| *d as usize).collect()
    }
}

fn compute(op: &Op, call: &Call<'_>) -> Result<Tensor> {
    match op {
        Op::Input { .. } | Op::Weight { .. } | Op::Merged { .. } | Op::State { .. } => {
            Err(Error::invalid("a leaf is bound, not computed"))
        }
        Op::Constant { words } => Tensor::constant(call.shape.clone(), call.dtype, words),
        Op::Unary(op) => elementwise::unary(call, *op),
        Op::Binary(op) => elementwise::binary(call, *op),
        Op::Select => elementwise::select(call),
        Op::Cast(to) => elementwise::cast(call, *to),
        Op::Reduce { op, axes, .. } => reduce::reduce(call, *op, axes),
        Op::ArgMax => reduce::argmax(call),
        Op::Greedy => reduce::greedy(call),
        Op::Sample => sample::sample(call),
        Op::Softmax => reduce::softmax(call),
        Op::TopK { k } => reduce::top_k(call, *k),
        Op::ArgSort { descending } => reduce::argsort(call, *descending),
        Op::MatMul => product::matmul(call),
        Op::Linear { mode } => product::linear(call, *mode),
        Op::ExpertLinear { mode } => product::expert_linear(call, *mode),
        Op::Conv2d(conv) => conv::conv2d(call, conv),
        Op::Pool2d(pool) => conv::pool2d(call, pool),
        Op::RmsNorm { eps } => norm::rms_norm(call, *eps),
        Op::LayerNorm { eps } => norm::layer_norm(call, *eps),
        Op::Rope { pairs, rot_dim } => attention::rope(call, *pairs, *rot_dim),
        Op::Attention { .. } => attention::attention(call, op),
        Op::DeltaRule => delta::delta_rule(call),
        Op::Gather { axis } => movement::gather(call, *axis),
        Op::Update { at } => movement::update(call, at),
        Op::Scatter => movement::scatter(call),
        Op::IndexAdd => movement::index_add(call),
        Op::TakeAlong => movement::take_along(call),
        Op::Concat { axis } => movement::concat(call, *axis),
        Op::Pad { amounts, word } => movement::pad(call, amounts, *word),
        Op::Custom(custom) => Err(Error::unsupported(format!(
            "kernel {:?} has no reference; `interpret` runs its WGSL",
            custom.name
        ))),
        Op::Reshape(_) => call.result(call.operands[0].data.clone()),
        Op::Transpose(perm) => movement::transpose(call, perm),
        Op::Slice { axis, start, step, .. } => movement::slice(call, *axis, start, *step),
        Op::Expand(_) => movement::expand(call),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Dim, Shape, Symbol};
    use crate::ir::{BinaryOp, UnaryOp};

    #[test]
    fn symbols_states_and_precision() {
        let (seq, past) = (Symbol::new("seq"), Symbol::new("past"));
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new([Dim::symbol(seq), Dim::new(2)]), DType::F32);
        let kv = g.state("kv", Shape::new([4, 2]), DType::F32);
        let third = g.constant_f32(Shape::default(), &[3.0]);
        let y = g.add(Op::Binary(BinaryOp::Div), &[x, third]).unwrap();
        let kv = g.add(Op::Update { at: Dim::symbol(past) }, &[kv, y]).unwrap();
        let y = g.add(Op::Unary(UnaryOp::Neg), &[kv]).unwrap();
        g.output("y", y).unwrap();
        let x = Tensor::new(vec![1, 2], Data::F32(vec![1.0, 2.0])).unwrap();
        let bindings = BTreeMap::from([("x".to_string(), x)]);
        let symbols = SymbolValues::new().with(seq, 1).with(past, 3);
        let run = eval(&g, &symbols, &bindings).unwrap();
        let want = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0f32 / 3.0, 2.0 / 3.0];
        assert_eq!(run.states["kv"].data, Data::F32(want.to_vec()));
        let run = eval_with(&g, &symbols, &bindings, Precision::F64).unwrap();
        assert_eq!(run.value(y).floats()[6], -1.0 / 3.0);
        let late = symbols.clone().with(past, 4);
        let error = eval(&g, &late, &bindings).unwrap_err().to_string();
        assert!(error.contains("update"), "{error}");
        let error = eval(&g, &symbols, &BTreeMap::new()).unwrap_err().to_string();
        assert!(error.contains("\"x\" is not bound"), "{error}");
        let error = eval(&g, &symbols.with(seq, 2), &bindings).unwrap_err().to_string();
        assert!(error.contains("f32[1, 2] instead of f32[2, 2]"), "{error}");
    }
}
