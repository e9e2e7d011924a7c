//! Fusions for tests of kernels: those of models, and unusual ones.

use warploom::graph::scalar::{BinaryOp, UnaryOp};
use warploom::kernel::{
    Addressing, FusedExpr, KernelFusion, Operand, Output, Schedule, Segment, Value,
};
use warploom_core::base::DType;

pub(crate) fn f32_at(binding: u32) -> Operand {
    Operand { dtype: DType::F32, addressing: Addressing::Strided, binding }
}

pub(crate) fn body(
    rank: u32,
    inputs: Vec<Operand>,
    values: &[Value],
    outputs: &[(Operand, u32)],
) -> FusedExpr {
    let outputs =
        outputs.iter().map(|(operand, value)| Output { operand: *operand, value: *value });
    FusedExpr {
        rank,
        inputs,
        values: values.to_vec(),
        outputs: outputs.collect(),
        schedule: Schedule::Elements { width: 1 },
    }
}

/// Stores the kernel's result.
pub(crate) fn store(to: u32) -> Segment {
    Segment { anchors: 1, body: body(3, vec![], &[Value::Anchor(0)], &[(f32_at(to), 0)]) }
}

/// Adds a tensor.
pub(crate) fn residual(from: u32) -> Segment {
    let values = [Value::Input(0), Value::Anchor(0), Value::Binary(BinaryOp::Add, 0, 1)];
    Segment { anchors: 1, body: body(3, vec![f32_at(from)], &values, &[(f32_at(0), 2)]) }
}

/// silu(gate) * up.
pub(crate) fn gated() -> Segment {
    let values = [
        Value::Anchor(0),
        Value::Anchor(1),
        Value::Unary(UnaryOp::Silu, 0),
        Value::Binary(BinaryOp::Mul, 2, 1),
    ];
    Segment { anchors: 2, body: body(3, vec![], &values, &[(f32_at(0), 3)]) }
}

/// Rotates pairs by position (i32) times frequency.
pub(crate) fn rotated(positions: u32, frequencies: u32, to: u32) -> Segment {
    let position = Operand { dtype: DType::I32, ..f32_at(positions) };
    let values = [
        Value::Input(0),
        Value::Cast(DType::F32, 0),
        Value::Input(1),
        Value::Binary(BinaryOp::Mul, 1, 2),
        Value::Unary(UnaryOp::Cos, 3),
        Value::Unary(UnaryOp::Sin, 3),
        Value::Anchor(0),
        Value::Anchor(1),
        Value::Binary(BinaryOp::Mul, 6, 4),
        Value::Binary(BinaryOp::Mul, 7, 5),
        Value::Binary(BinaryOp::Sub, 8, 9),
        Value::Binary(BinaryOp::Mul, 6, 5),
        Value::Binary(BinaryOp::Mul, 7, 4),
        Value::Binary(BinaryOp::Add, 11, 12),
    ];
    let outputs = [(f32_at(to), 10), (f32_at(to), 13)];
    Segment { anchors: 2, body: body(3, vec![position, f32_at(frequencies)], &values, &outputs) }
}

/// A single element, the index, a constant that is not finite, outputs of two types in one buffer,
/// inputs of two types from one.
pub(crate) fn odd(from: u32, to: u32) -> Segment {
    let single = Operand { addressing: Addressing::Single, ..f32_at(from) };
    let flag = Operand { dtype: DType::Bool, ..f32_at(from) };
    let values = [
        Value::Input(0),
        Value::Anchor(0),
        Value::Binary(BinaryOp::Lt, 0, 1),
        Value::Input(1),
        Value::Binary(BinaryOp::Or, 2, 3),
        Value::Index,
        Value::Cast(DType::F32, 5),
        Value::Binary(BinaryOp::Add, 6, 1),
        Value::Constant(DType::F32, f32::NEG_INFINITY.to_bits()),
        Value::Select(4, 7, 8),
    ];
    let outputs = [(f32_at(to), 9), (Operand { dtype: DType::Bool, ..f32_at(to) }, 4)];
    Segment { anchors: 1, body: body(3, vec![single, flag], &values, &outputs) }
}

/// silu(x) * a tensor, with a row of it for each column: exp(0) would show where x should be 0.
pub(crate) fn prologue(from: u32) -> FusedExpr {
    let values = [
        Value::Anchor(0),
        Value::Input(0),
        Value::Unary(UnaryOp::Exp, 1),
        Value::Unary(UnaryOp::Silu, 0),
        Value::Binary(BinaryOp::Add, 2, 3),
    ];
    body(2, vec![f32_at(from)], &values, &[])
}

/// Every kind of fusion of a product with a weight matrix, by name.
pub(crate) fn of_products(norm: bool) -> Vec<(&'static str, KernelFusion)> {
    let just = |segments: Vec<Segment>| KernelFusion { segments, ..KernelFusion::default() };
    let qkv = |base| vec![rotated(base, base + 1, 0), rotated(base, base + 1, 1), store(2)];
    let mut all = vec![
        ("residual", just(vec![residual(0)])),
        ("gated", just(vec![gated()])),
        ("qkv", just(qkv(0))),
        ("odd", just(vec![odd(0, 0), store(1)])),
        ("four", just(vec![store(0), gated(), residual(0), store(0)])),
        ("prologue", KernelFusion { prologue: Some(prologue(0)), ..KernelFusion::default() }),
        ("both ends", KernelFusion { prologue: Some(prologue(1)), ..just(vec![residual(0)]) }),
    ];
    if norm {
        let normed = |segments| KernelFusion { norm: Some(0), ..just(segments) };
        all.push(("norm", normed(vec![])));
        all.push(("norm gated", normed(vec![gated()])));
        all.push(("norm qkv", normed(qkv(1))));
        // The norm's weight shares a buffer with an operand, of its type and of others.
        all.push(("norm residual", normed(vec![residual(0)])));
        all.push(("norm odd", normed(vec![odd(0, 0)])));
        all.push(("norm prologue", KernelFusion { prologue: Some(prologue(1)), ..normed(vec![]) }));
    }
    all
}
