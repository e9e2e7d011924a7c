//! Operands that are not contiguous in memory, and views as results.

use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{Dim, Shape};
use warploom_core::ir::{BinaryOp, NodeId, Op, ReduceOp, UnaryOp};

type View = fn(&mut Build, NodeId) -> NodeId;

/// Views of a tensor `[6, 10, 8]`.
const VIEWS: [(&str, View); 13] = [
    ("slice_first", |b, x| b.slice(x, 0, 2, 3, 1)),
    ("slice_last", |b, x| b.slice(x, 2, 3, 5, 1)),
    ("slice_step", |b, x| b.slice(x, 1, 1, 4, 2)),
    ("slice_last_step", |b, x| b.slice(x, 2, 1, 3, 3)),
    ("slice_nothing", |b, x| b.slice(x, 1, 10, 0, 1)),
    ("transpose_last", |b, x| b.transpose(x, &[0, 2, 1])),
    ("transpose_all", |b, x| b.transpose(x, &[2, 1, 0])),
    ("heads_first", |b, x| b.transpose(x, &[1, 0, 2])),
    ("slice_of_transpose", |b, x| {
        let x = b.transpose(x, &[2, 0, 1]);
        b.slice(x, 0, 1, 4, 2)
    }),
    ("transpose_of_slice_of_slice", |b, x| {
        let x = b.slice(x, 1, 1, 5, 2);
        let x = b.slice(x, 1, 1, 2, 2);
        b.transpose(x, &[1, 2, 0])
    }),
    ("split_axis_of_slice", |b, x| {
        let x = b.slice(x, 0, 1, 4, 1);
        b.op(Op::Reshape(Shape::new([4, 5, 2, 8])), &[x])
    }),
    ("reshape_of_transpose", |b, x| {
        // Not expressible with strides: needs a copy.
        let x = b.transpose(x, &[1, 0, 2]);
        b.op(Op::Reshape(Shape::new([60, 8])), &[x])
    }),
    ("expand_of_slice", |b, x| {
        let x = b.slice(x, 1, 4, 1, 1);
        b.op(Op::Expand(Shape::new([2, 6, 7, 8])), &[x])
    }),
];

pub(super) fn add(table: &mut Vec<Case>) {
    for (name, view) in VIEWS {
        let make = |what: &str, tolerance| {
            let mut b = Build::new(format!("views/{name}/{what}")).within(tolerance);
            let x = b.f32("x", [6, 10, 8]);
            let v = view(&mut b, x);
            (b, v)
        };
        let (b, v) = make("itself", Tolerance::EXACT);
        table.push(b.done(v));
        let (mut b, v) = make("unary", Tolerance::EXACT);
        let y = b.unary(UnaryOp::Neg, v);
        table.push(b.done(y));
        let (mut b, v) = make("binary", Tolerance::relative(1e-6));
        let shape = b.shape(v).dims().to_vec();
        let other = b.f32("other", shape);
        let y = b.op(Op::Binary(BinaryOp::Sub), &[other, v]);
        table.push(b.done(y));
        let (mut b, v) = make("sum", Tolerance::product(10));
        let axes = vec![b.shape(v).rank() - 1];
        let y = b.op(Op::Reduce { op: ReduceOp::Sum, axes, keep: false }, &[v]);
        table.push(b.done(y));
    }
    symbolic(table);
    expands(table);
}

/// Adds cases with symbolic sizes: the last row of a sequence, every second row, and merged heads.
fn symbolic(table: &mut Vec<Case>) {
    for n in [2, 5, 64] {
        let mut b = Build::new(format!("views/last_row/seq{n}"));
        let seq = b.symbol("seq", n);
        let x = b.f32("x", [seq.clone(), Dim::new(33)]);
        let last = b.slice(x, 0, seq.clone() - Dim::new(1), 1, 1);
        let y = b.unary(UnaryOp::Neg, last);
        table.push(b.done(y));
        let mut b = Build::new(format!("views/every_other_row/seq{n}"));
        let seq = b.symbol("seq", n);
        let x = b.f32("x", [seq.clone(), Dim::new(3)]);
        let y = b.slice(x, 0, 0, seq.ceil_div(&Dim::new(2)), 2);
        table.push(b.done(y));
        let mut b = Build::new(format!("views/merge_heads/seq{n}"));
        let seq = b.symbol("seq", n);
        let x = b.f32("x", [3.into(), seq.clone(), Dim::new(4)]);
        let x = b.transpose(x, &[1, 0, 2]);
        let y = b.op(Op::Reshape(Shape::new([seq, 12.into()])), &[x]);
        table.push(b.done(y));
    }
}

fn expands(table: &mut Vec<Case>) {
    let rows: [(&str, &[u64], &[u64]); 4] = [
        ("scalar", &[], &[3, 5]),
        ("rows", &[5], &[3, 5]),
        ("columns", &[3, 1], &[3, 5]),
        ("nothing", &[1, 5], &[0, 5]),
    ];
    for (name, from, to) in rows {
        let mut b = Build::new(format!("expand/{name}"));
        let x = b.f32("x", from.iter().copied());
        let y = b.op(Op::Expand(Shape::new(to.iter().copied())), &[x]);
        table.push(b.done(y));
    }
    let mut b = Build::new("expand/of_constant");
    let x = b.constant(&[3, 1], &[1.0, -2.0, 3.5]);
    let y = b.op(Op::Expand(Shape::new([3, 4])), &[x]);
    table.push(b.done(y));
}
