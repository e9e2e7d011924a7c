//! IQ4_XS: 256 weights in 136 bytes (4.25 bits per weight), ggml's `block_iq4_xs`.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16: the scale of the scales |
//! | 2..4 | `scales_h`, u16: bits `2 b` and `2 b + 1` are the high bits of scale `b` |
//! | 4..8 | `scales_l`: nibble `b` holds the low 4 bits of scale `b` |
//! | 8..136 | `qs`, 8 sub-blocks of 16 bytes: two weights per byte |
//!
//! Byte `j` of sub-block `b` of `qs` holds weight `32 b + j` in its low nibble and weight
//! `32 b + 16 + j` in its high nibble.
//!
//! Meaning, in sub-block `b = i / 32`: `w[i] = (d * (sc[b] - 32)) * VALUES[q[i]]`, with scales `sc`
//! and the `VALUES` of IQ4_NL.

use super::iq4_nl::{VALUES, nearest};
use super::{f16_at, f16_finite, inverse};

/// Number of weights in a block.
pub const LEN: usize = 256;
/// Size of a block in bytes.
pub const BYTES: usize = 136;

/// Decodes the 256 weights of a block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    let high = u16::from_le_bytes([block[2], block[3]]);
    for b in 0..8 {
        let low = block[4 + b / 2] >> (4 * (b % 2)) & 15;
        let scale = i16::from(low) | ((high >> (2 * b) & 3) << 4).cast_signed();
        let scale = d * f32::from(scale - 32);
        for j in 0..16 {
            let q = block[8 + 16 * b + j];
            out[32 * b + j] = scale * f32::from(VALUES[usize::from(q & 15)]);
            out[32 * b + 16 + j] = scale * f32::from(VALUES[usize::from(q >> 4)]);
        }
    }
}

/// Encodes 256 finite values so that the value of largest magnitude in each sub-block maps to -127.
/// This is simpler than ggml's search. Returns `None` if the scale does not fit in an f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let mut steps = [0.0f32; 8];
    for (step, sub) in steps.iter_mut().zip(values.as_chunks::<32>().0) {
        *step = sub.iter().fold(0.0f32, |a, &v| if v.abs() > a.abs() { v } else { a }) / -127.0;
    }
    let largest = steps.iter().fold(0.0f32, |a, v| a.max(v.abs()));
    let (narrow, d) = f16_finite(largest / 31.0)?;
    let d_inv = inverse(d);
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&narrow.to_le_bytes());
    let mut high = 0u16;
    for (b, sub) in values.as_chunks::<32>().0.iter().enumerate() {
        let scale = (steps[b] * d_inv).round().clamp(-32.0, 31.0) as i8;
        let stored = (scale + 32).cast_unsigned();
        high |= u16::from(stored >> 4) << (2 * b);
        block[4 + b / 2] |= (stored & 15) << (4 * (b % 2));
        let inv = inverse(d * f32::from(scale));
        for j in 0..16 {
            block[8 + 16 * b + j] = nearest(sub[j] * inv) | nearest(sub[j + 16] * inv) << 4;
        }
    }
    block[2..4].copy_from_slice(&high.to_le_bytes());
    Some(block)
}
