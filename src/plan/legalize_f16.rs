//! Legalisation of f16 and bf16: arithmetic on two-byte elements becomes `f32` arithmetic between
//! conversions, as the reference defines it. No kernel does elementwise arithmetic in `f16` or
//! `bf16`, and conversions fuse with their neighbours. Operations that only move or select elements
//! keep the type, and attention reads `f16` keys and values directly.
//!
//! Weights in a two-byte format have `f32` elements. For operations that cannot read the format, a
//! cast from `f32` to `f32` dequantises them.

use std::collections::HashMap;

use super::builder::PlanBuilder;
use crate::base::{DType, Format};
use crate::error::Result;
use crate::ir::{Graph, Node, NodeId, Op, OpClass, rewrite};

/// Runs the pass `legalize`, which the module describes.
pub(super) fn legalize(builder: &mut PlanBuilder) -> Result<()> {
    if builder.graph.nodes().iter().any(|node| node.dtype.is_half() || is_stored_half(&node.op)) {
        builder.graph = legalized(&builder.graph)?;
    }
    Ok(())
}

fn legalized(graph: &Graph) -> Result<Graph> {
    // For each two-byte node of the new graph: its `f32` form.
    let mut wide: HashMap<NodeId, NodeId> = HashMap::new();
    rewrite(graph, |new, _, node, inputs| {
        let mut operands = inputs.to_vec();
        let reads_f16 = reads_f16(new, &node.op, inputs);
        for (place, operand) in operands.iter_mut().enumerate() {
            let from = new.node(*operand);
            let unread = is_stored_half(&from.op) && !reads_format(&node.op, place, from);
            let read = reads_f16 && (1..3).contains(&place);
            let narrow = from.dtype.is_half() && computes(&node.op) && !read;
            if !(unread || narrow) {
                continue;
            }
            *operand = match wide.get(operand) {
                Some(known) => *known,
                None => {
                    let cast = new.add(Op::Cast(DType::F32), &[*operand])?;
                    wide.insert(*operand, cast);
                    cast
                }
            };
        }
        let narrow = node.dtype.is_half() && computes(&node.op);
        if operands == inputs && !narrow {
            return Ok(None);
        }
        let result = new.add(node.op.clone(), &operands)?;
        new.label(result, node.label.clone());
        match narrow {
            true => new.add(Op::Cast(node.dtype), &[result]).map(Some),
            false => Ok(Some(result)),
        }
    })
}

fn is_stored_half(op: &Op) -> bool {
    matches!(op.stored(), Some(Format::Plain(dtype)) if dtype.is_half())
}

/// Returns whether an operation reads its operand number `place` in the operand's storage format.
fn reads_format(op: &Op, place: usize, operand: &Node) -> bool {
    match (op, place) {
        (Op::Linear { .. } | Op::ExpertLinear { .. }, 1) => true,
        (Op::Gather { axis: 0 }, 0) => operand.shape.rank() == 2,
        _ => false,
    }
}

/// Returns whether an operation is attention over `f16` keys and values, which its kernels read.
fn reads_f16(graph: &Graph, op: &Op, inputs: &[NodeId]) -> bool {
    let half = |i: &usize| inputs.get(*i).is_some_and(|id| graph.node(*id).dtype == DType::F16);
    matches!(op, Op::Attention { .. }) && [1, 2].iter().all(half)
}

/// Returns whether an operation computes new values, rather than moving, selecting or converting
/// existing ones.
fn computes(op: &Op) -> bool {
    let moves = matches!(
        op,
        Op::Cast(_)
            | Op::Select
            | Op::Gather { .. }
            | Op::TakeAlong
            | Op::Update { .. }
            | Op::Scatter
            | Op::Concat { .. }
            | Op::Pad { .. }
            | Op::Custom(_)
    );
    !moves && !matches!(op.class(), OpClass::Leaf | OpClass::Alias)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Dim, Shape};
    use crate::ir::{BinaryOp, UnaryOp, verify};

    #[test]
    fn arithmetic_alone_is_widened_and_operands_once() {
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new([2, 3]), DType::F16);
        let y = g.add(Op::Unary(UnaryOp::Exp), &[x]).unwrap();
        let z = g.add(Op::Binary(BinaryOp::Mul), &[x, y]).unwrap();
        let less = g.add(Op::Binary(BinaryOp::Lt), &[x, z]).unwrap();
        let z = g.add(Op::Select, &[less, x, z]).unwrap();
        let z = g.add(Op::Concat { axis: 0 }, &[z, z]).unwrap();
        let len = Dim::new(1);
        let z = g.add(Op::Slice { axis: 0, start: Dim::new(1), len, step: 1 }, &[z]).unwrap();
        g.output("z", z).unwrap();
        let new = legalized(&g).unwrap();
        verify(&new).unwrap();
        let types = |op: fn(&Op) -> bool| -> Vec<DType> {
            new.nodes().iter().filter(|node| op(&node.op)).map(|node| node.dtype).collect()
        };
        assert_eq!(types(|op| matches!(op, Op::Unary(_))), [DType::F32]);
        assert_eq!(types(|op| matches!(op, Op::Binary(_))), [DType::F32, DType::Bool]);
        assert_eq!(types(|op| matches!(op, Op::Select | Op::Concat { .. })), [DType::F16; 2]);
        // x, y and z to f32 once each; y and z back.
        let casts = types(|op| matches!(op, Op::Cast(_)));
        assert_eq!(casts.iter().filter(|to| **to == DType::F32).count(), 3, "{new}");
        assert_eq!(casts.len(), 5, "{new}");
    }
}
