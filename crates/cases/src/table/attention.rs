//! Attention: decode and prefill, grouped heads, windows, and KV caches longer than the visible
//! keys. Flash attention and flash decoding kernels run these cases.

use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{DType, Dim, Shape};
use warploom_core::ir::Op;
use warploom_core::reference::Data;

const CLOSE: Tolerance = Tolerance { atol: 2e-5, rtol: 2e-5, eps_count: 0.0, nmse: 1e-7 };

/// The sizes and visible keys of one case.
#[derive(Clone, Copy)]
struct Row {
    tokens: u64,
    past: u64,
    /// Number of keys; 0 means up to the last token.
    kv_len: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    causal: bool,
    window: Option<u32>,
}

const DECODE: Row = Row {
    tokens: 1,
    past: 37,
    kv_len: 0,
    heads: 4,
    kv_heads: 4,
    head_dim: 64,
    causal: true,
    window: None,
};
const PREFILL: Row = Row { tokens: 19, past: 0, ..DECODE };

impl Row {
    fn keys(&self) -> u64 {
        if self.kv_len == 0 { self.past + self.tokens } else { self.kv_len }
    }

    fn op(&self, past: Dim) -> Op {
        let scale = 1.0 / (self.head_dim as f32).sqrt();
        Op::attention(scale, self.causal, self.window, past)
    }

    fn case(&self, name: &str) -> Case {
        let mut b = Build::new(format!("attention/{name}")).within(CLOSE);
        let q = b.f32("q", [self.tokens, self.heads, self.head_dim]);
        let k = b.f32("k", [self.keys(), self.kv_heads, self.head_dim]);
        let v = b.f32("v", [self.keys(), self.kv_heads, self.head_dim]);
        let y = b.op(self.op(Dim::from(self.past)), &[q, k, v]);
        b.done(y)
    }
}

pub(super) fn add(table: &mut Vec<Case>) {
    for (heads, kv_heads) in [(9, 3), (14, 2), (4, 4)] {
        for head_dim in [32, 64, 80, 128, 256] {
            let name = format!("{heads}h{kv_heads}kv{head_dim}d");
            let decode = Row { heads, kv_heads, head_dim, ..DECODE };
            table.push(decode.case(&format!("decode/{name}")));
            let prefill = Row { heads, kv_heads, head_dim, ..PREFILL };
            table.push(prefill.case(&format!("prefill/{name}")));
        }
    }
    let wide = Row { heads: 2, kv_heads: 1, head_dim: 512, ..DECODE };
    table.push(wide.case("decode/2h1kv512d"));
    table.push(Row { tokens: 19, past: 0, ..wide }.case("prefill/2h1kv512d"));
    for past in [0, 1, 31, 32, 63, 127, 128, 1000, 2047] {
        let row = Row { past, heads: 3, kv_heads: 1, ..DECODE };
        table.push(row.case(&format!("decode/past{past}")));
    }
    for tokens in [2, 8, 9, 33, 65] {
        let row = Row { tokens, past: 5, heads: 2, kv_heads: 1, head_dim: 32, ..DECODE };
        table.push(row.case(&format!("prefill/past5_tokens{tokens}")));
    }
    masks(table);
    edges(table);
    layouts(table);
    spans(table);
    sinks(table);
    soft_caps(table);
}

/// Adds cases with a soft cap: far above the scores, of their size, and so small that all are alike.
fn soft_caps(table: &mut Vec<Case>) {
    for (name, row, cap) in [
        ("decode", Row { heads: 6, kv_heads: 2, ..DECODE }, 0.5),
        ("decode_large", DECODE, 50.0),
        (
            "prefill",
            Row { tokens: 70, past: 3, heads: 6, kv_heads: 2, window: Some(5), ..DECODE },
            0.5,
        ),
        ("prefill_small", PREFILL, 1e-3),
    ] {
        let mut b = Build::new(format!("attention/soft_cap/{name}")).within(CLOSE);
        let q = b.f32("q", [row.tokens, row.heads, row.head_dim]);
        let [k, v] = ["k", "v"].map(|name| b.f32(name, [row.keys(), row.kv_heads, row.head_dim]));
        let y = b.op(with_cap(row.op(Dim::from(row.past)), cap), &[q, k, v]);
        table.push(b.done(y));
    }
    let mut b = Build::new("attention/soft_cap/spans_sinks").within(CLOSE);
    let q = b.f32("q", [3, 6, 64]);
    let [k, v] = ["k", "v"].map(|name| b.half(DType::F16, name, [40, 2, 64]));
    let ranges = b.input("spans", Shape::new([3, 2]), Data::I32(vec![0, 7, 7, 40, 9, 9]));
    let sinks = b.input("sinks", Shape::new([6]), Data::F32(SINKS.to_vec()));
    let op = Row { causal: false, past: 0, ..DECODE }.op(Dim::new(0));
    let y = b.op(with_cap(with_sinks(op), 0.25), &[q, k, v, ranges, sinks]);
    table.push(b.done(y));
}

fn with_cap(mut op: Op, cap: f32) -> Op {
    if let Op::Attention { soft_cap, .. } = &mut op {
        *soft_cap = Some(cap);
    }
    op
}

/// Adds cases whose heads have a sink: small beside the scores, of their size, and far above them.
fn sinks(table: &mut Vec<Case>) {
    let window = Some(5);
    let f16 = true;
    for (name, row, halves) in [
        ("decode", Row { heads: 6, kv_heads: 2, ..DECODE }, !f16),
        ("decode_f16", Row { heads: 6, kv_heads: 2, window, ..DECODE }, f16),
        ("prefill", Row { tokens: 70, past: 3, heads: 6, kv_heads: 2, window, ..DECODE }, !f16),
        ("prefill_f16", Row { heads: 6, kv_heads: 3, head_dim: 32, ..PREFILL }, f16),
        (
            "no_key",
            Row { tokens: 2, kv_len: 3, past: 9, window, heads: 6, kv_heads: 2, ..DECODE },
            !f16,
        ),
    ] {
        let mut b = Build::new(format!("attention/sinks/{name}")).within(CLOSE);
        let q = b.f32("q", [row.tokens, row.heads, row.head_dim]);
        let shape = [row.keys(), row.kv_heads, row.head_dim];
        let [k, v] = ["k", "v"].map(|name| match halves {
            true => b.half(DType::F16, name, shape),
            false => b.f32(name, shape),
        });
        let sinks = b.input("sinks", Shape::new([6]), Data::F32(SINKS.to_vec()));
        let y = b.op(with_sinks(row.op(Dim::from(row.past))), &[q, k, v, sinks]);
        table.push(b.done(y));
    }
    let mut b = Build::new("attention/sinks/spans").within(CLOSE);
    let (q, k) = (b.f32("q", [3, 6, 64]), b.f32("k", [40, 2, 64]));
    let v = b.f32("v", [40, 2, 64]);
    let ranges = b.input("spans", Shape::new([3, 2]), Data::I32(vec![0, 7, 7, 40, 9, 9]));
    let all = b.input("all", Shape::new([8]), Data::F32([&[9.0, 9.0], &SINKS[..]].concat()));
    let sinks = b.slice(all, 0, 2, 6, 1);
    let op = Row { causal: false, past: 0, ..DECODE }.op(Dim::new(0));
    let y = b.op(with_sinks(op), &[q, k, v, ranges, sinks]);
    table.push(b.done(y));
}

const SINKS: [f32; 6] = [-200.0, -1.0, 0.0, 0.5, 3.0, 200.0];

fn with_sinks(mut op: Op) -> Op {
    if let Op::Attention { sinks, .. } = &mut op {
        *sinks = true;
    }
    op
}

fn masks(table: &mut Vec<Case>) {
    for window in [1, 8, 37, 38, 500] {
        let row = Row { window: Some(window), ..DECODE };
        table.push(row.case(&format!("window/decode{window}")));
        let row = Row { window: Some(window), tokens: 40, past: 3, ..PREFILL };
        table.push(row.case(&format!("window/prefill{window}")));
    }
    let free = Row { causal: false, ..PREFILL };
    table.push(free.case("all/square"));
    table.push(Row { tokens: 7, kv_len: 33, heads: 6, kv_heads: 2, ..free }.case("all/cross"));
    table.push(Row { tokens: 1, kv_len: 130, ..free }.case("all/one_query"));
    table.push(Row { kv_len: 1, ..free }.case("all/one_key"));
    table.push(Row { window: Some(4), ..free }.case("all/window"));
    table.push(Row { kv_len: 100, ..DECODE }.case("longer_cache/decode"));
    table.push(Row { kv_len: 100, past: 11, ..PREFILL }.case("longer_cache/prefill"));
    let blind = Row { past: 10, kv_len: 4, window: Some(2), ..DECODE };
    table.push(blind.case("sees_nothing"));
    let late = Row { tokens: 8, past: 2, kv_len: 5, window: Some(3), ..DECODE };
    table.push(late.case("last_tokens_see_nothing"));
}

fn edges(table: &mut Vec<Case>) {
    table.push(Row { tokens: 0, kv_len: 5, ..DECODE }.case("no_tokens"));
    table.push(Row { past: 0, heads: 1, kv_heads: 1, ..DECODE }.case("one_of_all"));
    let many = Row { tokens: 8200, kv_len: 2, heads: 8, kv_heads: 2, head_dim: 8, ..DECODE };
    table.push(Row { causal: false, past: 0, ..many }.case("many_rows"));
    let mut b = Build::new("attention/large_scores").within(CLOSE).note("e^score overflows");
    let (q, k) = (b.random("q").shaped(6 * 2 * 32), b.random("k").shaped(6 * 2 * 32));
    let large = |values: Vec<f32>| Data::F32(values.iter().map(|v| v * 20.0).collect());
    let shape = Shape::new([6, 2, 32]);
    let q = b.input("q", shape.clone(), large(q));
    let k = b.input("k", shape, large(k));
    let v = b.f32("v", [6, 2, 32]);
    let op = Op::attention(0.5, true, None, Dim::new(0));
    let y = b.op(op, &[q, k, v]);
    table.push(b.done(y));
}

fn layouts(table: &mut Vec<Case>) {
    for (tokens, past) in [(1, 0), (1, 40), (7, 0), (7, 12), (64, 3)] {
        let mut b = Build::new(format!("attention/symbols/seq{tokens}_past{past}")).within(CLOSE);
        let (seq, before) = (b.symbol("seq", tokens), b.symbol("past", past));
        let row = Row { tokens, past, heads: 6, kv_heads: 2, head_dim: 32, ..DECODE };
        let q = b.f32("q", [seq.clone(), 6.into(), 32.into()]);
        let keys = [before.clone() + seq, 2.into(), Dim::new(32)];
        let (k, v) = (b.f32("k", keys.clone()), b.f32("v", keys));
        let y = b.op(row.op(before), &[q, k, v]);
        table.push(b.done(y));
    }
    let mut b = Build::new("attention/heads_outermost").within(CLOSE);
    let perm = [1, 0, 2];
    let (q, k) = (b.f32("q", [6, 5, 32]), b.f32("k", [2, 9, 32]));
    let v = b.f32("v", [2, 9, 32]);
    let (q, k, v) = (b.transpose(q, &perm), b.transpose(k, &perm), b.transpose(v, &perm));
    let row = Row { past: 4, head_dim: 32, ..DECODE };
    let y = b.op(row.op(Dim::new(4)), &[q, k, v]);
    table.push(b.done(y));
    // Queries, keys and values adjacent in one product: [tokens, (4 + 2 + 2) * 32].
    let mut b = Build::new("attention/slices_of_qkv").within(CLOSE);
    let x = b.f32("x", [6, 8 * 32]);
    let x = b.op(Op::Reshape(Shape::new([6, 8, 32])), &[x]);
    let q = b.slice(x, 1, 0, 4, 1);
    let (k, v) = (b.slice(x, 1, 4, 2, 1), b.slice(x, 1, 6, 2, 1));
    let y = b.op(Row { head_dim: 32, ..PREFILL }.op(Dim::new(0)), &[q, k, v]);
    let y = b.op(Op::Reshape(Shape::new([6, 128])), &[y]);
    table.push(b.done(y));
}

/// Adds cases with tokens of several sequences whose keys share one table.
fn spans(table: &mut Vec<Case>) {
    // First and one past the last key of each token: adjacent, a gap, a single key, none, and out
    // of range.
    let rows: [(&str, Option<u32>, &[i32]); 5] = [
        ("one", None, &[3, 90]),
        ("three", None, &[0, 1, 64, 97, 128, 250]),
        ("window", Some(20), &[0, 5, 10, 100, 140, 161]),
        ("odd", None, &[-4, 3, 7, 7, 9, 5, 250, 300, 400, 500, 255, 256, 2, 4, 100, 255, 0, 256]),
        ("same", Some(300), &[0, 256, 0, 256, 0, 255]),
    ];
    for (heads, kv_heads, head_dim) in [(6, 2, 32), (3, 1, 33), (4, 4, 128)] {
        for (name, window, ends) in rows {
            let (tokens, name) = (ends.len() as u64 / 2, format!("{name}/{heads}h{head_dim}d"));
            let mut b = Build::new(format!("attention/spans/{name}")).within(CLOSE);
            let q = b.f32("q", [tokens, heads, head_dim]);
            let (k, v) =
                (b.f32("k", [256, kv_heads, head_dim]), b.f32("v", [256, kv_heads, head_dim]));
            let ends = b.input("spans", Shape::new([tokens, 2]), Data::I32(ends.to_vec()));
            let scale = 1.0 / (head_dim as f32).sqrt();
            let op = Op::attention(scale, false, window, Dim::new(0));
            let y = b.op(op, &[q, k, v, ends]);
            table.push(b.done(y));
        }
    }
}
