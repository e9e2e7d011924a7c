//! Products with activation quantisation to 8 bits.
//!
//! The rounding of a value near the midpoint of two integers depends on the last bit of a quotient,
//! in which devices may differ. So no value here lies near a midpoint.

use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{ComputeMode, Dim, Format, Shape};
use warploom_core::ir::{NodeId, Op, UnaryOp};
use warploom_core::reference::Data;

pub(super) const INT8: Op = Op::Linear { mode: ComputeMode::Int8 };

/// Returns a row of `k` values. In each block, one value is -127 times a step, which determines the
/// scale; the others differ by at most 0.4 steps from an integer multiple.
pub(super) fn row(b: &Build, name: &str, k: u64) -> Vec<f32> {
    let mut random = b.random(name);
    let mut values = Vec::new();
    for _ in 0..k / ComputeMode::BLOCK {
        let (d, largest) = (random.between(0.005, 0.02), random.below(ComputeMode::BLOCK as u32));
        values.extend((0..ComputeMode::BLOCK as u32).map(|j| {
            let q = random.between(-0.4, 0.4) + random.below(240) as f32 - 110.0;
            d * if j == largest { -127.0 } else { q.clamp(-126.5, 126.4) }
        }));
    }
    values
}

pub(super) fn rows(b: &mut Build, name: &str, m: Dim, count: u64, k: u64) -> NodeId {
    let values = (0..count).flat_map(|i| row(b, &format!("{name}{i}"), k)).collect();
    b.input(name, Shape::new([m, Dim::from(k)]), Data::F32(values))
}

/// Returns norm weights: powers of two, which keep values away from midpoints.
pub(super) fn gains(k: u64) -> Vec<f32> {
    (0..k).map(|i| [0.5, 2.0, 1.0][i as usize % 3]).collect()
}

fn case(name: String, k: u64) -> Build {
    Build::new(format!("int8/{name}")).within(Tolerance::product(k))
}

fn linear(format: Format, m: u64, n: u64, k: u64) -> Case {
    let mut b = case(format!("{format}/m{m}_n{n}_k{k}"), k);
    let x = rows(&mut b, "x", Dim::from(m), m, k);
    let w = b.weight("w", &[n, k], format);
    let y = b.op(INT8, &[x, w]);
    b.done(y)
}

/// Builds a case with rows of x that have gaps between them, at an offset that is not a multiple of
/// four.
fn gapped(format: Format) -> Case {
    let k = 2 * format.block_len();
    let mut b = case(format!("{format}/gapped_rows"), k);
    let wide = (0..5).flat_map(|i| {
        let row = row(&b, &format!("x{i}"), k);
        [vec![9.0; 3], row, vec![-9.0; 2]].concat()
    });
    let wide = wide.collect();
    let x = b.input("x", Shape::new([5, k + 5]), Data::F32(wide));
    let x = b.slice(x, 0, 1, 3, 1);
    let x = b.slice(x, 1, 3, k, 1);
    let w = b.weight("w", &[11, k], format);
    let y = b.op(INT8, &[x, w]);
    b.done(y)
}

/// Builds a case with a norm, gate and up products of its result, and their product.
fn feed_forward(format: Format, m: u64) -> Case {
    let k = format.block_len().max(64);
    // A product of sums is not a sum, so no magnitude is available.
    let tolerance = Tolerance { atol: 1e-3, rtol: 1e-5, eps_count: 0.0, nmse: 1e-10 };
    let mut b = case(format!("feed_forward/{format}/m{m}"), k).within(tolerance);
    let gains = gains(k);
    let values: Vec<f32> = (0..m)
        .flat_map(|i| {
            let row = row(&b, &format!("x{i}"), k);
            row.iter().zip(&gains).map(|(x, g)| x / g).collect::<Vec<_>>()
        })
        .collect();
    let x = b.input("x", Shape::new([m, k]), Data::F32(values));
    let gain = b.weight_of("gain", &[k], Format::F32, gains);
    let x = b.op(Op::RmsNorm { eps: 1e-5 }, &[x, gain]);
    let gate = b.weight("gate", &[2 * k, k], format);
    let gate = b.op(INT8, &[x, gate]);
    let gate = b.op(Op::Unary(UnaryOp::Relu), &[gate]);
    let up = b.weight("up", &[2 * k, k], format);
    let up = b.op(INT8, &[x, up]);
    let y = b.op(Op::Binary(warploom_core::ir::BinaryOp::Mul), &[gate, up]);
    b.done(y)
}

/// Builds a case with three products of one operand: the first is doubled, the second rounded to
/// f16.
fn three(format: Format, m: u64) -> Case {
    let k = 2 * format.block_len();
    // A last-bit difference of a sum may give the neighbouring f16.
    let tolerance = Tolerance { atol: 1e-4, rtol: 1e-3, eps_count: 0.0, nmse: 1e-6 };
    let mut b = case(format!("three/{format}/m{m}"), k).within(tolerance);
    let x = rows(&mut b, "x", Dim::from(m), m, k);
    let [a, c, d] = [("a", 70), ("c", 36), ("d", 33)].map(|(name, n)| {
        let w = b.weight(name, &[n, k], format);
        b.op(INT8, &[x, w])
    });
    let a = b.op(Op::Binary(warploom_core::ir::BinaryOp::Add), &[a, a]);
    let c = b.op(Op::Cast(warploom_core::base::DType::F16), &[c]);
    let c = b.op(Op::Cast(warploom_core::base::DType::F32), &[c]);
    let both = b.op(Op::Concat { axis: 1 }, &[a, c, d]);
    b.done(both)
}

pub(super) fn add(table: &mut Vec<Case>) {
    for format in Format::ALL.into_iter().filter(|format| format.is_quantised()) {
        let block = format.block_len();
        let k = if block > 32 { 768 } else { 160 };
        table.extend([1, 3, 9, 40].map(|m| linear(format, m, 37, k)));
        table.push(linear(format, 2, 1, block));
        table.push(gapped(format));
    }
    // Steps of 2,048 columns: one, a different number per thread, and many.
    for (m, n, k) in [
        (1, 37, 2048),
        (3, 37, 2048),
        (9, 5, 4096),
        (40, 37, 2048),
        (1, 4100, 6144),
        (1, 9, 14_336),
    ] {
        table.push(linear(Format::Q6Kx8, m, n, k));
    }
    // One block, an odd number, and many.
    for (m, n, k) in [(1, 37, 64), (1, 4100, 576), (3, 37, 896), (9, 5, 2048), (40, 37, 576)] {
        table.push(linear(Format::Q8_0x2, m, n, k));
    }
    // A step with idle lanes, whole steps, and one for only some subgroups of a workgroup.
    for format in [Format::Q8_0x8, Format::Q4_0x8] {
        for (m, n, k) in [
            (1, 37, 256),
            (1, 70, 2304),
            (1, 4100, 2048),
            (3, 37, 512),
            (9, 5, 2048),
            (40, 37, 768),
        ] {
            table.push(linear(format, m, n, k));
        }
    }
    // One and many iterations of a thread, and a last one for only some threads.
    for (n, k) in [(37, 2560), (70, 2048), (9, 9216)] {
        table.push(linear(Format::TQ2_0, 1, n, k));
    }
    for format in [Format::Q4_0, Format::Q4K, Format::Q6K] {
        table.extend([1, 5, 40, 130].map(|m| feed_forward(format, m)));
    }
    // More than one tile of any size in each dimension, and three products in one.
    table.push(linear(Format::Q4K, 150, 300, 256));
    table.push(linear(Format::Q8_0, 129, 130, 96));
    for m in [3, 20, 140] {
        table.push(three(Format::Q4_0, m));
    }
    // Longer than a quantised row that fits in small workgroup memory, and many rows of w.
    table.push(linear(Format::Q8_0, 1, 3, 16_384));
    table.push(linear(Format::Q4_0, 3, 3, 4_096));
    table.push(linear(Format::Q4_0, 1, 20_011, 32));
    table.push(linear(Format::Q4_1, 0, 5, 32));
    for m in [1, 8, 70] {
        let mut b = case(format!("symbol/m{m}"), 256);
        let seq = b.symbol("seq", m);
        let x = rows(&mut b, "x", seq, m, 256);
        let w = b.weight("w", &[33, 256], Format::Q4K);
        let y = b.op(INT8, &[x, w]);
        table.push(b.done(y));
    }
}
