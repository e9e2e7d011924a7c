//! The forward pass of a model as a graph, shared by all architectures; [`Architecture`] holds the
//! differences.
//!
//! Letters in the shapes: `s` tokens of this run (`seq`), `p` cached positions before them
//! (`past`), `n` rows of the cache, `d` width, `h` heads, `g` key and value heads, `e` head size,
//! `f` feed-forward width, `v` vocabulary.

use super::config::{Activation, Architecture, Config};
use super::rope::{LOCAL_ROPE_FREQUENCIES, ROPE_FREQUENCIES};
use super::weights::{self, Need, Weight};
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

/// Name of the state that holds the token chosen by the last run of each sequence.
pub(super) const CHOSEN: &str = "chosen";

/// Builds the forward pass over a KV cache. Inputs, i32: `tokens` (not in run-ahead decoding) and
/// `positions`, `[s]`; for a batch also `rows` `[s]`, the cache rows to write, and `spans`
/// `[s, 2]`, the first row and one past the last row that each token attends to. A batch that
/// chooses or reads chosen tokens has `slots` `[s]`, the sequences, as its first input. For
/// [`DecoderOutput::Sample`], `sample_params` (u32) is the last input.
pub(super) fn decoder(
    config: &Config,
    weights: &[Weight],
    cache: CacheShape,
    input: DecoderInput,
    output: DecoderOutput,
) -> Result<Graph> {
    let architecture = config.architecture;
    let name = format!("{} {}{}", architecture.name, output.label(), input.suffix());
    let mut graph = Graph::new(name);
    let s = if input == DecoderInput::RunAhead { Dim::new(1) } else { Dim::symbol(SEQ) };
    let base = if cache.sequences == 1 { Dim::new(0) } else { Dim::symbol(BASE) };
    let chosen = Chosen::new(&mut graph, cache, input, output, &base);
    let tokens = match &chosen {
        Some(chosen) if input.is_run_ahead() => chosen.read(&mut graph, chosen.state)?, // [1], or [s]
        _ => graph.input("tokens", Shape::new([s.clone()]), DType::I32),                // [s]
    };
    let positions = graph.input("positions", Shape::new([s.clone()]), DType::I32); // [s]
    let place = match input {
        DecoderInput::Tokens | DecoderInput::RunAhead => Place::From(base),
        DecoderInput::Batch | DecoderInput::BatchRunAhead => Place::Rows {
            rows: graph.input("rows", Shape::new([s.clone()]), DType::I32),
            spans: graph.input("spans", Shape::new([s.clone(), Dim::new(2)]), DType::I32),
        },
    };
    let tokens_len = s.clone();
    let mut b = Builder { graph, config, architecture, weights, cache, place, tokens: tokens_len };
    let turns = b.weight(ROPE_FREQUENCIES)?; // [rope_dim / 2]
    let local_turns = match config.local_rope_base {
        Some(_) => b.weight(LOCAL_ROPE_FREQUENCIES)?, // [rope_dim / 2]
        None => turns,
    };
    let embedding = b.weight("token_embd.weight")?; // [v, d]

    let mut x = b.add("embedding", Op::Gather { axis: 0 }, &[embedding, tokens])?; // [s, d]
    if architecture.scales_embedding {
        let root = (config.width as f32).sqrt();
        let root = b.graph.constant_f32(Shape::new([1u64]), &[root]); // [1]
        x = b.add("embedding_scale", Op::Binary(BinaryOp::Mul), &[x, root])?; // [s, d]
    }
    for layer in 0..config.layers {
        let h = b.norm(layer, "attn_norm", x)?; // [s, d]
        let turns = if config.is_local(layer) { local_turns } else { turns };
        let mut a = b.attention(layer, h, [positions, turns])?; // [s, d]
        if architecture.post_norms {
            a = b.norm(layer, "post_attention_norm", a)?; // [s, d]
        }
        x = b.binary(layer, "attn_residual", BinaryOp::Add, x, a)?; // [s, d]
        let h = b.norm(layer, "ffn_norm", x)?; // [s, d]
        let mut y = b.feed_forward(layer, h)?; // [s, d]
        if architecture.post_norms {
            y = b.norm(layer, "post_ffw_norm", y)?; // [s, d]
        }
        x = b.binary(layer, "ffn_residual", BinaryOp::Add, x, y)?; // [s, d]
    }
    if output == DecoderOutput::Nothing {
        return Ok(b.graph);
    }

    // From here on, `x` has one row per sequence or per token.
    if !input.is_batch() && output != DecoderOutput::AllLogits {
        let last = Op::Slice { axis: 0, start: s - Dim::new(1), len: Dim::new(1), step: 1 };
        x = b.add("last", last, &[x])?; // [1, d]
    }
    let norm = b.weight("output_norm.weight")?; // [d]
    let x = b.add("output_norm", Op::RmsNorm { eps: config.norm_epsilon }, &[x, norm])?; // [1, d]
    let logits = match config.tied_output {
        true => b.add("output", Op::linear(), &[x, embedding])?, // [1, v]
        false => b.product("output", x)?,                        // [1, v]
    };
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

/// The state of chosen tokens, and the slots of it that a run uses.
struct Chosen {
    /// The state, `[sequences]` u32.
    state: NodeId,
    at: At,
}

/// The slots of the state that a run reads and writes.
enum At {
    /// The slot of one sequence, by its index.
    Row(Dim),
    /// The slots of a batch of sequences, by their indices `[s]`.
    Slots(NodeId),
}

impl Chosen {
    /// Adds the state to the graph; `None` if the run neither chooses a token nor reads a chosen
    /// one.
    fn new(
        graph: &mut Graph,
        cache: CacheShape,
        input: DecoderInput,
        output: DecoderOutput,
        base: &Dim,
    ) -> Option<Chosen> {
        if !output.is_token() && !input.is_run_ahead() {
            return None;
        }
        let state = graph.state(CHOSEN, Shape::new([cache.sequences]), DType::U32);
        let at = match input.is_batch() {
            true => At::Slots(graph.input("slots", Shape::new([Dim::symbol(SEQ)]), DType::I32)),
            false => At::Row(base.floor_div(&Dim::from(cache.context))),
        };
        Some(Chosen { state, at })
    }

    /// Stores the chosen tokens in the state and returns them: `[1]`, or `[s]` for a batch.
    fn keep(&self, b: &mut Builder<'_>, token: NodeId) -> Result<NodeId> {
        match &self.at {
            At::Row(at) => {
                let op = Op::Update { at: at.clone() };
                let state = b.add(CHOSEN, op, &[self.state, token])?; // [sequences]
                self.read(&mut b.graph, state)
            }
            // The stored state is not read again, which saves a step.
            At::Slots(slots) => {
                b.add(CHOSEN, Op::Scatter, &[self.state, token, *slots])?; // [sequences]
                Ok(token)
            }
        }
    }

    /// Reads the slots of `state` `[sequences]`: `[1]`, or `[s]` for a batch.
    fn read(&self, graph: &mut Graph, state: NodeId) -> Result<NodeId> {
        match &self.at {
            At::Row(at) => {
                let op = Op::Slice { axis: 0, start: at.clone(), len: Dim::new(1), step: 1 };
                graph.add(op, &[state])
            }
            At::Slots(slots) => graph.add(Op::Gather { axis: 0 }, &[state, *slots]),
        }
    }
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
    /// Number of tokens, `s`.
    tokens: Dim,
}

/// The cache rows of a run's tokens.
#[derive(Clone)]
enum Place {
    /// Consecutive rows, after the first `p` rows of the sequence that begins at this row.
    From(Dim),
    /// One row for each token, and the span of rows that the token attends to.
    Rows { rows: NodeId, spans: NodeId },
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

    fn find_weight(&mut self, name: &str) -> Option<NodeId> {
        let weight = self.weights.iter().find(|w| w.name == name)?;
        let shape = weight.shape.iter().copied().collect();
        Some(self.graph.weight(name, shape, weight.format))
    }

    fn norm(&mut self, layer: usize, name: &str, x: NodeId) -> Result<NodeId> {
        let weight = self.weight(&format!("blk.{layer}.{name}.weight"))?;
        let eps = self.config.norm_epsilon;
        self.add(format!("blk.{layer}.{name}"), Op::RmsNorm { eps }, &[x, weight])
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

    /// Reshapes `x` `[s, heads * e]` to `[s, heads, e]`.
    fn split_heads(&mut self, x: NodeId, heads: usize) -> Result<NodeId> {
        let shape = [self.tokens.clone(), heads.into(), self.config.head_dim.into()];
        self.add("", Op::Reshape(Shape::new(shape)), &[x])
    }

    /// Writes `x` `[s, g, e]` to the KV cache of a layer and returns the filled rows of the
    /// sequence, `[p + s, g, e]`, or for a batch all rows, `[n, g, e]`.
    fn cached(&mut self, layer: usize, kind: char, x: NodeId) -> Result<NodeId> {
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

    /// Computes q `[s, h * e]`, k `[s, g * e]` and v `[s, g * e]` from the operand `h`, `[s, d]`.
    fn queries_keys_values(&mut self, layer: usize, h: NodeId) -> Result<[NodeId; 3]> {
        if !self.architecture.merged {
            let q = self.linear(layer, "attn_q", h)?;
            let k = self.linear(layer, "attn_k", h)?;
            return Ok([q, k, self.linear(layer, "attn_v", h)?]);
        }
        let (q, kv) = (self.config.heads * self.config.head_dim, self.config.kv_width());
        let all = self.linear(layer, "attn_qkv", h)?; // [s, (h + 2 g) * e]
        let [k, v] = [self.columns(all, q, kv)?, self.columns(all, q + kv, kv)?];
        Ok([self.columns(all, 0, q)?, k, v])
    }

    /// Prepares `x` `[s, heads * e]` for attention, `[s, heads, e]`: normalises each head if the
    /// architecture does so, and rotates it by its position.
    fn turned(
        &mut self,
        layer: usize,
        kind: char,
        x: NodeId,
        heads: usize,
        [positions, turns]: [NodeId; 2],
    ) -> Result<NodeId> {
        let mut x = self.split_heads(x, heads)?; // [s, heads, e]
        if self.architecture.head_norms {
            x = self.norm(layer, &format!("attn_{kind}_norm"), x)?;
        }
        let op = Op::Rope { pairs: self.architecture.rope, rot_dim: self.config.rope_dim };
        self.add(format!("blk.{layer}.rope_{kind}"), op, &[x, positions, turns])
    }

    /// Computes attention `[s, d]` from the operand `h`, `[s, d]`; `rope` holds positions `[s]` and
    /// frequencies `[rope_dim / 2]`.
    fn attention(&mut self, layer: usize, h: NodeId, rope: [NodeId; 2]) -> Result<NodeId> {
        let config = self.config;
        let [q, k, v] = self.queries_keys_values(layer, h)?;
        let q = self.turned(layer, 'q', q, config.heads, rope)?; // [s, h, e]
        let k = self.turned(layer, 'k', k, config.kv_heads, rope)?; // [s, g, e]
        let v = self.split_heads(v, config.kv_heads)?; // [s, g, e]
        let k = self.cached(layer, 'k', k)?; // [p + s, g, e] or [n, g, e]
        let v = self.cached(layer, 'v', v)?; // [p + s, g, e] or [n, g, e]
        let (causal, past, spans) = match self.place {
            Place::From(_) => (true, Dim::symbol(PAST), None),
            Place::Rows { spans, .. } => (false, Dim::new(0), Some(spans)),
        };
        let (scale, window) = (config.scale(layer), config.window(layer));
        let op = Op::attention(scale, causal, window, past);
        let operands: Vec<NodeId> = [q, k, v].into_iter().chain(spans).collect();
        let a = self.add(format!("blk.{layer}.attention"), op, &operands)?; // [s, h, e]
        let shape = [self.tokens.clone(), (config.heads * config.head_dim).into()];
        let mut a = self.add("", Op::Reshape(Shape::new(shape)), &[a])?; // [s, h * e]
        if self.architecture.sub_norms {
            a = self.norm(layer, "attn_sub_norm", a)?;
        }
        self.linear(layer, "attn_output", a)
    }

    /// Computes `down(activation(gate(h)) * up(h))`, `[s, d]`, from the operand `h`, `[s, d]`.
    fn feed_forward(&mut self, layer: usize, h: NodeId) -> Result<NodeId> {
        let (gate, up) = match self.architecture.merged {
            true => {
                let f = self.config.feed_forward;
                let both = self.linear(layer, "ffn_up", h)?; // [s, 2 f]
                (self.columns(both, 0, f)?, self.columns(both, f, f)?)
            }
            false => (self.linear(layer, "ffn_gate", h)?, self.linear(layer, "ffn_up", h)?),
        }; // [s, f]
        let gate = self.activation(layer, gate)?; // [s, f]
        let mut y = self.binary(layer, "ffn_gated", BinaryOp::Mul, gate, up)?; // [s, f]
        if self.architecture.sub_norms {
            y = self.norm(layer, "ffn_sub_norm", y)?;
        }
        self.linear(layer, "ffn_down", y)
    }

    fn activation(&mut self, layer: usize, x: NodeId) -> Result<NodeId> {
        let (name, op) = match self.architecture.activation {
            Activation::Silu => ("ffn_silu", UnaryOp::Silu),
            Activation::GeluTanh => ("ffn_gelu", UnaryOp::GeluTanh),
            Activation::ReluSquared => ("ffn_relu", UnaryOp::Relu),
        };
        let y = self.add(format!("blk.{layer}.{name}"), Op::Unary(op), &[x])?;
        match self.architecture.activation {
            Activation::ReluSquared => self.binary(layer, "ffn_squared", BinaryOp::Mul, y, y),
            Activation::Silu | Activation::GeluTanh => Ok(y),
        }
    }
}
