//! BF16: the upper 16 bits of an f32.
//!
//! A block is 1 weight in 2 bytes: the upper 16 bits of the f32, little-endian.
//! Meaning: the f32 that consists of those bits followed by 16 zero bits.

/// Number of weights in a block.
pub const LEN: usize = 1;
/// Size of a block in bytes.
pub const BYTES: usize = 2;

/// Decodes one weight to f32.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    *out = [f32::from_bits(u32::from(u16::from_le_bytes(*block)) << 16)];
}

/// Encodes a value as the nearest bf16, ties to even; NaN stays NaN.
pub fn encode_block(values: &[f32; LEN]) -> [u8; BYTES] {
    half::bf16::from_f32(values[0]).to_le_bytes()
}
