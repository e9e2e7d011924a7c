//! Gated short convolutions: layers with the last tokens as their state, in place of a KV cache.

use super::config::{Config, Keys, MAX_CONTEXT};
use warploom::Result;

/// Maximum number of tokens that the convolution of a layer sees.
const MOST_TAPS: u64 = 64;

/// Layers that are gated short convolutions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShortConvs {
    /// Number of tokens that the convolution sees, including the token itself.
    pub taps: usize,
    /// Whether each layer is one; others have attention.
    pub layers: Vec<bool>,
}

/// A factor of queries that grows with the logarithm of their position.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Temperature {
    /// The factor is `1 + scale * log(1 + floor(position / length))`.
    pub scale: f32,
    /// Length of a range of positions with one factor.
    pub length: usize,
}

impl Keys<'_> {
    /// Reads which layers are short convolutions: those without key and value heads.
    pub(super) fn short_convs(&self, kv_heads: &[usize]) -> Result<Option<ShortConvs>> {
        if !self.architecture.short_convs {
            return Ok(None);
        }
        let name = "shortconv.l_cache";
        let taps = self.count(name, MOST_TAPS)?;
        if taps < 2 {
            return Err(self.bad(name, format!("{taps}, must be at least 2")));
        }
        let layers: Vec<bool> = kv_heads.iter().map(|heads| *heads == 0).collect();
        Ok(layers.contains(&true).then_some(ShortConvs { taps, layers }))
    }

    /// Reads the factor of queries; `None` if there is none.
    pub(super) fn temperature(&self, context: usize) -> Result<Option<Temperature>> {
        let name = "attention.temperature_scale";
        // Files without it have 0 or no key.
        let given = self.file.find_f32(&self.key(name))?.filter(|scale| *scale != 0.0);
        let Some(given) = given else { return Ok(None) };
        if !self.architecture.tempers {
            return Err(self.unsupported(name, format!("a factor of queries, {given},")));
        }
        let scale = self.number(name, None, 0.0, 1e3)? as f32;
        let length = self.find_count("rope.scaling.original_context_length", MAX_CONTEXT)?;
        Ok(Some(Temperature { scale, length: length.unwrap_or(context) }))
    }
}

impl Config {
    /// Returns the number of taps of the short convolution that this layer is; `None` if it has
    /// attention.
    pub fn short_conv_of(&self, layer: usize) -> Option<usize> {
        let convs = self.short_convs.as_ref()?;
        convs.layers.get(layer).copied().unwrap_or(false).then_some(convs.taps)
    }

    /// Returns whether some layers keep a state of a text that cannot be taken back.
    pub fn is_recurrent(&self) -> bool {
        self.delta_net.is_some() || self.short_convs.is_some()
    }

    /// Returns whether this layer keeps keys and values of its own.
    pub fn has_keys(&self, layer: usize) -> bool {
        self.delta_net_of(layer).is_none()
            && self.short_conv_of(layer).is_none()
            && self.keys_of(layer) == layer
    }

    /// Returns the number of `f32` elements of the states of a layer and sequence: of its convolution,
    /// and of its recurrence.
    pub fn state_elements(&self, layer: usize) -> [usize; 2] {
        match (self.delta_net_of(layer), self.short_conv_of(layer)) {
            (Some(net), _) => net.state_elements(),
            (None, Some(taps)) => [(taps - 1) * self.width, 0],
            (None, None) => [0, 0],
        }
    }
}

#[cfg(test)]
#[path = "short_conv_tests.rs"]
mod tests;
