//! Products with weights: every format at every row count at which kernels switch.

use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{Dim, Format, Shape};
use warploom_core::ir::Op;

/// Builds a case with x `[m, k]` and a weight `[n, k]`.
fn linear(name: &str, format: Format, m: u64, n: u64, k: u64) -> Case {
    let mut b =
        Build::new(format!("linear/{}/{name}", format.name())).within(Tolerance::product(k));
    let x = b.f32("x", [m, k]);
    let w = b.weight("w", &[n, k], format);
    let y = b.op(Op::linear(), &[x, w]);
    b.done(y)
}

pub(super) fn add(table: &mut Vec<Case>) {
    for format in Format::ALL {
        let block = format.block_len();
        // Several blocks, but not a power of two.
        let k = if block > 32 { 768 } else { 160 };
        // Block formats differ only in decoding, which a few row counts cover.
        let every = !format.is_quantised() || EVERY_ROW_COUNT.contains(&format);
        let rows: &[u64] = if every { &[1, 2, 5, 9, 33, 65] } else { &[1, 3, 40] };
        for m in rows {
            table.push(linear(&format!("m{m}"), format, *m, 37, k));
        }
        table.push(linear("one_block", format, 3, 1, block));
        table.push(gapped(format));
        if every {
            table.push(linear("wide", format, 1, 259, 2 * block.max(64)));
            table.push(linear("long", format, 2, 5, 4096));
            table.push(linear("no_rows", format, 0, 5, block));
        }
    }
    for m in [1, 3, 40] {
        table.push(linear(&format!("m{m}"), Format::Q6Kx8, m, 37, 4096));
        table.push(linear(&format!("m{m}"), Format::Q8_0x2, m, 37, 576));
        table.push(linear(&format!("m{m}"), Format::Q8_0x8, m, 37, 768));
        table.push(linear(&format!("m{m}"), Format::Q4_0x8, m, 37, 768));
    }
    for k in [1, 3, 31, 33, 127, 129] {
        for format in &Format::ALL[..3] {
            table.push(linear(&format!("k{k}"), *format, 3, 31, k));
        }
    }
    for m in [1, 129] {
        table.push(linear(&format!("many_columns_m{m}"), Format::Q8_0, m, 70_001 / m, 32));
    }
    table.push(linear("nothing_to_sum", Format::F32, 3, 5, 0));
    leading(table);
    for format in [Format::F32, Format::Q4_0, Format::Q6K, Format::MXFP4, Format::TQ2_0] {
        table.push(merged(format));
        table.extend([1, 9].map(|m| query_key_value(m, format)));
    }
}

/// Formats that represent all block formats at the row counts at which kernels switch.
const EVERY_ROW_COUNT: [Format; 5] =
    [Format::Q4_0, Format::Q4_1, Format::Q8_0, Format::Q4K, Format::Q6K];

/// Builds a case with merged weights, one of which is also read separately.
fn merged(format: Format) -> Case {
    let k = format.block_len().max(64);
    let mut b = Build::new(format!("linear/merged/{format}")).within(Tolerance::product(k));
    let x = b.f32("x", [3, k]);
    let w = b.merged(&[("a", 8), ("b", 24)], k, format);
    let alone = Op::Weight { name: "b".into(), format };
    let alone = b.leaf(alone, &[24, k]);
    let y = b.op(Op::linear(), &[x, w]);
    let z = b.op(Op::linear(), &[x, alone]);
    b.output("alone", z);
    b.done(y)
}

/// Builds a case with products that a plan may merge, each viewed as heads; the rows of the weights
/// begin at offsets that most devices cannot bind.
fn query_key_value(m: u64, format: Format) -> Case {
    let k = format.block_len().max(64);
    // The outputs are views of products, so no magnitude is available.
    let tolerance = Tolerance { atol: 2e-5, rtol: 1e-6, eps_count: 0.0, nmse: 1e-10 };
    let name = format!("linear/query_key_value/{format}/m{m}");
    let mut b = Build::new(name).within(tolerance);
    let x = b.f32("x", [m, k]);
    for (name, n) in [("q", 24), ("k", 8), ("v", 8)] {
        let w = b.weight(&format!("w{name}"), &[n, k], format);
        let y = b.op(Op::linear(), &[x, w]);
        let y = b.op(Op::Reshape(Shape::new([m, n / 8, 8])), &[y]);
        let y = b.transpose(y, &[1, 0, 2]);
        b.output(name, y);
    }
    b.finish()
}

/// Builds a case with rows of x that have gaps between them, as in a slice of a wider tensor.
fn gapped(format: Format) -> Case {
    let k = 2 * format.block_len().max(16);
    let mut b =
        Build::new(format!("linear/{}/gapped_rows", format.name())).within(Tolerance::product(k));
    let x = b.f32("x", [7, k + 5]);
    let x = b.slice(x, 0, 1, 3, 2);
    let x = b.slice(x, 1, 3, k, 1);
    let w = b.weight("w", &[11, k], format);
    let y = b.op(Op::linear(), &[x, w]);
    b.done(y)
}

fn leading(table: &mut Vec<Case>) {
    let rows: [(&str, &[u64]); 3] =
        [("vector", &[64]), ("rank3", &[2, 3, 64]), ("rank4", &[2, 1, 3, 64])];
    for (name, dims) in rows {
        let mut b = Build::new(format!("linear/{name}")).within(Tolerance::product(64));
        let x = b.f32("x", dims.iter().copied());
        let w = b.weight("w", &[33, 64], Format::Q4_0);
        let y = b.op(Op::linear(), &[x, w]);
        table.push(b.done(y));
    }
    for seq in [1, 2, 8, 9, 64, 70] {
        let mut b = Build::new(format!("linear/symbol/seq{seq}")).within(Tolerance::product(256));
        let seq = b.symbol("seq", seq);
        let x = b.f32("x", [seq, Dim::new(256)]);
        let w = b.weight("w", &[33, 256], Format::Q4K);
        let y = b.op(Op::linear(), &[x, w]);
        table.push(b.done(y));
    }
    let mut b = Build::new("linear/transposed_x").within(Tolerance::product(64));
    let x = b.f32("x", [64, 3]);
    let x = b.transpose(x, &[1, 0]);
    let w = b.weight("w", &[5, 64], Format::Q8_0);
    let y = b.op(Op::linear(), &[x, w]);
    table.push(b.done(y));
    // One normalised row read by three products in different formats, like q, k and v.
    let mut b = Build::new("linear/three_of_one").within(Tolerance::product(256));
    let x = b.f32("x", [1, 256]);
    for (name, n, format) in
        [("q", 96, Format::Q4K), ("k", 32, Format::Q4K), ("v", 32, Format::Q6K)]
    {
        let w = b.weight(&format!("w{name}"), &[n, 256], format);
        let y = b.op(Op::linear(), &[x, w]);
        b.output(name, y);
    }
    table.push(b.finish());
}
