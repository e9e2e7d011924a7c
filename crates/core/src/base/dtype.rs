//! Element types of tensors, and the storage formats of weights.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The type of one element of a tensor in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DType {
    /// 32-bit IEEE 754 float.
    F32,
    /// 16-bit IEEE 754 float.
    F16,
    /// bfloat16: the upper 16 bits of an `F32`.
    BF16,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// A boolean, stored as a `U32` that is 0 or 1.
    Bool,
}

impl DType {
    /// Returns the size of one element in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            DType::F32 | DType::I32 | DType::U32 | DType::Bool => 4,
            DType::F16 | DType::BF16 => 2,
        }
    }

    /// Returns whether an element takes 2 bytes, as `f16` and `bf16` do.
    pub const fn is_half(self) -> bool {
        self.bytes() == 2
    }

    /// Returns whether this is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16)
    }

    /// Returns the lowercase name, such as `f32` or `bool`.
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

/// Storage format of a weight: plain elements, or blocks with shared scales.
///
/// The block formats in files are those of ggml and BitNet; `quant` defines each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Format {
    /// Plain elements of this type.
    Plain(DType),
    /// 32 weights in 18 bytes: one f16 scale, 4-bit values minus 8.
    Q4_0,
    /// 32 weights in 20 bytes: f16 scale and minimum, 4-bit values.
    Q4_1,
    /// 32 weights in 22 bytes: one f16 scale, 5-bit values minus 16.
    Q5_0,
    /// 32 weights in 24 bytes: f16 scale and minimum, 5-bit values.
    Q5_1,
    /// 32 weights in 34 bytes: f16 scale, 8-bit values.
    Q8_0,
    /// 256 weights in 84 bytes: 16 sub-blocks with 4-bit scales and minima, 2-bit values.
    Q2K,
    /// 256 weights in 110 bytes: 16 sub-blocks with 6-bit scales, 3-bit values minus 4.
    Q3K,
    /// 256 weights in 144 bytes: 8 sub-blocks with 6-bit scales and minima, 4-bit values.
    Q4K,
    /// 256 weights in 176 bytes: 8 sub-blocks with 6-bit scales and minima, 5-bit values.
    Q5K,
    /// 256 weights in 210 bytes: 16 sub-blocks with 8-bit scales, 6-bit values minus 32.
    Q6K,
    /// 32 weights in 18 bytes: f16 scale, 4-bit indices into a table of 16 non-uniform values.
    IQ4NL,
    /// 256 weights in 136 bytes: 8 sub-blocks with 6-bit scales, 4-bit indices into the table of
    /// `IQ4NL`.
    IQ4XS,
    /// 32 weights in 17 bytes: a power-of-two scale, 4-bit floats.
    MXFP4,
    /// 256 ternary weights in 54 bytes: f16 scale, five weights per byte.
    TQ1_0,
    /// 256 ternary weights in 66 bytes: f16 scale, 2-bit values.
    TQ2_0,
    /// 128 ternary weights in 36 bytes: f32 scale, 2-bit values. BitNet's files store one scale per
    /// tensor; weights are repacked on load.
    I2S,
    /// 2048 weights in 1680 bytes: eight blocks of `Q6K`, interleaved by field. This is a GPU
    /// weight layout, not a file format; the CPU does not read it.
    Q6Kx8,
    /// 64 weights in 68 bytes: two blocks of `Q8_0`, interleaved by field. This is a GPU weight
    /// layout, not a file format; the CPU does not read it.
    Q8_0x2,
    /// 256 weights in 272 bytes: eight blocks of `Q8_0`, interleaved by field, for row lengths that
    /// are multiples of 256. This is a GPU weight layout, not a file format; the CPU does not read
    /// it.
    Q8_0x8,
    /// 256 weights in 144 bytes: eight blocks of `Q4_0`, interleaved by field. This is a GPU weight
    /// layout, not a file format; the CPU does not read it.
    Q4_0x8,
}

impl Format {
    /// Plain 32-bit floats.
    pub const F32: Format = Format::Plain(DType::F32);

    /// Every file format of weights, for tests and tables.
    pub const ALL: [Format; 19] = [
        Format::Plain(DType::F32),
        Format::Plain(DType::F16),
        Format::Plain(DType::BF16),
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q8_0,
        Format::Q2K,
        Format::Q3K,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
        Format::IQ4NL,
        Format::IQ4XS,
        Format::MXFP4,
        Format::TQ1_0,
        Format::TQ2_0,
        Format::I2S,
    ];

    /// Every GPU weight layout; [`Format::ALL`] lists the file formats.
    pub const KEPT: [Format; 4] = [Format::Q6Kx8, Format::Q8_0x2, Format::Q8_0x8, Format::Q4_0x8];

    /// Returns the weight layout in which a GPU stores rows of `columns` weights of this format:
    /// the same values, reordered for its kernels by `quant::keep`, or the format itself if there
    /// is no such layout. `grouped` prefers groups of 256 weights. That is faster if most rows have
    /// at least 2,048 columns; shorter rows leave threads of those kernels idle.
    pub const fn kept(self, columns: u64, grouped: bool) -> Format {
        match self {
            Format::Q6K if columns.is_multiple_of(Format::Q6Kx8.block_len()) => Format::Q6Kx8,
            Format::Q4_0 if grouped && columns.is_multiple_of(Format::Q4_0x8.block_len()) => {
                Format::Q4_0x8
            }
            Format::Q8_0 if grouped && columns.is_multiple_of(Format::Q8_0x8.block_len()) => {
                Format::Q8_0x8
            }
            Format::Q8_0 if columns.is_multiple_of(Format::Q8_0x2.block_len()) => Format::Q8_0x2,
            format => format,
        }
    }

    /// Returns the number of weights in a block, 1 for plain elements.
    pub const fn block_len(self) -> u64 {
        match self {
            Format::Plain(_) => 1,
            Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 | Format::Q8_0 => 32,
            Format::IQ4NL | Format::MXFP4 => 32,
            Format::I2S => 128,
            Format::Q2K | Format::Q3K | Format::Q4K | Format::Q5K | Format::Q6K => 256,
            Format::IQ4XS | Format::TQ1_0 | Format::TQ2_0 => 256,
            Format::Q6Kx8 => 2048,
            Format::Q8_0x2 => 64,
            Format::Q8_0x8 | Format::Q4_0x8 => 256,
        }
    }

    /// Returns the size of a block in bytes.
    pub const fn block_bytes(self) -> u64 {
        match self {
            Format::Plain(dtype) => dtype.bytes(),
            Format::Q4_0 => 18,
            Format::Q4_1 => 20,
            Format::Q5_0 => 22,
            Format::Q5_1 => 24,
            Format::Q8_0 => 34,
            Format::Q2K => 84,
            Format::Q3K => 110,
            Format::Q4K => 144,
            Format::Q5K => 176,
            Format::Q6K => 210,
            Format::IQ4NL => 18,
            Format::IQ4XS => 136,
            Format::MXFP4 => 17,
            Format::TQ1_0 => 54,
            Format::TQ2_0 => 66,
            Format::I2S => 36,
            Format::Q6Kx8 => 1680,
            Format::Q8_0x2 => 68,
            Format::Q8_0x8 => 272,
            Format::Q4_0x8 => 144,
        }
    }

    /// Returns the size of `elements` weights in bytes, or `None` if they do not fill whole blocks
    /// or the size overflows.
    pub const fn bytes(self, elements: u64) -> Option<u64> {
        if !elements.is_multiple_of(self.block_len()) {
            return None;
        }
        (elements / self.block_len()).checked_mul(self.block_bytes())
    }

    /// Returns the lowercase name that assets, engines and reports use, such as `q4_k` or `f16`.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Plain(dtype) => dtype.name(),
            Format::Q4_0 => "q4_0",
            Format::Q4_1 => "q4_1",
            Format::Q5_0 => "q5_0",
            Format::Q5_1 => "q5_1",
            Format::Q8_0 => "q8_0",
            Format::Q2K => "q2_k",
            Format::Q3K => "q3_k",
            Format::Q4K => "q4_k",
            Format::Q5K => "q5_k",
            Format::Q6K => "q6_k",
            Format::IQ4NL => "iq4_nl",
            Format::IQ4XS => "iq4_xs",
            Format::MXFP4 => "mxfp4",
            Format::TQ1_0 => "tq1_0",
            Format::TQ2_0 => "tq2_0",
            Format::I2S => "i2_s",
            Format::Q6Kx8 => "q6_kx8",
            Format::Q8_0x2 => "q8_0x2",
            Format::Q8_0x8 => "q8_0x8",
            Format::Q4_0x8 => "q4_0x8",
        }
    }

    /// Returns whether this is a GPU weight layout, which the CPU does not read.
    pub const fn is_kept(self) -> bool {
        matches!(self, Format::Q6Kx8 | Format::Q8_0x2 | Format::Q8_0x8 | Format::Q4_0x8)
    }

    /// Returns whether weights are packed in blocks.
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
