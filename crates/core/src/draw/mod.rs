//! The draw of a token from logits, in whole numbers, so that every device draws the same one.
//!
//! Weights are fixed-point powers of two made by integer arithmetic ([`weight`]), so their sums are
//! exact in any order; the random number is a function of seed and position ([`philox`]). From one
//! row of logits a GPU, the CPU provider and the host's sampler choose the same token, and a seed
//! gives one text whether tokens run ahead, in a batch or one at a time. What is needed of floats is
//! one subtraction and one multiplication, rounded to nearest.
//!
//! `reference::sample` says what is chosen, in plain loops; [`choose`] is how a CPU does it.

mod choose;
mod none;
pub mod philox;
pub mod weight;

pub use choose::{Choice, choose};
pub use none::NoToken;

/// How one token is chosen from a row of logits: what a row of the second operand of
/// [`crate::ir::Op::Sample`] says.
///
/// The `top_k` best tokens are kept (equal logits by lower id); of those the fewest best whose
/// weights at temperature 1 reach the share `top_p`, at least one; of those the ones whose weight is
/// at least `min_p` of the best one's. One is drawn by its weight at the temperature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// `log2(e) / temperature`: doublings of the weight for each unit of a logit. What is no
    /// positive normal number counts as 0, which makes all weights equal, and what is above `2^62`
    /// as that.
    pub scale: f32,
    /// Best tokens that are kept; 0 is all of them. 1 is greedy, and the rest does not matter.
    pub top_k: u32,
    /// The share, in units of `2^-32`; `u32::MAX` is no limit.
    pub top_p: u32,
    /// The least weight relative to the best one's, in units of `2^-31`; more than 1 counts as 1.
    pub min_p: u32,
    /// Key of the random numbers.
    pub seed: u64,
    /// Which random number of the seed: tokens of the text before the one that is chosen.
    pub position: u32,
}

impl Draw {
    /// Words of a row: scale (bits of an f32), top_k, top_p, min_p, seed (low, high), position.
    pub const WORDS: usize = 7;

    /// The row.
    pub fn words(&self) -> [u32; Draw::WORDS] {
        let [low, high] = [self.seed as u32, (self.seed >> 32) as u32];
        let scale = self.scale.to_bits();
        [scale, self.top_k, self.top_p, self.min_p, low, high, self.position]
    }

    /// The row as bytes, little-endian.
    pub fn bytes(&self) -> Vec<u8> {
        self.words().iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// From a row.
    pub fn from_words(words: [u32; Draw::WORDS]) -> Draw {
        let [scale, top_k, top_p, min_p, low, high, position] = words;
        let seed = u64::from(high) << 32 | u64::from(low);
        Draw { scale: f32::from_bits(scale), top_k, top_p, min_p, seed, position }
    }

    /// The sum that the best tokens must reach, where all that top-k left sum to `total`: at least
    /// 1, which one token reaches; without a limit one that nothing reaches.
    pub fn top_p_goal(&self, total: u64) -> u64 {
        match self.top_p {
            u32::MAX => u64::MAX,
            share => (((u128::from(total) * u128::from(share)) >> 32) as u64).max(1),
        }
    }

    /// The least weight at temperature 1 that is kept.
    pub fn floor(&self) -> u32 {
        self.min_p.min(weight::ONE)
    }

    /// The sum that decides: the first token, best first, at which the weights of those that are
    /// left reach it. 1 to `total`, which is all they sum to.
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
