//! Options that JavaScript passes as JSON.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use warploom::{ComputeMode, DType, Error, Result};
use warploom_llm::Sampling;

/// Parses options; an empty text means all defaults.
///
/// # Errors
/// Invalid, naming the options and the position, if the text is not such JSON.
pub(crate) fn parse<T: DeserializeOwned + Default>(what: &str, json: &str) -> Result<T> {
    if json.trim().is_empty() {
        return Ok(T::default());
    }
    serde_json::from_str(json).map_err(|e| Error::invalid(format!("{what}: {e}")))
}

/// Which device to open.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Choice {
    /// WebGPU if the browser has it, else the CPU.
    #[default]
    Auto,
    WebGpu,
    Cpu,
}

/// Options of `Engine.open`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Open {
    pub(crate) device: Choice,
    /// Opens WebGPU with its guaranteed limits and without optional features.
    pub(crate) floor: bool,
}

/// The precision of matrix products.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Compute {
    F32,
    Int8,
}

impl From<Compute> for ComputeMode {
    fn from(compute: Compute) -> ComputeMode {
        match compute {
            Compute::F32 => ComputeMode::F32,
            Compute::Int8 => ComputeMode::Int8,
        }
    }
}

/// The element type of the KV cache.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Cache {
    F32,
    F16,
}

impl From<Cache> for DType {
    fn from(cache: Cache) -> DType {
        match cache {
            Cache::F32 => DType::F32,
            Cache::F16 => DType::F16,
        }
    }
}

/// Options of `Engine.load` and `Engine.embedded`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Load {
    /// Positions of the KV cache.
    pub(crate) context: Option<usize>,
    pub(crate) compute: Option<Compute>,
    pub(crate) cache: Option<Cache>,
    /// The options of the first text, whose kernels are compiled while the weights are uploaded.
    pub(crate) first: Option<Generate>,
}

/// Options of `Model.generate` and `Model.chat`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Generate {
    pub(crate) max_tokens: Option<usize>,
    pub(crate) temperature: Option<f32>,
    pub(crate) top_k: Option<usize>,
    pub(crate) top_p: Option<f32>,
    pub(crate) min_p: Option<f32>,
    pub(crate) repeat_penalty: Option<f32>,
    pub(crate) seed: Option<u64>,
    pub(crate) stop: Vec<String>,
    pub(crate) compute: Option<Compute>,
}

impl Generate {
    /// Returns the sampling, with defaults for what is not set.
    pub(crate) fn sampling(&self) -> Sampling {
        let mut sampling = Sampling::default();
        fn set<T>(field: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *field = value;
            }
        }
        set(&mut sampling.temperature, self.temperature);
        set(&mut sampling.top_k, self.top_k);
        set(&mut sampling.top_p, self.top_p);
        set(&mut sampling.min_p, self.min_p);
        set(&mut sampling.repetition_penalty, self.repeat_penalty);
        set(&mut sampling.seed, self.seed);
        sampling
    }
}

impl Load {
    /// Returns the context of a session with these options, as the library chooses it.
    pub(crate) fn context_of(&self, model: &warploom_llm::Model) -> usize {
        let trained = model.config().context;
        self.context.unwrap_or(trained.min(warploom_llm::DEFAULT_CONTEXT))
    }
}
