//! The hyperparameters of a model, read from a GGUF file and checked before use.
//!
//! Sizes and counts lie within the limits below, so they may be multiplied without overflow checks.

use warploom::{Error, Result};
use warploom_models::gguf::Gguf;

pub use super::architecture::{
    Activation, Architecture, EmbeddingParts, Gate, HeadNorms, Norm, Rotated, Routing, Sharing,
    Windows,
};
pub use super::delta_net::DeltaNet;
pub use super::experts::{Experts, SharedExpert};
pub use super::layer_sizes::{LayerSizes, LocalHeads};
pub use super::pooling::Pooling;
pub use super::short_conv::{ShortConvs, Temperature};
use super::yarn;
pub use super::yarn::Yarn;

/// Maximum number of transformer blocks.
pub(super) const MAX_LAYERS: u64 = 1 << 12;
/// Maximum width, maximum feed-forward width, and maximum product of heads and head size.
pub(super) const MAX_WIDTH: u64 = 1 << 20;
/// Maximum length of a context, in positions.
pub(super) const MAX_CONTEXT: u64 = 1 << 27;
/// Maximum number of tokens in a vocabulary.
const MAX_VOCABULARY: u64 = 1 << 22;

/// The hyperparameters of a model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The architecture, which determines the forward pass.
    pub architecture: &'static Architecture,
    /// Number of transformer blocks.
    pub layers: usize,
    /// Size of the hidden state, in elements.
    pub width: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Size of one head, in elements; even.
    pub head_dim: usize,
    /// Inner size of the feed-forward network, in elements; of one expert if all layers have
    /// experts.
    pub feed_forward: usize,
    /// The mixture of experts that replaces the feed-forward network, if there is one;
    /// [`Config::experts_of`] has that of a layer.
    pub experts: Option<Experts>,
    /// Layers that are gated delta nets, if there are any.
    pub delta_net: Option<DeltaNet>,
    /// Layers that are gated short convolutions, if there are any.
    pub short_convs: Option<ShortConvs>,
    /// A factor of queries that grows with their position, if there is one.
    pub temperature: Option<Temperature>,
    /// What differs between layers.
    pub layer_sizes: LayerSizes,
    /// Length of the training context, in positions.
    pub context: usize,
    /// Number of tokens, which is the number of rows of the embedding.
    pub vocabulary: usize,
    /// Number of rows of the embedding of token types; 0 if there is none.
    pub token_types: usize,
    /// How the hidden states of a text become one vector.
    pub pooling: Pooling,
    /// Numbers of results and of operands of the dense layers that follow the vector of a text.
    pub dense: Vec<[usize; 2]>,
    /// Epsilon of the norms: added to the mean square, or to the variance, before its root is taken.
    pub norm_epsilon: f32,
    /// Scale of the attention scores without YaRN's magnitude factor; [`Config::scale`] includes
    /// it.
    pub attention_scale: f32,
    /// Bound of the attention scores (soft cap), if there is one.
    pub score_cap: Option<f32>,
    /// Bound of the logits (soft cap), if there is one.
    pub logit_cap: Option<f32>,
    /// Sliding-window attention, if any.
    pub window: Option<Window>,
    /// Base of the rotary frequencies.
    pub rope_base: f64,
    /// Base of the rotary frequencies of sliding-window layers, if separate. These frequencies are
    /// not scaled.
    pub local_rope_base: Option<f64>,
    /// Number of elements at the start of a head that are rotated; even, at most `head_dim`.
    pub rope_dim: usize,
    /// Scaling of the rotary frequencies for longer contexts.
    pub rope_scaling: RopeScaling,
    /// Whether the file contains divisors of the rotary frequencies: the tensor [`ROPE_FACTORS`],
    /// `[rope_dim / 2]`.
    pub has_rope_factors: bool,
    /// Layers `n`, `2 * n`, .. (counted from 1) do not rotate queries and keys; `None` if all do.
    pub unrotated_period: Option<usize>,
    /// Factor of the embedding.
    pub embedding_scale: f32,
    /// Factor of what each layer adds to the hidden state.
    pub residual_scale: f32,
    /// Factor of the logits.
    pub logit_scale: f32,
    /// Whether the embedding is also the output matrix.
    pub tied_output: bool,
}

/// Name of the tensor that holds divisors of the rotary frequencies (Llama 3.1 and later).
pub const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Sliding-window attention: the size of the window, and the layers that have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Window {
    /// Number of keys that a token attends to; its own key is the last of them.
    pub size: u32,
    /// Layers `period`, `2 * period`, .. (counted from 1) have no window; `None` if all layers have
    /// one.
    pub period: Option<usize>,
}

impl Window {
    /// Creates a window of `size` keys in all layers but every `period`-th, or in all layers if
    /// `period` is `None`.
    pub fn new(size: u32, period: Option<usize>) -> Window {
        Window { size, period }
    }
}

/// Scaling of rotary frequencies for longer contexts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum RopeScaling {
    /// No scaling, except by [`ROPE_FACTORS`] if the file has them.
    None,
    /// Every frequency is divided by a factor.
    Linear {
        /// The factor, above 0.
        factor: f64,
    },
    /// Llama 3.1: low frequencies are divided by a factor and high ones kept, with a smooth
    /// transition.
    Llama3 {
        /// The factor, above 0.
        factor: f64,
        /// Wavelengths above `original_context / low` positions count as low frequencies.
        low: f64,
        /// Wavelengths below `original_context / high` positions count as high frequencies; `high`
        /// is greater than `low`.
        high: f64,
        /// Context length of the model before scaling, in positions.
        original_context: f64,
    },
    /// Scaling by YaRN.
    Yarn(Yarn),
}

impl Config {
    /// Reads and checks the hyperparameters of a file.
    ///
    /// # Errors
    /// Unsupported for an unknown architecture, scaling or network variant; bad file, naming file
    /// and key, for a value that is missing, out of range or inconsistent with another.
    pub fn from_gguf(file: &Gguf) -> Result<Config> {
        let name = file.architecture()?;
        let architecture = Architecture::of(name).ok_or_else(|| {
            let known = Architecture::names().collect::<Vec<_>>().join(", ");
            Error::unsupported(format!(
                "{}: general.architecture: {name:?} is not supported; known: {known}",
                file.name()
            ))
        })?;
        let keys = Keys { file, architecture };
        let width = keys.count("embedding_length", MAX_WIDTH)?;
        let heads = keys.count("attention.head_count", width as u64)?;
        let layers = keys.layers()?;
        let context = keys.count("context_length", MAX_CONTEXT)?;
        let window = keys.window(context, layers)?;
        let kv_counts = keys.kv_heads(heads, layers)?;
        let kv_heads = keys.wide_kv_heads(&kv_counts, window)?;
        let head_dim = keys.head_dim(width, heads)?;
        let rope_dim = match keys.find_count("rope.dimension_count", head_dim as u64)? {
            Some(n) if n % 2 != 0 => {
                return Err(keys.bad("rope.dimension_count", format!("{n} is odd")));
            }
            n => n.unwrap_or(head_dim),
        };
        let norm_epsilon = match architecture.norm {
            Norm::Rms => "attention.layer_norm_rms_epsilon",
            Norm::Layer => "attention.layer_norm_epsilon",
        };
        let norm_epsilon = keys.number(norm_epsilon, None, 0.0, 1.0)?;
        let scale_by = match architecture.scales_by_width {
            Some(n) if n == layers => width as f64 / heads as f64,
            _ => head_dim as f64,
        };
        let default_scale = architecture.default_scale.unwrap_or(1.0 / scale_by.sqrt());
        let scale = keys.number("attention.scale", Some(default_scale), 0.0, 1e6)?;
        let experts = Experts::read(&keys)?;
        let feed_forward = match &experts {
            Some(experts) if experts.dense_layers == 0 && !experts.is_beside => {
                experts.feed_forward
            }
            _ if architecture.varies => {
                let sizes = keys.layer_counts("feed_forward_length", layers, [1, MAX_WIDTH])?;
                let first = sizes.and_then(|sizes| sizes.first().copied());
                first.ok_or_else(|| keys.bad("feed_forward_length", "the key is missing".into()))?
            }
            _ => keys.count("feed_forward_length", MAX_WIDTH)?,
        };
        let delta_net = match architecture.delta_nets {
            true => Some(DeltaNet::read(&keys)?),
            false => None,
        };
        let [embedding_scale, residual_scale, logit_divisor] = keys.scales(width)?;
        let config = Config {
            architecture,
            experts,
            delta_net,
            short_convs: keys.short_convs(&kv_counts)?,
            temperature: keys.temperature(context)?,
            unrotated_period: keys.unrotated_period(layers)?,
            layer_sizes: keys.layer_sizes(layers, [heads, head_dim], &kv_counts, window)?,
            embedding_scale,
            residual_scale,
            logit_scale: 1.0 / logit_divisor,
            layers,
            width,
            heads,
            kv_heads,
            head_dim,
            feed_forward,
            context,
            vocabulary: keys.vocabulary(width)?,
            token_types: keys.token_types(width)?,
            pooling: keys.pooling()?,
            dense: keys.dense(width)?,
            norm_epsilon: norm_epsilon as f32,
            attention_scale: scale as f32,
            score_cap: keys.soft_cap("attn_logit_softcapping", architecture.score_cap)?,
            logit_cap: keys.soft_cap("final_logit_softcapping", architecture.logit_cap)?,
            window,
            rope_base: keys.number("rope.freq_base", Some(10_000.0), 1.0, 1e15)?,
            local_rope_base: match architecture.local_rope_base {
                None => None,
                base => Some(keys.number("rope.freq_base_swa", base, 1.0, 1e15)?),
            },
            rope_dim,
            rope_scaling: keys.rope_scaling(context, head_dim == rope_dim)?,
            has_rope_factors: keys.has_rope_factors(rope_dim)?,
            tied_output: file.find_tensor("output.weight").is_none(),
        };
        keys.refuse_what_is_not_done()?;
        config.check_shared_keys(&keys)?;
        Ok(config)
    }

    /// Returns the number of keys that a token attends to in this layer, including its own, or
    /// `None` if the layer has no window.
    pub fn window(&self, layer: usize) -> Option<u32> {
        let window = self.window?;
        (!window.sees_all(layer)).then_some(window.size)
    }

    /// Returns the scale of the attention scores in this layer, including YaRN's magnitude factor
    /// on queries and keys.
    pub fn scale(&self, layer: usize) -> f32 {
        match self.rope_scaling {
            RopeScaling::Yarn(yarn) if !self.is_local(layer) => {
                (f64::from(self.attention_scale) * yarn.attention * yarn.attention) as f32
            }
            _ => self.attention_scale,
        }
    }

    /// Returns whether this layer rotates by [`Config::local_rope_frequencies`].
    pub fn is_local(&self, layer: usize) -> bool {
        self.local_rope_base.is_some() && self.window(layer).is_some()
    }

    /// Returns the gated delta net that this layer is; `None` if it has attention.
    pub fn delta_net_of(&self, layer: usize) -> Option<&DeltaNet> {
        self.delta_net.as_ref().filter(|net| !(layer + 1).is_multiple_of(net.period))
    }

    /// Returns the mixture of experts of this layer; `None` if it has a feed-forward network.
    pub fn experts_of(&self, layer: usize) -> Option<&Experts> {
        self.experts.as_ref().filter(|experts| layer >= experts.dense_layers)
    }

    /// Returns whether this layer rotates queries and keys by their positions.
    pub fn rotates(&self, layer: usize) -> bool {
        !self.unrotated_period.is_some_and(|period| (layer + 1).is_multiple_of(period))
    }

    /// Returns the number of key elements per position of a layer without a window, which is also the
    /// number of value elements.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

/// The metadata of a file under the keys of one architecture.
pub(super) struct Keys<'a> {
    pub(super) file: &'a Gguf,
    pub(super) architecture: &'static Architecture,
}

impl Keys<'_> {
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture.name)
    }

    pub(super) fn bad(&self, name: &str, what: String) -> Error {
        let key = self.key(name);
        let place = self.file.value_at(&key).map(|at| format!(" at byte {at}"));
        let place = place.unwrap_or_default();
        Error::bad_file(format!("{}: {key}{place}: {what}", self.file.name()))
    }

    /// Reads a required integer from 1 to `most`.
    pub(super) fn count(&self, name: &str, most: u64) -> Result<usize> {
        match self.find_count(name, most)? {
            Some(n) => Ok(n),
            None => Err(self.bad(name, "the key is missing".into())),
        }
    }

    pub(super) fn find_count(&self, name: &str, most: u64) -> Result<Option<usize>> {
        match self.file.find_u64(&self.key(name))? {
            Some(n) if n == 0 || n > most => {
                Err(self.bad(name, format!("{n}, must be from 1 to {most}")))
            }
            n => Ok(n.map(|n| n as usize)),
        }
    }

    /// Reads a number greater than `low` and at most `high`; `default` replaces a missing key.
    pub(super) fn number(
        &self,
        name: &str,
        default: Option<f64>,
        low: f64,
        high: f64,
    ) -> Result<f64> {
        match self.file.find_f32(&self.key(name))?.map(f64::from).or(default) {
            Some(n) if n > low && n <= high => Ok(n),
            Some(n) => Err(self.bad(name, format!("{n}, must be above {low} and at most {high}"))),
            None => Err(self.bad(name, "the key is missing".into())),
        }
    }

    /// Returns the number of layers.
    fn layers(&self) -> Result<usize> {
        let blocks = self.count("block_count", MAX_LAYERS)?;
        // Blocks after the last layer predict further tokens.
        let name = "nextn_predict_layers";
        match self.file.find_u64(&self.key(name))?.unwrap_or(0) {
            n if n >= blocks as u64 => Err(self.bad(name, format!("{n} of {blocks} blocks"))),
            n => Ok(blocks - n as usize),
        }
    }

    /// Returns the size of a head. The file may state it separately for keys and values, but both
    /// must agree.
    fn head_dim(&self, width: usize, heads: usize) -> Result<usize> {
        let most = MAX_WIDTH / heads as u64;
        let head_dim = match self.find_count("attention.key_length", most)? {
            Some(n) => n,
            None if width.is_multiple_of(heads) => width / heads,
            None => {
                let what = format!("{heads} does not divide embedding_length, {width}");
                return Err(self.bad("attention.head_count", what));
            }
        };
        if head_dim % 2 != 0 {
            let what = format!("heads of {head_dim} elements cannot be rotated in pairs");
            return Err(self.bad("attention.key_length", what));
        }
        match self.find_count("attention.value_length", most)? {
            Some(n) if n != head_dim => {
                let what = format!("{n}, but keys have {head_dim} elements");
                Err(self.bad("attention.value_length", what))
            }
            _ => Ok(head_dim),
        }
    }

    /// Returns the number of rows of the embedding, which must agree with the metadata.
    fn vocabulary(&self, width: usize) -> Result<usize> {
        let file = self.file.name();
        let info = self.file.tensor("token_embd.weight")?;
        let rows = match *info.shape() {
            [rows, columns] if columns == width as u64 => rows,
            _ => {
                let shape = info.shape();
                return Err(Error::bad_file(format!(
                    "{file}: tensor token_embd.weight has shape {shape:?}, not [tokens, {width}]"
                )));
            }
        };
        if rows == 0 || rows > MAX_VOCABULARY {
            return Err(Error::bad_file(format!(
                "{file}: tensor token_embd.weight has {rows} rows, must be from 1 to \
                 {MAX_VOCABULARY}"
            )));
        }
        match self.find_count("vocab_size", MAX_VOCABULARY)? {
            Some(n) if n as u64 != rows => {
                let what = format!("{n}, but tensor token_embd.weight has {rows} rows");
                Err(self.bad("vocab_size", what))
            }
            _ => Ok(rows as usize),
        }
    }

    fn rope_scaling(&self, context: usize, rotates_all: bool) -> Result<RopeScaling> {
        let name = "rope.scaling.type";
        let factor = || self.number("rope.scaling.factor", None, 0.0, 1e6);
        match self.file.find_str(&self.key(name))? {
            // Files that predate the type key have only the linear factor.
            None => match self.file.find_f32(&self.key("rope.scale_linear"))? {
                None => Ok(RopeScaling::None),
                Some(_) => {
                    let factor = self.number("rope.scale_linear", None, 0.0, 1e6)?;
                    Ok(RopeScaling::Linear { factor })
                }
            },
            Some("none") => Ok(RopeScaling::None),
            Some("linear") => Ok(RopeScaling::Linear { factor: factor()? }),
            Some("llama3") => {
                let low = self.number("rope.scaling.low_freq_factor", None, 0.0, 1e6)?;
                let original =
                    self.count("rope.scaling.original_context_length", MAX_CONTEXT)? as f64;
                Ok(RopeScaling::Llama3 {
                    factor: factor()?,
                    low,
                    high: self.number("rope.scaling.high_freq_factor", None, low, 1e6)?,
                    original_context: original,
                })
            }
            Some("yarn") => {
                yarn::read(self, context, rotates_all, factor()?).map(RopeScaling::Yarn)
            }
            Some(other) => Err(Error::unsupported(format!(
                "{}: {}: {other:?} is not supported; known: none, linear, llama3, yarn",
                self.file.name(),
                self.key(name)
            ))),
        }
    }

    fn has_rope_factors(&self, rope_dim: usize) -> Result<bool> {
        let Some(info) = self.file.find_tensor(ROPE_FACTORS) else { return Ok(false) };
        let half = rope_dim as u64 / 2;
        if info.shape() != [half] {
            let (file, shape) = (self.file.name(), info.shape());
            return Err(Error::bad_file(format!(
                "{file}: tensor {ROPE_FACTORS} has shape {shape:?}, not [{half}]"
            )));
        }
        Ok(true)
    }

    pub(super) fn unsupported(&self, name: &str, what: String) -> Error {
        let file = self.file.name();
        Error::unsupported(format!("{file}: {}: {what} is not supported", self.key(name)))
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
pub(crate) mod tests;
