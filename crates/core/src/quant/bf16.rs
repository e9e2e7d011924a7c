//! BF16: the upper 16 bits of an f32.
//!
//! Block of 1 weight, 2 bytes: bytes 0..2 the upper 16 bits of the f32, little endian.
//! Meaning: those bits with 16 zero bits below, which is exact.

/// Weights in a block.
pub const LEN: usize = 1;
/// Bytes of a block.
pub const BYTES: usize = 2;

/// One weight.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    *out = [f32::from_bits(u32::from(u16::from_le_bytes(*block)) << 16)];
}

/// The nearest bf16, ties to even; NaN stays NaN.
pub fn encode_block(values: &[f32; LEN]) -> [u8; BYTES] {
    half::bf16::from_f32(values[0]).to_le_bytes()
}
