//! Products that a vendor's GEMM library may compute: sizes at which it is faster and odd sizes,
//! 2-byte operands with 2-byte and 4-byte results, and epilogues.

use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{DType, Dim, Format};
use warploom_core::ir::{BinaryOp, NodeId, Op, UnaryOp};

pub(super) fn add(table: &mut Vec<Case>) {
    for dtype in [DType::F16, DType::BF16] {
        for (m, k, n) in [
            (16, 16, 16),
            (31, 33, 37),
            (64, 128, 96),
            (40, 192, 72),
            (129, 65, 130),
            (150, 96, 204),
            (128, 512, 256),
        ] {
            table.push(product(dtype, (m, k, n), false));
            table.push(product(dtype, (m, k, n), true));
        }
        operands(table, dtype);
        chains(table, dtype);
    }
    table.push(single((129, 130, 131)));
    table.push(single((256, 192, 128)));
    for epilogue in ["bias", "relu", "bias_relu", "gelu"] {
        for m in [1u64, 33, 128] {
            table.push(linear(epilogue, m));
        }
        table.push(batched(epilogue));
    }
}

/// Returns the tolerance for one rounding to the type plus the error of a sum of `k` products.
fn close(dtype: DType, k: u64) -> Tolerance {
    let rtol = if dtype == DType::F16 { 2f64.powi(-10) } else { 2f64.powi(-7) };
    Tolerance { rtol, nmse: 1e-4, ..Tolerance::product(k) }
}

fn wide(b: &mut Build, x: NodeId) -> NodeId {
    b.op(Op::Cast(DType::F32), &[x])
}

/// Builds a case with `[m, k]` times `[k, n]`; the result has 2-byte elements or, with `to_wide`,
/// 4-byte ones.
fn product(dtype: DType, (m, k, n): (u64, u64, u64), to_wide: bool) -> Case {
    let (to, tolerance) = match to_wide {
        true => (DType::F32, Tolerance::product(k)),
        false => (dtype, close(dtype, k)),
    };
    let mut b = Build::new(format!("library/{dtype}/{m}x{k}x{n}_{to}")).within(tolerance);
    let (mut x, mut y) = (b.half(dtype, "a", [m, k]), b.half(dtype, "b", [k, n]));
    if to_wide {
        (x, y) = (wide(&mut b, x), wide(&mut b, y));
    }
    let z = b.op(Op::MatMul, &[x, y]);
    b.done(z)
}

fn operands(table: &mut Vec<Case>, dtype: DType) {
    let start =
        |name: &str, k| Build::new(format!("library/{dtype}/{name}")).within(close(dtype, k));
    // Read twice, once transposed.
    let mut b = start("with_itself", 40);
    let x = b.half(dtype, "a", [24, 40]);
    let y = b.transpose(x, &[1, 0]);
    let z = b.op(Op::MatMul, &[x, y]);
    table.push(b.done(z));
    // Rows with gaps, from an odd offset.
    let mut b = start("gapped", 30);
    let x = b.half(dtype, "a", [20, 37]);
    let x = b.slice(x, 1, 3, 30, 1);
    let y = b.half(dtype, "b", [31, 18]);
    let y = b.slice(y, 0, 1, 30, 1);
    let z = b.op(Op::MatMul, &[x, y]);
    table.push(b.done(z));
    // Neither rows nor columns are contiguous.
    let mut b = start("strided", 16);
    let x = b.half(dtype, "a", [12, 32]);
    let x = b.slice(x, 1, 0, 16, 2);
    let y = b.half(dtype, "b", [16, 8]);
    let z = b.op(Op::MatMul, &[x, y]);
    table.push(b.done(z));
    for (name, a, c) in [
        ("batch", &[3u64, 17, 32] as &[u64], &[3u64, 32, 24] as &[u64]),
        ("shared_right", &[3, 17, 32], &[32, 24]),
        ("shared_left", &[17, 32], &[3, 32, 24]),
        ("crossed", &[2, 1, 17, 32], &[3, 32, 24]),
    ] {
        let mut b = start(name, 32);
        let (x, y) = (b.half(dtype, "a", a.to_vec()), b.half(dtype, "b", c.to_vec()));
        let z = b.op(Op::MatMul, &[x, y]);
        table.push(b.done(z));
    }
    // One operand of three products of equal size.
    let mut b = start("shared", 32);
    let x = b.half(dtype, "a", [32, 32]);
    for name in ["q", "k", "v"] {
        let w = b.half(dtype, name, [32, 32]);
        let y = b.op(Op::MatMul, &[x, w]);
        b.output(&format!("{name}_out"), y);
    }
    table.push(b.finish());
    // The converted operand has another reader.
    let mut b = start("read_twice", 32);
    let (x, y) = (b.half(dtype, "a", [16, 32]), b.half(dtype, "b", [32, 8]));
    let (x, y) = (wide(&mut b, x), wide(&mut b, y));
    let z = b.op(Op::MatMul, &[x, y]);
    b.output("wide", x);
    table.push(b.done(z));
    for m in [5u64, 66] {
        let mut b = start(&format!("symbol/m{m}"), 64);
        let rows = b.symbol("rows", m);
        let x = b.half(dtype, "a", [rows, Dim::new(64)]);
        let y = b.half(dtype, "b", [64, 48]);
        let z = b.op(Op::MatMul, &[x, y]);
        table.push(b.done(z));
    }
    for format in [Format::F32, Format::Plain(dtype)] {
        let mut b = start(&format!("linear_{format}"), 64);
        let x = b.half(dtype, "x", [40, 64]);
        let w = b.weight("w", &[72, 64], format);
        let y = b.op(Op::linear(), &[x, w]);
        table.push(b.done(y));
    }
}

/// Adds cases with a product of a product, and operations in between that round.
fn chains(table: &mut Vec<Case>, dtype: DType) {
    let one = close(dtype, 32);
    // An intermediate result may round to the other neighbour.
    let tolerance = Tolerance { atol: 8.0 * one.rtol, nmse: 1e-3, ..one };
    for (name, between) in [("chain", None), ("chain_relu", Some(UnaryOp::Relu))] {
        let mut b = Build::new(format!("library/{dtype}/{name}")).within(tolerance);
        let (x, y) = (b.half(dtype, "a", [24, 32]), b.half(dtype, "b", [32, 16]));
        let z = b.half(dtype, "c", [16, 40]);
        let mut h = b.op(Op::MatMul, &[x, y]);
        if let Some(op) = between {
            h = b.unary(op, h);
        }
        let y = b.op(Op::MatMul, &[h, z]);
        table.push(b.done(y));
    }
    let mut b = Build::new(format!("library/{dtype}/bias")).within(tolerance);
    let (x, y) = (b.half(dtype, "a", [24, 32]), b.half(dtype, "b", [32, 16]));
    let bias = b.half(dtype, "bias", [16]);
    let h = b.op(Op::MatMul, &[x, y]);
    let y = b.op(Op::Binary(BinaryOp::Add), &[h, bias]);
    table.push(b.done(y));
}

fn single((m, k, n): (u64, u64, u64)) -> Case {
    let mut b = Build::new(format!("library/f32/{m}x{k}x{n}")).within(Tolerance::product(k));
    let (x, y) = (b.f32("a", [m, k]), b.f32("b", [k, n]));
    let z = b.op(Op::MatMul, &[x, y]);
    b.done(z)
}

/// Adds the epilogue with this name to a product `y` with `n` columns.
fn finished(b: &mut Build, name: &str, y: NodeId, n: u64) -> NodeId {
    let mut y = y;
    if name.starts_with("bias") {
        let bias = b.f32("bias", [n]);
        y = b.op(Op::Binary(BinaryOp::Add), &[y, bias]);
    }
    match name {
        "relu" | "bias_relu" => b.unary(UnaryOp::Relu, y),
        "gelu" => b.unary(UnaryOp::Gelu, y),
        _ => y,
    }
}

/// Returns the tolerance for values derived from sums, for which no sum of absolute values is
/// available as a magnitude.
fn behind() -> Tolerance {
    Tolerance { atol: 2e-5, rtol: 1e-5, eps_count: 0.0, nmse: 1e-10 }
}

fn linear(epilogue: &str, m: u64) -> Case {
    let mut b = Build::new(format!("library/linear_{epilogue}/m{m}")).within(behind());
    let x = b.f32("x", [m, 96]);
    let w = b.weight("w", &[70, 96], Format::F32);
    let y = b.op(Op::linear(), &[x, w]);
    let y = finished(&mut b, epilogue, y, 70);
    b.done(y)
}

fn batched(epilogue: &str) -> Case {
    let mut b = Build::new(format!("library/matmul_{epilogue}")).within(behind());
    let (x, y) = (b.f32("a", [2, 33, 48]), b.f32("b", [2, 48, 20]));
    let y = b.op(Op::MatMul, &[x, y]);
    let y = finished(&mut b, epilogue, y, 20);
    b.done(y)
}
