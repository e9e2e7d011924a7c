//! Sorted indices: rows shorter and longer than what a workgroup sorts, equal elements, special
//! numbers, every type.

use super::MANY;
use crate::build::{Build, Case};
use warploom_core::base::{DType, Dim, Shape};
use warploom_core::ir::Op;
use warploom_core::reference::Data;

pub(super) fn add(table: &mut Vec<Case>) {
    // One, less than a run, a run, two runs, an odd number of them, merges of merges.
    for (rows, n) in
        [(3, 1), (2, 63), (3, 64), (2, 300), (1, 1024), (2, 1025), (1, 2048), (3, 3000), (1, 9001)]
    {
        for descending in [false, true] {
            let name = if descending { "descending" } else { "ascending" };
            let mut b = Build::new(format!("argsort/{name}_{rows}x{n}"));
            let x = b.f32("x", [rows, n]);
            let y = b.op(Op::ArgSort { descending }, &[x]);
            table.push(b.done(y));
        }
    }
    table.push(ties(false));
    table.push(ties(true));
    special(table);
    typed(table);
    let mut b = Build::new("argsort/many_rows");
    let values = (0..MANY * 3).map(|i| (i * 11 % 17) as f32).collect();
    let x = b.input("x", Shape::new([MANY, 3]), Data::F32(values));
    let y = b.op(Op::ArgSort { descending: false }, &[x]);
    table.push(b.done(y));
    let mut b = Build::new("argsort/columns").note("rows that are not contiguous");
    let x = b.f32("x", [1500, 3]);
    let x = b.transpose(x, &[1, 0]);
    let y = b.op(Op::ArgSort { descending: true }, &[x]);
    table.push(b.done(y));
    let mut b = Build::new("argsort/strided").note("rows with gaps, at an offset");
    let x = b.f32("x", [3, 1200]);
    let x = b.slice(x, 1, 7, 1100, 1);
    let y = b.op(Op::ArgSort { descending: false }, &[x]);
    table.push(b.done(y));
    for (rows, n) in [(0, 5), (2, 0)] {
        let mut b = Build::new(format!("argsort/empty_{rows}x{n}"));
        let x = b.f32("x", [rows, n]);
        let y = b.op(Op::ArgSort { descending: false }, &[x]);
        table.push(b.done(y));
    }
    for n in [13, 1100] {
        let mut b = Build::new(format!("argsort/symbol_{n}"));
        let s = b.symbol("n", n);
        let x = b.f32("x", [Dim::new(2), s]);
        let y = b.op(Op::ArgSort { descending: true }, &[x]);
        table.push(b.done(y));
    }
}

/// Equal elements stay in the order of their columns, also across runs.
fn ties(descending: bool) -> Case {
    let mut b = Build::new(format!("argsort/ties_{descending}")).note("few different elements");
    let values = (0..2 * 2500_u64).map(|i| (i * 7 % 5) as f32 - 2.0).collect();
    let x = b.input("x", Shape::new([2, 2500]), Data::F32(values));
    let y = b.op(Op::ArgSort { descending }, &[x]);
    b.done(y)
}

fn special(table: &mut Vec<Case>) {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for descending in [false, true] {
        let mut b = Build::new(format!("argsort/special_{descending}"))
            .note("equal elements, infinities, NaN, zeros of both signs");
        let values = vec![1.0, nan, 1.0, inf, -inf, -nan, -0.0, 0.0, 1.0, 2.0, 2.0, -inf];
        let x = b.input("x", Shape::new([2, 6]), Data::F32(values));
        let y = b.op(Op::ArgSort { descending }, &[x]);
        table.push(b.done(y));
    }
}

fn typed(table: &mut Vec<Case>) {
    for descending in [false, true] {
        let shape = || Shape::new([2, 3, 700]);
        let scattered = |i: u32| i.wrapping_mul(2_654_435_761);
        let mut b = Build::new(format!("argsort/i32_{descending}"));
        let values = (0..4200).map(|i| scattered(i) as i32).collect();
        let x = b.input("x", shape(), Data::I32(values));
        let y = b.op(Op::ArgSort { descending }, &[x]);
        table.push(b.done(y));
        let mut b = Build::new(format!("argsort/u32_{descending}"));
        let x = b.input("x", shape(), Data::U32((0..4200).map(scattered).collect()));
        let y = b.op(Op::ArgSort { descending }, &[x]);
        table.push(b.done(y));
        for dtype in [DType::F16, DType::BF16] {
            let mut b = Build::new(format!("argsort/{dtype}_{descending}"));
            let x = b.half(dtype, "x", [2, 1300]);
            let y = b.op(Op::ArgSort { descending }, &[x]);
            table.push(b.done(y));
        }
    }
}
