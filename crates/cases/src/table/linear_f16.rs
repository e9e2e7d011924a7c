//! Products of operands that may be rounded to f16 (`ComputeMode::F16`). Those with a large k may
//! run with split-K.

use crate::build::{Build, Case, halves};
use crate::compare::Tolerance;
use warploom_core::base::{ComputeMode, DType, Dim, Format, Shape};
use warploom_core::ir::{BinaryOp, NodeId, Op, UnaryOp};
use warploom_core::reference::Data;

const F16: Op = Op::Linear { mode: ComputeMode::F16 };

fn case(name: String, k: u64) -> Build {
    Build::new(format!("in_f16/{name}")).within(Tolerance::product(k))
}

fn linear(format: Format, m: u64, n: u64, k: u64) -> Case {
    let mut b = case(format!("{format}/m{m}_n{n}_k{k}"), k);
    let x = b.f32("x", [m, k]);
    let w = b.weight("w", &[n, k], format);
    let y = b.op(F16, &[x, w]);
    b.done(y)
}

/// Builds a case with rows of x beyond the range of f16, with gaps between them, at an offset that
/// is not a multiple of four.
fn sizes(format: Format) -> Case {
    let k = 4 * format.block_len().max(32);
    let mut b = case(format!("{format}/rows_of_all_sizes"), k);
    let mut random = b.random("x");
    let scales = [1e30f32, 1.0, 1e-30, 7e4, 3e-6, 0.0];
    let wide = scales.into_iter().flat_map(|scale| {
        let row: Vec<f32> = random.shaped(k as usize).into_iter().map(|v| v * scale).collect();
        [vec![9.0; 3], row, vec![-9.0; 2]].concat()
    });
    let wide = wide.collect();
    let x = b.input("x", Shape::new([scales.len() as u64, k + 5]), Data::F32(wide));
    let x = b.slice(x, 1, 3, k, 1);
    let w = b.weight("w", &[11, k], format);
    let y = b.op(F16, &[x, w]);
    b.done(y)
}

/// Builds a case with products of one operand: a gated pair (gate times up), one added to itself,
/// and one rounded to f16.
fn together(format: Format, m: u64) -> Case {
    let k = 2 * format.block_len().max(64);
    // A product of sums is not a sum, so no magnitude is available; an f16 may be the neighbouring
    // one.
    let tolerance = Tolerance { atol: 1e-3, rtol: 1e-3, eps_count: 0.0, nmse: 1e-6 };
    let mut b = case(format!("together/{format}/m{m}"), k).within(tolerance);
    let x = b.f32("x", [m, k]);
    let product = |b: &mut Build, name: &str, n: u64| -> NodeId {
        let w = b.weight(name, &[n, k], format);
        b.op(F16, &[x, w])
    };
    let gate = product(&mut b, "gate", 300);
    let up = product(&mut b, "up", 300);
    let gate = b.op(Op::Unary(UnaryOp::Relu), &[gate]);
    let made = b.op(Op::Binary(BinaryOp::Mul), &[gate, up]);
    let twice = product(&mut b, "twice", 70);
    let twice = b.op(Op::Binary(BinaryOp::Add), &[twice, twice]);
    let kept = product(&mut b, "kept", 36);
    let kept = b.op(Op::Cast(DType::F16), &[kept]);
    let kept = b.op(Op::Cast(DType::F32), &[kept]);
    let all = b.op(Op::Concat { axis: 1 }, &[made, twice, kept]);
    b.done(all)
}

/// Builds a case with a norm of rows of several magnitudes, a product of the result and a residual.
fn normed(format: Format, m: u64, k: u64) -> Case {
    let tolerance = Tolerance { atol: 1e-3, rtol: 1e-3, eps_count: 0.0, nmse: 1e-6 };
    let mut b = case(format!("normed/{format}/m{m}_k{k}"), k).within(tolerance);
    let mut random = b.random("x");
    let sizes = [1.0, 300.0, 0.02, 0.0, 9e4].into_iter().cycle().take(m as usize);
    let values = sizes.flat_map(|size| {
        let row = random.shaped(k as usize).into_iter().map(move |v| v * size);
        row.collect::<Vec<f32>>()
    });
    let values = values.collect();
    let x = b.input("x", Shape::new([m, k]), Data::F32(values));
    let gain = b.weight("gain", &[k], Format::F32);
    let x = b.op(Op::RmsNorm { eps: 1e-5 }, &[x, gain]);
    let w = b.weight("w", &[70, k], format);
    let y = b.op(F16, &[x, w]);
    let residual = b.f32("residual", [m, 70]);
    let y = b.op(Op::Binary(BinaryOp::Add), &[y, residual]);
    b.done(y)
}

/// Builds a case with a product added to rows of several magnitudes, and products of the sum, which
/// is first normalised if `norm` is set.
fn fused_quant(format: Format, norm: bool, m: u64, n: u64) -> Case {
    let tolerance = Tolerance { atol: 1e-3, rtol: 1e-3, eps_count: 0.0, nmse: 1e-6 };
    let kind = if norm { "norm" } else { "plain" };
    let mut b = case(format!("fused_quant/{kind}/{format}/m{m}_n{n}"), n).within(tolerance);
    let x = b.f32("x", [m, 64]);
    let w = b.weight("first", &[n, 64], format);
    let first = b.op(F16, &[x, w]);
    let mut random = b.random("base");
    // After a norm all rows have the same magnitude.
    let sizes = if norm { [1.0, 300.0, 0.02, 0.0, 9e4] } else { [1.0, 0.3, 0.02, 0.0, 0.9] };
    let sizes = sizes.into_iter().cycle().take(m as usize);
    let values = sizes.flat_map(|size| {
        let row = random.shaped(n as usize).into_iter().map(move |v| v * size);
        row.collect::<Vec<f32>>()
    });
    let values = values.collect();
    let base = b.input("base", Shape::new([m, n]), Data::F32(values));
    let y = b.op(Op::Binary(BinaryOp::Add), &[base, first]);
    let read = if norm {
        let gain = b.weight("gain", &[n], Format::F32);
        b.op(Op::RmsNorm { eps: 1e-5 }, &[y, gain])
    } else {
        y
    };
    let products = ["second", "third"].map(|name| {
        let w = b.weight(name, &[37, n], format);
        b.op(F16, &[read, w])
    });
    let [second, third] = products;
    if !norm {
        let both = b.op(Op::Concat { axis: 1 }, &[second, third]);
        return b.done(both);
    }
    let other = b.op(Op::Unary(UnaryOp::Relu), &[y]);
    let all = b.op(Op::Concat { axis: 1 }, &[other, second, third]);
    b.done(all)
}

/// Builds a case with a gated product (gate times up), and a product of the result.
fn gated(format: Format, m: u64, n: u64) -> Case {
    let tolerance = Tolerance { atol: 1e-3, rtol: 1e-3, eps_count: 0.0, nmse: 1e-6 };
    let mut b = case(format!("fused_quant/gated/{format}/m{m}_n{n}"), n).within(tolerance);
    let x = b.f32("x", [m, 96]);
    let [gate, up] = ["gate", "up"].map(|name| {
        let w = b.weight(name, &[n, 96], format);
        b.op(F16, &[x, w])
    });
    let gate = b.op(Op::Unary(UnaryOp::Silu), &[gate]);
    let y = b.op(Op::Binary(BinaryOp::Mul), &[gate, up]);
    let w = b.weight("down", &[40, n], format);
    let y = b.op(F16, &[y, w]);
    b.done(y)
}

/// Builds a case with a 2-byte operand, a weight of the same type, and a residual.
fn converted(dtype: DType, m: u64) -> Case {
    let (n, k) = (50, 64);
    // The residual has no magnitude.
    let tolerance = Tolerance { atol: 1e-4, rtol: 1e-5, eps_count: 0.0, nmse: 1e-10 };
    let mut b = case(format!("converted/{dtype}/m{m}"), k).within(tolerance);
    let values = b.random("x").shaped((m * k) as usize);
    let x = b.input("x", Shape::new([m, k]), halves(dtype, &values));
    let x = b.op(Op::Cast(DType::F32), &[x]);
    let w = b.weight("w", &[n, k], Format::Plain(dtype));
    let y = b.op(F16, &[x, w]);
    let residual = b.f32("residual", [m, n]);
    let y = b.op(Op::Binary(BinaryOp::Add), &[y, residual]);
    b.done(y)
}

pub(super) fn add(table: &mut Vec<Case>) {
    for dtype in [DType::F16, DType::BF16] {
        table.extend([1, 40].map(|m| converted(dtype, m)));
    }
    for format in [DType::F16, DType::BF16].map(Format::Plain) {
        table.extend([1, 3, 9, 40, 130].map(|m| linear(format, m, 37, 160)));
        // A column count that is not a multiple of any tile step.
        table.push(linear(format, 20, 33, 45));
        table.push(linear(format, 150, 600, 256));
        table.push(sizes(format));
        table.extend([5, 130].map(|m| together(format, m)));
    }
    for format in [Format::Q4K, Format::Q8_0] {
        table.extend([1, 40, 130].map(|m| linear(format, m, 37, 512)));
        table.push(sizes(format));
    }
    table.push(together(Format::Q4K, 20));
    for (m, k) in [(3, 64), (40, 320), (130, 2304)] {
        table.push(normed(Format::Plain(DType::F16), m, k));
    }
    table.push(normed(Format::Q8_0, 40, 96));
    for (m, n) in [(1, 64), (40, 320), (130, 2304)] {
        let format = Format::Plain(if n == 320 { DType::BF16 } else { DType::F16 });
        table.push(fused_quant(format, true, m, n));
        table.push(fused_quant(format, false, m, n));
        table.push(gated(format, m, n));
    }
    table.push(fused_quant(Format::Q8_0, true, 40, 96));
    table.push(linear(Format::Plain(DType::F32), 40, 37, 64));
    let format = Format::Plain(DType::F16);
    table.push(linear(format, 0, 5, 32));
    table.push(linear(format, 3, 5, 0));
    for m in [1, 70] {
        let mut b = case(format!("symbol/m{m}"), 256);
        let seq: Dim = b.symbol("seq", m);
        let x = b.f32("x", [seq, Dim::from(256u64)]);
        let w = b.weight("w", &[33, 256], format);
        let y = b.op(F16, &[x, w]);
        table.push(b.done(y));
    }
}
