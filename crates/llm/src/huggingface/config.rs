//! Converts `config.json` to GGUF metadata.

mod rope;

use std::path::Path;

use serde::Deserialize;
use serde_json::Value as Json;

use super::names::{self, Names};
use super::pooling;
use crate::architecture::{Architecture, Norm, Rotated, Windows};
use warploom::{Error, Result};
use warploom_models::gguf::{Value, Writer};

/// The fields of `config.json` that are read.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Config {
    pub(super) model_type: String,
    /// Names of classes of `transformers`.
    #[serde(default)]
    architectures: Option<Vec<String>>,
    #[serde(alias = "n_embd")]
    hidden_size: u64,
    #[serde(alias = "n_inner")]
    intermediate_size: u64,
    #[serde(alias = "n_layer")]
    pub(super) num_hidden_layers: u64,
    #[serde(alias = "n_head")]
    pub(super) num_attention_heads: u64,
    num_key_value_heads: Option<u64>,
    head_dim: Option<u64>,
    partial_rotary_factor: Option<f64>,
    query_pre_attn_scalar: Option<f64>,
    #[serde(alias = "n_positions")]
    max_position_embeddings: u64,
    rms_norm_eps: Option<f64>,
    #[serde(alias = "layer_norm_epsilon")]
    layer_norm_eps: Option<f64>,
    position_embedding_type: Option<String>,
    /// The activation function of nomic-bert, with or without a gate.
    activation_function: Option<String>,
    #[serde(alias = "rotary_emb_base")]
    rope_theta: Option<f64>,
    rope_scaling: Option<Scaling>,
    /// Base and scaling of the rotary frequencies in newer files.
    rope_parameters: Option<Scaling>,
    rope_local_base_freq: Option<f64>,
    sliding_window: Option<u64>,
    use_sliding_window: Option<bool>,
    #[serde(alias = "_sliding_window_pattern")]
    sliding_window_pattern: Option<Pattern>,
    /// Attention type of each layer: `sliding_attention` or another.
    layer_types: Option<Vec<String>>,
    #[serde(alias = "hidden_activation")]
    hidden_act: Option<String>,
    final_logit_softcapping: Option<f64>,
    attn_logit_softcapping: Option<f64>,
    use_bidirectional_attention: Option<bool>,
    #[serde(alias = "num_local_experts")]
    num_experts: Option<u64>,
    num_experts_per_tok: Option<u64>,
    moe_intermediate_size: Option<u64>,
    norm_topk_prob: Option<bool>,
    /// Layers with a feed-forward network in place of experts.
    #[serde(default)]
    mlp_only_layers: Vec<u64>,
    decoder_sparse_step: Option<u64>,
    embedding_multiplier: Option<f64>,
    residual_multiplier: Option<f64>,
    attention_multiplier: Option<f64>,
    logits_scaling: Option<f64>,
    /// For each layer, 0 if it does not rotate queries and keys.
    no_rope_layers: Option<Vec<u8>>,
    quantization_config: Option<Json>,
    /// The same in files for MLX.
    quantization: Option<Json>,
    tie_word_embeddings: Option<bool>,
    pub(super) vocab_size: u64,
    pub(super) bos_token_id: Option<Ids>,
    pub(super) eos_token_id: Option<Ids>,
    pad_token_id: Option<u64>,
}

/// Which layers have a window: a period, or a letter for each layer of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a whole number, or letters such as LLLG")]
enum Pattern {
    Period(u64),
    Letters(String),
}

impl Pattern {
    /// Returns `n` if every `n`-th layer, counted from 1, has no window.
    fn period(&self) -> Result<u64> {
        match self {
            Pattern::Period(period) => Ok(*period),
            Pattern::Letters(letters) => match letters.find('G') {
                Some(last) if last + 1 == letters.len() => Ok(letters.len() as u64),
                _ => Err(Error::unsupported(format!("sliding_window_pattern: {letters:?}"))),
            },
        }
    }
}

/// Scaling of the rotary frequencies.
#[derive(Clone, Debug, Default, Deserialize)]
struct Scaling {
    rope_type: Option<String>,
    /// The older name of `rope_type`; many files have both.
    #[serde(rename = "type")]
    older_type: Option<String>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<u64>,
    attention_factor: Option<f64>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    truncate: Option<bool>,
    /// Factor of the queries that grows with the position.
    llama_4_scaling_beta: Option<f64>,
    /// Scaling of layers without a window, if the two kinds of layers have separate frequencies.
    full_attention: Option<Box<Scaling>>,
    sliding_attention: Option<Box<Scaling>>,
}

impl Scaling {
    /// Returns the name of the scaling, under its newer or its older key.
    fn name(&self) -> Option<&str> {
        self.rope_type.as_deref().or(self.older_type.as_deref())
    }

    /// Checks what `name` leaves out.
    ///
    /// # Errors
    /// Bad file if the two keys of the name contradict each other; unsupported if queries are scaled in
    /// a model that does not do so.
    fn check(&self, file: &str, tempers: bool) -> Result<()> {
        if let (Some(new), Some(old)) = (&self.rope_type, &self.older_type)
            && new != old
        {
            return Err(Error::bad_file(format!(
                "{file}: rope_type {new:?} and type {old:?} contradict each other"
            )));
        }
        match self.llama_4_scaling_beta {
            None | Some(0.0) => Ok(()),
            Some(_) if tempers => Ok(()),
            Some(beta) => Err(Error::unsupported(format!(
                "{file}: llama_4_scaling_beta: {beta} is not supported"
            ))),
        }
    }
}

/// One token id or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "the ids of tokens must be a whole number from 0 on, or a list of them"
)]
pub(super) enum Ids {
    One(u32),
    Several(Vec<u32>),
}

impl Ids {
    pub(super) fn all(&self) -> &[u32] {
        match self {
            Ids::One(id) => std::slice::from_ref(id),
            Ids::Several(ids) => ids,
        }
    }
}

/// Every layer with this number, counted from 1, has no rotation in models that list such layers.
const NO_ROPE_PERIOD: usize = 4;

/// Attention type of sliding-window layers.
const SLIDING: &str = "sliding_attention";

impl Config {
    /// Returns the row of this model type in the table of `names`.
    pub(super) fn names(&self) -> Result<&'static Names> {
        let bidirectional = self.use_bidirectional_attention == Some(true);
        names::of(&self.model_type, self.hidden_act.as_deref(), bidirectional)
    }

    pub(super) fn kv_heads(&self) -> u64 {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    /// Checks that there are query heads, and key and value heads.
    ///
    /// # Errors
    /// Bad file, naming the field, if a count is 0.
    pub(super) fn check_heads(&self) -> Result<()> {
        let counts = [
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.kv_heads()),
        ];
        match counts.iter().find(|(_, count)| *count == 0) {
            Some((field, _)) => Err(Error::bad_file(format!("{field}: 0"))),
            None => Ok(()),
        }
    }

    /// Returns the number of experts; 0 for a model without.
    pub(super) fn experts(&self) -> u64 {
        self.num_experts.unwrap_or(0)
    }

    /// Returns whether the model makes a score of a pair of texts.
    pub(super) fn is_reranker(&self) -> bool {
        let classes = self.architectures.as_deref().unwrap_or_default();
        classes.iter().any(|class| class.ends_with("ForSequenceClassification"))
    }

    /// Returns the row of the position embeddings that the first token of a text has.
    pub(super) fn first_position(&self, names: &Names) -> u64 {
        match names.positions_after_padding {
            true => self.pad_token_id.unwrap_or(1).saturating_add(1),
            false => 0,
        }
    }

    /// Returns whether the embedding is also the output matrix.
    pub(super) fn tied(&self, names: &Names) -> bool {
        self.tie_word_embeddings.unwrap_or(names.tied)
    }

    fn head_dim(&self) -> u64 {
        self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    /// Returns the number of elements of a head that are rotated.
    fn rope_dim(&self) -> u64 {
        let part = self.scaling().partial_rotary_factor.or(self.partial_rotary_factor);
        part.map_or(self.head_dim(), |part| (self.head_dim() as f64 * part) as u64)
    }

    /// Returns the scaling of the rotary frequencies in layers without a window.
    fn scaling(&self) -> Scaling {
        let both = self.rope_parameters.clone().or_else(|| self.rope_scaling.clone());
        let mut both = both.unwrap_or_default();
        both.full_attention.take().map_or(both, |full| *full)
    }

    /// Returns the base of the rotary frequencies of sliding-window layers, if the config has one.
    fn local_rope_theta(&self) -> Result<Option<f64>> {
        let parameters = self.rope_parameters.as_ref();
        let Some(local) = parameters.and_then(|both| both.sliding_attention.as_ref()) else {
            return Ok(self.rope_local_base_freq);
        };
        match local.name() {
            None | Some("default") => Ok(local.rope_theta),
            Some(other) => Err(Error::unsupported(format!(
                "rope_parameters: {SLIDING}: rope_type {other:?} is not supported"
            ))),
        }
    }

    fn rope_theta(&self, names: &Names) -> f64 {
        self.scaling().rope_theta.or(self.rope_theta).unwrap_or(names.rope_theta)
    }

    /// Writes the hyperparameters as GGUF keys.
    ///
    /// # Errors
    /// Unsupported for a network variant that is not implemented; bad file for a missing value or
    /// one that GGUF cannot represent.
    pub(super) fn describe(&self, folder: &Path, to: &mut Writer) -> Result<()> {
        let name = folder.join("config.json").display().to_string();
        self.refuse_what_is_not_done().map_err(|e| e.context(&name))?;
        let names = self.names().map_err(|e| e.context(&name))?;
        let arch = names.architecture;
        let architecture = names.architecture()?;
        self.refuse_caps(architecture).map_err(|e| e.context(&name))?;
        to.key("general.architecture", Value::String(arch))?;
        if let Some(name) = folder.file_name().and_then(|name| name.to_str()) {
            to.key("general.name", Value::String(name))?;
        }
        let head_dim = self.head_dim();
        let positions = self.max_position_embeddings.saturating_sub(self.first_position(names));
        let mut counts = vec![
            ("block_count", "num_hidden_layers", self.num_hidden_layers),
            ("context_length", "max_position_embeddings", positions),
            ("embedding_length", "hidden_size", self.hidden_size),
            ("feed_forward_length", "intermediate_size", self.intermediate_size),
            ("attention.head_count", "num_attention_heads", self.num_attention_heads),
            ("attention.head_count_kv", "num_key_value_heads", self.kv_heads()),
            ("attention.key_length", "head_dim", head_dim),
            ("attention.value_length", "head_dim", head_dim),
            ("rope.dimension_count", "head_dim", self.rope_dim()),
            ("vocab_size", "vocab_size", self.vocab_size),
        ];
        if let Some(experts) = self.num_experts {
            counts.push(("expert_count", "num_experts", experts));
            let more = [
                ("expert_used_count", "num_experts_per_tok", self.num_experts_per_tok),
                ("expert_feed_forward_length", "moe_intermediate_size", self.moe_intermediate_size),
            ];
            counts
                .extend(more.into_iter().filter_map(|(ours, theirs, n)| Some((ours, theirs, n?))));
        }
        if let Some((size, pattern)) = self.window(names).map_err(|e| e.context(&name))? {
            counts.push(("attention.sliding_window", "sliding_window", size));
            let pattern = pattern.map(|n| ("attention.sliding_window_pattern", "layer_types", n));
            counts.extend(pattern);
        }
        for (ours, theirs, number) in counts {
            let number = u32::try_from(number)
                .map_err(|_| Error::bad_file(format!("{name}: {theirs}: {number} is too large")))?;
            to.key(&format!("{arch}.{ours}"), Value::U32(number))?;
        }
        let mut number = |key: &str, number: f64| {
            to.key(&format!("{arch}.{key}"), Value::F32(number as f32)).map(|_| ())
        };
        let (key, field, epsilon) = match architecture.norm {
            Norm::Rms => ("layer_norm_rms_epsilon", "rms_norm_eps", self.rms_norm_eps),
            Norm::Layer => ("layer_norm_epsilon", "layer_norm_eps", self.layer_norm_eps),
        };
        let epsilon =
            epsilon.ok_or_else(|| Error::bad_file(format!("{name}: missing field `{field}`")))?;
        number(&format!("attention.{key}"), epsilon)?;
        if architecture.rotated != Rotated::None {
            number("rope.freq_base", self.rope_theta(names))?;
        }
        if let Some(theta) = self.local_rope_theta().map_err(|e| e.context(&name))? {
            number("rope.freq_base_swa", theta)?;
        }
        let factors = [
            ("embedding_scale", self.embedding_multiplier),
            ("residual_scale", self.residual_multiplier),
            ("attention.scale", self.attention_multiplier),
            ("logit_scale", self.logits_scaling),
            ("attn_logit_softcapping", self.attn_logit_softcapping),
            ("final_logit_softcapping", self.final_logit_softcapping),
        ];
        for (key, factor) in factors {
            factor.map_or(Ok(()), |factor| number(key, factor))?;
        }
        if let Some(beta) = self.scaling().llama_4_scaling_beta {
            number("attention.temperature_scale", beta)?;
        }
        if let Some(scalar) = self.query_pre_attn_scalar {
            number("attention.scale", 1.0 / scalar.sqrt())?;
        }
        let kind = match self.is_reranker() {
            true => Some(pooling::SCORE),
            false => pooling::read(folder, architecture.dense)?.kind,
        };
        if let Some(kind) = kind {
            to.key(&format!("{arch}.pooling_type"), Value::U32(kind))?;
        }
        if let Some(normalised) = self.norm_topk_prob {
            to.key(&format!("{arch}.expert_weights_norm"), Value::Bool(normalised))?;
        }
        let scaling = self.scaling();
        if scaling.name() == Some("linear") {
            let factor = scaling.factor.ok_or_else(|| missing(&name, "factor"))?;
            to.key(&format!("{arch}.rope.scaling.type"), Value::String("linear"))?;
            to.key(&format!("{arch}.rope.scaling.factor"), Value::F32(factor as f32))?;
        }
        if scaling.name() == Some("yarn") {
            self.describe_yarn(&scaling, arch, &name, to)?;
        }
        Ok(())
    }

    /// Returns the size of the window and a period `n`: every `n`-th layer, counted from 1, has no
    /// window. The outer `None` means that no layer has a window, the inner one that all have it.
    fn window(&self, names: &Names) -> Result<Option<(u64, Option<u64>)>> {
        let types = self.layer_types.as_deref().unwrap_or_default();
        let slides = |layer: usize| types.get(layer).is_some_and(|kind| kind == SLIDING);
        let windows = match names.windows {
            true => names.architecture()?.windows,
            false => Windows::None,
        };
        let has_window = self.use_sliding_window == Some(true) || (0..types.len()).any(slides);
        let Some(size) = self.sliding_window.filter(|_| windows != Windows::None) else {
            return match has_window {
                true => Err(Error::unsupported("sliding_window: a window is not supported")),
                false => Ok(None),
            };
        };
        let Windows::AllBut(usual) = windows else { return Ok(Some((size, None))) };
        let layers = self.num_hidden_layers;
        let pattern = match types.iter().position(|kind| kind != SLIDING) {
            _ if types.is_empty() => {
                let pattern = self.sliding_window_pattern.as_ref();
                pattern.map_or(Ok(usual as u64), Pattern::period)?
            }
            Some(first) => first as u64 + 1,
            // No layer attends to all keys.
            None => layers.saturating_add(1),
        };
        if pattern == 0 {
            return Err(Error::bad_file("sliding_window_pattern: 0"));
        }
        let regular = |layer: usize| slides(layer) != (layer as u64 + 1).is_multiple_of(pattern);
        if !types.is_empty() && (types.len() as u64 != layers || !(0..types.len()).all(regular)) {
            return Err(Error::unsupported(format!(
                "layer_types: {} layers of {layers}, each {pattern}th without a window, and not \
                 all so",
                types.len()
            )));
        }
        // With a period of 1, all layers attend to all keys.
        Ok((pattern > 1).then_some((size, Some(pattern))))
    }

    /// Refuses soft caps that the architecture does not have.
    fn refuse_caps(&self, architecture: &Architecture) -> Result<()> {
        let caps = [
            ("final_logit_softcapping", self.final_logit_softcapping, architecture.logit_cap),
            ("attn_logit_softcapping", self.attn_logit_softcapping, architecture.score_cap),
        ];
        let refused = caps
            .iter()
            .find(|(_, given, ours)| ours.is_none() && given.is_some_and(|cap| cap != 0.0));
        match refused {
            Some((field, ..)) => Err(Error::unsupported(format!("{field} is not supported"))),
            None => Ok(()),
        }
    }

    /// Refuses variants of the supported models whose network or storage differs.
    fn refuse_what_is_not_done(&self) -> Result<()> {
        let not_done = [
            ("mlp_only_layers", !self.mlp_only_layers.is_empty()),
            ("decoder_sparse_step", self.decoder_sparse_step.is_some_and(|n| n != 1)),
            (
                "position_embedding_type",
                self.position_embedding_type.as_deref().is_some_and(|kind| kind != "absolute"),
            ),
            (
                "activation_function",
                self.activation_function.as_deref().is_some_and(|kind| kind != "swiglu"),
            ),
            ("quantization_config", self.quantization_config.is_some()),
            ("quantization", self.quantization.is_some()),
        ];
        if let Some((field, _)) = not_done.iter().find(|(_, is)| *is) {
            return Err(Error::unsupported(format!(
                "{field} is not supported{}",
                if field.starts_with("quant") {
                    ": use the folder in F32, F16 or BF16"
                } else {
                    ""
                }
            )));
        }
        // The architecture says which layers rotate: each but every fourth.
        let regular = |(layer, rotates): (usize, &u8)| {
            (*rotates != 0) != (layer + 1).is_multiple_of(NO_ROPE_PERIOD)
        };
        match self.no_rope_layers.as_deref().unwrap_or_default() {
            layers if layers.iter().enumerate().all(regular) => Ok(()),
            layers => Err(Error::unsupported(format!(
                "no_rope_layers: {layers:?}, not each but every {NO_ROPE_PERIOD}th layer"
            ))),
        }
    }
}

fn missing(file: &str, field: &str) -> Error {
    Error::bad_file(format!("{file}: rope_scaling: {field} is missing"))
}
