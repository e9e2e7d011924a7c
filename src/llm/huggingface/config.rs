//! `config.json` as metadata.

use std::path::Path;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::gguf::{Value, Writer};

/// The numbers of a model that are read.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Config {
    pub(super) model_type: String,
    hidden_size: u64,
    intermediate_size: u64,
    pub(super) num_hidden_layers: u64,
    pub(super) num_attention_heads: u64,
    num_key_value_heads: Option<u64>,
    head_dim: Option<u64>,
    max_position_embeddings: u64,
    rms_norm_eps: f64,
    rope_theta: Option<f64>,
    rope_scaling: Option<Scaling>,
    /// Where newer files have base and scaling together.
    rope_parameters: Option<Scaling>,
    hidden_act: Option<String>,
    tie_word_embeddings: Option<bool>,
    pub(super) vocab_size: u64,
    pub(super) bos_token_id: Option<Ids>,
    pub(super) eos_token_id: Option<Ids>,
}

/// How rotary frequencies were stretched.
#[derive(Clone, Debug, Default, Deserialize)]
struct Scaling {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<u64>,
}

/// One id or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Ids {
    One(u32),
    Several(Vec<u32>),
}

impl Ids {
    /// The first and the second.
    pub(super) fn first_two(&self) -> [Option<u32>; 2] {
        match self {
            Ids::One(id) => [Some(*id), None],
            Ids::Several(ids) => [ids.first().copied(), ids.get(1).copied()],
        }
    }
}

/// Base of the rotary frequencies where a file does not say.
const ROPE_THETA: f64 = 10_000.0;

impl Config {
    pub(super) fn kv_heads(&self) -> u64 {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads).max(1)
    }

    /// Whether the embedding is the output matrix too; `false` where a file does not say, as in
    /// the library that wrote it.
    pub(super) fn tied(&self) -> bool {
        self.tie_word_embeddings.unwrap_or(false)
    }

    fn head_dim(&self) -> u64 {
        self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    fn scaling(&self) -> Scaling {
        self.rope_parameters.clone().or_else(|| self.rope_scaling.clone()).unwrap_or_default()
    }

    fn rope_theta(&self) -> f64 {
        self.scaling().rope_theta.or(self.rope_theta).unwrap_or(ROPE_THETA)
    }

    /// Writes the numbers.
    ///
    /// # Errors
    /// Unsupported, for an activation or a scaling that is not known; bad file, for a number that
    /// GGUF cannot say.
    pub(super) fn describe(&self, folder: &Path, to: &mut Writer) -> Result<()> {
        let name = folder.join("config.json").display().to_string();
        if let Some(act) = self.hidden_act.as_deref().filter(|act| *act != "silu") {
            return Err(Error::unsupported(format!(
                "{name}: hidden_act {act:?}, only \"silu\" is supported"
            )));
        }
        let arch = &self.model_type;
        to.key("general.architecture", Value::String(arch))?;
        if let Some(name) = folder.file_name().and_then(|name| name.to_str()) {
            to.key("general.name", Value::String(name))?;
        }
        let head_dim = self.head_dim();
        let counts = [
            ("block_count", "num_hidden_layers", self.num_hidden_layers),
            ("context_length", "max_position_embeddings", self.max_position_embeddings),
            ("embedding_length", "hidden_size", self.hidden_size),
            ("feed_forward_length", "intermediate_size", self.intermediate_size),
            ("attention.head_count", "num_attention_heads", self.num_attention_heads),
            ("attention.head_count_kv", "num_key_value_heads", self.kv_heads()),
            ("attention.key_length", "head_dim", head_dim),
            ("attention.value_length", "head_dim", head_dim),
            ("rope.dimension_count", "head_dim", head_dim),
            ("vocab_size", "vocab_size", self.vocab_size),
        ];
        for (ours, theirs, number) in counts {
            let number = u32::try_from(number)
                .map_err(|_| Error::bad_file(format!("{name}: {theirs}: {number} is too large")))?;
            to.key(&format!("{arch}.{ours}"), Value::U32(number))?;
        }
        let epsilon = format!("{arch}.attention.layer_norm_rms_epsilon");
        to.key(&epsilon, Value::F32(self.rms_norm_eps as f32))?;
        to.key(&format!("{arch}.rope.freq_base"), Value::F32(self.rope_theta() as f32))?;
        let scaling = self.scaling();
        if scaling.rope_type.as_deref() == Some("linear") {
            let factor = scaling.factor.ok_or_else(|| missing(&name, "factor"))?;
            to.key(&format!("{arch}.rope.scaling.type"), Value::String("linear"))?;
            to.key(&format!("{arch}.rope.scaling.factor"), Value::F32(factor as f32))?;
        }
        Ok(())
    }

    /// What the rotary frequencies are divided by, `[head_dim / 2]`, where Llama 3's scaling says.
    ///
    /// # Errors
    /// Unsupported, for another kind of scaling; bad file, where a number is missing.
    pub(super) fn rope_factors(&self, folder: &str) -> Result<Option<Vec<f32>>> {
        let name = format!("{folder}: config.json");
        let scaling = self.scaling();
        match scaling.rope_type.as_deref() {
            None | Some("default" | "linear") => return Ok(None),
            Some("llama3") => {}
            Some(other) => {
                return Err(Error::unsupported(format!(
                    "{name}: rope_type {other:?} is not supported; known: default, linear, llama3"
                )));
            }
        }
        let given = |field: &str, value: Option<f64>| value.ok_or_else(|| missing(&name, field));
        let factor = given("factor", scaling.factor)?;
        let low = given("low_freq_factor", scaling.low_freq_factor)?;
        let high = given("high_freq_factor", scaling.high_freq_factor)?;
        let context = scaling.original_max_position_embeddings.map(|n| n as f64);
        let context = given("original_max_position_embeddings", context)?;
        if !(factor > 0.0 && high > low) {
            let what = format!("factor {factor}, low_freq_factor {low}, high_freq_factor {high}");
            return Err(Error::bad_file(format!("{name}: rope_scaling: {what}")));
        }
        let (dim, base) = (self.head_dim(), self.rope_theta());
        // The config of a model has a head of some hundred elements; no file makes this large.
        if dim > 1 << 16 {
            return Err(Error::bad_file(format!("{name}: head_dim: {dim} is too large")));
        }
        let divisor = |i: u64| {
            // Turns that the wave makes in the context of the model before it was stretched.
            let frequency = base.powf(-2.0 * i as f64 / dim as f64);
            let turns = context * frequency / std::f64::consts::TAU;
            let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
        };
        Ok(Some((0..dim / 2).map(divisor).collect()))
    }
}

fn missing(file: &str, field: &str) -> Error {
    Error::bad_file(format!("{file}: rope_scaling: {field} is missing"))
}
