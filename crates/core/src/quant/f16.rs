//! F16: IEEE 754 binary16.
//!
//! Block of 1 weight, 2 bytes: bytes 0..2 the number, little endian.
//! Meaning: the number itself; conversion to f32 is exact.

/// Weights in a block.
pub const LEN: usize = 1;
/// Bytes of a block.
pub const BYTES: usize = 2;

/// One weight.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    *out = [half::f16::from_le_bytes(*block).to_f32()];
}

/// The nearest f16, ties to even; beyond 65504 it is infinite.
pub fn encode_block(values: &[f32; LEN]) -> [u8; BYTES] {
    half::f16::from_f32(values[0]).to_le_bytes()
}
