//! Attention with queries and softmax weights that may be rounded to f16 (`ComputeMode::F16`).

use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{ComputeMode, DType, Dim, Shape};
use warploom_core::ir::{BinaryOp, NodeId, Op};
use warploom_core::reference::Data;

const CLOSE: Tolerance = Tolerance { atol: 2e-5, rtol: 2e-5, eps_count: 0.0, nmse: 1e-7 };

/// The sizes and visible keys of one case.
#[derive(Clone, Copy)]
struct Row {
    tokens: u64,
    past: u64,
    /// Number of keys after the last token.
    more: u64,
    kv_heads: u64,
    head_dim: u64,
    causal: bool,
    window: Option<u32>,
}

const ROW: Row =
    Row { tokens: 17, past: 0, more: 0, kv_heads: 2, head_dim: 64, causal: true, window: None };

impl Row {
    fn op(&self) -> Op {
        Op::Attention {
            scale: 1.0 / (self.head_dim as f32).sqrt(),
            causal: self.causal,
            window: self.window,
            past: Dim::from(self.past),
            mode: ComputeMode::F16,
            sinks: false,
            soft_cap: None,
        }
    }

    fn keys(&self) -> [u64; 3] {
        [self.past + self.tokens + self.more, self.kv_heads, self.head_dim]
    }

    fn made(&self, name: &str, of: impl Fn(&mut Build, NodeId) -> NodeId) -> Case {
        let mut b = Build::new(format!("attention_f16/{name}")).within(CLOSE);
        let q = b.f32("q", [self.tokens, 2 * self.kv_heads, self.head_dim]);
        let [k, v] = ["k", "v"].map(|name| b.half(DType::F16, name, self.keys()));
        let y = b.op(self.op(), &[q, k, v]);
        let y = of(&mut b, y);
        b.done(y)
    }

    fn case(&self, name: &str) -> Case {
        self.made(name, |_, y| y)
    }

    /// Builds the case with queries, keys and values of these scales, alternating between the scale
    /// and its inverse by token.
    fn scaled(&self, name: &str, [q_size, k_size, v_size]: [f32; 3]) -> Case {
        // Errors are proportional to the scale.
        let close = Tolerance { atol: CLOSE.atol * f64::from(v_size), ..CLOSE };
        let mut b = Build::new(format!("attention_f16/{name}")).within(close);
        let shape = [self.tokens, 2 * self.kv_heads, self.head_dim];
        let mut random = b.random("q");
        let row = 2 * self.kv_heads * self.head_dim;
        let q = (0..self.tokens).flat_map(|t| {
            let size = if t % 2 == 0 { q_size } else { q_size.recip() };
            random.shaped(row as usize).into_iter().map(move |x| x * size).collect::<Vec<_>>()
        });
        let q = Data::F32(q.collect());
        let q = b.input("q", Shape::new(shape), q);
        let [k, v] = [("k", k_size), ("v", v_size)].map(|(name, size)| {
            let count = self.keys().iter().product::<u64>() as usize;
            let values = b.random(name).shaped(count);
            let values = values.iter().map(|x| half::f16::from_f32(x * size)).collect();
            b.input(name, Shape::new(self.keys()), Data::F16(values))
        });
        let y = b.op(self.op(), &[q, k, v]);
        b.done(y)
    }
}

pub(super) fn add(table: &mut Vec<Case>) {
    for head_dim in [16, 64, 80, 128] {
        for (tokens, past) in [(1, 0), (17, 33), (64, 0), (130, 33)] {
            let row = Row { tokens, past, head_dim, ..ROW };
            table.push(row.case(&format!("{head_dim}d_t{tokens}_past{past}")));
        }
    }
    let free = Row { causal: false, ..ROW };
    table.push(free.case("all"));
    table.push(Row { tokens: 70, past: 33, more: 40, ..free }.case("all/more_keys"));
    table.push(Row { more: 40, ..ROW }.case("longer_cache"));
    for window in [1, 5, 40] {
        let row = Row { tokens: 130, past: 33, window: Some(window), ..ROW };
        table.push(row.case(&format!("window{window}")));
    }
    table.push(Row { tokens: 70, kv_heads: 1, ..ROW }.case("one_kv_head"));
    table.push(Row { tokens: 0, past: 9, ..ROW }.case("no_tokens"));
    table.push(Row { head_dim: 40, ..ROW }.case("head_of_no_tiles"));
    let some = Row { tokens: 20, past: 50, ..ROW };
    table.push(some.scaled("large_values", [1.0, 1.0, 5e3]));
    table.push(some.scaled("small_values", [1.0, 1.0, 1e-3]));
    // Queries out of the range of f16; scores are ordinary, or almost all zero.
    table.push(some.scaled("large_queries", [1e7, 1e-7, 1.0]));
    table.push(some.scaled("small_queries", [3e-30, 1.0, 1.0]));
    table.push(some.scaled("small_keys", [1.0, 1e-4, 1.0]));
    table.push(Row { tokens: 65, ..ROW }.made("added", |b, y| {
        let x = b.f32("x", [65, 4, 64]);
        b.op(Op::Binary(BinaryOp::Add), &[y, x])
    }));
    table.push(garbage_behind());
    table.push(turned());
}

/// Builds a case with a negative scale: the lowest score has the largest weight.
fn turned() -> Case {
    let mut b = Build::new("attention_f16/scale_below_zero").within(CLOSE);
    let q = b.f32("q", [20, 4, 64]);
    let [k, v] = ["k", "v"].map(|name| b.half(DType::F16, name, [30, 2, 64]));
    let op = Op::Attention {
        scale: -0.7,
        causal: true,
        window: None,
        past: Dim::new(10),
        mode: ComputeMode::F16,
        sinks: false,
        soft_cap: None,
    };
    let y = b.op(op, &[q, k, v]);
    b.done(y)
}

/// Builds a case whose keys and values after the visible ones are NaN: their weight is 0, but 0
/// times NaN is not.
fn garbage_behind() -> Case {
    let mut b = Build::new("attention_f16/not_finite_behind").within(CLOSE);
    let q = b.f32("q", [20, 4, 32]);
    let [k, v] = ["k", "v"].map(|name| {
        let values = b.random(name).shaped(60 * 2 * 32);
        let half = |(i, x): (usize, f32)| match i / 64 {
            30.. => half::f16::NAN,
            _ => half::f16::from_f32(x),
        };
        let values = values.into_iter().enumerate().map(half).collect();
        b.input(name, Shape::new([60, 2, 32]), Data::F16(values))
    });
    let op = Op::Attention {
        scale: 0.2,
        causal: true,
        window: None,
        past: Dim::new(10),
        mode: ComputeMode::F16,
        sinks: false,
        soft_cap: None,
    };
    let y = b.op(op, &[q, k, v]);
    b.done(y)
}
