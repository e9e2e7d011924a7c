//! Precision of matrix products and attention.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The conversion that a matrix product applies to its operand. It is part of the graph's
/// semantics: all engines for one mode compute the same result, up to rounding errors of sums.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub enum ComputeMode {
    /// No conversion: exact operands, f32 sums.
    #[default]
    F32,
    /// Rounds each row to 8 bits in blocks of [`ComputeMode::BLOCK`] values, so that the product
    /// with packed weights is an integer product: `d = max |x| / 127`, `q = round(x / d)` to
    /// nearest, ties to even; `d * q` represents `x`. The error of each value is at most `d / 2`,
    /// which is 1/254 of the block's largest magnitude. A block with a value that is not finite is
    /// NaN throughout; a block without a magnitude above 1e-30 may be treated as zeros.
    ///
    /// Tensor cores convert `d * q` and the weight to f16, each with a further relative error of
    /// 2^-11. A weight with a magnitude beyond 65,504 becomes infinite, and one below 2^-14 loses
    /// bits.
    Int8,
    /// No conversion, or operands rounded to f16 (11 significant bits) for tensor cores. Each row
    /// of the operand is first scaled by a power of two, so magnitudes of any size are preserved;
    /// values below 2^-29 of the row's largest magnitude lose bits. Weights are converted as in
    /// `Int8`. Sums are f32.
    F16,
}

impl ComputeMode {
    /// Every compute mode.
    pub const ALL: [ComputeMode; 3] = [ComputeMode::F32, ComputeMode::Int8, ComputeMode::F16];

    /// Number of values that share a scale in `Int8`. The block length of every packed format is a
    /// multiple of it.
    pub const BLOCK: u64 = 32;

    /// Returns the lowercase name: `f32`, `int8`, `f16`.
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
