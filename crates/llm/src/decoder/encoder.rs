//! The forward pass of several whole texts, without a cache: their tokens one after the other, each
//! of which attends to tokens of its own text, and one vector for each text.

use super::{Builder, CacheShape, Place, SEQ, Spans};
use crate::config::{Config, EmbeddingParts, Pooling};
use crate::weights::Weight;
use std::collections::HashMap;
use warploom::graph::{BinaryOp, Graph, NodeId, Op, UnaryOp};
use warploom::{Error, Result};
use warploom_core::base::{DType, Dim, Shape, Symbol};

/// Symbol: the number of texts of a run.
pub const TEXTS: Symbol = Symbol::new("texts");

/// Builds the forward pass of texts. Letters in the shapes are those of the decoder, and `t` texts.
/// Inputs: `tokens` and `positions` `[s]`, i32; `types` `[s]`, i32, if there are several token types;
/// `spans` `[s, 2]`, i32, the first token and one past the last that each token attends to;
/// `local_spans`, the same in layers with a window, if there are any; and `pool` `[t, s]`, f32, the
/// share of each token in the vector of each text. The output is `embeddings`, f32: `[t, d]`, or
/// as many elements as the last dense layer has results; of a reranker `[t, 1]`, or `[t, 2]`, the
/// logits of yes and of no. `answers` are the tokens of these, for files without a layer for them.
///
/// # Errors
/// Unsupported for a model with recurrent layers, whose states are those of one text.
pub(crate) fn graph(
    config: &Config,
    weights: &[Weight],
    answers: Option<[u32; 2]>,
) -> Result<Graph> {
    let architecture = config.architecture;
    if config.is_recurrent() {
        let name = architecture.name;
        return Err(Error::unsupported(format!(
            "vectors of texts by {name}: its layers are recurrent"
        )));
    }
    let mut graph = Graph::new(format!("{} Embeddings", architecture.name));
    let (s, t) = (Dim::symbol(SEQ), Dim::symbol(TEXTS));
    let tokens = graph.input("tokens", Shape::new([s.clone()]), DType::I32); // [s]
    let positions = graph.input("positions", Shape::new([s.clone()]), DType::I32); // [s]
    let types =
        has_types(config).then(|| graph.input("types", Shape::new([s.clone()]), DType::I32)); // [s]
    let mut spans =
        |name: &str| graph.input(name, Shape::new([s.clone(), Dim::new(2)]), DType::I32);
    let all = spans("spans"); // [s, 2]
    let local = if has_windows(config) { spans("local_spans") } else { all }; // [s, 2]
    let pool = graph.input("pool", Shape::new([t, s.clone()]), DType::F32); // [t, s]
    let mut b = Builder {
        graph,
        config,
        architecture,
        weights,
        cache: CacheShape::new(1, 1, DType::F32),
        place: Place::From(Dim::new(0)),
        texts: Some(Spans { all, local }),
        tokens: s,
        kept: HashMap::new(),
        layer_inputs: None,
        query_scale: None,
    };
    let embedding = b.weight("token_embd.weight")?; // [v, d]
    let mut x = b.embedded(embedding, tokens)?; // [s, d]
    b.layer_inputs = b.embedded_for_layers(tokens, x)?; // [s, layers, n]
    if architecture.embedding != EmbeddingParts::None {
        x = b.with_parts(x, positions, types)?; // [s, d]
    }
    let turns = b.turns()?;
    b.query_scale = b.tempered(positions)?; // [s, 1, 1]
    for layer in 0..config.layers {
        x = b.block(layer, x, positions, &turns)?; // [s, d]
    }
    if !architecture.sum_norms {
        x = b.normalised(architecture.output_norm, x)?; // [s, d]
    }
    let mut output = b.add("embeddings", Op::MatMul, &[pool, x])?; // [t, d]
    for layer in 2..2 + config.dense.len() {
        output = b.product(&format!("dense_{layer}"), output)?; // [t, ..]
    }
    output = match (config.pooling, answers) {
        (Pooling::Score, _) => b.score(output)?, // [t, 1] or [t, 2]
        (_, Some(answers)) => b.answer(output, embedding, answers)?, // [t, 2]
        (_, None) => output,
    };
    b.graph.output("embeddings", output)?;
    Ok(b.graph)
}

/// Returns whether tokens have types of their own, so that a run has the input `types`.
pub(crate) fn has_types(config: &Config) -> bool {
    config.token_types > 1
}

/// Returns whether a layer has a window, so that a run has the input `local_spans`.
pub(crate) fn has_windows(config: &Config) -> bool {
    (0..config.layers).any(|layer| config.window(layer).is_some())
}

impl Builder<'_> {
    /// Adds the embeddings of positions, if there are any, and of token types to `x`, and normalises
    /// the sum.
    fn with_parts(
        &mut self,
        mut x: NodeId,
        positions: NodeId,
        types: Option<NodeId>,
    ) -> Result<NodeId> {
        let gather = Op::Gather { axis: 0 };
        if self.architecture.embedding == EmbeddingParts::PositionsAndTypes {
            let table = self.weight("position_embd.weight")?; // [context, d]
            let rows = self.add("position_embedding", gather.clone(), &[table, positions])?; // [s, d]
            x = self.add("", Op::Binary(BinaryOp::Add), &[x, rows])?;
        }
        let table = self.weight("token_types.weight")?; // [types, d]
        let ids = match types {
            Some(types) => types,                                      // [s]
            None => self.graph.constant_i32(Shape::new([1u64]), &[0]), // [1]
        };
        let rows = self.add("token_type", gather, &[table, ids])?; // [s, d] or [1, d]
        let x = self.add("", Op::Binary(BinaryOp::Add), &[x, rows])?; // [s, d]
        self.normalised("token_embd_norm", x)
    }

    /// Computes the logits of two tokens, `[t, 2]`.
    fn answer(&mut self, x: NodeId, embedding: NodeId, tokens: [u32; 2]) -> Result<NodeId> {
        let matrix = match self.config.tied_output {
            true => embedding,                      // [v, d]
            false => self.weight("output.weight")?, // [v, d]
        };
        let ids = self.graph.constant_i32(Shape::new([2u64]), &tokens.map(|id| id as i32)); // [2]
        let rows = self.add("answers", Op::Gather { axis: 0 }, &[matrix, ids])?; // [2, d]
        let columns = self.add("", Op::Transpose(vec![1, 0]), &[rows])?; // [d, 2]
        self.add("answer_logits", Op::MatMul, &[x, columns])
    }

    /// Computes the score of each text, `[t, 1]`, or the logits of yes and no, `[t, 2]`.
    fn score(&mut self, mut x: NodeId) -> Result<NodeId> {
        if self.has_weight("cls.weight") {
            x = self.product("cls", x)?; // [t, d]
            x = self.add("cls.tanh", Op::Unary(UnaryOp::Tanh), &[x])?; // [t, d]
        }
        self.product("cls.output", x)
    }
}
