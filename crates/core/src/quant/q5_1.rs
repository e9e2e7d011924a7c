//! Q5_1: 32 weights in 24 bytes (6 bits per weight), ggml's `block_q5_1`.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16: the scale |
//! | 2..4 | `m`, f16: the minimum |
//! | 4..8 | `qh`, u32: bit `i` is the fifth bit of weight `i` |
//! | 8..24 | `qs`: low bits of weight `j` in the low nibble of byte `j`, `j + 16` in the high |
//!
//! Meaning: `w[i] = d * q[i] + m`, `q` in 0..32.

use super::{f16_at, f16_finite, fifth_bits, inverse, nibbles_and_fifths};

/// Number of weights in a block.
pub const LEN: usize = 32;
/// Size of a block in bytes.
pub const BYTES: usize = 24;

/// Decodes the 32 weights of a block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    let high = fifth_bits(&block[4..8]);
    for j in 0..16 {
        let q = block[8 + j];
        out[j] = d * f32::from(q & 15 | high(j)) + m;
        out[j + 16] = d * f32::from(q >> 4 | high(j + 16)) + m;
    }
}

/// Encodes 32 finite values like ggml's reference: 31 steps from the smallest to the largest value.
/// Returns `None` if the scale or the minimum does not fit in an f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let min = values.iter().copied().fold(f32::INFINITY, f32::min);
    let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let d = (max - min) / 31.0;
    let inv = inverse(d);

    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&f16_finite(d)?.0.to_le_bytes());
    block[2..4].copy_from_slice(&f16_finite(min)?.0.to_le_bytes());
    let q = values.map(|v| (((v - min) * inv + 0.5) as u8).min(31));
    block[4..].copy_from_slice(&nibbles_and_fifths(&q));
    Some(block)
}
