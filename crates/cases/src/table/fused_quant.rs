//! Fused activation quantisation: products in sequence, of which the first may quantise its result
//! for the next; and attention before a product.
//!
//! As in [`super::int8`], no quantised value lies near the midpoint of two integers: products add
//! little to values that are far from midpoints, and attention over one key returns its value.

use super::int8::{INT8, gains, row, rows};
use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{Dim, Format, Shape};
use warploom_core::ir::{BinaryOp, NodeId, Op, UnaryOp};
use warploom_core::reference::Data;

/// Tolerance for the second product: rounding errors of the first product reach it through the
/// quantised operand.
const CLOSE: Tolerance = Tolerance { atol: 1e-3, rtol: 1e-5, eps_count: 0.0, nmse: 1e-10 };

/// Scale of a product's contribution to rows that are far from midpoints: hundredths of a
/// quantisation step.
const LITTLE: f32 = 1e-5;

/// Returns the number of columns of the first product's result. A single row needs more, since
/// short rows get no fused quantisation.
fn columns(m: u64) -> u64 {
    if m == 1 { 2048 } else { 96 }
}

fn times(b: &mut Build, x: NodeId, by: f32) -> NodeId {
    let by = b.weight_of(&format!("by{by}"), &[1], Format::F32, vec![by]);
    b.op(Op::Binary(BinaryOp::Mul), &[x, by])
}

/// Returns [`LITTLE`], adjusted to products over `columns` columns.
fn little_of(columns: u64) -> f32 {
    LITTLE * (64.0 / columns as f32).sqrt()
}

/// Builds a case with a product added to `base`, and for each format a product of the sum, which is
/// first normalised if `norm` is set.
fn residual(formats: &[Format], norm: bool, m: u64) -> Case {
    let n = formats.iter().map(|f| f.block_len()).max().unwrap_or(32).max(columns(m));
    residual_of(Format::Q4_0, formats, norm, [m, n])
}

/// Same as [`residual`], with `m` rows of `n` columns, produced by weights of the format `first`.
fn residual_of(first: Format, formats: &[Format], norm: bool, [m, n]: [u64; 2]) -> Case {
    let kind = if norm { "norm" } else { "plain" };
    let names: Vec<String> = formats.iter().map(|f| f.to_string()).collect();
    let by = if first == Format::Q4_0 { String::new() } else { format!("by_{first}/") };
    let name = format!("int8/fused_quant/{kind}/{by}{}/n{n}/m{m}", names.join("_"));
    let mut b = Build::new(name).within(CLOSE);
    let columns = first.block_len().max(64);
    let x = rows(&mut b, "x", Dim::from(m), m, columns);
    let w = b.weight("first", &[n, columns], first);
    let y = b.op(INT8, &[x, w]);
    let little = times(&mut b, y, little_of(columns));
    let gain = gains(n);
    let values = (0..m).flat_map(|i| {
        let row = row(&b, &format!("base{i}"), n);
        let by = |j: usize| if norm { gain[j] } else { 1.0 };
        row.iter().enumerate().map(|(j, v)| v / by(j)).collect::<Vec<_>>()
    });
    let values = values.collect();
    let base = b.input("base", Shape::new([m, n]), Data::F32(values));
    let y = b.op(Op::Binary(BinaryOp::Add), &[base, little]);
    let read = match norm {
        true => {
            let gain = b.weight_of("gain", &[n], Format::F32, gain.clone());
            b.op(Op::RmsNorm { eps: 1e-5 }, &[y, gain])
        }
        false => y,
    };
    let mut all = vec![y];
    for (i, format) in formats.iter().enumerate() {
        let w = b.weight(&format!("second{i}"), &[37, n], *format);
        all.push(b.op(INT8, &[read, w]));
    }
    let both = b.op(Op::Concat { axis: 1 }, &all);
    b.done(both)
}

/// Builds a case with a gated product (gate times up), its sum with rows far from midpoints, and a
/// product of the sum.
fn gated(format: Format, m: u64) -> Case {
    gated_by(Format::Q4_1, format, m)
}

/// Same as [`gated`], with gate and up in the format `first`.
fn gated_by(first: Format, format: Format, m: u64) -> Case {
    let n = format.block_len().max(columns(m));
    let by = if first == Format::Q4_1 { String::new() } else { format!("by_{first}/") };
    let mut b = Build::new(format!("int8/fused_quant/gated/{by}{format}/m{m}")).within(CLOSE);
    let columns = first.block_len().max(64);
    let x = rows(&mut b, "x", Dim::from(m), m, columns);
    let [gate, up] = ["gate", "up"].map(|name| {
        let w = b.weight(name, &[n, columns], first);
        b.op(INT8, &[x, w])
    });
    let gate = b.op(Op::Unary(UnaryOp::Relu), &[gate]);
    let little = b.op(Op::Binary(BinaryOp::Mul), &[gate, up]);
    let by = little_of(columns);
    let little = times(&mut b, little, by * by / LITTLE / 10.0);
    let base = rows(&mut b, "base", Dim::from(m), m, n);
    let y = b.op(Op::Binary(BinaryOp::Add), &[base, little]);
    let w = b.weight("down", &[40, n], format);
    let y = b.op(INT8, &[y, w]);
    b.done(y)
}

/// Builds a case with attention of `m` tokens over one key, and a product of its result.
fn attention(format: Format, head_dim: u64, m: u64) -> Case {
    let heads = (format.block_len() / head_dim).max(columns(m).div_ceil(head_dim));
    let mut b =
        Build::new(format!("int8/fused_quant/attention/{format}/{head_dim}d_m{m}")).within(CLOSE);
    let q = b.f32("q", [m, heads, head_dim]);
    let k = b.f32("k", [1, heads, head_dim]);
    let value = row(&b, "v", heads * head_dim);
    let v = b.input("v", Shape::new([1, heads, head_dim]), Data::F32(value));
    let y = b.op(Op::attention(0.125, false, None, Dim::new(0)), &[q, k, v]);
    let shape = Shape::new([m, heads * head_dim]);
    let y = b.op(Op::Reshape(shape), &[y]);
    let w = b.weight("output", &[33, heads * head_dim], format);
    let y = b.op(INT8, &[y, w]);
    b.done(y)
}

pub(super) fn add(table: &mut Vec<Case>) {
    // A partial step of 1,024 columns, or more steps than a thread's unrolled iterations.
    for n in [2304, 5120, 9216] {
        table.push(residual_of(Format::Q4_0, &[Format::Q4K], true, [1, n]));
    }
    for n in [2304, 5120] {
        table.push(residual_of(Format::Q4_0, &[Format::Q8_0x8, Format::Q4_0x8], true, [1, n]));
    }
    for n in [2048, 6144] {
        table.push(residual_of(Format::Q4_0, &[Format::Q6Kx8, Format::Q4K], true, [1, n]));
    }
    // Iterations of 512 columns per subgroup: a half last one, whole ones, and a model's row
    // length.
    for n in [2304, 2560, 6912] {
        table.push(residual_of(Format::Q4_0, &[Format::TQ2_0], n == 2560, [1, n]));
    }
    table.push(residual_of(Format::Q4_0, &[Format::TQ2_0, Format::Q4K], true, [1, 2304]));
    // Tiles of eight rows: a partial one; a full and a partial one.
    for m in [3, 11] {
        for norm in [false, true] {
            table.push(residual_of(Format::Q4K, &[Format::Q4K], norm, [m, 768]));
        }
    }
    table.push(residual_of(Format::Q6Kx8, &[Format::Q6Kx8, Format::Q4K], true, [11, 2048]));
    table.push(gated_by(Format::Q4K, Format::Q4K, 3));
    table.push(gated_by(Format::Q4K, Format::Q6Kx8, 11));
    for m in [1, 3, 8] {
        for format in [Format::Q4_0, Format::Q8_0, Format::Q4K, Format::Q6K, Format::TQ2_0] {
            table.push(residual(&[format], false, m));
            table.push(residual(&[format], true, m));
        }
        // These formats traverse columns in different orders; with three, one product gets no fused
        // quantised rows.
        table.push(residual(&[Format::Q4K, Format::Q6K], true, m));
        table.push(residual(&[Format::Q8_0, Format::IQ4XS, Format::Q2K], true, m));
        table.push(gated(Format::Q4_0, m));
        table.push(gated(Format::Q6K, m));
        table.push(gated(Format::TQ2_0, m));
        for head_dim in [32, 80, 128] {
            table.push(attention(Format::Q5_0, head_dim, m));
        }
        table.push(attention(Format::Q4K, 64, m));
    }
}
