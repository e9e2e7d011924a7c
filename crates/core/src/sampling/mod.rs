//! Sampling a token from logits in integer arithmetic, so that all devices draw the same token.
//!
//! Weights are fixed-point powers of two computed in integer arithmetic ([`weight`]), so their sums
//! are exact in any order. The random number is a function of seed and position ([`philox`]). For
//! one row of logits, a GPU, the CPU provider and the host's sampler choose the same token, and a
//! seed produces the same text whether decoding is run-ahead, batched or one token at a time.
//! Floats are used for only one subtraction and one multiplication, rounded to nearest.
//!
//! `reference::sample` defines the result in plain loops; [`choose`] is the CPU implementation.

mod choose;
mod none;
pub mod philox;
pub mod weight;

pub use choose::{Choice, choose};
pub use none::NoToken;

/// Sampling parameters for one row of logits: one row of the second operand of
/// [`crate::ir::Op::Sample`].
///
/// Three filters apply in order: `top_k` keeps the best tokens (by lower id among equals); `top_p`
/// keeps the shortest prefix of these, of at least one token, that reaches this share of the sum of
/// their weights at temperature 1; `min_p` keeps those with a weight at temperature 1 of at least
/// this fraction of the best token's. One of the remaining tokens is drawn in proportion to its
/// weight at the given temperature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleParams {
    /// `log2(e) / temperature`: doublings of the weight per unit of a logit. A value that is not a
    /// positive normal number is treated as 0, which makes all weights equal; a value above `2^62`
    /// is clamped to it.
    pub scale: f32,
    /// Number of best tokens to keep; 0 keeps all. 1 is greedy: the other fields have no effect.
    pub top_k: u32,
    /// Nucleus share, in units of `2^-32`; `u32::MAX` disables the filter.
    pub top_p: u32,
    /// Minimum weight relative to the best, in units of `2^-31`; values above 1 are clamped to 1.
    pub min_p: u32,
    /// Random seed.
    pub seed: u64,
    /// Index of the random number: the number of tokens before the sampled one.
    pub position: u32,
}

impl SampleParams {
    /// Number of 32-bit words of a row: scale (bits of an f32), top_k, top_p, min_p, seed (low,
    /// high), position.
    pub const WORDS: usize = 7;

    /// Returns the parameters as a row of words.
    pub fn words(&self) -> [u32; SampleParams::WORDS] {
        let [low, high] = [self.seed as u32, (self.seed >> 32) as u32];
        let scale = self.scale.to_bits();
        [scale, self.top_k, self.top_p, self.min_p, low, high, self.position]
    }

    /// Returns the parameters as the bytes of a row, little-endian.
    pub fn bytes(&self) -> Vec<u8> {
        self.words().iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Reads the parameters from a row of words.
    pub fn from_words(words: [u32; SampleParams::WORDS]) -> SampleParams {
        let [scale, top_k, top_p, min_p, low, high, position] = words;
        let seed = u64::from(high) << 32 | u64::from(low);
        SampleParams { scale: f32::from_bits(scale), top_k, top_p, min_p, seed, position }
    }

    /// Returns the sum of weights that the tokens kept by `top_p` must reach, given the sum `total`
    /// after `top_k`. It is at least 1, so that one token remains. If the filter is disabled, it
    /// cannot be reached, so that all tokens remain.
    pub fn top_p_goal(&self, total: u64) -> u64 {
        match self.top_p {
            u32::MAX => u64::MAX,
            share => (((u128::from(total) * u128::from(share)) >> 32) as u64).max(1),
        }
    }

    /// Returns the smallest weight at temperature 1 that `min_p` keeps.
    pub fn floor(&self) -> u32 {
        self.min_p.min(weight::ONE)
    }

    /// Returns the random threshold, from 1 to `total`: the sampled token is the first, from best
    /// to worst, at which the running sum of the remaining weights reaches it.
    pub fn goal(&self, total: u64) -> u64 {
        let [low, high, ..] = philox::philox4x32(
            [self.position, 0, 0, 0],
            [self.seed as u32, (self.seed >> 32) as u32],
        );
        let random = u64::from(high) << 32 | u64::from(low);
        ((u128::from(random) * u128::from(total)) >> 64) as u64 + 1
    }
}

#[cfg(test)]
mod tests;
