//! Q2_K: 256 weights in 84 bytes (2.625 bits per weight), ggml's `block_q2_K`.
//!
//! | bytes | content |
//! |---|---|
//! | 0..16 | `scales`: per sub-block, scale `sc` in the low nibble and minimum `mn` in the high |
//! | 16..80 | `qs`, 2 bits per weight |
//! | 80..82 | `d`, f16: the scale of the scales |
//! | 82..84 | `dmin`, f16: the scale of the minima |
//!
//! Each half of 128 weights has four runs of 32: weight `128 h + 32 r + l` lies in byte
//! `qs[32 h + l]` at bit `2 r`.
//!
//! Meaning, in sub-block `b = i / 16`: `w[i] = (d * sc[b]) * q[i] - (dmin * mn[b])`.

use super::{affine, f16_at};

/// Number of weights in a block.
pub const LEN: usize = 256;
/// Size of a block in bytes.
pub const BYTES: usize = 84;

const QS: usize = 16;
const D: usize = 80;

/// Decodes the 256 weights of a block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (d, dmin) = (f16_at(block, D), f16_at(block, D + 2));
    for b in 0..16 {
        let scale = d * f32::from(block[b] & 15);
        let minimum = dmin * f32::from(block[b] >> 4);
        let (h, r) = (b / 8, b / 2 % 4);
        for l in 0..16 {
            let q = block[QS + 32 * h + 16 * (b % 2) + l] >> (2 * r) & 3;
            out[16 * b + l] = scale * f32::from(q) - minimum;
        }
    }
}

/// Encodes 256 finite values by ggml's least-error search (see `affine`). Returns `None` if a scale
/// does not fit in an f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let found = affine::search::<16, 16>(values, affine::Levels { q: 3, scale: 15, first: -0.5 })?;
    let mut block = [0; BYTES];
    for (byte, (scale, minimum)) in block.iter_mut().zip(found.scales.iter().zip(found.minima)) {
        *byte = scale | minimum << 4;
    }
    for (i, q) in found.q.iter().enumerate() {
        block[QS + 32 * (i / 128) + i % 32] |= q << (2 * (i / 32 % 4));
    }
    block[D..D + 2].copy_from_slice(&found.d.to_le_bytes());
    block[D + 2..].copy_from_slice(&found.dmin.to_le_bytes());
    Some(block)
}
