//! Rules of the pass `simplify`: identities, views of views, constant folding.
//!
//! Every rule preserves each bit of every value, except that constants are computed here, more
//! exactly than a device would.

use std::collections::BTreeMap;

use crate::base::{Dim, Format, SymbolValues};
use crate::error::Result;
use crate::ir::{BinaryOp, Graph, Node, NodeId, Op, OpClass, UnaryOp};
use crate::reference;

/// Maximum elements of a constant computed while planning.
const MAX_ELEMENTS: i64 = 1 << 18;

/// Returns the earlier node whose value `node` equals, if `node` is an identity.
pub(super) fn same(graph: &Graph, node: &Node) -> Option<NodeId> {
    let first = *node.inputs.first()?;
    let operand = graph.node(first);
    let equal = (&operand.shape, operand.dtype) == (&node.shape, node.dtype);
    let found = match &node.op {
        // It dequantises a weight in a different format.
        Op::Cast(_) => (equal
            && operand.op.stored().is_none_or(|f| f == Format::Plain(node.dtype)))
        .then_some(first),
        Op::Reshape(_) | Op::Expand(_) => equal.then_some(first),
        Op::Transpose(perm) => perm.iter().copied().eq(0..perm.len()).then_some(first),
        Op::Slice { start, step: 1, .. } => (equal && start.is(0)).then_some(first),
        Op::Unary(op @ (UnaryOp::Neg | UnaryOp::Not)) if operand.op == Op::Unary(*op) => {
            operand.inputs.first().copied()
        }
        Op::Binary(op) => {
            let (a, b) = (first, node.inputs[1]);
            let fits = |id: NodeId| graph.node(id).shape == node.shape;
            match (neutral(graph, *op, a, true), neutral(graph, *op, b, false)) {
                (_, true) if fits(a) => Some(a),
                (true, _) if fits(b) => Some(b),
                _ => None,
            }
        }
        _ => None,
    }?;
    // A result keeps the value of a state before its update; the state itself does not.
    let computes = node.op.class() != OpClass::Alias;
    (!computes || memory_of(graph, found).is_none()).then_some(found)
}

/// Returns the state or update that a node is a view of, if it is one.
pub(super) fn memory_of(graph: &Graph, mut id: NodeId) -> Option<NodeId> {
    loop {
        let node = graph.node(id);
        match node.op {
            Op::State { .. } | Op::Update { .. } | Op::Scatter => return Some(id),
            _ if node.op.class() == OpClass::Alias => id = node.inputs[0],
            _ => return None,
        }
    }
}

/// Returns whether an operand (on the left if `left`) is the neutral constant of an operation. For
/// a float sum that is -0, since adding 0 would turn -0 into 0.
fn neutral(graph: &Graph, op: BinaryOp, id: NodeId, left: bool) -> bool {
    let node = graph.node(id);
    let Op::Constant { words } = &node.op else { return false };
    let one = if node.dtype.is_float() { 1.0f32.to_bits() } else { 1 };
    let minus_zero = if node.dtype.is_float() { (-0.0f32).to_bits() } else { 0 };
    let want = match (op, left) {
        (BinaryOp::Add, _) => minus_zero,
        (BinaryOp::Sub, false) => 0,
        (BinaryOp::Mul, _) | (BinaryOp::Div | BinaryOp::Pow, false) => one,
        (BinaryOp::And, _) => 1,
        (BinaryOp::Or, _) => 0,
        _ => return false,
    };
    words.iter().all(|word| *word == want)
}

/// Returns a node with the same result in fewer steps: a composed view or a constant.
pub(super) fn shorter(graph: &Graph, node: &Node) -> Result<Option<Node>> {
    if let Some(constant) = constant(graph, node)? {
        return Ok(Some(constant));
    }
    let Some(first) = node.inputs.first() else { return Ok(None) };
    let inner = graph.node(*first);
    let through = |op: Op| Node { op, inputs: inner.inputs.clone(), ..node.clone() };
    Ok(match (&node.op, &inner.op) {
        (Op::Reshape(_), Op::Reshape(_)) => Some(through(node.op.clone())),
        (Op::Transpose(outer), Op::Transpose(inner)) => {
            Some(through(Op::Transpose(outer.iter().map(|axis| inner[*axis]).collect())))
        }
        (Op::Expand(to), Op::Expand(_)) => {
            let from = &graph.node(inner.inputs[0]).shape;
            from.broadcast(to).is_ok_and(|all| all == *to).then(|| through(node.op.clone()))
        }
        (
            Op::Slice { axis, start, len, step },
            Op::Slice { axis: inner_axis, start: begin, step: stride, .. },
        ) if axis == inner_axis => step.checked_mul(*stride).map(|both| {
            let start = begin.clone() + start.clone() * Dim::from(*stride);
            through(Op::Slice { axis: *axis, start, len: len.clone(), step: both })
        }),
        _ => None,
    })
}

/// Drops the expands before an elementwise operation, which broadcasts by itself. If the result is
/// then smaller, the caller expands it.
pub(super) fn unexpanded(graph: &Graph, node: &Node) -> Option<Node> {
    let source = |id: NodeId| match graph.node(id).op {
        Op::Expand(_) => graph.node(id).inputs[0],
        _ => id,
    };
    let elementwise = node.op.class() == OpClass::Elementwise;
    if !elementwise || node.inputs.iter().all(|id| source(*id) == *id) {
        return None;
    }
    let mut inputs = node.inputs.clone();
    inputs.iter_mut().for_each(|id| *id = source(*id));
    let mut shapes = inputs.iter().map(|id| graph.node(*id).shape.clone());
    let first = shapes.next()?;
    let shape = shapes.try_fold(first, |all, shape| all.broadcast(&shape).ok())?;
    Some(Node { inputs, shape, ..node.clone() })
}

/// Folds an elementwise operation or a view of constants into a constant.
fn constant(graph: &Graph, node: &Node) -> Result<Option<Node>> {
    let class = node.op.class();
    if !matches!(class, OpClass::Elementwise | OpClass::Alias) || node.dtype.bytes() != 4 {
        return Ok(None);
    }
    let mut uniform = true;
    for input in &node.inputs {
        let Op::Constant { words } = &graph.node(*input).op else { return Ok(None) };
        uniform &= words.len() == 1;
    }
    let small = node.shape.elements().as_const().is_some_and(|n| n <= MAX_ELEMENTS);
    let words = match (uniform, class) {
        (true, OpClass::Alias) => match &graph.node(node.inputs[0]).op {
            Op::Constant { words } => words.clone(),
            _ => return Ok(None),
        },
        (true, _) => evaluated(graph, node, true)?,
        (false, _) if small => evaluated(graph, node, false)?,
        _ => return Ok(None),
    };
    let words = match words.first() {
        Some(first) if words.iter().all(|word| word == first) => vec![*first],
        _ => words,
    };
    let op = Op::Constant { words };
    Ok(Some(Node { op, inputs: Default::default(), ..node.clone() }))
}

/// Evaluates an operation on constants to words; with `scalar`, it evaluates one element.
fn evaluated(graph: &Graph, node: &Node, scalar: bool) -> Result<Vec<u32>> {
    let mut alone = Graph::new("constant");
    let mut inputs = Vec::new();
    for input in &node.inputs {
        let mut operand = graph.node(*input).clone();
        if scalar {
            operand.shape = Default::default();
        }
        inputs.push(alone.push(operand));
    }
    let result = alone.add(node.op.clone(), &inputs)?;
    let bindings = BTreeMap::new();
    let values = reference::eval(&alone, &SymbolValues::new(), &bindings)?;
    let bytes = values.value(result).to_bytes();
    Ok(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{DType, Shape, Symbol};
    use crate::ir::verify;
    use crate::plan::simplify::simplified;

    fn slice(axis: usize, start: i64, len: i64, step: u64) -> Op {
        Op::Slice { axis, start: Dim::new(start), len: Dim::new(len), step }
    }

    /// Simplifies the graph whose output is `build` of `x` `[4, seq]`, and returns its text.
    fn left(build: impl Fn(&mut Graph, NodeId) -> NodeId) -> String {
        let mut g = Graph::new("g");
        let seq = Dim::symbol(Symbol::new("seq"));
        let x = g.input("x", Shape::new([Dim::new(4), seq]), DType::F32);
        let y = build(&mut g, x);
        g.output("y", y).unwrap();
        verify(&g).unwrap();
        let new = simplified(&g).unwrap();
        verify(&new).unwrap();
        let text = new.to_string();
        let body = text.strip_prefix("graph g\n%0: f32[4, seq] = input \"x\"\n");
        body.unwrap_or(&text).to_string()
    }

    fn constant(g: &mut Graph, value: f32) -> NodeId {
        g.constant_f32(Shape::default(), &[value])
    }

    const NOTHING: &str = "output \"y\" = %0\n";

    #[test]
    fn what_does_nothing_is_gone() {
        type Case = fn(&mut Graph, NodeId) -> NodeId;
        let cases: [Case; 10] = [
            |g, x| g.add(Op::Transpose(vec![0, 1]), &[x]).unwrap(),
            |g, x| g.add(Op::Reshape(g.node(x).shape.clone()), &[x]).unwrap(),
            |g, x| g.add(Op::Expand(g.node(x).shape.clone()), &[x]).unwrap(),
            |g, x| g.add(Op::Cast(DType::F32), &[x]).unwrap(),
            |g, x| g.add(slice(0, 0, 4, 1), &[x]).unwrap(),
            |g, x| {
                let one = constant(g, 1.0);
                g.add(Op::Binary(BinaryOp::Mul), &[one, x]).unwrap()
            },
            |g, x| {
                let zero = constant(g, 0.0);
                g.add(Op::Binary(BinaryOp::Sub), &[x, zero]).unwrap()
            },
            |g, x| {
                let y = g.add(Op::Unary(UnaryOp::Neg), &[x]).unwrap();
                g.add(Op::Unary(UnaryOp::Neg), &[y]).unwrap()
            },
            |g, x| {
                let y = g.add(Op::Transpose(vec![1, 0]), &[x]).unwrap();
                g.add(Op::Transpose(vec![1, 0]), &[y]).unwrap()
            },
            |g, x| {
                let y = g.add(Op::Reshape(Shape::new([g.node(x).shape.elements()])), &[x]).unwrap();
                g.add(Op::Reshape(g.node(x).shape.clone()), &[y]).unwrap()
            },
        ];
        for (i, case) in cases.iter().enumerate() {
            assert_eq!(left(case), NOTHING, "case {i}");
        }
    }

    #[test]
    fn what_does_something_stays() {
        let zero = left(|g, x| {
            // -0 + 0 is 0.
            let zero = constant(g, 0.0);
            g.add(Op::Binary(BinaryOp::Add), &[x, zero]).unwrap()
        });
        assert!(zero.contains("add"), "{zero}");
        let wider = left(|g, x| {
            let one = g.constant_f32(Shape::new([2, 4, 1]), &[1.0]);
            g.add(Op::Binary(BinaryOp::Mul), &[x, one]).unwrap()
        });
        assert!(wider.contains("mul"), "{wider}");
        let from_one = left(|g, x| {
            let one = constant(g, 1.0);
            g.add(Op::Binary(BinaryOp::Sub), &[one, x]).unwrap()
        });
        assert!(from_one.contains("sub"), "{from_one}");
    }

    #[test]
    fn views_of_views_are_one() {
        let slices = left(|g, x| {
            let y = g.add(slice(0, 1, 2, 2), &[x]).unwrap();
            g.add(slice(0, 1, 1, 1), &[y]).unwrap()
        });
        assert_eq!(
            slices,
            "%1: f32[1, seq] = slice(%0) axis=0 start=3 len=1 step=2\noutput \"y\" = %1\n"
        );
        let broadcast = left(|g, x| {
            let row = g.add(slice(0, 0, 1, 1), &[x]).unwrap();
            let wide = g.add(Op::Expand(g.node(x).shape.clone()), &[row]).unwrap();
            let wide = g.add(Op::Unary(UnaryOp::Exp), &[wide]).unwrap();
            g.add(Op::Binary(BinaryOp::Mul), &[wide, x]).unwrap()
        });
        assert_eq!(
            broadcast,
            "%1: f32[1, seq] = slice(%0) axis=0 start=0 len=1 step=1\n%2: f32[1, seq] = \
             exp(%1)\n%3: f32[4, seq] = mul(%2, %0)\noutput \"y\" = %3\n"
        );
    }

    #[test]
    fn constants_are_computed() {
        let text = left(|g, x| {
            let rows = g.constant_i32(Shape::new([4, 1]), &[0, 1, 2, 3]);
            let cols = g.constant_i32(Shape::new([4]), &[0, 1, 2, 3]);
            let seen = g.add(Op::Binary(BinaryOp::Le), &[cols, rows]).unwrap();
            let seen = g.add(slice(1, 0, 1, 1), &[seen]).unwrap();
            let yes = constant(g, 2.0);
            let half = g.add(Op::Unary(UnaryOp::Reciprocal), &[yes]).unwrap();
            let y = g.add(Op::Select, &[seen, half, yes]).unwrap();
            g.add(Op::Binary(BinaryOp::Mul), &[x, y]).unwrap()
        });
        assert_eq!(
            text,
            "%1: f32[4, 1] = constant 0.5\n%2: f32[4, seq] = mul(%0, %1)\noutput \"y\" = %2\n"
        );
    }

    #[test]
    fn what_a_state_was_is_kept() {
        let mut g = Graph::new("g");
        let state = g.state("s", Shape::new([4]), DType::F32);
        let x = g.input("x", Shape::new([1]), DType::F32);
        let one = constant(&mut g, 1.0);
        let old = g.add(Op::Binary(BinaryOp::Mul), &[state, one]).unwrap();
        g.add(Op::Update { at: Dim::new(0) }, &[state, x]).unwrap();
        g.output("old", old).unwrap();
        verify(&g).unwrap();
        verify(&simplified(&g).unwrap()).unwrap();
    }
}
