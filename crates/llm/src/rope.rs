//! Rotary frequencies: tensors that are computed from the config and not read from the file.

use super::config::{Config, ROPE_FACTORS, RopeScaling};
use super::weights;
use warploom::error::{Error, Result};
use warploom_models::gguf::Gguf;

/// Name of the bound table of rotary frequencies.
pub(super) const ROPE_FREQUENCIES: &str = "rope.frequencies";
/// The same for sliding-window layers with separate frequencies.
pub(super) const LOCAL_ROPE_FREQUENCIES: &str = "rope.frequencies.local";

/// The values of a table of this name; `None` for a tensor of the file.
pub(super) fn table(file: &Gguf, config: &Config, name: &str) -> Result<Option<Vec<f32>>> {
    match name {
        ROPE_FREQUENCIES => {
            let factors = match config.has_rope_factors {
                true => Some(weights::decoded(file, ROPE_FACTORS)?),
                false => None,
            };
            config.rope_frequencies(factors.as_deref()).map(Some)
        }
        LOCAL_ROPE_FREQUENCIES => Ok(config.local_rope_frequencies()),
        _ => Ok(None),
    }
}

impl Config {
    /// Angle in radians by which pair `i` of a head turns from one position to the next:
    /// `[rope_dim / 2]`. `factors`, the values of [`ROPE_FACTORS`], divide them.
    ///
    /// # Errors
    /// Bad file, if `factors` has another length or holds a number that is not above 0.
    pub fn rope_frequencies(&self, factors: Option<&[f32]>) -> Result<Vec<f32>> {
        let half = self.rope_dim / 2;
        if let Some(factors) = factors {
            if factors.len() != half {
                let n = factors.len();
                return Err(Error::bad_file(format!("{ROPE_FACTORS}: {n} elements, not {half}")));
            }
            if let Some(i) = factors.iter().position(|f| !(f.is_finite() && *f > 0.0)) {
                let value = factors[i];
                return Err(Error::bad_file(format!("{ROPE_FACTORS}: element {i} is {value}")));
            }
        }
        let frequency = |i: usize| {
            let plain = self.plain_frequency(self.rope_base, i);
            let frequency = match self.rope_scaling {
                RopeScaling::Yarn(yarn) => yarn.apply(self.rope_base, self.rope_dim, i, plain),
                scaling => scaling.apply(plain),
            };
            (frequency / factors.map_or(1.0, |f| f64::from(f[i]))) as f32
        };
        Ok((0..half).map(frequency).collect())
    }

    /// As [`Config::rope_frequencies`], for layers of which [`Config::is_local`] is true; `None` if
    /// no layer has separate frequencies.
    pub fn local_rope_frequencies(&self) -> Option<Vec<f32>> {
        let base = self.local_rope_base?;
        Some((0..self.rope_dim / 2).map(|i| self.plain_frequency(base, i) as f32).collect())
    }

    fn plain_frequency(&self, base: f64, pair: usize) -> f64 {
        base.powf(-2.0 * pair as f64 / self.rope_dim as f64)
    }
}

impl RopeScaling {
    /// A frequency, in radians a position, after scaling.
    fn apply(self, frequency: f64) -> f64 {
        match self {
            RopeScaling::None | RopeScaling::Yarn(_) => frequency,
            RopeScaling::Linear { factor } => frequency / factor,
            RopeScaling::Llama3 { factor, low, high, original_context } => {
                // Turns within the original context; the published formula compares wavelengths,
                // which is equivalent.
                let turns = original_context * frequency / std::f64::consts::TAU;
                let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
        }
    }
}
