//! Element types of tensors, and the storage formats of weights.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The type of one element of a tensor in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DType {
    /// 32-bit IEEE 754.
    F32,
    /// 16-bit IEEE 754.
    F16,
    /// The upper half of an `F32`.
    BF16,
    /// 32-bit two's complement.
    I32,
    /// 32-bit unsigned.
    U32,
    /// True or false, stored as a `U32` that is 0 or 1.
    Bool,
}

impl DType {
    /// Bytes of one element in memory.
    pub const fn bytes(self) -> u64 {
        match self {
            DType::F32 | DType::I32 | DType::U32 | DType::Bool => 4,
            DType::F16 | DType::BF16 => 2,
        }
    }

    /// Whether two elements share a word: `f16` and `bf16`.
    pub const fn is_half(self) -> bool {
        self.bytes() == 2
    }

    /// Whether arithmetic on it is floating point.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16)
    }

    /// The lower-case name: `f32`, `bool`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::Bool => "bool",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How the numbers of a weight lie in memory: plain elements, or blocks that share scales.
///
/// The block formats are those of ggml; `quant` holds the meaning of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Format {
    /// Plain elements.
    Plain(DType),
    /// 32 weights in 18 bytes: one f16 scale, 4-bit values minus 8.
    Q4_0,
    /// 32 weights in 20 bytes: f16 scale and minimum, 4-bit values.
    Q4_1,
    /// 32 weights in 34 bytes: f16 scale, 8-bit values.
    Q8_0,
    /// 256 weights in 144 bytes: 8 sub-blocks with 6-bit scales and minima, 4-bit values.
    Q4K,
    /// 256 weights in 210 bytes: 16 sub-blocks with 8-bit scales, 6-bit values.
    Q6K,
}

impl Format {
    /// Plain 32-bit floats.
    pub const F32: Format = Format::Plain(DType::F32);

    /// Every format that a weight may have, for tests and tables.
    pub const ALL: [Format; 8] = [
        Format::Plain(DType::F32),
        Format::Plain(DType::F16),
        Format::Plain(DType::BF16),
        Format::Q4_0,
        Format::Q4_1,
        Format::Q8_0,
        Format::Q4K,
        Format::Q6K,
    ];

    /// Weights in one block (1 for plain elements).
    pub const fn block_len(self) -> u64 {
        match self {
            Format::Plain(_) => 1,
            Format::Q4_0 | Format::Q4_1 | Format::Q8_0 => 32,
            Format::Q4K | Format::Q6K => 256,
        }
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> u64 {
        match self {
            Format::Plain(dtype) => dtype.bytes(),
            Format::Q4_0 => 18,
            Format::Q4_1 => 20,
            Format::Q8_0 => 34,
            Format::Q4K => 144,
            Format::Q6K => 210,
        }
    }

    /// Bytes of `elements` weights, or `None` where they do not fill whole blocks or overflow.
    pub const fn bytes(self, elements: u64) -> Option<u64> {
        if !elements.is_multiple_of(self.block_len()) {
            return None;
        }
        (elements / self.block_len()).checked_mul(self.block_bytes())
    }

    /// The lower-case name that assets, engines and reports use: `q4_k`, `f16`.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Plain(dtype) => dtype.name(),
            Format::Q4_0 => "q4_0",
            Format::Q4_1 => "q4_1",
            Format::Q8_0 => "q8_0",
            Format::Q4K => "q4_k",
            Format::Q6K => "q6_k",
        }
    }

    /// Whether the numbers are packed in blocks.
    pub const fn is_quantised(self) -> bool {
        !matches!(self, Format::Plain(_))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_need_whole_blocks() {
        assert_eq!(Format::Q4K.bytes(512), Some(288));
        assert_eq!(Format::Q4K.bytes(255), None);
        assert_eq!(Format::F32.bytes(3), Some(12));
        assert_eq!(Format::F32.bytes(u64::MAX), None);
    }
}
