//! A gated delta net: a layer with a recurrent state in place of a KV cache.
//!
//! Letters beyond those of the decoder: `c` channels of the convolution, `t` its taps, `b` sequences
//! of the run and `r` tokens of each, of which one is 1; `u` and `w` key and value heads, `e` the
//! size of a head here.

use super::{Builder, Place, conv_name, delta_name};
use crate::config::DeltaNet;
use warploom::graph::{BinaryOp, NodeId, Op, UnaryOp};
use warploom::{Error, Result};
use warploom_core::base::{DType, Dim, Shape};

/// Epsilon of the norm of queries and keys, added to the sum of squares.
const KEY_EPSILON: f32 = 1e-6;
/// A decay whose exponential is 0, which clears a state.
const CLEARS: f32 = -1e30;

fn without_slots() -> Error {
    Error::invalid("a batch of sequences with states lacks the input of its sequences")
}

/// Slices `len` indices from `start` on along an axis.
fn part(axis: usize, start: impl Into<Dim>, len: impl Into<Dim>) -> Op {
    Op::Slice { axis, start: start.into(), len: len.into(), step: 1 }
}

/// A causal convolution of each channel, and the name of its weight, `[channels, taps]`.
pub(super) struct CausalConv {
    pub(super) weight: &'static str,
    pub(super) channels: usize,
    pub(super) taps: usize,
}

impl Builder<'_> {
    /// Computes a gated delta net `[s, d]` from the operand `h`, `[s, d]`.
    pub(super) fn delta_net(
        &mut self,
        layer: usize,
        net: &DeltaNet,
        h: NodeId,
        positions: NodeId,
    ) -> Result<NodeId> {
        let name = |what: &str| format!("blk.{layer}.{what}");
        let (u, w, e) = (net.key_heads, net.heads, net.head_dim);
        let s = self.tokens.clone();
        // A token at position 0 begins a text: what the state holds is of another.
        let zero = self.graph.constant_i32(Shape::new([1u64]), &[0]);
        let first = self.add("", Op::Binary(BinaryOp::Eq), &[positions, zero])?; // [s]
        let mixed = self.linear(layer, "attn_qkv", h)?; // [s, c]
        let mixed = self.convolved(layer, net, mixed, first)?; // [s, c]
        let heads = Op::Reshape(Shape::new([s.clone(), (2 * u + w).into(), e.into()]));
        let heads = self.add("", heads, &[mixed])?; // [s, 2 u + w, e]
        let [b, r] = self.sequences_and_tokens();
        let each = |heads: usize| Shape::new([b.clone(), r.clone(), heads.into(), e.into()]);
        // Queries are scaled by 1 / sqrt(e) beyond their norm.
        let unit = 1.0 / (e as f32).sqrt();
        let q = self.add("", part(1, 0, u), &[heads])?;
        let q = self.unit_rows(&name("q_unit"), q, e, unit * unit)?; // [s, u, e]
        let q = self.add("", Op::Reshape(each(u)), &[q])?; // [b, r, u, e]
        let k = self.add("", part(1, u, u), &[heads])?;
        let k = self.unit_rows(&name("k_unit"), k, e, unit)?; // [s, u, e]
        let k = self.add("", Op::Reshape(each(u)), &[k])?; // [b, r, u, e]
        let v = self.add("", part(1, 2 * u, w), &[heads])?; // [s, w, e]
        let v = self.add("", Op::Reshape(each(w)), &[v])?; // [b, r, w, e]
        let beta = self.linear(layer, "ssm_beta", h)?; // [s, w]
        let beta = self.add(name("beta"), Op::Unary(UnaryOp::Sigmoid), &[beta])?;
        let decay = self.decay(layer, h, first)?; // [s, w]
        let scalars = Op::Reshape(Shape::new([b.clone(), r.clone(), w.into()]));
        let beta = self.add("", scalars.clone(), &[beta])?; // [b, r, w]
        let decay = self.add("", scalars, &[decay])?; // [b, r, w]

        let shape = [self.cache.sequences, w, e, e];
        let state = self.graph.state(&delta_name(layer), Shape::new(shape), DType::F32);
        let held = self.held(state)?; // [b, w, e, e]
        let y = self.add(name("delta_rule"), Op::DeltaRule, &[q, k, v, decay, beta, held])?;
        let next = self.add("", part(2, r.clone(), e), &[y])?; // [b, w, e, e]
        self.hold(&name("delta_state"), state, next)?;
        let out = self.add("", part(2, 0, r), &[y])?; // [b, w, r, e]
        let out = self.add("", Op::Transpose(vec![0, 2, 1, 3]), &[out])?; // [b, r, w, e]
        let rows = Op::Reshape(Shape::new([s.clone(), w.into(), e.into()]));
        let out = self.add("", rows.clone(), &[out])?; // [s, w, e]
        let out = self.norm(layer, "ssm_norm", out)?;
        let z = self.linear(layer, "attn_gate", h)?; // [s, w * e]
        let z = self.add(name("gate_silu"), Op::Unary(UnaryOp::Silu), &[z])?;
        let z = self.add("", rows, &[z])?; // [s, w, e]
        let out = self.binary(layer, "ssm_gated", BinaryOp::Mul, out, z)?;
        let out = self.add("", Op::Reshape(Shape::new([s, net.inner().into()])), &[out])?;
        self.linear(layer, "ssm_out", out)
    }

    /// Returns the numbers of sequences and of tokens of each, of which one is 1.
    fn sequences_and_tokens(&self) -> [Dim; 2] {
        let (one, s) = (Dim::new(1), self.tokens.clone());
        match self.place {
            Place::From(_) => [one, s],
            Place::Rows { .. } => [s, one],
        }
    }

    /// Divides each row of `x` by its length, and multiplies it by `factor` times the root of `len`,
    /// its number of elements.
    fn unit_rows(&mut self, label: &str, x: NodeId, len: usize, factor: f32) -> Result<NodeId> {
        let weight = self.graph.constant_f32(Shape::new([len]), &[factor]); // [len]
        self.add(label, Op::RmsNorm { eps: KEY_EPSILON / len as f32 }, &[x, weight])
    }

    /// Computes the logarithm of each token's decay, `[s, w]`: `softplus(alpha + dt) * a`.
    fn decay(&mut self, layer: usize, h: NodeId, first: NodeId) -> Result<NodeId> {
        let name = |what: &str| format!("blk.{layer}.{what}");
        let alpha = self.linear(layer, "ssm_alpha", h)?; // [s, w]
        let dt = self.weight(&name("ssm_dt.bias"))?; // [w]
        let x = self.binary(layer, "alpha_dt", BinaryOp::Add, alpha, dt)?;
        // softplus(x) = max(x, 0) + log(1 + exp(-|x|)), which does not overflow.
        let above = self.add("", Op::Unary(UnaryOp::Relu), &[x])?;
        let size = self.add("", Op::Unary(UnaryOp::Abs), &[x])?;
        let size = self.add("", Op::Unary(UnaryOp::Neg), &[size])?;
        let size = self.add("", Op::Unary(UnaryOp::Exp), &[size])?;
        let one = self.graph.constant_f32(Shape::new([1u64]), &[1.0]);
        let size = self.add("", Op::Binary(BinaryOp::Add), &[size, one])?;
        let below = self.add("", Op::Unary(UnaryOp::Log), &[size])?;
        let x = self.binary(layer, "softplus", BinaryOp::Add, above, below)?;
        let a = self.weight(&name("ssm_a"))?; // [w]
        let decay = self.binary(layer, "decay", BinaryOp::Mul, x, a)?;
        let clears = self.graph.constant_f32(Shape::new([1u64]), &[CLEARS]);
        let each = Shape::new([self.tokens.clone(), Dim::new(1)]);
        let first = self.add("", Op::Reshape(each), &[first])?; // [s, 1]
        self.add(name("decay_first"), Op::Select, &[first, clears, decay])
    }

    /// Computes the causal convolution of each channel of `x` `[s, c]` over `t` tokens, and its SiLU.
    fn convolved(
        &mut self,
        layer: usize,
        net: &DeltaNet,
        x: NodeId,
        first: NodeId,
    ) -> Result<NodeId> {
        let channels = net.channels();
        let conv = CausalConv { weight: "ssm_conv1d", channels, taps: net.taps };
        let sum = self.causal_conv(layer, conv, x, first)?; // [b, r, c]
        let label = format!("blk.{layer}.conv_silu");
        let y = self.add(label, Op::Unary(UnaryOp::Silu), &[sum])?;
        self.add("", Op::Reshape(Shape::new([self.tokens.clone(), channels.into()])), &[y])
    }

    /// Computes the causal convolution of each channel of `x` `[s, c]` over `t` tokens, `[b, r, c]`, and
    /// keeps its last operands. `first` `[s]` is whether a token is the first of its text.
    pub(super) fn causal_conv(
        &mut self,
        layer: usize,
        conv: CausalConv,
        x: NodeId,
        first: NodeId,
    ) -> Result<NodeId> {
        let label = format!("blk.{layer}.conv");
        let (c, before) = (Dim::from(conv.channels), Dim::from(conv.taps - 1));
        let [b, r] = self.sequences_and_tokens();
        let shape = Shape::new([self.cache.sequences.into(), before.clone(), c.clone()]);
        let state = self.graph.state(&conv_name(layer), shape, DType::F32);
        let held = self.held(state)?; // [b, t - 1, c]
        // Of the first token of each sequence.
        let first = self.add("", part(0, 0, b.clone()), &[first])?; // [b]
        let first =
            self.add("", Op::Reshape(Shape::new([b.clone(), 1.into(), 1.into()])), &[first])?;
        let zero = self.graph.constant_f32(Shape::new([1u64]), &[0.0]);
        let held = self.add("", Op::Select, &[first, zero, held])?;
        let x = self.add("", Op::Reshape(Shape::new([b.clone(), r.clone(), c.clone()])), &[x])?;
        let all = self.add(&label, Op::Concat { axis: 1 }, &[held, x])?; // [b, t - 1 + r, c]
        let next = self.add("", part(1, r.clone(), before), &[all])?; // [b, t - 1, c]
        self.hold(&format!("{label}_state"), state, next)?;
        let weight = self.weight(&format!("blk.{layer}.{}.weight", conv.weight))?; // [c, t]
        let weight = self.add("", Op::Transpose(vec![1, 0]), &[weight])?; // [t, c]
        let mut sum = None;
        for tap in 0..conv.taps {
            let x = self.add("", part(1, tap, r.clone()), &[all])?; // [b, r, c]
            let factor = self.add("", part(0, tap, 1), &[weight])?; // [1, c]
            let y = self.add("", Op::Binary(BinaryOp::Mul), &[x, factor])?;
            sum = Some(match sum {
                None => y,
                Some(sum) => self.add("", Op::Binary(BinaryOp::Add), &[sum, y])?,
            });
        }
        sum.ok_or_else(|| Error::invalid("a convolution without taps"))
    }

    /// Reads a state `[sequences, ..]` of the sequences of the run: `[b, ..]`.
    fn held(&mut self, state: NodeId) -> Result<NodeId> {
        match self.place.clone() {
            Place::From(base) => self.add("", part(0, self.slot(&base), 1), &[state]),
            Place::Rows { slots, .. } => {
                let slots = slots.ok_or_else(without_slots)?;
                self.add("", Op::Gather { axis: 0 }, &[state, slots])
            }
        }
    }

    /// Writes a state of the sequences of the run.
    fn hold(&mut self, label: &str, state: NodeId, next: NodeId) -> Result<NodeId> {
        match self.place.clone() {
            Place::From(base) => {
                self.add(label, Op::Update { at: self.slot(&base) }, &[state, next])
            }
            Place::Rows { slots, .. } => {
                let slots = slots.ok_or_else(without_slots)?;
                self.add(label, Op::Scatter, &[state, next, slots])
            }
        }
    }

    /// Returns the index of the sequence whose cache begins at row `base`.
    fn slot(&self, base: &Dim) -> Dim {
        base.floor_div(&Dim::from(self.cache.context))
    }
}
