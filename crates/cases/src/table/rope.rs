//! Rotary position embedding: both pair orders, partially rotated heads and large positions.

use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{Dim, Format, Shape};
use warploom_core::ir::{BinaryOp, NodeId, Op, RopePairs};
use warploom_core::reference::Data;

/// Returns the tolerance for positions up to `last_position`: an angle has a relative error of
/// about 1e-7, so the error grows with the position.
fn within(last_position: i32) -> Tolerance {
    let atol = 1e-5 + 4e-6 * f64::from(last_position);
    Tolerance { nmse: 1e-6, ..Tolerance::absolute(atol) }
}

/// Adds the frequencies `10000^(-2j / rot_dim)`, as in models.
fn frequencies(b: &mut Build, rot_dim: usize) -> NodeId {
    let values: Vec<f32> =
        (0..rot_dim / 2).map(|j| 10_000f64.powf(-2.0 * j as f64 / rot_dim as f64) as f32).collect();
    b.f32_row("frequencies", &values)
}

fn rope(name: &str, pairs: RopePairs, dims: [u64; 3], rot_dim: usize, first: i32) -> Case {
    let positions: Vec<i32> = (0..dims[0] as i32).map(|t| first + t).collect();
    let last = first + dims[0] as i32;
    let order = if pairs == RopePairs::Half { "half" } else { "interleaved" };
    let mut b = Build::new(format!("rope/{order}/{name}")).within(within(last));
    let x = b.f32("x", dims);
    let positions = b.i32_row("positions", &positions);
    let f = frequencies(&mut b, rot_dim);
    let y = b.op(Op::Rope { pairs, rot_dim }, &[x, positions, f]);
    b.done(y)
}

pub(super) fn add(table: &mut Vec<Case>) {
    for pairs in [RopePairs::Interleaved, RopePairs::Half] {
        table.push(rope("decode", pairs, [1, 9, 64], 64, 37));
        table.push(rope("first_token", pairs, [1, 3, 64], 64, 0));
        table.push(rope("prefill", pairs, [19, 3, 64], 64, 0));
        table.push(rope("partial", pairs, [5, 4, 80], 32, 3));
        table.push(rope("two_elements", pairs, [3, 1, 2], 2, 1));
        table.push(rope("nothing_turns", pairs, [3, 2, 8], 0, 1));
        table.push(rope("head256", pairs, [2, 2, 256], 256, 11));
        table.push(rope("far_out", pairs, [2, 2, 64], 64, 4000));
        table.push(rope("no_tokens", pairs, [0, 2, 64], 64, 0));
        table.push(rope("many_tokens", pairs, [300, 1, 16], 16, 0));
        table.extend([1, 6].map(|seq| symbolic(pairs, seq)));
        table.push(slice_of_qkv(pairs));
        for seq in [1, 5] {
            table.push(of_a_biased_product(pairs, seq, false));
            table.push(of_a_biased_product(pairs, seq, true));
        }
    }
    table.push(any_positions());
}

/// Builds a case whose positions are data: the graph is the same for any position of the sequence.
fn symbolic(pairs: RopePairs, seq: u64) -> Case {
    let order = if pairs == RopePairs::Half { "half" } else { "interleaved" };
    let mut b = Build::new(format!("rope/{order}/symbol/seq{seq}")).within(within(40));
    let size = b.symbol("seq", seq);
    let x = b.f32("x", [size.clone(), Dim::new(3), Dim::new(32)]);
    let positions = (0..seq as i32).map(|t| 30 + t).collect();
    let positions = b.input("positions", Shape::new([size]), Data::I32(positions));
    let f = frequencies(&mut b, 32);
    let y = b.op(Op::Rope { pairs, rot_dim: 32 }, &[x, positions, f]);
    b.done(y)
}

/// Builds a case that rotates a slice of columns, as of a product of queries, keys and values.
fn slice_of_qkv(pairs: RopePairs) -> Case {
    let order = if pairs == RopePairs::Half { "half" } else { "interleaved" };
    let mut b = Build::new(format!("rope/{order}/slice_of_qkv")).within(within(8));
    let x = b.f32("x", [4, 5 * 32]);
    let x = b.slice(x, 1, 32, 96, 1);
    let x = b.op(Op::Reshape(Shape::new([4, 3, 32])), &[x]);
    let positions = b.i32_row("positions", &[4, 5, 6, 7]);
    let f = frequencies(&mut b, 32);
    let y = b.op(Op::Rope { pairs, rot_dim: 32 }, &[x, positions, f]);
    b.done(y)
}

/// Builds a case that rotates a product with bias; if `read` is set, another operation reads the
/// unrotated result.
fn of_a_biased_product(pairs: RopePairs, seq: u64, read: bool) -> Case {
    let order = if pairs == RopePairs::Half { "half" } else { "interleaved" };
    let also = if read { "_read" } else { "" };
    let mut b =
        Build::new(format!("rope/{order}/of_a_biased_product{also}/seq{seq}")).within(within(40));
    let size = b.symbol("seq", seq);
    let x = b.f32("x", [size.clone(), Dim::new(64)]);
    let w = b.weight("w", &[96, 64], Format::Q8_0);
    let bias = b.weight("bias", &[96], Format::F32);
    let biased = b.op(Op::linear(), &[x, w]);
    let biased = b.op(Op::Binary(BinaryOp::Add), &[biased, bias]);
    let heads = Shape::new([size.clone(), Dim::new(3), Dim::new(32)]);
    let heads = b.op(Op::Reshape(heads), &[biased]);
    let positions = (0..seq as i32).map(|t| 30 + t).collect();
    let positions = b.input("positions", Shape::new([size]), Data::I32(positions));
    let f = frequencies(&mut b, 32);
    let y = b.op(Op::Rope { pairs, rot_dim: 32 }, &[heads, positions, f]);
    if read {
        b.output("biased", biased);
    }
    b.done(y)
}

/// Builds a case with positions that are non-consecutive, repeated or negative.
fn any_positions() -> Case {
    let mut b = Build::new("rope/any_positions").within(within(20));
    let x = b.f32("x", [5, 2, 16]);
    let positions = b.i32_row("positions", &[9, 0, 9, -3, 20]);
    let f = frequencies(&mut b, 16);
    let y = b.op(Op::Rope { pairs: RopePairs::Half, rot_dim: 16 }, &[x, positions, f]);
    b.done(y)
}
