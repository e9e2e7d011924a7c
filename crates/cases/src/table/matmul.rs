//! Products of two computed tensors: sizes near tile sizes, batches and transposed operands.

use super::MANY;
use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{Dim, Format, Shape};
use warploom_core::ir::Op;

pub(super) fn add(table: &mut Vec<Case>) {
    let sizes = [
        (1, 1, 1),
        (1, 129, 33),
        (3, 5, 7),
        (31, 33, 1),
        (33, 31, 129),
        (65, 64, 66),
        (64, 64, 64),
        (127, 16, 9),
        (2, 1000, 3),
        (5, 1, 6),
        (130, 20, 197),
    ];
    for (m, k, n) in sizes {
        table.push(matmul(&format!("{m}x{k}x{n}"), &[m, k], &[k, n]));
    }
    let batches: [(&str, &[u64], &[u64]); 7] = [
        ("batch", &[3, 5, 7], &[3, 7, 4]),
        ("shared_right", &[3, 5, 7], &[7, 4]),
        ("shared_left", &[5, 7], &[3, 7, 4]),
        ("crossed", &[2, 1, 5, 7], &[3, 7, 4]),
        ("no_rows", &[0, 7], &[7, 4]),
        ("no_batch", &[0, 5, 7], &[7, 4]),
        ("nothing_to_sum", &[5, 0], &[0, 4]),
    ];
    for (name, a, b) in batches {
        table.push(matmul(name, a, b));
    }
    table.push(matmul("many_batches", &[MANY, 1, 2], &[2, 1]));
    table.push(matmul("many_rows", &[MANY, 2], &[2, 2]));
    transposed(table);
    for seq in [1, 5, 66] {
        let mut b = Build::new(format!("matmul/symbol/seq{seq}")).within(Tolerance::product(70));
        let seq = b.symbol("seq", seq);
        let a = b.f32("a", [Dim::new(2), Dim::new(3), seq.clone()]);
        let c = b.f32("b", [seq.clone(), seq]);
        let y = b.op(Op::MatMul, &[a, c]);
        table.push(b.done(y));
    }
}

fn matmul(name: &str, a: &[u64], c: &[u64]) -> Case {
    let k = a[a.len() - 1];
    let mut b = Build::new(format!("matmul/{name}")).within(Tolerance::product(k));
    let x = b.f32("a", a.iter().copied());
    let y = b.f32("b", c.iter().copied());
    let z = b.op(Op::MatMul, &[x, y]);
    b.done(z)
}

fn transposed(table: &mut Vec<Case>) {
    for (name, left, right) in [("left", true, false), ("right", false, true), ("both", true, true)]
    {
        let mut b = Build::new(format!("matmul/transposed_{name}")).within(Tolerance::product(33));
        let (m, k, n) = (17, 33, 19);
        let x = b.f32("a", if left { [k, m] } else { [m, k] });
        let x = if left { b.transpose(x, &[1, 0]) } else { x };
        let y = b.f32("b", if right { [n, k] } else { [k, n] });
        let y = if right { b.transpose(y, &[1, 0]) } else { y };
        let z = b.op(Op::MatMul, &[x, y]);
        table.push(b.done(z));
    }
    // More than one large tile, all partial, in a batch of matrices.
    for (name, left, right) in [("down", true, false), ("up", false, true)] {
        let mut b = Build::new(format!("matmul/tiles_{name}")).within(Tolerance::product(18));
        let x = b.f32("a", if left { [2u64, 18, 133] } else { [2, 133, 18] });
        let x = if left { b.transpose(x, &[0, 2, 1]) } else { x };
        let y = b.f32("b", if right { [2u64, 140, 18] } else { [2, 18, 140] });
        let y = if right { b.transpose(y, &[0, 2, 1]) } else { y };
        let z = b.op(Op::MatMul, &[x, y]);
        table.push(b.done(z));
    }
    // Scores of interleaved heads: [tokens, heads, dim] -> [heads, tokens, tokens].
    let mut b = Build::new("matmul/heads").within(Tolerance::product(16));
    let q = b.f32("q", [7, 3, 16]);
    let k = b.f32("k", [9, 3, 16]);
    let q = b.transpose(q, &[1, 0, 2]);
    let k = b.transpose(k, &[1, 2, 0]);
    let y = b.op(Op::MatMul, &[q, k]);
    table.push(b.done(y));
    let mut b = Build::new("matmul/expanded").within(Tolerance::product(7));
    let x = b.f32("a", [3, 5, 7]);
    let y = b.f32("b", [1, 7, 4]);
    let y = b.op(Op::Expand(Shape::new([3, 7, 4])), &[y]);
    let z = b.op(Op::MatMul, &[x, y]);
    table.push(b.done(z));
    // Each row of the left operand repeats one number.
    let mut b = Build::new("matmul/expanded_sum").within(Tolerance::product(8));
    let x = b.f32("a", [5, 1]);
    let x = b.op(Op::Expand(Shape::new([5, 8])), &[x]);
    let y = b.f32("b", [8, 3]);
    let z = b.op(Op::MatMul, &[x, y]);
    table.push(b.done(z));
    let mut b = Build::new("matmul/with_weight").within(Tolerance::product(31));
    let x = b.f32("a", [5, 31]);
    let y = b.weight("b", &[31, 9], Format::F32);
    let z = b.op(Op::MatMul, &[x, y]);
    table.push(b.done(z));
}
