//! Opens a model file: reads and checks its config, tokenizer and tensors.

use std::sync::Arc;

use super::config::Config;
use super::decoder::{self, CacheShape, DecoderInput, DecoderOutput};
#[cfg(not(target_arch = "wasm32"))]
use super::huggingface::Folder;
use super::tokenizer::Tokenizer;
use super::weights::{self, Weight};
use warploom::graph::Graph;
use warploom::provider::DeviceKind;
use warploom::{Error, Result};
use warploom_core::base::DType;
use warploom_models::gguf::Gguf;

/// Minimum model width for which weights are repacked for GPUs in groups of 256
/// ([`Format::kept`](warploom_core::base::Format::kept)). On an H200, groups made Qwen2.5-0.5B
/// (width 896, rows of 4,864 for `down`) 4 % slower through Vulkan and 10 % slower through CUDA.
const GROUPED: usize = 2048;

/// A model file that has been read and checked, ready to be loaded onto a device.
pub struct Model {
    file: Gguf,
    config: Config,
    tokenizer: Arc<Tokenizer>,
    weights: Vec<Weight>,
}

warploom_core::base::debug_as!(Model, |this| file: this.file.name(), weights: this.weights.len());

impl Model {
    /// Opens a GGUF file, or a Hugging Face folder, given by its path or by a file in it. The
    /// weights of a folder are copied into memory.
    ///
    /// # Errors
    /// Io if a file cannot be read; bad file or unsupported, naming file, field and offset, for its
    /// contents.
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

    /// Opens the small model embedded in the crate: 7.3 M parameters, Q4_K_M, trained on short
    /// stories.
    ///
    /// # Errors
    /// None in practice: the crate's tests open this file.
    #[cfg(feature = "embedded-model")]
    pub fn embedded() -> Result<Arc<Model>> {
        Model::from_gguf(Gguf::from_bytes(
            warploom_tiny_model::GGUF,
            "embedded warploom-tiny-llama-Q4_K_M.gguf",
        )?)
    }

    /// Reads and checks the model in an open GGUF file.
    ///
    /// # Errors
    /// Bad file or unsupported, naming file, field and offset, for the contents of the file.
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
        let tokenizer = Arc::new(Tokenizer::from_gguf(&file)?);
        Ok(Arc::new(Model { file, config, tokenizer, weights }))
    }

    /// Returns the GGUF file that the model was read from.
    pub fn file(&self) -> &Gguf {
        &self.file
    }

    /// Returns the hyperparameters.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Returns the tokenizer, to be kept without the model.
    pub fn shared_tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Builds the forward pass over an f32 cache of `context` positions, as a graph. Its inputs are
    /// `tokens` and `positions`, `[seq]` i32, its symbols [`SEQ`](super::SEQ) and
    /// [`PAST`](super::PAST).
    ///
    /// # Errors
    /// Errors of graph building; none are expected for a model that has been opened.
    pub fn graph(&self, context: usize, output: DecoderOutput) -> Result<Graph> {
        let cache = CacheShape { sequences: 1, context, dtype: DType::F32 };
        self.graph_with(&self.weights, cache, DecoderInput::Tokens, output)
    }

    /// Builds the forward pass that a session runs on a device of this kind. Weights have the
    /// layouts that the device uses; on a CPU, the formats of the file.
    ///
    /// The inputs are those of [`Model::graph`], except that run-ahead decoding has no `tokens`. A
    /// batch adds `rows` `[seq]` and `spans` `[seq, 2]` after them and, if tokens are chosen on the
    /// device or layers have recurrent states, `slots` `[seq]` before them, all i32.
    /// [`DecoderOutput::Sample`] adds `sample_params` as the last input. If the run extends one of
    /// several sequences, [`BASE`](super::BASE) is a further symbol.
    ///
    /// # Errors
    /// Same as [`Model::graph`].
    pub fn graph_on(
        &self,
        kind: DeviceKind,
        cache: CacheShape,
        input: DecoderInput,
        output: DecoderOutput,
    ) -> Result<Graph> {
        self.graph_with(&self.weights_on(kind), cache, input, output)
    }

    /// Same as [`Model::graph_on`], with the given weights.
    pub(super) fn graph_with(
        &self,
        weights: &[Weight],
        cache: CacheShape,
        input: DecoderInput,
        output: DecoderOutput,
    ) -> Result<Graph> {
        decoder::decoder(&self.config, weights, cache, input, output)
    }

    /// Returns the weights in the layouts that a device of this kind uses; on a CPU, in the formats
    /// of the file.
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

    /// Returns the size of all weights on a device, in bytes.
    pub fn weight_bytes(&self) -> u64 {
        self.weights.iter().filter_map(stored_bytes).sum()
    }

    /// Returns the weight bytes read per token: of a mixture, those of the active experts. The
    /// embedding counts only if it is also the output matrix; otherwise a token reads just one row
    /// of it.
    pub fn bytes_per_token(&self) -> u64 {
        let read = |weight: &&Weight| weight.name != "token_embd.weight" || self.config.tied_output;
        let bytes = |weight: &Weight| match &self.config.experts {
            Some(experts) if weight.shape.len() == 3 => {
                Some(stored_bytes(weight)? / experts.count as u64 * experts.active as u64)
            }
            _ => stored_bytes(weight),
        };
        self.weights.iter().filter(read).filter_map(bytes).sum()
    }

    /// Returns the KV cache bytes of one position in all layers, for this element type.
    pub fn cache_bytes_per_token(&self, dtype: DType) -> u64 {
        let config = &self.config;
        let keeps = (0..config.layers).filter(|n| config.has_keys(*n));
        let widths = keeps.map(|n| config.kv_width_of(n));
        (2 * widths.sum::<usize>()) as u64 * dtype.bytes()
    }

    /// Returns the bytes of the recurrent states of one sequence, in all layers.
    pub fn state_bytes(&self) -> u64 {
        let elements = |n: usize| self.config.state_elements(n).iter().sum::<usize>() as u64;
        (0..self.config.layers).map(|n| 4 * elements(n)).sum()
    }
}

fn stored_bytes(weight: &Weight) -> Option<u64> {
    weight.format.bytes(weight.shape.iter().product())
}
