//! The forward pass of a model as a graph, shared by all architectures; [`Architecture`] holds the
//! differences.
//!
//! Letters in the shapes: `s` tokens of this run (`seq`), `p` cached positions before them
//! (`past`), `n` rows of the cache, `d` width, `h` heads, `g` key and value heads, `e` head size,
//! `f` feed-forward width, `v` vocabulary.

mod attention;
mod chosen;
mod delta_net;
mod encoder;
mod feed_forward;
mod layer_embedding;
mod short_conv;
mod temperature;

use chosen::Chosen;
pub use encoder::TEXTS;
pub(super) use encoder::{graph as encoder, has_types, has_windows};

use super::config::{Architecture, Config, Norm};
use super::rope::{LOCAL_ROPE_FREQUENCIES, ROPE_FREQUENCIES};
use super::weights::{self, Need, Weight};
use std::collections::HashMap;
use warploom::graph::{BinaryOp, Graph, NodeId, Op, UnaryOp};
use warploom::{Error, Result};
use warploom_core::base::{DType, Dim, Format, Shape, Symbol};
use warploom_core::sampling::SampleParams;

/// Symbol: the number of tokens of a run.
pub const SEQ: Symbol = Symbol::new("seq");
/// Symbol: the number of cached positions before the tokens of a run.
pub const PAST: Symbol = Symbol::new("past");
/// Symbol: the first cache row of the sequence that a run extends, in a cache of several sequences.
pub const BASE: Symbol = Symbol::new("base");

/// Size and type of a decoder's KV cache: `sequences * context` rows in each layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CacheShape {
    /// Number of sequences.
    pub sequences: usize,
    /// Positions per sequence.
    pub context: usize,
    /// Element type: f32, or f16 for half the memory.
    pub dtype: DType,
}

impl CacheShape {
    /// Describes a cache of `sequences` sequences of `context` positions each.
    pub fn new(sequences: usize, context: usize, dtype: DType) -> CacheShape {
        CacheShape { sequences, context, dtype }
    }

    /// Returns the number of rows in each layer.
    pub fn rows(&self) -> usize {
        self.sequences * self.context
    }
}

/// The tokens that a run of a decoder graph reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecoderInput {
    /// Consecutive tokens of one sequence.
    Tokens,
    /// One token of one sequence: the token that its previous run chose, which is still on the
    /// device. Such a run needs no host round trip.
    RunAhead,
    /// One token of each of several sequences.
    Batch,
    /// One token of each of several sequences: the tokens that the previous run chose, which are
    /// still on the device.
    BatchRunAhead,
}

impl DecoderInput {
    /// Returns whether the run has one token of each of several sequences.
    pub fn is_batch(self) -> bool {
        matches!(self, DecoderInput::Batch | DecoderInput::BatchRunAhead)
    }

    /// Returns whether the tokens are those that the previous run chose.
    pub fn is_run_ahead(self) -> bool {
        matches!(self, DecoderInput::RunAhead | DecoderInput::BatchRunAhead)
    }

    /// Returns the suffix of the names of graphs with this input.
    fn suffix(self) -> &'static str {
        match self {
            DecoderInput::Tokens => "",
            DecoderInput::RunAhead => " run-ahead",
            DecoderInput::Batch => " batch",
            DecoderInput::BatchRunAhead => " batch run-ahead",
        }
    }
}

/// The output of a decoder graph. For a batch, the size 1 in these shapes is the number of
/// sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecoderOutput {
    /// Nothing: the run only fills the KV cache.
    Nothing,
    /// The logits after the last token: `[1, vocabulary]`, f32.
    Logits,
    /// The logits after every token: `[seq, vocabulary]`, f32.
    AllLogits,
    /// The id of the largest logit after the last token ([`Op::Greedy`]): `[1]`, u32.
    Greedy,
    /// The id of a token sampled from the logits after the last token: `[1]`, u32. The parameters
    /// ([`SampleParams`]) are the last input, `sample_params` `[1, 7]`, u32.
    Sample,
}

impl DecoderOutput {
    /// Returns whether the device chooses a token.
    pub fn is_token(self) -> bool {
        matches!(self, DecoderOutput::Greedy | DecoderOutput::Sample)
    }

    /// Returns the label of this output in the names of graphs.
    fn label(self) -> &'static str {
        match self {
            DecoderOutput::Nothing => "Cache",
            DecoderOutput::Logits => "Logits",
            DecoderOutput::AllLogits => "AllLogits",
            DecoderOutput::Greedy => "Token",
            DecoderOutput::Sample => "Sample",
        }
    }
}

/// Returns the name of the state that holds the keys (`k`) or values (`v`) of a layer.
pub(super) fn cache_name(kind: char, layer: usize) -> String {
    format!("cache.{layer}.{kind}")
}

/// Returns the name of the state of a layer's convolution.
pub(super) fn conv_name(layer: usize) -> String {
    format!("state.{layer}.conv")
}

/// Returns the name of the state of a layer's recurrence.
pub(super) fn delta_name(layer: usize) -> String {
    format!("state.{layer}.delta")
}

/// Name of the state that holds the token chosen by the last run of each sequence.
pub(super) const CHOSEN: &str = "chosen";

/// Returns whether a run has the input `slots`, the sequences of a batch.
pub(super) fn has_slots(config: &Config, input: DecoderInput, output: DecoderOutput) -> bool {
    let chooses = output.is_token() || input.is_run_ahead();
    input.is_batch() && (chooses || config.is_recurrent())
}

/// Builds the forward pass over a KV cache. Inputs, i32: `tokens` (not in run-ahead decoding) and
/// `positions`, `[s]`; for a batch also `rows` `[s]`, the cache rows to write, and `spans`
/// `[s, 2]`, the first row and one past the last row that each token attends to. A batch that
/// chooses or reads chosen tokens, or has recurrent states, has `slots` `[s]`, the sequences, as its
/// first input. For
/// [`DecoderOutput::Sample`], `sample_params` (u32) is the last input.
pub(super) fn decoder(
    config: &Config,
    weights: &[Weight],
    cache: CacheShape,
    input: DecoderInput,
    output: DecoderOutput,
) -> Result<Graph> {
    let architecture = config.architecture;
    if architecture.encodes {
        return Err(Error::invalid(format!(
            "architecture {} is an encoder, which generates no text: `Embedder`, or the command \
             `embed`, returns its vectors",
            architecture.name
        )));
    }
    let name = format!("{} {}{}", architecture.name, output.label(), input.suffix());
    let mut graph = Graph::new(name);
    let s = if input == DecoderInput::RunAhead { Dim::new(1) } else { Dim::symbol(SEQ) };
    let base = if cache.sequences == 1 { Dim::new(0) } else { Dim::symbol(BASE) };
    // The first input, if there is one.
    let slots = has_slots(config, input, output)
        .then(|| graph.input("slots", Shape::new([Dim::symbol(SEQ)]), DType::I32));
    let chosen = Chosen::new(&mut graph, cache, input, output, &base, slots);
    let tokens = match &chosen {
        Some(chosen) if input.is_run_ahead() => chosen.read(&mut graph, chosen.state)?, // [1], or [s]
        _ => graph.input("tokens", Shape::new([s.clone()]), DType::I32),                // [s]
    };
    let positions = graph.input("positions", Shape::new([s.clone()]), DType::I32); // [s]
    let place = match input {
        DecoderInput::Tokens | DecoderInput::RunAhead => Place::From(base),
        DecoderInput::Batch | DecoderInput::BatchRunAhead => Place::Rows {
            slots,
            rows: graph.input("rows", Shape::new([s.clone()]), DType::I32),
            spans: graph.input("spans", Shape::new([s.clone(), Dim::new(2)]), DType::I32),
        },
    };
    let tokens_len = s.clone();
    let mut b = Builder {
        graph,
        config,
        architecture,
        weights,
        cache,
        place,
        texts: None,
        tokens: tokens_len,
        kept: HashMap::new(),
        layer_inputs: None,
        query_scale: None,
    };
    let embedding = b.weight("token_embd.weight")?; // [v, d]
    let mut x = b.embedded(embedding, tokens)?; // [s, d]
    b.layer_inputs = b.embedded_for_layers(tokens, x)?; // [s, layers, n]
    let turns = b.turns()?;
    b.query_scale = b.tempered(positions)?; // [s, 1, 1]
    for layer in 0..config.layers {
        x = b.block(layer, x, positions, &turns)?; // [s, d]
    }
    if output == DecoderOutput::Nothing {
        return Ok(b.graph);
    }

    // From here on, `x` has one row per sequence or per token.
    if !input.is_batch() && output != DecoderOutput::AllLogits {
        let last = Op::Slice { axis: 0, start: s - Dim::new(1), len: Dim::new(1), step: 1 };
        x = b.add("last", last, &[x])?; // [1, d]
    }
    let x = b.normalised(architecture.output_norm, x)?; // [1, d]
    let logits = match config.tied_output {
        true => b.add("output", Op::linear(), &[x, embedding])?, // [1, v]
        false => b.product("output", x)?,                        // [1, v]
    };
    let logits = b.scaled("logit_scale", logits, config.logit_scale)?; // [1, v]
    let logits = b.capped(logits)?; // [1, v]
    if !output.is_token() {
        b.graph.output("logits", logits)?;
        return Ok(b.graph);
    }
    let mut token = match output {
        DecoderOutput::Sample => {
            let rows = if input.is_batch() { b.tokens.clone() } else { Dim::new(1) };
            let shape = Shape::new([rows, SampleParams::WORDS.into()]);
            let params = b.graph.input("sample_params", shape, DType::U32); // [1, 7] or [s, 7]
            b.add("sample", Op::Sample, &[logits, params])?
        }
        _ => b.add("argmax", Op::Greedy, &[logits])?,
    }; // [1], or [s] for a batch
    if let Some(chosen) = chosen {
        token = chosen.keep(&mut b, token)?;
    }
    b.graph.output("token", token)?;
    Ok(b.graph)
}

impl Config {
    /// Builds the forward pass of a model with these hyperparameters over an f32 cache of `context`
    /// positions, without a model file. All matrices have the given format.
    ///
    /// # Errors
    /// Invalid, naming the weight, if the size of a row is not a multiple of the format's block.
    pub fn graph(&self, format: Format, context: usize, output: DecoderOutput) -> Result<Graph> {
        let stored = |_: &str, _: &[u64], need| Ok((need == Need::Required).then_some(format));
        let cache = CacheShape { sequences: 1, context, dtype: DType::F32 };
        decoder(self, &weights::table(self, stored)?, cache, DecoderInput::Tokens, output)
    }
}

struct Builder<'a> {
    graph: Graph,
    config: &'a Config,
    architecture: &'static Architecture,
    weights: &'a [Weight],
    cache: CacheShape,
    place: Place,
    /// Of a run of whole texts, whose keys are those of the run.
    texts: Option<Spans>,
    /// Number of tokens, `s`.
    tokens: Dim,
    /// Keys and values that later layers read too, by the layer that has them.
    kept: HashMap<usize, [NodeId; 2]>,
    /// What each layer reads of the token itself, `[s, layers, n]`.
    layer_inputs: Option<NodeId>,
    /// Factor of the queries of each token, `[s, 1, 1]`.
    query_scale: Option<NodeId>,
}

/// The rotary frequencies, `[rope_dim / 2]`: of most layers, and of those with
/// [`Config::local_rope_base`].
struct Turns {
    all: NodeId,
    local: NodeId,
}

/// The tokens to which each token of whole texts attends, `[s, 2]`: in most layers, and in those with
/// a window. There is no cache.
#[derive(Clone, Copy)]
struct Spans {
    all: NodeId,
    local: NodeId,
}

/// The cache rows of a run's tokens.
#[derive(Clone)]
enum Place {
    /// Consecutive rows, after the first `p` rows of the sequence that begins at this row.
    From(Dim),
    /// One row for each token, and the span of rows that the token attends to; with recurrent states
    /// or chosen tokens, also its sequence.
    Rows { slots: Option<NodeId>, rows: NodeId, spans: NodeId },
}

impl Builder<'_> {
    fn add(&mut self, label: impl Into<String>, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        let label = label.into();
        let node = self.graph.add(op, inputs).map_err(|e| e.context(&label))?;
        Ok(self.graph.label(node, label))
    }

    fn weight(&mut self, name: &str) -> Result<NodeId> {
        let weight = self.find_weight(name);
        weight.ok_or_else(|| Error::invalid(format!("no weight {name:?}")))
    }

    fn has_weight(&self, name: &str) -> bool {
        self.weights.iter().any(|w| w.name == name)
    }

    fn find_weight(&mut self, name: &str) -> Option<NodeId> {
        let weight = self.weights.iter().find(|w| w.name == name)?;
        let shape = weight.shape.iter().copied().collect();
        Some(self.graph.weight(name, shape, weight.format))
    }

    /// Returns the embeddings of tokens, `[s, d]`.
    fn embedded(&mut self, embedding: NodeId, tokens: NodeId) -> Result<NodeId> {
        let x = self.add("embedding", Op::Gather { axis: 0 }, &[embedding, tokens])?; // [s, d]
        self.scaled("embedding_scale", x, self.config.embedding_scale)
    }

    /// Returns the rotary frequencies, if a layer rotates.
    fn turns(&mut self) -> Result<Option<Turns>> {
        let config = self.config;
        if !(0..config.layers).any(|layer| config.rotates(layer)) {
            return Ok(None);
        }
        let all = self.weight(ROPE_FREQUENCIES)?; // [rope_dim / 2]
        let local = match config.local_rope_base {
            Some(_) => self.weight(LOCAL_ROPE_FREQUENCIES)?, // [rope_dim / 2]
            None => all,
        };
        Ok(Some(Turns { all, local }))
    }

    /// Computes a layer, `[s, d]`.
    fn block(
        &mut self,
        layer: usize,
        x: NodeId,
        positions: NodeId,
        turns: &Option<Turns>,
    ) -> Result<NodeId> {
        let (config, architecture) = (self.config, self.architecture);
        let h = self.operand_of(layer, "attn_norm", x)?; // [s, d]
        let turns = turns.as_ref().map(|turns| match config.is_local(layer) {
            true => turns.local,
            false => turns.all,
        });
        let mut a = match (config.delta_net_of(layer), config.short_conv_of(layer)) {
            (Some(net), _) => self.delta_net(layer, net, h, positions)?,
            (None, Some(taps)) => self.short_conv(layer, taps, h, positions)?,
            (None, None) => self.attention(layer, h, positions, turns)?,
        }; // [s, d]
        if architecture.post_norms {
            a = self.norm(layer, "post_attention_norm", a)?; // [s, d]
        }
        a = self.scaled(&format!("blk.{layer}.attn_scale"), a, config.residual_scale)?; // [s, d]
        let mut x = self.binary(layer, "attn_residual", BinaryOp::Add, x, a)?; // [s, d]
        if architecture.sum_norms {
            x = self.norm(layer, "attn_output_norm", x)?; // [s, d]
        }
        let h = self.operand_of(layer, architecture.ffn_norm, x)?; // [s, d]
        let mut y = match config.experts_of(layer) {
            Some(experts) if experts.is_beside => self.beside_experts(layer, experts, x, h)?,
            _ => self.feed_forward(layer, h)?,
        }; // [s, d]
        if architecture.post_norms {
            y = self.norm(layer, "post_ffw_norm", y)?; // [s, d]
        }
        y = self.scaled(&format!("blk.{layer}.ffn_scale"), y, config.residual_scale)?; // [s, d]
        let x = self.binary(layer, "ffn_residual", BinaryOp::Add, x, y)?; // [s, d]
        match architecture.sum_norms {
            true => self.norm(layer, "layer_output_norm", x),
            false => self.with_layer_input(layer, x),
        }
    }

    fn norm(&mut self, layer: usize, name: &str, x: NodeId) -> Result<NodeId> {
        self.normalised(&format!("blk.{layer}.{name}"), x)
    }

    /// Normalises `x` along its last axis, with the weight of this name, and the bias of a LayerNorm.
    fn normalised(&mut self, name: &str, x: NodeId) -> Result<NodeId> {
        let weight = self.weight(&format!("{name}.weight"))?;
        let eps = self.config.norm_epsilon;
        match self.architecture.norm {
            Norm::Rms => self.add(name, Op::RmsNorm { eps }, &[x, weight]),
            Norm::Layer => {
                let bias = self.weight(&format!("{name}.bias"))?;
                self.add(name, Op::LayerNorm { eps }, &[x, weight, bias])
            }
        }
    }

    /// Normalises the operand of a part of a layer, if the architecture does so there.
    fn operand_of(&mut self, layer: usize, norm: &str, x: NodeId) -> Result<NodeId> {
        match self.architecture.pre_norms {
            true => self.norm(layer, norm, x),
            false => Ok(x),
        }
    }

    /// Multiplies `x` by a factor, unless that is 1.
    fn scaled(&mut self, label: &str, x: NodeId, factor: f32) -> Result<NodeId> {
        if factor == 1.0 {
            return Ok(x);
        }
        let factor = self.graph.constant_f32(Shape::new([1u64]), &[factor]); // [1]
        self.add(label, Op::Binary(BinaryOp::Mul), &[x, factor])
    }

    /// Bounds the logits, `c * tanh(x / c)`, if they have a soft cap `c`.
    fn capped(&mut self, x: NodeId) -> Result<NodeId> {
        let Some(cap) = self.config.logit_cap else { return Ok(x) };
        let x = self.scaled("logit_cap", x, 1.0 / cap)?;
        let x = self.add("logit_tanh", Op::Unary(UnaryOp::Tanh), &[x])?;
        self.scaled("logit_capped", x, cap)
    }

    fn linear(&mut self, layer: usize, name: &str, x: NodeId) -> Result<NodeId> {
        self.product(&format!("blk.{layer}.{name}"), x)
    }

    /// Multiplies `x` by a weight matrix, and applies the matrix's `scale` and `bias` if they
    /// exist.
    fn product(&mut self, name: &str, x: NodeId) -> Result<NodeId> {
        let weight = self.weight(&format!("{name}.weight"))?;
        let mut y = self.add(name, Op::linear(), &[x, weight])?;
        for (kind, op) in [("scale", BinaryOp::Mul), ("bias", BinaryOp::Add)] {
            let name = format!("{name}.{kind}");
            if let Some(operand) = self.find_weight(&name) {
                y = self.add(name, Op::Binary(op), &[y, operand])?;
            }
        }
        Ok(y)
    }

    /// Slices columns `from..from + len` from a matrix `x`: `[s, len]`.
    fn columns(&mut self, x: NodeId, from: usize, len: usize) -> Result<NodeId> {
        let op = Op::Slice { axis: 1, start: Dim::from(from), len: Dim::from(len), step: 1 };
        self.add("", op, &[x])
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
}
