//! Gated delta nets: the hyperparameters of layers with a recurrent state in place of a KV cache.

use super::config::Keys;
use warploom::Result;

/// Maximum number of heads, and maximum size of a head.
const MOST: u64 = 1 << 12;
/// Maximum number of tokens that the convolution of a layer sees.
const MOST_TAPS: u64 = 64;

/// The hyperparameters of layers that are gated delta nets.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeltaNet {
    /// Layers `period`, `2 * period`, .. (counted from 1) have attention; all others are gated delta
    /// nets.
    pub period: usize,
    /// Number of query and key heads; divides `heads`. Head `h` has the keys of `h % key_heads`.
    pub key_heads: usize,
    /// Number of value heads.
    pub heads: usize,
    /// Size of one head, in elements.
    pub head_dim: usize,
    /// Number of tokens that the convolution sees, including the token itself.
    pub taps: usize,
}

impl DeltaNet {
    /// Reads the keys of an architecture with gated delta nets.
    ///
    /// # Errors
    /// Bad file, naming file and key, for a value that is missing, out of range or inconsistent with
    /// another.
    pub(super) fn read(keys: &Keys<'_>) -> Result<DeltaNet> {
        let head_dim = keys.count("ssm.state_size", MOST)?;
        let heads = keys.count("ssm.time_step_rank", MOST)?;
        let key_heads = keys.count("ssm.group_count", MOST)?;
        if heads % key_heads != 0 {
            let what = format!("{key_heads} does not divide ssm.time_step_rank, {heads}");
            return Err(keys.bad("ssm.group_count", what));
        }
        let inner = keys.count("ssm.inner_size", MOST * MOST)?;
        if inner != heads * head_dim {
            let what = format!("{inner}, not {heads} heads of {head_dim} elements");
            return Err(keys.bad("ssm.inner_size", what));
        }
        let taps = keys.count("ssm.conv_kernel", MOST_TAPS)?;
        if taps < 2 {
            return Err(keys.bad("ssm.conv_kernel", format!("{taps}, must be at least 2")));
        }
        let period = keys.find_count("full_attention_interval", MOST)?.unwrap_or(4);
        Ok(DeltaNet { period, key_heads, heads, head_dim, taps })
    }

    /// Returns the number of elements of all values of a token.
    pub fn inner(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Returns the number of channels of the convolution: queries, keys and values of a token.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.head_dim + self.inner()
    }

    /// Returns the number of `f32` elements of the states of a layer and sequence: of the
    /// convolution, and of the recurrence.
    pub fn state_elements(&self) -> [usize; 2] {
        [(self.taps - 1) * self.channels(), self.heads * self.head_dim * self.head_dim]
    }
}
