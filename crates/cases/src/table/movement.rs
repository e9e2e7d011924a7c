//! Gather, concat, pad, reshape, transpose and slice: exact for every type. And index_add, which
//! adds.

use super::MANY;
use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{Dim, Format, Shape};
use warploom_core::ir::{NodeId, Op, UnaryOp};
use warploom_core::reference::Data;

pub(super) fn add(table: &mut Vec<Case>) {
    gathers(table);
    index_adds(table);
    concats(table);
    pads(table);
    reshapes(table);
    for n in [1, 2, 31, 33, 65] {
        let mut b = Build::new(format!("transpose/{n}x129"));
        let x = b.f32("x", [n, 129]);
        let y = b.transpose(x, &[1, 0]);
        table.push(b.done(y));
    }
    let mut b = Build::new("transpose/rank5");
    let x = b.f32("x", [2, 3, 4, 1, 5]);
    let y = b.transpose(x, &[4, 1, 3, 0, 2]);
    table.push(b.done(y));
}

fn index_adds(table: &mut Vec<Case>) {
    // (rows, rows of the source, columns): odd sizes, more than a workgroup's columns and ids, none.
    for (n, r, columns) in [
        (5, 9, 3),
        (1, 4, 1),
        (3, 2, 257),
        (7, 2049, 2),
        (300, 70, 33),
        (4, 0, 3),
        (0, 3, 2),
        (3, 4, 0),
    ] {
        let mut b = Build::new(format!("index_add/{n}x{columns}_{r}"))
            .within(Tolerance { atol: 1e-4, ..Tolerance::relative(1e-5) });
        let x = b.f32("x", [n, columns]);
        let source = b.f32("source", [r, columns]);
        // Some rows get several, some none; every seventh id lies outside.
        let id = |i: i32| {
            if i % 7 == 6 { [-1, n][i as usize % 2] } else { i * 5 % n.max(1) }
        };
        let ids: Vec<i32> = (0..r).map(id).collect();
        let ids = b.i32_row("ids", &ids);
        let y = b.op(Op::IndexAdd, &[x, source, ids]);
        table.push(b.done(y));
    }
    let mut b = Build::new("index_add/u32_ids_rank3").within(Tolerance::relative(1e-5));
    let x = b.f32("x", [4, 2, 3]);
    let source = b.f32("source", [3, 2, 3]);
    let ids = b.input("ids", Shape::new([3]), Data::U32(vec![3, u32::MAX, 0]));
    let y = b.op(Op::IndexAdd, &[x, source, ids]);
    table.push(b.done(y));
    let mut b = Build::new("index_add/views").within(Tolerance::relative(1e-5));
    let x = b.f32("x", [3, 5]);
    let x = b.transpose(x, &[1, 0]);
    let source = b.f32("source", [3, 4]);
    let source = b.transpose(source, &[1, 0]);
    let ids = b.i32_row("ids", &[4, 1, 4, 0]);
    let y = b.op(Op::IndexAdd, &[x, source, ids]);
    let y = b.op(Op::Unary(UnaryOp::Neg), &[y]);
    table.push(b.done(y));
}

fn gathers(table: &mut Vec<Case>) {
    for format in Format::ALL.into_iter().chain(Format::KEPT) {
        let n = 2 * format.block_len().max(24);
        // Dequantisation takes one or two multiplications, which may be fused.
        let tolerance = if format.is_quantised() && format.block_len() > 1 {
            Tolerance { atol: 2e-6, ..Tolerance::relative(1e-6) }
        } else {
            Tolerance::EXACT
        };
        let mut b = Build::new(format!("gather/{}", format.name())).within(tolerance);
        let x = b.weight("table", &[11, n], format);
        let ids = b.i32_row("ids", &[3, 0, 10, 3, 7]);
        let y = b.op(Op::Gather { axis: 0 }, &[x, ids]);
        table.push(b.done(y));
    }
    let ids = |b: &mut Build, dims: &[u64], values: Vec<u32>| {
        b.input("ids", Shape::new(dims.iter().copied()), Data::U32(values))
    };
    for (axis, last) in [(0, 4), (1, 6), (2, 2)] {
        let mut b = Build::new(format!("gather/axis{axis}"));
        let x = b.f32("x", [5, 7, 3]);
        let ids = ids(&mut b, &[2, 2], vec![1, 0, last, 1]);
        let y = b.op(Op::Gather { axis }, &[x, ids]);
        table.push(b.done(y));
    }
    let mut b = Build::new("gather/outside").note("an id outside the axis gives zeros");
    let x = b.f32("x", [4, 3]);
    let i = b.i32_row("ids", &[0, 4, 3, -1, i32::MIN, i32::MAX, 1]);
    let y = b.op(Op::Gather { axis: 0 }, &[x, i]);
    table.push(b.done(y));
    let mut b = Build::new("gather/outside_packed");
    let x = b.weight("table", &[4, 64], Format::Q4_0);
    let i = b.i32_row("ids", &[0, 4, 3, -1]);
    let y = b.op(Op::Gather { axis: 0 }, &[x, i]);
    table.push(b.within(Tolerance::relative(1e-6)).done(y));
    let mut b = Build::new("gather/no_ids");
    let x = b.f32("x", [4, 3]);
    let i = b.i32_row("ids", &[]);
    let y = b.op(Op::Gather { axis: 0 }, &[x, i]);
    table.push(b.done(y));
    let mut b = Build::new("gather/one_id");
    let x = b.f32("x", [4, 3]);
    let i = ids(&mut b, &[], vec![2]);
    let y = b.op(Op::Gather { axis: 0 }, &[x, i]);
    table.push(b.done(y));
    let mut b = Build::new("gather/i32_rows");
    let x = b.input("x", Shape::new([3, 2]), Data::I32(vec![1, -2, 3, i32::MIN, i32::MAX, 6]));
    let i = ids(&mut b, &[3], vec![2, 0, 1]);
    let y = b.op(Op::Gather { axis: 0 }, &[x, i]);
    table.push(b.done(y));
    let mut b = Build::new("gather/many_ids");
    let x = b.f32("x", [300, 2]);
    let values = (0..MANY as u32).map(|i| i * 7 % 300).collect();
    let i = ids(&mut b, &[MANY], values);
    let y = b.op(Op::Gather { axis: 0 }, &[x, i]);
    table.push(b.done(y));
    for seq in [1, 5] {
        let mut b = Build::new(format!("gather/symbol/seq{seq}"))
            .within(Tolerance { atol: 2e-6, ..Tolerance::relative(1e-6) });
        let size = b.symbol("seq", seq);
        let x = b.weight("table", &[9, 256], Format::Q6K);
        let values = (0..seq as i32).map(|i| i * 5 % 9).collect();
        let i = b.input("ids", Shape::new([size]), Data::I32(values));
        let y = b.op(Op::Gather { axis: 0 }, &[x, i]);
        table.push(b.done(y));
    }
    let mut b = Build::new("gather/columns").note("rows that are not contiguous");
    let x = b.f32("x", [7, 5]);
    let x = b.transpose(x, &[1, 0]);
    let i = b.i32_row("ids", &[4, 1]);
    let y = b.op(Op::Gather { axis: 0 }, &[x, i]);
    table.push(b.done(y));
}

fn concats(table: &mut Vec<Case>) {
    let rows: [(&str, usize, &[&[u64]]); 7] = [
        ("rows", 0, &[&[3, 5], &[1, 5], &[33, 5]]),
        ("columns", 1, &[&[5, 3], &[5, 1], &[5, 31]]),
        ("middle", 1, &[&[2, 3, 4], &[2, 2, 4]]),
        ("one", 0, &[&[3, 5]]),
        ("with_nothing", 0, &[&[0, 5], &[2, 5], &[0, 5]]),
        ("all_nothing", 0, &[&[0, 5], &[0, 5]]),
        ("ten", 0, &[&[1], &[2], &[3], &[4], &[5], &[6], &[7], &[8], &[9], &[10]]),
    ];
    for (name, axis, parts) in rows {
        let mut b = Build::new(format!("concat/{name}"));
        let parts: Vec<NodeId> = parts
            .iter()
            .enumerate()
            .map(|(i, dims)| b.f32(&format!("x{i}"), dims.iter().copied()))
            .collect();
        let y = b.op(Op::Concat { axis }, &parts);
        table.push(b.done(y));
    }
    let mut b = Build::new("concat/halves_turned").note("as rotary positions are spelled");
    let x = b.f32("x", [3, 16]);
    let (low, high) = (b.slice(x, 1, 0, 8, 1), b.slice(x, 1, 8, 8, 1));
    let high = b.unary(UnaryOp::Neg, high);
    let y = b.op(Op::Concat { axis: 1 }, &[high, low]);
    table.push(b.done(y));
    let mut b = Build::new("concat/same_twice");
    let x = b.f32("x", [3, 4]);
    let t = b.transpose(x, &[1, 0]);
    let y = b.op(Op::Concat { axis: 1 }, &[t, t]);
    table.push(b.done(y));
    for past in [0, 6] {
        let mut b = Build::new(format!("concat/symbol/past{past}"));
        let past = b.symbol("past", past);
        let old = b.f32("old", [past, 3.into()]);
        let new = b.f32("new", [2, 3]);
        let y = b.op(Op::Concat { axis: 0 }, &[old, new]);
        table.push(b.done(y));
    }
}

fn pads(table: &mut Vec<Case>) {
    type Amounts = &'static [(u64, u64)];
    let rows: [(&str, &[u64], Amounts, f32); 5] = [
        ("both_sides", &[3, 5], &[(1, 2), (3, 4)], 0.0),
        ("value", &[3, 5], &[(0, 1), (2, 0)], -1.5),
        ("minus_infinity", &[4], &[(2, 2)], f32::NEG_INFINITY),
        ("nothing", &[3, 5], &[(0, 0), (0, 0)], 7.0),
        ("of_nothing", &[0, 2], &[(1, 1), (0, 1)], 3.0),
    ];
    for (name, dims, amounts, value) in rows {
        let mut b = Build::new(format!("pad/{name}"));
        let x = b.f32("x", dims.iter().copied());
        let y = b.op(Op::Pad { amounts: amounts.to_vec(), word: value.to_bits() }, &[x]);
        table.push(b.done(y));
    }
    let mut b = Build::new("pad/image");
    let x = b.f32("x", [2, 3, 5, 7]);
    let amounts = vec![(0, 0), (0, 0), (1, 2), (2, 1)];
    let y = b.op(Op::Pad { amounts, word: 0 }, &[x]);
    table.push(b.done(y));
    let mut b = Build::new("pad/i32_columns");
    let x = b.input("x", Shape::new([2, 3]), Data::I32(vec![1, -2, 3, -4, 5, -6]));
    let x = b.transpose(x, &[1, 0]);
    let word = (-9i32).cast_unsigned();
    let y = b.op(Op::Pad { amounts: vec![(1, 0), (0, 1)], word }, &[x]);
    table.push(b.done(y));
}

fn reshapes(table: &mut Vec<Case>) {
    let rows: [(&str, &[u64], &[u64]); 5] = [
        ("split", &[6, 35], &[2, 3, 5, 7]),
        ("merge", &[2, 3, 5, 7], &[6, 35]),
        ("scalar", &[1, 1], &[]),
        ("ones", &[15], &[1, 3, 1, 5, 1]),
        ("nothing", &[0, 4], &[2, 0, 9]),
    ];
    for (name, from, to) in rows {
        let mut b = Build::new(format!("reshape/{name}"));
        let x = b.f32("x", from.iter().copied());
        let y = b.op(Op::Reshape(Shape::new(to.iter().copied())), &[x]);
        table.push(b.done(y));
    }
    let mut b = Build::new("reshape/there_and_back");
    let seq = b.symbol("seq", 5);
    let x = b.f32("x", [seq.clone(), Dim::new(12)]);
    let y = b.op(Op::Reshape(Shape::new([seq.clone(), Dim::new(3), Dim::new(4)])), &[x]);
    let y = b.transpose(y, &[1, 0, 2]);
    let y = b.transpose(y, &[1, 0, 2]);
    let y = b.op(Op::Reshape(Shape::new([seq, Dim::new(12)])), &[y]);
    table.push(b.done(y));
}
