//! Q5_0: 32 weights in 22 bytes (5.5 bits per weight), ggml's `block_q5_0`.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16: the scale |
//! | 2..6 | `qh`, u32: bit `i` is the fifth bit of weight `i` |
//! | 6..22 | `qs`: low bits of weight `j` in the low nibble of byte `j`, `j + 16` in the high |
//!
//! Meaning: `w[i] = d * (q[i] - 16)`, `q` in 0..32.

use super::{f16_at, f16_finite, fifth_bits, inverse, nibbles_and_fifths};

/// Number of weights in a block.
pub const LEN: usize = 32;
/// Size of a block in bytes.
pub const BYTES: usize = 22;

/// Decodes the 32 weights of a block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    let high = fifth_bits(&block[2..6]);
    for j in 0..16 {
        let q = block[6 + j];
        let (low, far) = (q & 15 | high(j), q >> 4 | high(j + 16));
        out[j] = d * f32::from(i16::from(low) - 16);
        out[j + 16] = d * f32::from(i16::from(far) - 16);
    }
}

/// Encodes 32 finite values like ggml's reference: the value of largest magnitude (the first of
/// equals) maps to -16. Returns `None` if the scale does not fit in an f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let extreme = values.iter().fold(0.0f32, |a, &v| if v.abs() > a.abs() { v } else { a });
    let d = extreme / -16.0;
    let inv = inverse(d);

    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&f16_finite(d)?.0.to_le_bytes());
    let q = values.map(|v| ((v * inv + 16.5) as u8).min(31));
    block[2..].copy_from_slice(&nibbles_and_fifths(&q));
    Some(block)
}
