//! F16: IEEE 754 binary16.
//!
//! A block is 1 weight in 2 bytes: the f16, little-endian.
//! Meaning: the f16 itself; conversion to f32 is exact.

/// Number of weights in a block.
pub const LEN: usize = 1;
/// Size of a block in bytes.
pub const BYTES: usize = 2;

/// Decodes one weight to f32.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    *out = [half::f16::from_le_bytes(*block).to_f32()];
}

/// Encodes a value as the nearest f16, ties to even; magnitudes from 65,520 on become infinite.
pub fn encode_block(values: &[f32; LEN]) -> [u8; BYTES] {
    half::f16::from_f32(values[0]).to_le_bytes()
}
