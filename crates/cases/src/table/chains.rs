//! Operations that fusion may combine: chains, diamonds, prologues and epilogues of anchors.

use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{DType, Dim, Format, Shape};
use warploom_core::ir::{BinaryOp, NodeId, Op, ReduceOp, UnaryOp};

/// Tolerance for a few more roundings than one operation has.
const LOOSE: Tolerance = Tolerance { atol: 1e-5, rtol: 1e-5, eps_count: 0.0, nmse: 1e-7 };

fn binary(b: &mut Build, op: BinaryOp, x: NodeId, y: NodeId) -> NodeId {
    b.op(Op::Binary(op), &[x, y])
}

pub(super) fn add(table: &mut Vec<Case>) {
    for n in [1, 33, 129] {
        table.push(swiglu(n));
        table.push(long_chain(n));
    }
    table.extend([diamond(), many_operands(), masked_softmax(), spelled_rms_norm()]);
    table.extend([around_linear(), types(), several_outputs(), constants(), output_of_input()]);
    table.extend([2, 9].map(half_empty_graph));
}

fn swiglu(n: u64) -> Case {
    let mut b = Build::new(format!("chain/swiglu/{n}")).within(LOOSE);
    let both = b.f32("gate_up", [3, 2 * n]);
    let gate = b.slice(both, 1, 0, n, 1);
    let up = b.slice(both, 1, n, n, 1);
    let gate = b.unary(UnaryOp::Silu, gate);
    let y = binary(&mut b, BinaryOp::Mul, gate, up);
    b.done(y)
}

fn long_chain(n: u64) -> Case {
    let mut b = Build::new(format!("chain/long/{n}")).within(LOOSE);
    let x = b.f32("x", [n, 3]);
    let row = b.f32("row", [3]);
    let mut y = x;
    for op in [UnaryOp::Tanh, UnaryOp::Exp, UnaryOp::Neg, UnaryOp::Sigmoid, UnaryOp::Sin] {
        y = b.unary(op, y);
        y = binary(&mut b, BinaryOp::Add, y, row);
        y = binary(&mut b, BinaryOp::Mul, y, x);
    }
    b.done(y)
}

/// Builds a case in which several operations read one result, and their results are combined.
fn diamond() -> Case {
    let mut b = Build::new("chain/diamond").within(LOOSE);
    let x = b.f32("x", [5, 31]);
    let e = b.unary(UnaryOp::Exp, x);
    let (p, q) = (b.unary(UnaryOp::Sqrt, e), b.unary(UnaryOp::Log, e));
    let sum = binary(&mut b, BinaryOp::Add, p, q);
    let y = binary(&mut b, BinaryOp::Div, sum, e);
    b.done(y)
}

/// Builds a case with more operands than a kernel has bindings at WebGPU's default limits.
fn many_operands() -> Case {
    let mut b = Build::new("chain/twelve_operands").within(LOOSE);
    let mut y = b.f32("x0", [4, 9]);
    for i in 1..12 {
        let dims = if i % 3 == 0 { vec![9u64] } else { vec![4, 9] };
        let x = b.f32(&format!("x{i}"), dims);
        y = binary(&mut b, if i % 2 == 0 { BinaryOp::Sub } else { BinaryOp::Add }, y, x);
    }
    b.done(y)
}

fn masked_softmax() -> Case {
    let mut b = Build::new("chain/masked_softmax").within(LOOSE);
    let x = b.f32("scores", [2, 7, 7]);
    let limits: Vec<f32> =
        (0..49).map(|i| if i % 7 > i / 7 { f32::NEG_INFINITY } else { 0.0 }).collect();
    let mask = b.constant(&[7, 7], &limits);
    let x = binary(&mut b, BinaryOp::Add, x, mask);
    let y = b.op(Op::Softmax, &[x]);
    b.done(y)
}

/// Builds a case with RMSNorm as primitives, for pattern matching.
fn spelled_rms_norm() -> Case {
    let mut b = Build::new("chain/rms_norm_in_primitives").within(LOOSE);
    let x = b.f32("x", [4, 65]);
    let w = b.weight("w", &[65], Format::F32);
    let square = binary(&mut b, BinaryOp::Mul, x, x);
    let mean = b.op(Op::Reduce { op: ReduceOp::Mean, axes: vec![1], keep: true }, &[square]);
    let eps = b.constant(&[], &[1e-5]);
    let sum = binary(&mut b, BinaryOp::Add, mean, eps);
    let scale = b.unary(UnaryOp::Rsqrt, sum);
    let y = binary(&mut b, BinaryOp::Mul, x, scale);
    let y = binary(&mut b, BinaryOp::Mul, y, w);
    b.done(y)
}

/// Builds a case for fusion into an anchor: a prologue, a product, and an epilogue with a residual.
fn around_linear() -> Case {
    let tolerance = Tolerance { atol: 5e-4, rtol: 1e-5, eps_count: 0.0, nmse: 1e-6 };
    let mut b = Build::new("chain/around_linear").within(tolerance);
    let x = b.f32("x", [3, 64]);
    let norm = b.weight("norm", &[64], Format::F32);
    let w = b.weight("w", &[64, 64], Format::Q8_0);
    let bias = b.weight("bias", &[64], Format::F32);
    let y = b.op(Op::RmsNorm { eps: 1e-6 }, &[x, norm]);
    let y = b.op(Op::linear(), &[y, w]);
    let y = binary(&mut b, BinaryOp::Add, y, bias);
    let y = b.unary(UnaryOp::Silu, y);
    let y = binary(&mut b, BinaryOp::Add, y, x);
    b.done(y)
}

/// Builds a case that converts floats to conditions, to indices, and back.
fn types() -> Case {
    let mut b = Build::new("chain/types");
    let x = b.f32("x", [4, 33]);
    let best = b.op(Op::ArgMax, &[x]);
    let best = b.op(Op::Cast(DType::I32), &[best]);
    let one = b.i32_row("one", &[1]);
    let next = binary(&mut b, BinaryOp::Add, best, one);
    let column = b.op(Op::Reshape(Shape::new([4, 1])), &[next]);
    let column = b.op(Op::Cast(DType::F32), &[column]);
    let above = binary(&mut b, BinaryOp::Gt, x, column);
    let below = b.unary(UnaryOp::Not, above);
    let y = b.op(Op::Select, &[below, x, column]);
    b.done(y)
}

/// Builds a case with an intermediate that is also an output under two names; a view of it is
/// another output.
fn several_outputs() -> Case {
    let mut b = Build::new("chain/several_outputs").within(LOOSE);
    let x = b.f32("x", [5, 7]);
    let e = b.unary(UnaryOp::Exp, x);
    let y = b.unary(UnaryOp::Neg, e);
    let t = b.transpose(e, &[1, 0]);
    b.output("e", e);
    b.output("again", e);
    b.output("t", t);
    b.done(y)
}

fn constants() -> Case {
    let mut b = Build::new("chain/constants").within(LOOSE);
    let x = b.f32("x", [2, 3]);
    let two = b.constant(&[2, 3], &[2.0]);
    let each = b.constant(&[2, 3], &[1.0, -2.0, 3.0, -4.0, 5.0, -6.0]);
    let y = binary(&mut b, BinaryOp::Mul, x, two);
    let y = binary(&mut b, BinaryOp::Sub, y, each);
    b.output("each", each);
    b.done(y)
}

fn output_of_input() -> Case {
    let mut b = Build::new("chain/input_is_output");
    let x = b.f32("x", [3, 5]);
    let w = b.weight("w", &[2, 3], Format::F32);
    b.output("w_too", w);
    b.done(x)
}

/// Builds a case with a size that is zero for one value of the symbol.
fn half_empty_graph(past: u64) -> Case {
    let mut b = Build::new(format!("chain/empty_for_some/past{past}"));
    let past = b.symbol("past", past);
    let x = b.f32("x", [past.clone() - Dim::new(2), Dim::new(3)]);
    let y = b.f32("y", [2, 3]);
    let z = b.op(Op::Concat { axis: 0 }, &[x, y]);
    let z = b.unary(UnaryOp::Relu, z);
    b.done(z)
}
