//! TQ2_0: 256 ternary weights in 66 bytes (2.0625 bits per weight), ggml's `block_tq2_0`.
//!
//! | bytes | content |
//! |---|---|
//! | 0..64 | `qs`, 2 bits per weight |
//! | 64..66 | `d`, f16: the scale |
//!
//! Each half of 128 weights has four runs of 32: weight `128 h + 32 r + l` lies in byte
//! `qs[32 h + l]` at bit `2 r`.
//!
//! Meaning: `w[i] = d * (q[i] - 1)`; no encoder writes a `q` of 3.

use super::{f16_at, f16_finite, ternary};

/// Number of weights in a block.
pub const LEN: usize = 256;
/// Size of a block in bytes.
pub const BYTES: usize = 66;

const D: usize = 64;

/// Decodes the 256 weights of a block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, D);
    for (i, w) in out.iter_mut().enumerate() {
        let q = block[32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3;
        *w = d * f32::from(q.cast_signed() - 1);
    }
}

/// Encodes 256 finite values like ggml's reference: the largest magnitude is the scale. Returns
/// `None` if it does not fit in an f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let (d, digit) = ternary(values);
    let mut block = [0; BYTES];
    block[D..].copy_from_slice(&f16_finite(d)?.0.to_le_bytes());
    for (i, value) in values.iter().enumerate() {
        block[32 * (i / 128) + i % 32] |= digit(*value) << (2 * (i / 32 % 4));
    }
    Some(block)
}
