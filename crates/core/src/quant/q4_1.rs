//! Q4_1: 32 weights in 20 bytes (5 bits per weight), ggml's `block_q4_1`.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16: the scale |
//! | 2..4 | `m`, f16: the minimum |
//! | 4..20 | `qs`, 16 bytes: weight `j` in the low nibble of byte `j`, `j + 16` in the high |
//!
//! Meaning: `w[i] = d * q[i] + m`, `q` in 0..16.

use super::{f16_at, f16_finite, inverse};

/// Number of weights in a block.
pub const LEN: usize = 32;
/// Size of a block in bytes.
pub const BYTES: usize = 20;

/// Decodes the 32 weights of a block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    for j in 0..16 {
        let q = block[4 + j];
        out[j] = d * f32::from(q & 15) + m;
        out[j + 16] = d * f32::from(q >> 4) + m;
    }
}

/// Encodes 32 finite values like ggml's reference: 15 steps from the smallest to the largest value.
/// Returns `None` if the scale or the minimum does not fit in an f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let min = values.iter().copied().fold(f32::INFINITY, f32::min);
    let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let d = (max - min) / 15.0;
    let inv = inverse(d);
    let q = |v: f32| (((v - min) * inv + 0.5) as u8).min(15);

    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&f16_finite(d)?.0.to_le_bytes());
    block[2..4].copy_from_slice(&f16_finite(min)?.0.to_le_bytes());
    for j in 0..16 {
        block[4 + j] = q(values[j]) | q(values[j + 16]) << 4;
    }
    Some(block)
}
