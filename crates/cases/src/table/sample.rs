//! Sampling: each filter, ties, forbidden and invalid rows, and both paths of the kernel.
//!
//! All cases are exact: sampling weights are integers, so every device must sample the same token.

use super::MANY;
use crate::build::{Build, Case};
use warploom_core::base::Shape;
use warploom_core::ir::Op;
use warploom_core::reference::Data;
use warploom_core::sampling::SampleParams;
use warploom_core::sampling::weight::NATURAL;

/// No filters, temperature 1.
const PLAIN: SampleParams =
    SampleParams { scale: NATURAL, top_k: 0, top_p: u32::MAX, min_p: 0, seed: 11, position: 0 };
const GREEDY: SampleParams = SampleParams { scale: 0.0, top_k: 1, ..PLAIN };
/// The defaults of the command line.
const USUAL: SampleParams = SampleParams {
    scale: NATURAL / 0.8,
    top_k: 40,
    top_p: 0xf333_3300,
    min_p: 0x0666_6666,
    ..PLAIN
};
/// All kinds of parameters: every filter by itself and combined, below and above the sizes that the
/// kernel sorts.
const ALL: [SampleParams; 14] = [
    PLAIN,
    GREEDY,
    USUAL,
    SampleParams { top_k: 2, ..PLAIN },
    SampleParams { top_k: 256, scale: 0.3, ..PLAIN },
    SampleParams { top_k: 257, scale: 0.3, ..PLAIN },
    SampleParams { top_k: u32::MAX, top_p: 1 << 31, scale: 0.1, ..PLAIN },
    SampleParams { top_p: 0, ..PLAIN },
    SampleParams { top_p: 1 << 30, scale: 0.0, ..PLAIN },
    SampleParams { min_p: 1 << 28, scale: f32::NAN, ..PLAIN },
    SampleParams { min_p: u32::MAX, scale: 0.1, ..PLAIN },
    SampleParams {
        top_k: 900,
        top_p: 1 << 31,
        min_p: 1 << 20,
        scale: 0.2,
        seed: 1 << 50,
        position: 7,
    },
    SampleParams {
        top_k: 100,
        top_p: 3 << 30,
        min_p: 1 << 20,
        scale: 0.2,
        seed: 3,
        position: u32::MAX,
    },
    SampleParams { scale: f32::INFINITY, ..PLAIN },
];

pub(super) fn add(table: &mut Vec<Case>) {
    for n in [1, 2, 39, 255, 257, 2049, 5000] {
        let b = Build::new(format!("sample/n{n}"));
        let rows = ALL.len() as u64;
        let values = b.random("x").shaped((rows * n) as usize);
        table.push(drawn(b, [rows, n], values, &ALL));
    }
    let b = Build::new("sample/vocabulary").note("as many as a large model has");
    let values = spread(2 * 151_936);
    table.push(drawn(b, [2, 151_936], values, &[USUAL, SampleParams { position: 5, ..PLAIN }]));
    ties(table);
    limits(table);
    impossible(table);
    let b = Build::new("sample/many_rows");
    let draws: Vec<SampleParams> =
        (0..MANY as u32).map(|position| SampleParams { position, top_k: 2, ..USUAL }).collect();
    table.push(drawn(b, [MANY, 3], spread(MANY as usize * 3), &draws));
    let mut b = Build::new("sample/columns").note("rows that are not contiguous");
    let x = b.f32("x", [33, 3]);
    let x = b.transpose(x, &[1, 0]);
    let words = words(&[PLAIN, USUAL, GREEDY]);
    let draws = b.input("draws", Shape::new([3, SampleParams::WORDS as u64]), words);
    let y = b.op(Op::Sample, &[x, draws]);
    table.push(b.done(y));
    let mut b = Build::new("sample/rank1");
    let x = b.f32("x", [77]);
    let draws = b.input("draws", Shape::new([SampleParams::WORDS]), self::words(&[USUAL]));
    let y = b.op(Op::Sample, &[x, draws]);
    table.push(b.done(y));
}

fn words(draws: &[SampleParams]) -> Data {
    Data::U32(draws.iter().flat_map(SampleParams::words).collect())
}

/// Builds a case with one row of logits for each of the parameters in `draws`.
fn drawn(mut b: Build, shape: [u64; 2], values: Vec<f32>, draws: &[SampleParams]) -> Case {
    let x = b.input("x", Shape::new(shape), Data::F32(values));
    let draws = b.input("draws", Shape::new([shape[0], SampleParams::WORDS as u64]), words(draws));
    let y = b.op(Op::Sample, &[x, draws]);
    b.done(y)
}

/// Returns logits from -8 to 8, mostly distinct.
fn spread(count: usize) -> Vec<f32> {
    (0..count as u32)
        .map(|i| (i.wrapping_mul(0x9e37_79b1) >> 8) as f32 / 1_048_576.0 - 8.0)
        .collect()
}

fn ties(table: &mut Vec<Case>) {
    // Repeated draws from equal logits, below and above what the kernel sorts.
    for n in [40, 600, 3000] {
        let b = Build::new(format!("sample/ties/n{n}")).note("the lowest of equals are kept");
        let limits = |position| {
            let top_k = [0, 1, 7, 250, 300][position as usize % 5];
            SampleParams { top_k, top_p: 0xc000_0000, scale: 0.0, position, ..PLAIN }
        };
        let draws: Vec<SampleParams> = (0..20).map(limits).collect();
        // Two values; the larger one is rare.
        let values = (0..20 * n).map(|i| if i % 89 == 3 { -2.0 } else { -2.5 }).collect();
        table.push(drawn(b, [20, n as u64], values, &draws));
    }
}

fn limits(table: &mut Vec<Case>) {
    let b = Build::new("sample/extremes").note("-inf, both zeros, numbers that are not normal");
    let low = f32::NEG_INFINITY;
    let row = [f32::MAX, low, 1e-40, -0.0, 0.0, -1e-40, f32::MIN, low];
    let rows: Vec<f32> =
        row.into_iter().chain(row.map(|x| x.min(0.0))).chain(row.map(|x| x.min(-1e30))).collect();
    let draws = [0, 1, 2].map(|position| SampleParams { position, scale: 1e-40, ..PLAIN });
    table.push(drawn(b, [3, 8], rows, &draws));
    let b = Build::new("sample/forbidden").note("all but a few are -inf, fewer than top-k");
    let values = (0..14 * 700).map(|i| if i % 97 == 5 { (i % 7) as f32 } else { low }).collect();
    table.push(drawn(b, [14, 700], values, &ALL));
}

fn impossible(table: &mut Vec<Case>) {
    let b = Build::new("sample/none").note("NaN, inf or nothing but -inf gives no token");
    let mut values = vec![0.0; 6 * 300];
    values[299] = f32::NAN;
    values[300 + 5] = f32::INFINITY;
    values[600..900].fill(f32::NEG_INFINITY);
    values[900] = -f32::NAN;
    values[1200..1500].fill(f32::NEG_INFINITY);
    values[1499] = -1e38;
    let draws = [USUAL, GREEDY, USUAL, PLAIN, USUAL, PLAIN];
    table.push(drawn(b, [6, 300], values, &draws));
    let b =
        Build::new("sample/not_finite").note("several NaN and inf in a row: the first is named");
    let n = 2500;
    let mut values = spread(4 * n);
    for (row, places) in [[2499, 2498, 2000], [257, 256, 300], [0, 1, 2499]].iter().enumerate() {
        for (place, value) in places.iter().zip([f32::INFINITY, f32::NAN, -f32::NAN]) {
            values[row * n + place] = value;
        }
    }
    table.push(drawn(b, [4, n as u64], values, &[USUAL, PLAIN, GREEDY, USUAL]));
}
