//! Q8_0: 32 weights in 34 bytes (8.5 bits per weight), ggml's `block_q8_0`.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16: the scale |
//! | 2..34 | `qs`, 32 bytes: weight `i` as a signed byte |
//!
//! Meaning: `w[i] = q[i] * d`.

use super::{f16_at, f16_finite, inverse};

/// Number of weights in a block.
pub const LEN: usize = 32;
/// Size of a block in bytes.
pub const BYTES: usize = 34;

/// Decodes the 32 weights of a block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    for (w, &q) in out.iter_mut().zip(&block[2..]) {
        *w = f32::from(q.cast_signed()) * d;
    }
}

/// Encodes 32 finite values like ggml's reference: the largest magnitude maps to 127, and ties
/// round away from zero. Returns `None` if the scale does not fit in an f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let d = values.iter().fold(0.0f32, |a, v| a.max(v.abs())) / 127.0;
    let inv = inverse(d);

    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&f16_finite(d)?.0.to_le_bytes());
    for (q, &v) in block[2..].iter_mut().zip(values) {
        *q = ((v * inv).round() as i8).cast_unsigned();
    }
    Some(block)
}
