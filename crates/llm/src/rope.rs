//! Computes the rotary frequencies: tensors that follow from the config instead of being read from
//! the file.

use super::config::{Config, ROPE_FACTORS, RopeScaling};
use super::weights;
use warploom::{Error, Result};
use warploom_models::gguf::Gguf;

/// Tensor name of the table of rotary frequencies.
pub(super) const ROPE_FREQUENCIES: &str = "rope.frequencies";
/// Tensor name of the table for sliding-window layers, if these have their own frequencies.
pub(super) const LOCAL_ROPE_FREQUENCIES: &str = "rope.frequencies.local";

/// Returns whether the tensor with this name is a table that [`table`] computes.
pub(super) fn is_table(name: &str) -> bool {
    matches!(name, ROPE_FREQUENCIES | LOCAL_ROPE_FREQUENCIES)
}

/// Computes the table with this name; `None` if `name` is a tensor of the file.
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
    /// Returns the rotary frequencies, `[rope_dim / 2]`: the angles in radians by which each pair
    /// of a head turns from one position to the next. They are divided by `factors`, the values of
    /// [`ROPE_FACTORS`], if there are any.
    ///
    /// # Errors
    /// Bad file if `factors` has the wrong length or an element that is not finite and above 0.
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
            let plain = plain_frequency(self.rope_base, i, self.rope_dim);
            let frequency = match self.rope_scaling {
                RopeScaling::Yarn(yarn) => yarn.apply(self.rope_base, self.rope_dim, i, plain),
                scaling => scaling.apply(plain),
            };
            (frequency / factors.map_or(1.0, |f| f64::from(f[i]))) as f32
        };
        Ok((0..half).map(frequency).collect())
    }

    /// Returns the rotary frequencies of the layers for which [`Config::is_local`] is true,
    /// `[local_rope_dim / 2]`, or `None` if there are no such frequencies. Unlike
    /// [`Config::rope_frequencies`], they are never scaled or divided by factors.
    pub fn local_rope_frequencies(&self) -> Option<Vec<f32>> {
        let base = self.local_rope_base?;
        let dim = self.local_rope_dim();
        Some((0..dim / 2).map(|i| plain_frequency(base, i, dim) as f32).collect())
    }
}

fn plain_frequency(base: f64, pair: usize, dim: usize) -> f64 {
    base.powf(-2.0 * pair as f64 / dim as f64)
}

impl RopeScaling {
    /// Scales a frequency, in radians per position. YaRN, which also depends on the pair, is
    /// applied by [`Yarn::apply`](super::yarn::Yarn::apply) instead.
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
