//! States that are written at symbolic offsets or in chains, and read through views.

use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{Dim, Format, Shape};
use warploom_core::ir::{NodeId, Op, UnaryOp};
use warploom_core::reference::Data;

const CLOSE: Tolerance = Tolerance { atol: 2e-5, rtol: 2e-5, eps_count: 0.0, nmse: 1e-7 };

fn update(b: &mut Build, at: impl Into<Dim>, state: NodeId, src: NodeId) -> NodeId {
    b.op(Op::Update { at: at.into() }, &[state, src])
}

pub(super) fn add(table: &mut Vec<Case>) {
    for (at, rows) in [(0, 1), (7, 1), (2, 3), (0, 8), (8, 0)] {
        let mut b = Build::new(format!("update/at{at}_rows{rows}"));
        let state = b.state("state", &[8, 5]);
        let src = b.f32("src", [rows, 5]);
        let y = update(&mut b, at, state, src);
        table.push(b.done(y));
    }
    for (past, seq) in [(0, 1), (0, 5), (4, 1), (9, 3), (15, 1)] {
        table.push(symbolic(past, seq));
        table.push(cached_attention(past, seq));
    }
    for (name, rows) in
        [("one", &[2][..]), ("some", &[7, 0, 3]), ("outside", &[8, 1, -1, 1 << 20]), ("none", &[])]
    {
        table.push(scattered(name, rows));
    }
    table.extend([
        scattered_heads(),
        chain(),
        two_states(),
        read_before(),
        strided_source(),
        unread(),
        untouched(),
    ]);
}

fn symbolic(past: u64, seq: u64) -> Case {
    let mut b = Build::new(format!("update/symbol/past{past}_seq{seq}"));
    let (past, seq) = (b.symbol("past", past), b.symbol("seq", seq));
    let state = b.state("state", &[16, 3, 2]);
    let src = b.f32("src", [seq.clone(), Dim::new(3), Dim::new(2)]);
    let new = update(&mut b, past.clone(), state, src);
    let seen = b.slice(new, 0, 0, past + seq, 1);
    let y = b.unary(UnaryOp::Neg, seen);
    b.done(y)
}

/// Builds a case with a KV cache: keys and values are written and read back, as in a decoder.
fn cached_attention(past: u64, seq: u64) -> Case {
    let mut b = Build::new(format!("update/attention/past{past}_seq{seq}")).within(CLOSE);
    let (past, seq) = (b.symbol("past", past), b.symbol("seq", seq));
    let dims = |heads: i64| [seq.clone(), Dim::new(heads), Dim::new(32)];
    let (q, k, v) = (b.f32("q", dims(6)), b.f32("k", dims(2)), b.f32("v", dims(2)));
    let (keys, values) = (b.state("keys", &[16, 2, 32]), b.state("values", &[16, 2, 32]));
    let keys = update(&mut b, past.clone(), keys, k);
    let values = update(&mut b, past.clone(), values, v);
    let seen = past.clone() + seq.clone();
    let (k, v) = (b.slice(keys, 0, 0, seen.clone(), 1), b.slice(values, 0, 0, seen, 1));
    let op = Op::attention(0.2, true, None, past);
    let y = b.op(op, &[q, k, v]);
    b.done(y)
}

/// Builds a case with a state that is written three times, with reads in between; the third write
/// overlaps the first.
fn chain() -> Case {
    let mut b = Build::new("update/chain");
    let state = b.zero_state("state", &[6, 3]);
    let (one, two) = (b.f32("one", [2, 3]), b.f32("two", [3, 3]));
    let first = update(&mut b, 0, state, one);
    let between = b.unary(UnaryOp::Neg, first);
    let second = update(&mut b, 3, first, two);
    let view = b.slice(second, 0, 1, 3, 2);
    // The view may not be read after the third update, but its copy may.
    let copy = b.unary(UnaryOp::Neg, view);
    let third = update(&mut b, 1, second, one);
    b.output("between", between);
    b.output("copy", copy);
    b.done(third)
}

fn two_states() -> Case {
    let tolerance = Tolerance { nmse: 1e-6, ..Tolerance::absolute(1e-4) };
    let mut b = Build::new("update/two_states").within(tolerance);
    let (s, t) = (b.zero_state("s", &[4, 8]), b.state("t", &[4, 8]));
    let x = b.f32("x", [1, 32]);
    let w = b.weight("w", &[8, 32], Format::Q8_0);
    let y = b.op(Op::linear(), &[x, w]);
    update(&mut b, 1, s, y);
    update(&mut b, 3, t, y);
    b.done(y)
}

/// Builds a case that reads the previous contents of a state, then overwrites it.
fn read_before() -> Case {
    let mut b = Build::new("update/read_before").note("the reader must come first");
    let state = b.state("state", &[4, 3]);
    let x = b.f32("x", [4, 3]);
    let old = b.unary(UnaryOp::Neg, state);
    update(&mut b, 0, state, x);
    b.done(old)
}

fn strided_source() -> Case {
    let mut b = Build::new("update/strided_source");
    let state = b.zero_state("state", &[7, 4]);
    let x = b.f32("x", [4, 10]);
    let x = b.transpose(x, &[1, 0]);
    let x = b.slice(x, 0, 1, 3, 3);
    let y = update(&mut b, 2, state, x);
    b.done(y)
}

/// Builds a case whose state is the only result.
fn unread() -> Case {
    let mut b = Build::new("update/no_output");
    let state = b.zero_state("state", &[4, 3]);
    let x = b.f32("x", [2, 3]);
    let x = b.unary(UnaryOp::Relu, x);
    update(&mut b, 1, state, x);
    b.finish()
}

fn untouched() -> Case {
    let mut b = Build::new("update/only_read");
    let state = b.state("state", &[4, 3]);
    let y = b.unary(UnaryOp::Neg, state);
    b.done(y)
}

/// Builds a case that writes rows of a state at these indices; those out of range are dropped.
fn scattered(name: &str, rows: &[i32]) -> Case {
    let mut b = Build::new(format!("scatter/{name}"));
    let state = b.state("state", &[8, 5]);
    let src = b.f32("src", [rows.len() as u64, 5]);
    let rows = b.input("rows", Shape::new([rows.len() as u64]), Data::I32(rows.to_vec()));
    let y = b.op(Op::Scatter, &[state, src, rows]);
    b.done(y)
}

/// Builds a case with keys of several sequences, each a slice of a product's row, that are written
/// to a table and read there.
fn scattered_heads() -> Case {
    let mut b = Build::new("scatter/heads_of_a_product").within(CLOSE);
    let state = b.state("state", &[12, 2, 300]);
    let seq = b.symbol("seq", 3);
    let x = b.f32("x", [seq.clone(), 64.into()]);
    let w = b.weight("w", &[1300, 64], Format::Q8_0);
    let y = b.op(Op::linear(), &[x, w]);
    let y = b.slice(y, 1, 100, 600, 1);
    let y = b.op(Op::Reshape(Shape::new([seq.clone(), 2.into(), 300.into()])), &[y]);
    let rows = b.input("rows", Shape::new([seq]), Data::I32(vec![11, 4, 0]));
    let y = b.op(Op::Scatter, &[state, y, rows]);
    let y = b.unary(UnaryOp::Neg, y);
    b.done(y)
}
