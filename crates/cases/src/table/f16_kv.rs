//! Attention with f32 queries and an f16 KV cache.

use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{DType, Dim, Format, Shape};
use warploom_core::ir::{NodeId, Op, RopePairs};
use warploom_core::reference::Data;

const CLOSE: Tolerance = Tolerance { atol: 2e-5, rtol: 2e-5, eps_count: 0.0, nmse: 1e-7 };
/// Tolerance for rounding to f16: a value near the midpoint of two f16 values may round to either.
const ROUNDED: Tolerance = Tolerance { atol: 2e-3, rtol: 2e-3, eps_count: 0.0, nmse: 1e-5 };

pub(super) fn add(table: &mut Vec<Case>) {
    for (heads, kv_heads, head_dim) in
        [(9, 3, 64), (4, 4, 80), (3, 1, 33), (8, 2, 128), (2, 1, 256), (1, 1, 2)]
    {
        for (tokens, keys) in [(1, 1), (1, 38), (1, 1000), (5, 40), (19, 19), (70, 131)] {
            table.push(attention([tokens, keys, heads, kv_heads, head_dim], None));
        }
    }
    table.push(attention([1, 300, 4, 2, 64], Some(100)));
    table.push(attention([40, 90, 4, 2, 64], Some(17)));
    table.push(attention([0, 9, 4, 2, 64], None));
    for head_dim in [32, 33] {
        table.push(spans(head_dim));
    }
    table.extend([odd_places(), heads_outermost()]);
    for pairs in [RopePairs::Interleaved, RopePairs::Half] {
        for (past, seq) in [(0, 1), (7, 1), (0, 3), (5, 11)] {
            table.push(cached(pairs, past, seq));
        }
        table.push(scattered(pairs));
    }
}

/// Builds a case with these numbers of tokens, keys, query heads, key heads and elements per head.
fn attention([tokens, keys, heads, kv_heads, head_dim]: [u64; 5], window: Option<u32>) -> Case {
    let window_name = window.map_or(String::new(), |n| format!("_window{n}"));
    let name = format!("f16_kv/{tokens}t{keys}k{heads}h{kv_heads}kv{head_dim}d{window_name}");
    let mut b = Build::new(name).within(CLOSE);
    let q = b.f32("q", [tokens, heads, head_dim]);
    let [k, v] = ["k", "v"].map(|name| b.half(DType::F16, name, [keys, kv_heads, head_dim]));
    let scale = 1.0 / (head_dim as f32).sqrt();
    let past = Dim::from(keys - tokens);
    let y = b.op(Op::attention(scale, true, window, past), &[q, k, v]);
    b.done(y)
}

fn spans(head_dim: u64) -> Case {
    let mut b = Build::new(format!("f16_kv/spans{head_dim}")).within(CLOSE);
    let q = b.f32("q", [4, 6, head_dim]);
    let [k, v] = ["k", "v"].map(|name| b.half(DType::F16, name, [256, 2, head_dim]));
    let ends = Data::I32(vec![0, 1, 64, 97, 250, 300, 9, 9]);
    let ends = b.input("spans", Shape::new([4, 2]), ends);
    let op = Op::attention(0.2, false, None, Dim::new(0));
    let y = b.op(op, &[q, k, v, ends]);
    b.done(y)
}

/// Builds a case with heads that begin within a word.
fn odd_places() -> Case {
    let mut b = Build::new("f16_kv/odd_places").within(CLOSE);
    let q = b.f32("q", [3, 2, 8]);
    let [k, v] = ["k", "v"].map(|name| {
        let all = b.half(DType::F16, name, [7, 1, 11]);
        b.slice(all, 2, 3, 8, 1)
    });
    let op = Op::attention(0.3, true, None, Dim::new(4));
    let y = b.op(op, &[q, k, v]);
    b.done(y)
}

fn heads_outermost() -> Case {
    let mut b = Build::new("f16_kv/heads_outermost").within(CLOSE);
    let q = b.f32("q", [5, 6, 32]);
    let [k, v] = ["k", "v"].map(|name| {
        let all = b.half(DType::F16, name, [2, 9, 32]);
        b.transpose(all, &[1, 0, 2])
    });
    let op = Op::attention(0.3, true, None, Dim::new(4));
    let y = b.op(op, &[q, k, v]);
    b.done(y)
}

/// Returns the queries `[seq, 4, 32]` of a decoder layer, and its new keys and values, both f16 and
/// `[seq, 2, 32]`.
fn made(b: &mut Build, pairs: RopePairs, seq: &Dim, positions: NodeId) -> [NodeId; 3] {
    let x = b.f32("x", [seq.clone(), Dim::new(64)]);
    let frequencies = b.f32("frequencies", [16]);
    [("q", 4), ("k", 2), ("v", 2)].map(|(name, heads)| {
        let w = b.weight(name, &[heads * 32, 64], Format::Q8_0);
        let y = b.op(Op::linear(), &[x, w]);
        let shape = Shape::new([seq.clone(), Dim::from(heads), Dim::new(32)]);
        let mut y = b.op(Op::Reshape(shape), &[y]);
        if name != "v" {
            y = b.op(Op::Rope { pairs, rot_dim: 32 }, &[y, positions, frequencies]);
        }
        if name == "q" { y } else { b.op(Op::Cast(DType::F16), &[y]) }
    })
}

fn cached(pairs: RopePairs, past: u64, seq: u64) -> Case {
    let name = format!("f16_kv/cached/{pairs:?}_past{past}_seq{seq}").to_lowercase();
    let mut b = Build::new(name).within(ROUNDED);
    let at: Vec<i32> = (past as i32..(past + seq) as i32).collect();
    let (before, tokens) = (b.symbol("past", past), b.symbol("seq", seq));
    let positions = b.input("positions", Shape::new([tokens.clone()]), Data::I32(at));
    let [q, k, v] = made(&mut b, pairs, &tokens, positions);
    let seen = before.clone() + tokens;
    let [k, v] = [("keys", k), ("values", v)].map(|(name, new)| {
        let state = b.f16_state(DType::F16, name, &[16, 2, 32]);
        let state = b.op(Op::Update { at: before.clone() }, &[state, new]);
        b.slice(state, 0, 0, seen.clone(), 1)
    });
    let op = Op::attention(0.2, true, None, before);
    let y = b.op(op, &[q, k, v]);
    b.done(y)
}

/// Same as [`cached`], for one token of each of several sequences.
fn scattered(pairs: RopePairs) -> Case {
    let name = format!("f16_kv/scattered/{pairs:?}").to_lowercase();
    let mut b = Build::new(name).within(ROUNDED);
    let seq = b.symbol("seq", 3);
    let positions = b.input("positions", Shape::new([seq.clone()]), Data::I32(vec![2, 0, 5]));
    let rows = b.input("rows", Shape::new([seq.clone()]), Data::I32(vec![2, 8, 21]));
    let ends = Data::I32(vec![0, 3, 8, 9, 16, 22]);
    let ends = b.input("spans", Shape::new([seq.clone(), Dim::new(2)]), ends);
    let [q, k, v] = made(&mut b, pairs, &seq, positions);
    let [k, v] = [("keys", k), ("values", v)].map(|(name, new)| {
        let state = b.f16_state(DType::F16, name, &[24, 2, 32]);
        b.op(Op::Scatter, &[state, new, rows])
    });
    let op = Op::attention(0.2, false, None, Dim::new(0));
    let y = b.op(op, &[q, k, v, ends]);
    b.done(y)
}
