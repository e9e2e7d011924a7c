//! A model file, read and checked: config, tokenizer, tensors.

use std::sync::Arc;

use super::config::Config;
use super::decoder::{self, CacheShape, DecoderInput, DecoderOutput};
#[cfg(not(target_arch = "wasm32"))]
use super::huggingface::Folder;
use super::tokenizer::Tokenizer;
use super::weights::{self, Weight};
use warploom::base::DType;
use warploom::error::{Error, Result};
use warploom::ir::Graph;
use warploom::provider::DeviceKind;
use warploom_models::gguf::Gguf;

/// Width from which GPUs keep weights in groups ([`Format::kept`](warploom::base::Format::kept)).
/// Measured on an H200: groups made Qwen2.5-0.5B (width 896, rows of 4,864 for `down`) 4 % slower
/// through Vulkan and 10 % through CUDA.
const GROUPED: usize = 2048;

/// A model, ready for a device.
pub struct Model {
    file: Gguf,
    config: Config,
    tokenizer: Tokenizer,
    weights: Vec<Weight>,
}

warploom::base::debug_as!(Model, |this| file: this.file.name(), weights: this.weights.len());

impl Model {
    /// Opens a GGUF file, or a Hugging Face folder (or a file in one), whose weights are copied
    /// into memory.
    ///
    /// # Errors
    /// Missing or wrong contents of the file, naming file, field and offset.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn open(
        path: impl AsRef<std::path::Path>,
        access: warploom_models::gguf::Access,
    ) -> Result<Arc<Model>> {
        match Folder::is_at(path.as_ref()) {
            true => Model::from_gguf(Folder::open(path.as_ref())?.gguf()?),
            false => Model::from_gguf(Gguf::open(path, access)?),
        }
    }

    /// The small trained model embedded in the crate: 7.3 M parameters, Q4_K, short stories.
    ///
    /// # Errors
    /// None, as the crate's tests check.
    #[cfg(feature = "embedded-model")]
    pub fn embedded() -> Result<Arc<Model>> {
        Model::from_gguf(Gguf::from_bytes(
            warploom_tiny_model::GGUF,
            "embedded warploom-tiny-llama-Q4_K_M.gguf",
        )?)
    }

    /// The model of an open file.
    ///
    /// # Errors
    /// Missing or wrong contents of the file, naming file, field and offset.
    pub fn from_gguf(file: Gguf) -> Result<Arc<Model>> {
        if !file.is_whole()? {
            return Err(Error::bad_file(format!(
                "{}: split.count: one of {} parts of a model, the others are not here",
                file.name(),
                file.split_count()?
            )));
        }
        super::foreign::refuse_no_model(&file)?;
        let config = Config::from_gguf(&file)?;
        let weights = weights::of_file(&file, &config)?;
        // Refuses ids without an embedding row before building a tokenizer that could return them.
        let tokens = file.strings("tokenizer.ggml.tokens")?.count();
        if tokens > config.vocabulary {
            return Err(Error::bad_file(format!(
                "{}: tokenizer.ggml.tokens: {tokens} tokens, but tensor token_embd.weight has {} \
                 rows",
                file.name(),
                config.vocabulary
            )));
        }
        let tokenizer = Tokenizer::from_gguf(&file)?;
        Ok(Arc::new(Model { file, config, tokenizer, weights }))
    }

    /// The file.
    pub fn file(&self) -> &Gguf {
        &self.file
    }

    /// Its hyperparameters.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Its tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The forward pass over a cache of `context` positions in f32, as a graph. Inputs `tokens` and
    /// `positions`, `[seq]` i32; symbols [`SEQ`](super::SEQ) and [`PAST`](super::PAST).
    ///
    /// # Errors
    /// None for a model that opened; otherwise errors of graph building.
    pub fn graph(&self, context: usize, output: DecoderOutput) -> Result<Graph> {
        let cache = CacheShape { sequences: 1, context, dtype: DType::F32 };
        self.graph_with(&self.weights, cache, DecoderInput::Tokens, output)
    }

    /// The forward pass over the KV cache of several sequences, for tokens of one of them or one
    /// token of each, as a session runs it on a device of this kind. Weights have the formats that
    /// the device keeps; on a CPU, those of the file. For one token of each, the inputs of
    /// [`Model::graph`] are followed by `rows` `[seq]` and `spans` `[seq, 2]`, i32; for one
    /// sequence of several there is one more symbol, [`BASE`](super::BASE).
    ///
    /// # Errors
    /// As [`Model::graph`].
    pub fn graph_on(
        &self,
        kind: DeviceKind,
        cache: CacheShape,
        input: DecoderInput,
        output: DecoderOutput,
    ) -> Result<Graph> {
        self.graph_with(&self.weights_on(kind), cache, input, output)
    }

    /// The same, with weights in these formats.
    pub(super) fn graph_with(
        &self,
        weights: &[Weight],
        cache: CacheShape,
        input: DecoderInput,
        output: DecoderOutput,
    ) -> Result<Graph> {
        decoder::decoder(&self.config, weights, cache, input, output)
    }

    /// The weights in the formats that a device keeps; on a CPU, those of the file.
    pub(super) fn weights_on(&self, kind: DeviceKind) -> Vec<Weight> {
        let grouped = self.config.width >= GROUPED;
        let kept = |weight: &Weight| match (kind, weight.shape.last()) {
            (DeviceKind::Cpu, _) | (_, None) => weight.clone(),
            (_, Some(columns)) => {
                Weight { format: weight.format.kept(*columns, grouped), ..weight.clone() }
            }
        };
        self.weights.iter().map(kept).collect()
    }

    /// Bytes of all weights on a device.
    pub fn weight_bytes(&self) -> u64 {
        self.weights.iter().filter_map(stored_bytes).sum()
    }

    /// Weight bytes read per token: all but the embedding, of which only one row is read, unless it
    /// is also the output matrix.
    pub fn bytes_per_token(&self) -> u64 {
        let read = |weight: &&Weight| weight.name != "token_embd.weight" || self.config.tied_output;
        self.weights.iter().filter(read).filter_map(stored_bytes).sum()
    }

    /// KV cache bytes of one position, in all layers, for this element type.
    pub fn cache_bytes_per_token(&self, dtype: DType) -> u64 {
        (self.config.layers * 2 * self.config.kv_width()) as u64 * dtype.bytes()
    }
}

fn stored_bytes(weight: &Weight) -> Option<u64> {
    weight.format.bytes(weight.shape.iter().product())
}
