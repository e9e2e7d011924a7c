//! IQ4_NL: 32 weights in 18 bytes (4.5 bits per weight), ggml's `block_iq4_nl`.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16: the scale |
//! | 2..18 | `qs`, 16 bytes: weight `j` in the low nibble of byte `j`, `j + 16` in the high |
//!
//! Meaning: `w[i] = d * VALUES[q[i]]`, with finer steps near zero, where weights are common.

use super::{f16_at, f16_finite, inverse};

/// Number of weights in a block.
pub const LEN: usize = 32;
/// Size of a block in bytes.
pub const BYTES: usize = 18;

/// The values of the 16 quants, ascending.
pub const VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Decodes the 32 weights of a block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    for j in 0..16 {
        let q = block[2 + j];
        out[j] = d * f32::from(VALUES[usize::from(q & 15)]);
        out[j + 16] = d * f32::from(VALUES[usize::from(q >> 4)]);
    }
}

/// Returns the quant whose value is nearest.
pub(super) fn nearest(value: f32) -> u8 {
    let next = VALUES.partition_point(|v| f32::from(*v) < value).min(15);
    let below = next.saturating_sub(1);
    let far = |i: usize| (f32::from(VALUES[i]) - value).abs();
    if far(below) <= far(next) { below as u8 } else { next as u8 }
}

/// Encodes 32 finite values so that the value of largest magnitude maps to -127. This is simpler
/// than ggml's search. Returns `None` if the scale does not fit in an f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let extreme = values.iter().fold(0.0f32, |a, &v| if v.abs() > a.abs() { v } else { a });
    let (narrow, d) = f16_finite(extreme / -127.0)?;
    let inv = inverse(d);
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&narrow.to_le_bytes());
    for j in 0..16 {
        block[2 + j] = nearest(values[j] * inv) | nearest(values[j + 16] * inv) << 4;
    }
    Some(block)
}
