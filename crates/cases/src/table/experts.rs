//! Mixtures of experts: the largest elements of a row, elements at a row's own indices, and
//! products with the matrices of chosen experts.

use super::MANY;
use super::int8::row;
use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{ComputeMode, DType, Dim, Format, Shape};
use warploom_core::ir::{BinaryOp, NodeId, Op, ReduceOp, UnaryOp};
use warploom_core::reference::Data;

const INT8: Op = Op::ExpertLinear { mode: ComputeMode::Int8 };
const F32: Op = Op::ExpertLinear { mode: ComputeMode::F32 };

pub(super) fn add(table: &mut Vec<Case>) {
    top_k(table);
    take_along(table);
    for format in Format::ALL.into_iter().chain(Format::KEPT) {
        // Two blocks, or one of the longest.
        let block = format.block_len();
        let k = if block > 512 { block } else { 2 * block.max(20) };
        table.push(product(&format!("{format}"), format, [3, 2, 5], 9, k, false));
        if format.is_quantised() {
            table.push(rounded(format, k));
        }
    }
    // (tokens, experts of each, experts): one, all of them, many rows of a few, none.
    for [t, a, e] in [[1, 1, 1], [1, 4, 4], [40, 2, 3], [7, 3, 130], [0, 2, 3]] {
        table.push(product(&format!("t{t}_a{a}_e{e}"), Format::Q4K, [t, a, e], 37, 256, false));
        table.push(product(&format!("own_t{t}_a{a}_e{e}"), Format::F32, [t, a, e], 6, 33, true));
    }
    table.push(product("many_pairs", Format::F32, [MANY / 7 + 1, 7, 3], 1, 4, false));
    table.push(product("long", Format::Q8_0, [2, 2, 3], 259, 4096, true));
    // More pairs of an expert than a tile has, experts without pairs, one expert.
    for [t, a, e] in [[70, 2, 3], [9, 3, 40], [150, 1, 1]] {
        table.push(grouped(Format::Q4K, [t, a, e], 130, 256, false));
        table.push(grouped(Format::Q8_0, [t, a, e], 37, 96, true));
    }
    table.push(views());
    table.push(symbol());
    table.push(network());
}

/// Returns ids that cover every expert, some of them twice, with one below and one above the range.
fn ids(b: &mut Build, tokens: Dim, [t, a, e]: [u64; 3]) -> NodeId {
    let id = |i: u64| match i % 11 {
        7 => -1,
        9 => e as i32,
        _ => (i * 5 % e) as i32,
    };
    let values = (0..t * a).map(id).collect();
    b.input("ids", Shape::new([tokens, Dim::from(a)]), Data::I32(values))
}

/// Builds a case with x of one row for each token or, with `own`, for each pair.
fn product(name: &str, format: Format, [t, a, e]: [u64; 3], n: u64, k: u64, own: bool) -> Case {
    let mut b = Build::new(format!("expert_linear/{name}")).within(Tolerance::product(k));
    let x = b.f32("x", [t, if own { a } else { 1 }, k]);
    let w = b.weight("w", &[e, n, k], format);
    let ids = ids(&mut b, Dim::from(t), [t, a, e]);
    let y = b.op(F32, &[x, w, ids]);
    b.done(y)
}

fn rounded(format: Format, k: u64) -> Case {
    let mut b = Build::new(format!("expert_linear/int8_{format}")).within(Tolerance::product(k));
    let values = (0..9).flat_map(|i| row(&b, &format!("x{i}"), k)).collect();
    let x = b.input("x", Shape::new([9, 1, k]), Data::F32(values));
    let w = b.weight("w", &[2, 19, k], format);
    let ids = ids(&mut b, Dim::new(9), [9, 2, 2]);
    let y = b.op(INT8, &[x, w, ids]);
    b.done(y)
}

/// Builds a case of many pairs; with `own`, each pair has a row of x.
fn grouped(format: Format, [t, a, e]: [u64; 3], n: u64, k: u64, own: bool) -> Case {
    let name = format!("expert_linear/int8_{format}_t{t}_a{a}_e{e}");
    let mut b = Build::new(name).within(Tolerance::product(k));
    let rows = if own { a } else { 1 };
    let values = (0..t * rows).flat_map(|i| row(&b, &format!("x{i}"), k)).collect();
    let x = b.input("x", Shape::new([t, rows, k]), Data::F32(values));
    let w = b.weight("w", &[e, n, k], format);
    let ids = ids(&mut b, Dim::from(t), [t, a, e]);
    let y = b.op(INT8, &[x, w, ids]);
    b.done(y)
}

/// Builds a case with rows of x that have gaps, and ids that are transposed.
fn views() -> Case {
    let mut b = Build::new("expert_linear/views").within(Tolerance::product(64));
    let x = b.f32("x", [4, 2, 70]);
    let x = b.slice(x, 2, 3, 64, 1);
    let x = b.slice(x, 0, 1, 3, 1);
    let w = b.weight("w", &[3, 10, 64], Format::Q4_0);
    let ids = b.input("ids", Shape::new([2, 3]), Data::U32(vec![0, 2, 1, 2, u32::MAX, 0]));
    let ids = b.transpose(ids, &[1, 0]);
    let y = b.op(F32, &[x, w, ids]);
    b.done(y)
}

fn symbol() -> Case {
    let mut b = Build::new("expert_linear/symbol").within(Tolerance::product(256));
    let s = b.symbol("seq", 13);
    let x = b.f32("x", [s.clone(), Dim::new(1), Dim::new(256)]);
    let w = b.weight("w", &[5, 12, 256], Format::Q6K);
    let ids = ids(&mut b, s, [13, 2, 5]);
    let y = b.op(F32, &[x, w, ids]);
    b.done(y)
}

/// Builds a case with a whole network: router, gate, up and down products, and their weighted sum.
fn network() -> Case {
    let (t, a, e, d, f) = (6u64, 3u64, 8u64, 64u64, 32u64);
    // What follows a product has no magnitude; the logits are far apart, so that all devices
    // choose the same experts.
    let tolerance = Tolerance { atol: 1e-4, rtol: 1e-4, eps_count: 0.0, nmse: 1e-8 };
    let mut b = Build::new("expert_linear/network").within(tolerance);
    let x = b.f32("x", [t, d]);
    let logits = (0..t * e).map(|i| ((i * 7 + i / e) % 23) as f32 * 0.25).collect();
    let logits = b.input("logits", Shape::new([t, e]), Data::F32(logits));
    let p = b.op(Op::Softmax, &[logits]);
    let ids = b.op(Op::TopK { k: a as usize }, &[p]);
    let share = b.op(Op::TakeAlong, &[p, ids]);
    let sum = b.op(Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep: true }, &[share]);
    let share = b.op(Op::Binary(BinaryOp::Div), &[share, sum]);
    let rows = b.op(Op::Reshape(Shape::new([t, 1, d])), &[x]);
    let [gate, up] = ["gate", "up"].map(|name| b.weight(name, &[e, f, d], Format::Q8_0));
    let down = b.weight("down", &[e, d, f], Format::Q8_0);
    let gate = b.op(F32, &[rows, gate, ids]);
    let up = b.op(F32, &[rows, up, ids]);
    let gate = b.unary(UnaryOp::Silu, gate);
    let y = b.op(Op::Binary(BinaryOp::Mul), &[gate, up]);
    let y = b.op(F32, &[y, down, ids]);
    let share = b.op(Op::Reshape(Shape::new([t, a, 1])), &[share]);
    let y = b.op(Op::Binary(BinaryOp::Mul), &[y, share]);
    let y = b.op(Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep: false }, &[y]);
    let y = b.op(Op::Binary(BinaryOp::Add), &[x, y]);
    b.done(y)
}

fn top_k(table: &mut Vec<Case>) {
    for (rows, n, k) in
        [(3, 1, 1), (2, 8, 2), (5, 64, 8), (2, 128, 128), (3, 300, 7), (1, 1000, 3), (2, 4, 0)]
    {
        let mut b = Build::new(format!("top_k/{rows}x{n}_{k}"));
        let x = b.f32("x", [rows, n]);
        let y = b.op(Op::TopK { k }, &[x]);
        table.push(b.done(y));
    }
    let mut b =
        Build::new("top_k/equals").note("equal elements, infinities, NaN, zeros of both signs");
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let values = vec![1.0, nan, 1.0, inf, -inf, -nan, -0.0, 0.0, 1.0, 2.0, 2.0, -inf];
    let x = b.input("x", Shape::new([2, 6]), Data::F32(values));
    let y = b.op(Op::TopK { k: 6 }, &[x]);
    table.push(b.done(y));
    let mut b = Build::new("top_k/many_rows");
    let values = (0..MANY * 3).map(|i| (i * 11 % 17) as f32).collect();
    let x = b.input("x", Shape::new([MANY, 3]), Data::F32(values));
    let y = b.op(Op::TopK { k: 2 }, &[x]);
    table.push(b.done(y));
    let mut b = Build::new("top_k/columns").note("rows that are not contiguous");
    let x = b.f32("x", [33, 5]);
    let x = b.transpose(x, &[1, 0]);
    let y = b.op(Op::TopK { k: 4 }, &[x]);
    table.push(b.done(y));
}

fn take_along(table: &mut Vec<Case>) {
    for (rows, n, k) in [(3, 5, 2), (1, 300, 257), (4, 3, 0), (0, 3, 2)] {
        let mut b = Build::new(format!("take_along/{rows}x{n}_{k}"));
        let x = b.f32("x", [rows, n]);
        let ids = (0..rows * k).map(|i| i * 7 % (n + 2) - 1).collect();
        let ids = b.input("ids", Shape::new([rows, k]), Data::I32(ids));
        let y = b.op(Op::TakeAlong, &[x, ids]);
        table.push(b.done(y));
    }
    for dtype in [DType::F16, DType::BF16] {
        let mut b = Build::new(format!("take_along/{dtype}_rank3"));
        let x = b.half(dtype, "x", [2, 3, 4]);
        let x = b.transpose(x, &[1, 0, 2]);
        let ids = b.input("ids", Shape::new([3, 2, 1]), Data::U32(vec![3, 0, 1, 9, 2, u32::MAX]));
        let y = b.op(Op::TakeAlong, &[x, ids]);
        table.push(b.done(y));
    }
}
