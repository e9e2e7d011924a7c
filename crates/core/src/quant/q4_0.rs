//! Q4_0: 32 weights in 18 bytes (4.5 bits per weight), ggml's `block_q4_0`.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16: the scale |
//! | 2..18 | `qs`, 16 bytes: weight `j` in the low nibble of byte `j`, `j + 16` in the high |
//!
//! Meaning: `w[i] = d * (q[i] - 8)`, `q` in 0..16.

use super::{f16_at, f16_finite, inverse};

/// Number of weights in a block.
pub const LEN: usize = 32;
/// Size of a block in bytes.
pub const BYTES: usize = 18;

/// Decodes the 32 weights of a block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    for j in 0..16 {
        let q = block[2 + j];
        out[j] = d * f32::from(i16::from(q & 15) - 8);
        out[j + 16] = d * f32::from(i16::from(q >> 4) - 8);
    }
}

/// Encodes 32 finite values like ggml's reference: the value of largest magnitude (the first of
/// equals) maps to -8. Returns `None` if the scale does not fit in an f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let mut extreme = 0.0f32;
    for &v in values {
        if v.abs() > extreme.abs() {
            extreme = v;
        }
    }
    let d = extreme / -8.0;
    let inv = inverse(d);
    let q = |v: f32| ((v * inv + 8.5) as u8).min(15);

    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&f16_finite(d)?.0.to_le_bytes());
    for j in 0..16 {
        block[2 + j] = q(values[j]) | q(values[j + 16]) << 4;
    }
    Some(block)
}
