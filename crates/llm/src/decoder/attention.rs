//! Attention of a layer, with its KV cache.

use super::{Builder, PAST, Place, cache_name};
use crate::config::HeadNorms;
use warploom::Result;
use warploom::graph::{BinaryOp, NodeId, Op, UnaryOp};
use warploom_core::base::{ComputeMode, DType, Dim, Shape};

impl Builder<'_> {
    /// Reshapes `x` `[s, heads * e]` to `[s, heads, e]`.
    fn split_heads(&mut self, x: NodeId, heads: usize) -> Result<NodeId> {
        let shape = [self.tokens.clone(), heads.into(), self.config.head_dim.into()];
        self.add("", Op::Reshape(Shape::new(shape)), &[x])
    }

    /// Writes `x` `[s, g, e]` to the KV cache of a layer, if there is one, and returns the filled rows of the
    /// sequence, `[p + s, g, e]`, or for a batch all rows, `[n, g, e]`.
    fn cached(&mut self, layer: usize, kind: char, x: NodeId) -> Result<NodeId> {
        if self.texts.is_some() {
            return Ok(x);
        }
        let name = cache_name(kind, layer);
        let shape = Shape::new([self.cache.rows(), self.config.kv_heads, self.config.head_dim]);
        let state = self.graph.state(&name, shape, self.cache.dtype); // [n, g, e]
        let label = format!("blk.{layer}.cache_{kind}");
        let x = match self.cache.dtype {
            DType::F32 => x,
            narrow => self.add(format!("{label}.{narrow}"), Op::Cast(narrow), &[x])?, // [s, g, e]
        };
        let past = Dim::symbol(PAST);
        match self.place.clone() {
            Place::From(base) => {
                let at = base.clone() + past.clone();
                let cache = self.add(label, Op::Update { at }, &[state, x])?; // [n, g, e]
                let len = past + self.tokens.clone();
                self.add("", Op::Slice { axis: 0, start: base, len, step: 1 }, &[cache])
            }
            Place::Rows { rows, .. } => self.add(label, Op::Scatter, &[state, x, rows]),
        }
    }

    /// Computes q `[s, h, e]` and its gate `[s, h, e]` from the operand `h`, `[s, d]`, for an
    /// architecture whose `attn_q` has both, head by head.
    fn gated_queries(&mut self, layer: usize, h: NodeId) -> Result<[NodeId; 2]> {
        let (heads, e) = (self.config.heads, self.config.head_dim);
        let both = self.linear(layer, "attn_q", h)?; // [s, h * 2 e]
        let shape = Shape::new([self.tokens.clone(), heads.into(), (2 * e).into()]);
        let both = self.add("", Op::Reshape(shape), &[both])?; // [s, h, 2 e]
        let part =
            |start: usize| Op::Slice { axis: 2, start: start.into(), len: e.into(), step: 1 };
        Ok([self.add("", part(0), &[both])?, self.add("", part(e), &[both])?])
    }

    /// Computes q `[s, h * e]`, k `[s, g * e]` and v `[s, g * e]` from the operand `h`, `[s, d]`.
    fn queries_keys_values(&mut self, layer: usize, h: NodeId) -> Result<[NodeId; 3]> {
        if !self.architecture.merged_qkv {
            let q = self.linear(layer, "attn_q", h)?;
            let k = self.linear(layer, "attn_k", h)?;
            return Ok([q, k, self.linear(layer, "attn_v", h)?]);
        }
        let (q, kv) = (self.config.heads * self.config.head_dim, self.config.kv_width());
        let all = self.linear(layer, "attn_qkv", h)?; // [s, (h + 2 g) * e]
        let [k, v] = [self.columns(all, q, kv)?, self.columns(all, q + kv, kv)?];
        Ok([self.columns(all, 0, q)?, k, v])
    }

    /// Prepares `x` `[s, heads * e]` or `[s, heads, e]` for attention, `[s, heads, e]`: normalises it or each head if the
    /// architecture does so, and rotates heads by their position.
    fn turned(
        &mut self,
        layer: usize,
        kind: char,
        x: NodeId,
        heads: usize,
        positions: NodeId,
        turns: Option<NodeId>,
    ) -> Result<NodeId> {
        let x = match self.architecture.head_norms {
            HeadNorms::Whole => self.norm(layer, &format!("attn_{kind}_norm"), x)?,
            _ => x,
        };
        let mut x = match self.graph.node(x).shape.rank() {
            2 => self.split_heads(x, heads)?, // [s, heads, e]
            _ => x,
        };
        let norm = format!("attn_{kind}_norm");
        let has_norm = match self.architecture.head_norms {
            HeadNorms::Each => true,
            HeadNorms::EachIfPresent => self.has_weight(&format!("blk.{layer}.{norm}.weight")),
            HeadNorms::None | HeadNorms::Whole => false,
        };
        if has_norm {
            x = self.norm(layer, &norm, x)?;
        }
        let Some(turns) = turns.filter(|_| self.config.rotates(layer)) else { return Ok(x) };
        let op = Op::Rope { pairs: self.architecture.rope, rot_dim: self.config.rope_dim };
        self.add(format!("blk.{layer}.rope_{kind}"), op, &[x, positions, turns])
    }

    /// Computes attention `[s, d]` from the operand `h`, `[s, d]`, the positions `[s]`, and the
    /// frequencies `[rope_dim / 2]` if the model rotates queries and keys.
    pub(super) fn attention(
        &mut self,
        layer: usize,
        h: NodeId,
        positions: NodeId,
        turns: Option<NodeId>,
    ) -> Result<NodeId> {
        let config = self.config;
        let (q, k, v, gate) = match self.architecture.gated_attention {
            true => {
                let [q, gate] = self.gated_queries(layer, h)?;
                let k = self.linear(layer, "attn_k", h)?;
                (q, k, self.linear(layer, "attn_v", h)?, Some(gate))
            }
            false => {
                let [q, k, v] = self.queries_keys_values(layer, h)?;
                (q, k, v, None)
            }
        };
        let q = self.turned(layer, 'q', q, config.heads, positions, turns)?; // [s, h, e]
        let k = self.turned(layer, 'k', k, config.kv_heads, positions, turns)?; // [s, g, e]
        let v = self.split_heads(v, config.kv_heads)?; // [s, g, e]
        let k = self.cached(layer, 'k', k)?; // [p + s, g, e] or [n, g, e]
        let v = self.cached(layer, 'v', v)?; // [p + s, g, e] or [n, g, e]
        let (scale, window) = (config.scale(layer), config.window(layer));
        let (causal, past, spans, window) = match (&self.place, self.texts) {
            // The spans are within the window.
            (_, Some(texts)) => {
                let spans = if window.is_some() { texts.local } else { texts.all };
                (false, Dim::new(0), Some(spans), None)
            }
            (Place::From(_), None) => (true, Dim::symbol(PAST), None, window),
            (Place::Rows { spans, .. }, None) => (false, Dim::new(0), Some(*spans), window),
        };
        let sinks = match self.architecture.has_sinks {
            true => Some(self.weight(&format!("blk.{layer}.attn_sinks.weight"))?), // [h]
            false => None,
        };
        let mode = ComputeMode::F32;
        let (soft_cap, sunk) = (config.score_cap, sinks.is_some());
        let op = Op::Attention { scale, causal, window, past, mode, sinks: sunk, soft_cap };
        let operands: Vec<NodeId> = [q, k, v].into_iter().chain(spans).chain(sinks).collect();
        let a = self.add(format!("blk.{layer}.attention"), op, &operands)?; // [s, h, e]
        let shape = [self.tokens.clone(), (config.heads * config.head_dim).into()];
        let shape = Shape::new(shape);
        let mut a = self.add("", Op::Reshape(shape.clone()), &[a])?; // [s, h * e]
        if let Some(gate) = gate {
            let gate = self.add("", Op::Reshape(shape), &[gate])?; // [s, h * e]
            let gate =
                self.add(format!("blk.{layer}.gate"), Op::Unary(UnaryOp::Sigmoid), &[gate])?;
            a = self.binary(layer, "attn_gated", BinaryOp::Mul, a, gate)?;
        }
        if self.architecture.sub_norms {
            a = self.norm(layer, "attn_sub_norm", a)?;
        }
        self.linear(layer, "attn_output", a)
    }
}
