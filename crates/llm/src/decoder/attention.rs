//! Attention of a layer, with its KV cache.

use super::{Builder, PAST, Place, cache_name};
use crate::config::HeadNorms;
use warploom::graph::{BinaryOp, NodeId, Op, UnaryOp};
use warploom::{Error, Result};
use warploom_core::base::{ComputeMode, DType, Dim, Shape};

impl Builder<'_> {
    /// Reshapes `x` `[s, heads * e]` of a layer to `[s, heads, e]`.
    fn split_heads(&mut self, layer: usize, x: NodeId, heads: usize) -> Result<NodeId> {
        let shape = [self.tokens.clone(), heads.into(), self.config.head_dim_of(layer).into()];
        self.add("", Op::Reshape(Shape::new(shape)), &[x])
    }

    /// Writes `x` `[s, g, e]` to the KV cache of a layer, if there is one, and returns the filled rows of the
    /// sequence, `[p + s, g, e]`, or for a batch all rows, `[n, g, e]`.
    fn cached(&mut self, layer: usize, kind: char, x: NodeId) -> Result<NodeId> {
        if self.texts.is_some() {
            return Ok(x);
        }
        let name = cache_name(kind, layer);
        let shape = [self.config.kv_heads_of(layer), self.config.head_dim_of(layer)];
        let shape = Shape::new([self.cache.rows(), shape[0], shape[1]]);
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
            let is_key = self.architecture.unit_values
                && !self.has_weight(&format!("blk.{layer}.attn_v.weight"));
            return Ok([q, k, if is_key { k } else { self.linear(layer, "attn_v", h)? }]);
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
            2 => self.split_heads(layer, x, heads)?, // [s, heads, e]
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
        let op =
            Op::Rope { pairs: self.architecture.rope, rot_dim: self.config.rope_dim_of(layer) };
        self.add(format!("blk.{layer}.rope_{kind}"), op, &[x, positions, turns])
    }

    /// Returns the keys and values that a layer attends to, `[p + s, g, e]` or `[n, g, e]` each: its own,
    /// `[s, g * e]`, behind those of the cache, or those of the layer that it shares.
    fn keys_and_values(
        &mut self,
        layer: usize,
        own: Option<[NodeId; 2]>,
        positions: NodeId,
        turns: Option<NodeId>,
    ) -> Result<[NodeId; 2]> {
        let (config, from) = (self.config, self.config.keys_of(layer));
        let Some([k, v]) = own else {
            let kept = self.kept.get(&from).copied();
            return kept.ok_or_else(|| Error::invalid(format!("layer {from} has no keys")));
        };
        let heads = config.kv_heads_of(layer);
        let k = self.turned(layer, 'k', k, heads, positions, turns)?; // [s, g, e]
        let mut v = self.split_heads(layer, v, heads)?; // [s, g, e]
        if self.architecture.unit_values {
            let e = Shape::new([config.head_dim_of(layer)]);
            let ones = self.graph.constant_f32(e, &[1.0]); // [e]
            let op = Op::RmsNorm { eps: config.norm_epsilon };
            v = self.add(format!("blk.{layer}.attn_v_unit"), op, &[v, ones])?;
        }
        let both = [self.cached(layer, 'k', k)?, self.cached(layer, 'v', v)?];
        if config.layer_sizes.shared_keys > 0 {
            self.kept.insert(layer, both);
        }
        Ok(both)
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
        let (q, own, gate) = match self.architecture.gated_attention {
            true => {
                let [q, gate] = self.gated_queries(layer, h)?;
                let k = self.linear(layer, "attn_k", h)?;
                (q, Some([k, self.linear(layer, "attn_v", h)?]), Some(gate))
            }
            false if config.keys_of(layer) != layer => {
                (self.linear(layer, "attn_q", h)?, None, None)
            }
            false => {
                let [q, k, v] = self.queries_keys_values(layer, h)?;
                (q, Some([k, v]), None)
            }
        };
        let mut q = self.turned(layer, 'q', q, config.heads, positions, turns)?; // [s, h, e]
        if let Some(scale) = self.query_scale {
            q = self.binary(layer, "attn_q_scaled", BinaryOp::Mul, q, scale)?;
        }
        let [k, v] = self.keys_and_values(layer, own, positions, turns)?;
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
        let shape = [self.tokens.clone(), (config.heads * config.head_dim_of(layer)).into()];
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
