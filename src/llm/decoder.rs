//! The forward pass of a `llama` model as a graph.
//!
//! Letters in the shapes: `s` tokens of this run (`seq`), `p` positions in the cache before them
//! (`past`), `c` positions that the cache holds, `d` width, `h` heads, `g` key and value heads,
//! `e` head size, `f` feed-forward width, `v` vocabulary.

use super::config::Config;
use super::weights::{self, ROPE_FREQUENCIES, Weight};
use crate::base::{DType, Dim, Format, Shape, Symbol};
use crate::error::{Error, Result};
use crate::ir::{BinaryOp, Graph, NodeId, Op, RopePairs, UnaryOp};

/// Tokens of this run.
pub const SEQ: Symbol = Symbol::new("seq");
/// Positions in the cache before them.
pub const PAST: Symbol = Symbol::new("past");

/// What a run of the decoder is to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// Nothing: it only fills the cache.
    Cache,
    /// The logits after the last token: `[v]`, f32.
    Logits,
    /// The id of the largest logit after the last token: `[1]`, u32.
    Token,
}

/// Name of the state that holds the keys (`k`) or values (`v`) of a layer.
pub(super) fn cache_name(kind: char, layer: usize) -> String {
    format!("cache.{layer}.{kind}")
}

/// The forward pass over `context` positions of cache. Inputs: `tokens` and `positions`, `[s]` i32.
pub(super) fn decoder(
    config: &Config,
    weights: &[Weight],
    context: usize,
    wanted: Wanted,
) -> Result<Graph> {
    let name = format!("{} {wanted:?}", config.architecture);
    let mut b = Builder { graph: Graph::new(name), config, weights, context };
    let s = Dim::symbol(SEQ);
    let tokens = b.graph.input("tokens", Shape::new([s.clone()]), DType::I32); // [s]
    let positions = b.graph.input("positions", Shape::new([s.clone()]), DType::I32); // [s]
    let frequencies = b.weight(ROPE_FREQUENCIES)?; // [rope_dim / 2]
    let embedding = b.weight("token_embd.weight")?; // [v, d]

    let mut x = b.add("embedding", Op::Gather { axis: 0 }, &[embedding, tokens])?; // [s, d]
    for layer in 0..config.layers {
        let h = b.norm(layer, "attn_norm", x)?; // [s, d]
        let a = b.attention(layer, h, positions, frequencies)?; // [s, d]
        x = b.binary(layer, "attn_residual", BinaryOp::Add, x, a)?; // [s, d]
        let h = b.norm(layer, "ffn_norm", x)?; // [s, d]
        let y = b.feed_forward(layer, h)?; // [s, d]
        x = b.binary(layer, "ffn_residual", BinaryOp::Add, x, y)?; // [s, d]
    }
    if wanted == Wanted::Cache {
        return Ok(b.graph);
    }

    let last = Op::Slice { axis: 0, start: s - Dim::new(1), len: Dim::new(1), step: 1 };
    let x = b.add("last", last, &[x])?; // [1, d]
    let norm = b.weight("output_norm.weight")?; // [d]
    let x = b.add("output_norm", Op::RmsNorm { eps: config.norm_epsilon }, &[x, norm])?; // [1, d]
    let output = match config.tied_output {
        true => embedding,
        false => b.weight("output.weight")?, // [v, d]
    };
    let logits = b.add("output", Op::Linear, &[x, output])?; // [1, v]
    match wanted {
        Wanted::Token => {
            let token = b.add("argmax", Op::ArgMax, &[logits])?; // [1]
            b.graph.output("token", token)?;
        }
        _ => b.graph.output("logits", logits)?,
    }
    Ok(b.graph)
}

impl Config {
    /// The forward pass of a model of these numbers whose matrices are all stored in one format,
    /// over a cache of `context` positions: for plans of models that are not here.
    ///
    /// # Errors
    /// Invalid, naming the weight, where a size is not whole blocks of the format.
    pub fn graph(&self, format: Format, context: usize, wanted: Wanted) -> Result<Graph> {
        decoder(self, &weights::table(self, |_, _| Ok(format))?, context, wanted)
    }
}

struct Builder<'a> {
    graph: Graph,
    config: &'a Config,
    weights: &'a [Weight],
    context: usize,
}

impl Builder<'_> {
    fn add(&mut self, label: impl Into<String>, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        let label = label.into();
        let node = self.graph.add(op, inputs).map_err(|e| e.context(&label))?;
        Ok(self.graph.label(node, label))
    }

    fn weight(&mut self, name: &str) -> Result<NodeId> {
        let weight = self.weights.iter().find(|w| w.name == name);
        let weight = weight.ok_or_else(|| Error::invalid(format!("no weight {name:?}")))?;
        let shape = weight.shape.iter().copied().collect();
        Ok(self.graph.weight(name, shape, weight.format))
    }

    fn norm(&mut self, layer: usize, name: &str, x: NodeId) -> Result<NodeId> {
        let weight = self.weight(&format!("blk.{layer}.{name}.weight"))?;
        let eps = self.config.norm_epsilon;
        self.add(format!("blk.{layer}.{name}"), Op::RmsNorm { eps }, &[x, weight])
    }

    fn linear(&mut self, layer: usize, name: &str, x: NodeId) -> Result<NodeId> {
        let weight = self.weight(&format!("blk.{layer}.{name}.weight"))?;
        self.add(format!("blk.{layer}.{name}"), Op::Linear, &[x, weight])
    }

    fn binary(
        &mut self,
        layer: usize,
        name: &str,
        op: BinaryOp,
        a: NodeId,
        b: NodeId,
    ) -> Result<NodeId> {
        self.add(format!("blk.{layer}.{name}"), Op::Binary(op), &[a, b])
    }

    /// `x` `[s, heads * e]` -> `[s, heads, e]`.
    fn split_heads(&mut self, x: NodeId, heads: usize) -> Result<NodeId> {
        let shape = [Dim::symbol(SEQ), heads.into(), self.config.head_dim.into()];
        self.add("", Op::Reshape(Shape::new(shape)), &[x])
    }

    /// The cache of a layer with `x` `[s, g, e]` written at `p`: what is filled of it, `[p + s, g, e]`.
    fn cached(&mut self, layer: usize, kind: char, x: NodeId) -> Result<NodeId> {
        let name = cache_name(kind, layer);
        let shape = Shape::new([self.context, self.config.kv_heads, self.config.head_dim]);
        let state = self.graph.state(&name, shape, DType::F32); // [c, g, e]
        let at = Dim::symbol(PAST);
        let label = format!("blk.{layer}.cache_{kind}");
        let cache = self.add(label, Op::Update { at: at.clone() }, &[state, x])?; // [c, g, e]
        let len = at + Dim::symbol(SEQ);
        self.add("", Op::Slice { axis: 0, start: Dim::new(0), len, step: 1 }, &[cache])
    }

    /// `h` `[s, d]` -> `[s, d]`.
    fn attention(
        &mut self,
        layer: usize,
        h: NodeId,
        positions: NodeId,
        frequencies: NodeId,
    ) -> Result<NodeId> {
        let config = self.config;
        let rope = Op::Rope { pairs: RopePairs::Interleaved, rot_dim: config.rope_dim };
        let q = self.linear(layer, "attn_q", h)?; // [s, h * e]
        let k = self.linear(layer, "attn_k", h)?; // [s, g * e]
        let v = self.linear(layer, "attn_v", h)?; // [s, g * e]
        let q = self.split_heads(q, config.heads)?; // [s, h, e]
        let k = self.split_heads(k, config.kv_heads)?; // [s, g, e]
        let v = self.split_heads(v, config.kv_heads)?; // [s, g, e]
        let inputs = |x| [x, positions, frequencies];
        let q = self.add(format!("blk.{layer}.rope_q"), rope.clone(), &inputs(q))?; // [s, h, e]
        let k = self.add(format!("blk.{layer}.rope_k"), rope, &inputs(k))?; // [s, g, e]
        let k = self.cached(layer, 'k', k)?; // [p + s, g, e]
        let v = self.cached(layer, 'v', v)?; // [p + s, g, e]
        let op = Op::Attention {
            scale: 1.0 / (config.head_dim as f32).sqrt(),
            causal: true,
            window: None,
            past: Dim::symbol(PAST),
        };
        let a = self.add(format!("blk.{layer}.attention"), op, &[q, k, v])?; // [s, h, e]
        let shape = [Dim::symbol(SEQ), (config.heads * config.head_dim).into()];
        let a = self.add("", Op::Reshape(Shape::new(shape)), &[a])?; // [s, h * e]
        self.linear(layer, "attn_output", a)
    }

    /// `down(silu(gate(h)) * up(h))`; `h` `[s, d]` -> `[s, d]`.
    fn feed_forward(&mut self, layer: usize, h: NodeId) -> Result<NodeId> {
        let gate = self.linear(layer, "ffn_gate", h)?; // [s, f]
        let up = self.linear(layer, "ffn_up", h)?; // [s, f]
        let label = format!("blk.{layer}.ffn_silu");
        let gate = self.add(label, Op::Unary(UnaryOp::Silu), &[gate])?; // [s, f]
        let y = self.binary(layer, "ffn_gated", BinaryOp::Mul, gate, up)?; // [s, f]
        self.linear(layer, "ffn_down", y)
    }
}
