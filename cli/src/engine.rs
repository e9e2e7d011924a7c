//! Stand-in: the calls into the library that the command needs, until the runtime is merged.
//! Every call answers that this build cannot run a model.

use crate::args::Place;
use std::ops::ControlFlow;
use warploom::llm::sampler::Sampling;
use warploom::provider::DeviceProfile;

/// What there is, and what was selected.
pub(crate) struct Found {
    pub(crate) startup_line: String,
    pub(crate) devices: Vec<FoundDevice>,
    /// Provider, and why it could not list its devices.
    pub(crate) failures: Vec<(String, String)>,
}

pub(crate) struct FoundDevice {
    pub(crate) profile: DeviceProfile,
    pub(crate) reason: String,
    pub(crate) selected: bool,
}

/// What to write.
pub(crate) struct Request {
    pub(crate) max_tokens: usize,
    pub(crate) sampling: Sampling,
}

/// Why writing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Stop,
    Length,
    Context,
    Interrupted,
}

/// What was written.
pub(crate) struct Written {
    pub(crate) text: String,
    pub(crate) tokens: Vec<u32>,
    pub(crate) prompt_tokens: usize,
    pub(crate) ended: Ended,
    pub(crate) first_token_seconds: f64,
    pub(crate) decode_seconds: f64,
}

impl Written {
    pub(crate) fn prefill_rate(&self) -> f64 {
        crate::units::rate(self.prompt_tokens as f64, self.first_token_seconds)
    }

    /// Tokens a second after the first one.
    pub(crate) fn decode_rate(&self) -> f64 {
        crate::units::rate(self.tokens.len().saturating_sub(1) as f64, self.decode_seconds)
    }
}

/// What a benchmark saw. Counts are of the whole decode part.
pub(crate) struct Measured {
    pub(crate) prompt_tokens: usize,
    pub(crate) prefill_seconds: f64,
    pub(crate) tokens: usize,
    pub(crate) decode_seconds: f64,
    /// Part of `decode_seconds` in which the host waited for the device.
    pub(crate) waited_seconds: f64,
    pub(crate) weight_bytes_per_token: u64,
    /// At the middle of the decode part.
    pub(crate) cache_bytes_per_token: u64,
    pub(crate) dispatches: u64,
    pub(crate) submits: u64,
    pub(crate) waits: u64,
    pub(crate) allocations: u64,
}

/// A model on a device.
pub(crate) struct Loaded {
    profile: DeviceProfile,
}

fn missing<T>() -> anyhow::Result<T> {
    anyhow::bail!("this build has no runtime")
}

/// What there is, without opening anything.
pub(crate) fn detect(_device: Option<&str>) -> anyhow::Result<Found> {
    missing()
}

impl Loaded {
    pub(crate) fn open(_: &Place, _: &mut dyn FnMut(u64, u64)) -> anyhow::Result<Loaded> {
        missing()
    }

    /// With a clock on the device's `wait`, for [`Loaded::bench`].
    pub(crate) fn open_clocked(_: &Place, _: &mut dyn FnMut(u64, u64)) -> anyhow::Result<Loaded> {
        missing()
    }

    pub(crate) fn startup_line(&self) -> &str {
        ""
    }

    pub(crate) fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    pub(crate) fn compute_mode(&self) -> &str {
        ""
    }

    pub(crate) fn model_name(&self) -> &str {
        ""
    }

    pub(crate) fn context(&self) -> usize {
        0
    }

    pub(crate) fn generate(
        &mut self,
        _prompt: &str,
        _request: &Request,
        _on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> anyhow::Result<Written> {
        missing()
    }

    pub(crate) fn bench(&mut self, _prompt: usize, _tokens: usize) -> anyhow::Result<Measured> {
        missing()
    }
}
