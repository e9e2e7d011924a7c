//! Reductions over every choice of axes, argmax with ties, and softmax with infinities.

use super::MANY;
use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{Dim, Shape};
use warploom_core::ir::{Op, ReduceOp};
use warploom_core::reference::Data;

const SOFTMAX: Tolerance = Tolerance { atol: 1e-7, rtol: 2e-5, eps_count: 0.0, nmse: 1e-7 };

pub(super) fn add(table: &mut Vec<Case>) {
    reductions(table);
    integers(table);
    argmax(table);
    softmax(table);
}

fn reduce(name: &str, op: ReduceOp, dims: &[u64], axes: &[usize], keep: bool) -> Case {
    let count = axes.iter().map(|axis| dims[*axis]).product::<u64>();
    let tolerance = match op {
        ReduceOp::Sum | ReduceOp::Mean => Tolerance::product(count),
        ReduceOp::Prod => Tolerance::relative(1e-5),
        ReduceOp::Max | ReduceOp::Min => Tolerance::EXACT,
    };
    let mut b = Build::new(format!("reduce/{}/{name}", op.name())).within(tolerance);
    let x = match op {
        // A product of many numbers overflows or underflows unless they are near 1.
        ReduceOp::Prod => {
            let values = b.random("x").evenly(dims.iter().product::<u64>() as usize, -1.1, -0.9);
            b.input("x", Shape::new(dims.iter().copied()), Data::F32(values))
        }
        _ => b.f32("x", dims.iter().copied()),
    };
    let y = b.op(Op::Reduce { op, axes: axes.to_vec(), keep }, &[x]);
    b.done(y)
}

/// Reductions of integers, whose sums and products wrap, over each axis and over empty ones.
fn integers(table: &mut Vec<Case>) {
    let scattered = |i: u32| i.wrapping_mul(2_654_435_761);
    for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min] {
        for (dims, axes) in [
            ([5, 300, 1], vec![1]),
            ([4, 33, 6], vec![0]),
            ([3, 9, 4], vec![0, 2]),
            ([2, 0, 3], vec![1]),
            ([2, 3, 2], vec![0, 1, 2]),
        ] {
            let count = dims.iter().product::<u64>() as u32;
            let name = |dtype: &str| format!("reduce/{}/{dtype}_{dims:?}_{axes:?}", op.name());
            let reduce = Op::Reduce { op, axes: axes.clone(), keep: false };
            let mut b = Build::new(name("i32"));
            let values = (0..count).map(|i| scattered(i) as i32).collect();
            let x = b.input("x", Shape::new(dims), Data::I32(values));
            let y = b.op(reduce.clone(), &[x]);
            table.push(b.done(y));
            // The least of nothing has all bits set, as memory that was never written may have: of
            // one element instead.
            let dims = if op == ReduceOp::Min { dims.map(|n| n.max(1)) } else { dims };
            let count = dims.iter().product::<u64>() as u32;
            let mut b = Build::new(name("u32"));
            let x = b.input("x", Shape::new(dims), Data::U32((1..=count).map(scattered).collect()));
            let y = b.op(reduce, &[x]);
            table.push(b.done(y));
        }
    }
}

fn reductions(table: &mut Vec<Case>) {
    for op in ReduceOp::ALL {
        table.push(reduce("last", op, &[5, 33], &[1], false));
        table.push(reduce("first", op, &[33, 5], &[0], true));
        table.push(reduce("middle", op, &[3, 31, 4], &[1], false));
        table.push(reduce("outside", op, &[7, 4, 9], &[0, 2], false));
        table.push(reduce("all", op, &[3, 5, 9], &[0, 1, 2], false));
        if op != ReduceOp::Mean {
            table.push(reduce("nothing", op, &[3, 0], &[1], false));
        }
    }
    for n in [1, 3, 127, 129, 256, 1000, 5000] {
        table.push(reduce(&format!("n{n}"), ReduceOp::Sum, &[2, n], &[1], true));
        table.push(reduce(&format!("n{n}"), ReduceOp::Max, &[n], &[0], false));
    }
    table.push(reduce("no_rows", ReduceOp::Sum, &[0, 5], &[1], false));
    table.push(reduce("no_axes", ReduceOp::Sum, &[3, 5], &[], false));
    table.push(reduce("many_rows", ReduceOp::Sum, &[MANY, 2], &[1], false));
    table.push(reduce("many_in_a_row", ReduceOp::Mean, &[1, MANY], &[1], false));
    for seq in [1, 6] {
        let mut b =
            Build::new(format!("reduce/mean/symbol/seq{seq}")).within(Tolerance::product(8));
        let seq = b.symbol("seq", seq);
        let x = b.f32("x", [3.into(), seq, Dim::new(5)]);
        let op = Op::Reduce { op: ReduceOp::Mean, axes: vec![1], keep: false };
        let y = b.op(op, &[x]);
        table.push(b.done(y));
    }
}

fn argmax(table: &mut Vec<Case>) {
    for n in [1, 2, 31, 129, 1000, 49_152] {
        let mut b = Build::new(format!("argmax/n{n}"));
        let x = b.f32("x", [2, n]);
        let y = b.op(Op::ArgMax, &[x]);
        table.push(b.done(y));
    }
    // Rows of 600 with their maximum at these indices; the lowest index wins.
    let low = f32::NEG_INFINITY;
    let rows: [(f32, &[usize]); 6] = [
        (-5.0, &[599]),
        (-5.0, &[300, 301]),
        (0.0, &[0, 599]),
        (-1e30, &[511, 512, 255]),
        (low, &[]),
        (low, &[257]),
    ];
    let mut values = Vec::new();
    for (rest, places) in rows {
        values.extend((0..600).map(|i| if places.contains(&i) { 1.0 } else { rest }));
    }
    let mut b = Build::new("argmax/ties").note("the lowest of equals; a row of -inf gives 0");
    let x = b.input("x", Shape::new([6, 600]), Data::F32(values));
    let y = b.op(Op::ArgMax, &[x]);
    table.push(b.done(y));
    // Enough columns to be split into slices, with ties across slices.
    let mut values: Vec<f32> = Vec::new();
    for (rest, places) in
        [(-2.0, &[511usize, 512, 2047][..]), (low, &[]), (0.0, &[1024]), (low, &[1535])]
    {
        values.extend((0..2048).map(|i| if places.contains(&i) { 1.0 } else { rest }));
    }
    let mut b =
        Build::new("argmax/ties_of_slices").note("the lowest of equals; a row of -inf gives 0");
    let x = b.input("x", Shape::new([4, 2048]), Data::F32(values));
    let y = b.op(Op::ArgMax, &[x]);
    table.push(b.done(y));
    let mut b = Build::new("argmax/many_rows");
    let x = b.f32("x", [MANY, 2]);
    let y = b.op(Op::ArgMax, &[x]);
    table.push(b.done(y));
    let mut b = Build::new("argmax/columns").note("rows that are not contiguous");
    let x = b.f32("x", [33, 5]);
    let x = b.transpose(x, &[1, 0]);
    let y = b.op(Op::ArgMax, &[x]);
    table.push(b.done(y));
    let mut b = Build::new("argmax/rank1");
    let x = b.f32("x", [77]);
    let y = b.op(Op::ArgMax, &[x]);
    table.push(b.done(y));
}

fn softmax(table: &mut Vec<Case>) {
    for n in [1, 3, 31, 33, 127, 129, 1000, 3000] {
        let mut b = Build::new(format!("softmax/n{n}")).within(SOFTMAX);
        let x = b.f32("x", [3, n]);
        let y = b.op(Op::Softmax, &[x]);
        table.push(b.done(y));
    }
    let mut b = Build::new("softmax/empty").within(SOFTMAX);
    let x = b.f32("x", [0, 5]);
    let y = b.op(Op::Softmax, &[x]);
    table.push(b.done(y));
    let low = f32::NEG_INFINITY;
    let mut b = Build::new("softmax/infinities").within(SOFTMAX).note("a row of -inf gives zeros");
    let values = vec![low, low, low, low, 0.0, low, 1e4, 1e4, -1e4, -80.0, -81.0, -200.0];
    let x = b.input("x", Shape::new([4, 3]), Data::F32(values));
    let y = b.op(Op::Softmax, &[x]);
    table.push(b.done(y));
    let mut b = Build::new("softmax/many_rows").within(SOFTMAX);
    let x = b.f32("x", [MANY, 2]);
    let y = b.op(Op::Softmax, &[x]);
    table.push(b.done(y));
    let mut b = Build::new("softmax/columns").within(SOFTMAX);
    let x = b.f32("x", [2, 33, 5]);
    let x = b.transpose(x, &[0, 2, 1]);
    let y = b.op(Op::Softmax, &[x]);
    table.push(b.done(y));
}
