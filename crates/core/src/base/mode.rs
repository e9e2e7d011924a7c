//! How exactly a product computes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// What a product does with its operand before it multiplies. Part of what a graph means: every
/// engine of a product in one mode makes the same numbers but for rounding errors of sums.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub enum ComputeMode {
    /// Nothing: operands are exact, sums are f32.
    #[default]
    F32,
    /// Rounds each row to 8 bits in blocks of [`ComputeMode::BLOCK`] numbers, so that the product
    /// with packed weights is one of integers: `d = max |x| / 127`, `q = round(x / d)` to the
    /// nearest, ties to even, and `d * q` stands for `x`. The error of each number is at most
    /// `d / 2`, 1/254 of the largest in its block. A block with a number that is not finite is NaN
    /// throughout; one without a number above 1e-30 may count as zeros.
    ///
    /// Matrix hardware takes `d * q` and the weight as halves, each good to 11 bits beside that; a weight
    /// beyond 65,504 is infinite there, and one below 2^-14 has fewer bits.
    Int8,
    /// Nothing, or operands as halves, each good to 11 bits: what matrix hardware multiplies. Each row of the operand
    /// is scaled by a power of two before, so numbers of any size stay; of a row, those below 2^-29 of the largest
    /// have fewer bits. For weights it is as in `Int8`. Sums are f32.
    F16,
}

impl ComputeMode {
    /// Every mode, for tests and tables.
    pub const ALL: [ComputeMode; 3] = [ComputeMode::F32, ComputeMode::Int8, ComputeMode::F16];

    /// Numbers that share a factor in `Int8`; blocks of every packed format are multiples of it.
    pub const BLOCK: u64 = 32;

    /// Lower case: `f32`, `int8`, `f16`.
    pub const fn name(self) -> &'static str {
        match self {
            ComputeMode::F32 => "f32",
            ComputeMode::Int8 => "int8",
            ComputeMode::F16 => "f16",
        }
    }
}

impl fmt::Display for ComputeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ComputeMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<ComputeMode, Error> {
        let found = ComputeMode::ALL.into_iter().find(|mode| mode.name() == text);
        found
            .ok_or_else(|| Error::invalid(format!("compute mode {text:?} is not f32, int8 or f16")))
    }
}
