//! The best token of a row (`Op::Greedy`). It equals `Op::ArgMax` for valid rows. For rows with NaN
//! or without a finite maximum, the result is the reason instead of a token; `Op::ArgMax` returns
//! the index of the first NaN, if there is one.

use super::MANY;
use crate::build::{Build, Case};
use warploom_core::base::Shape;
use warploom_core::ir::Op;
use warploom_core::reference::Data;

const LOW: f32 = f32::NEG_INFINITY;
const HIGH: f32 = f32::INFINITY;

pub(super) fn add(table: &mut Vec<Case>) {
    for n in [1, 2, 31, 129, 1000, 49_152] {
        let mut b = Build::new(format!("greedy/n{n}"));
        let x = b.f32("x", [2, n]);
        let y = b.op(Op::Greedy, &[x]);
        table.push(b.done(y));
    }
    // 2,048 and 6,144 columns are split into slices; 1 and 4 are smaller than any workgroup.
    for n in [1, 4, 255, 600, 2048, 4099, 6144] {
        let values: Vec<f32> = rows(n).concat();
        for (op, name) in [(Op::Greedy, "greedy"), (Op::ArgMax, "argmax")] {
            let mut b = Build::new(format!("{name}/not_finite{n}"))
                .note("rows with NaN of both signs, inf, -inf; the first counts");
            let shape = Shape::new([(values.len() / n) as u64, n as u64]);
            let x = b.input("x", shape, Data::F32(values.clone()));
            let y = b.op(op, &[x]);
            table.push(b.done(y));
        }
    }
    let mut b = Build::new("greedy/many_rows").note("every third has a NaN");
    let values = (0..MANY as usize * 2).map(|i| match i % 6 {
        3 => f32::NAN,
        _ => (i % 7) as f32,
    });
    let x = b.input("x", Shape::new([MANY, 2]), Data::F32(values.collect()));
    let y = b.op(Op::Greedy, &[x]);
    table.push(b.done(y));
    let mut b = Build::new("greedy/columns").note("rows that are not contiguous, one with an inf");
    let mut values: Vec<f32> = b.random("x").shaped(33 * 5);
    values[20 * 5 + 3] = HIGH;
    let x = b.input("x", Shape::new([33, 5]), Data::F32(values));
    let x = b.transpose(x, &[1, 0]);
    let y = b.op(Op::Greedy, &[x]);
    table.push(b.done(y));
    let mut b = Build::new("greedy/rank1");
    let x = b.f32("x", [77]);
    let y = b.op(Op::Greedy, &[x]);
    table.push(b.done(y));
}

/// Returns rows of `n` values: most with a fault at an end, or at a boundary of slices, chunks or
/// workgroups.
fn rows(n: usize) -> Vec<Vec<f32>> {
    let usual = |i: usize| (i * 37 % 101) as f32 - 50.0;
    let row = |faults: &[(usize, f32)]| {
        let mut row: Vec<f32> = (0..n).map(usual).collect();
        faults.iter().for_each(|(at, value)| row[at % n] = *value);
        row
    };
    let nan = f32::NAN;
    let negative = f32::from_bits(0xffc0_1234);
    let last = n - 1;
    vec![
        row(&[]),
        row(&[(0, nan)]),
        row(&[(last, negative)]),
        row(&[(last, HIGH)]),
        row(&[(n / 2, HIGH), (n / 2 + 1, HIGH)]),
        // A NaN compares larger than an earlier infinity.
        row(&[(n / 3, HIGH), (n / 2, nan), (last, nan)]),
        row(&[(255, negative), (256, nan), (511, HIGH)]),
        // Masked logits are ordinary numbers.
        row(&[(0, LOW), (n / 2, LOW), (last, LOW)]),
        vec![LOW; n],
        (0..n).map(|i| if i == last { -1e38 } else { LOW }).collect(),
        (0..n).map(|i| if i == n / 2 { nan } else { LOW }).collect(),
        vec![nan; n],
        vec![HIGH; n],
        (0..n).map(|i| if i % 2 == 0 { f32::MAX } else { f32::MIN }).collect(),
        (0..n).map(|i| if i % 2 == 0 { -0.0 } else { 0.0 }).collect(),
    ]
}
