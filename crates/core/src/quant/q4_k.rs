//! Q4_K: 256 weights in 144 bytes (4.5 bits per weight), ggml's `block_q4_K`.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16: the scale of the scales |
//! | 2..4 | `dmin`, f16: the scale of the minima |
//! | 4..16 | `scales`: 8 scales `sc` and 8 minima `mn` of 6 bits, packed as below |
//! | 16..144 | `qs`, 4 groups of 32 bytes: two weights per byte |
//!
//! Byte `l` of group `g` of `qs` holds weight `64 g + l` in its low nibble and weight
//! `64 g + 32 + l` in its high nibble.
//!
//! With `s` the 12 bytes of `scales`, for sub-blocks `b` in 0..4 and `b + 4`:
//! `sc[b] = s[b] & 63`, `mn[b] = s[4 + b] & 63`,
//! `sc[b + 4] = (s[8 + b] & 15) | (s[b] >> 6) << 4`,
//! `mn[b + 4] = (s[8 + b] >> 4) | (s[4 + b] >> 6) << 4`.
//!
//! Meaning, for weight `i` in sub-block `b = i / 32`: `w[i] = (d * sc[b]) * q[i] - (dmin * mn[b])`.

use super::{affine, f16_at};

/// Number of weights in a block.
pub const LEN: usize = 256;
/// Size of a block in bytes.
pub const BYTES: usize = 144;

/// Decodes the 256 weights of a block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, minima) = affine::unpack_six_bits(&block[4..16]);
    for g in 0..4 {
        let (low, high) = (2 * g, 2 * g + 1);
        let (d_low, m_low) = (d * f32::from(scales[low]), dmin * f32::from(minima[low]));
        let (d_high, m_high) = (d * f32::from(scales[high]), dmin * f32::from(minima[high]));
        for l in 0..32 {
            let q = block[16 + 32 * g + l];
            out[64 * g + l] = d_low * f32::from(q & 15) - m_low;
            out[64 * g + 32 + l] = d_high * f32::from(q >> 4) - m_high;
        }
    }
}

/// Encodes 256 finite values by ggml's least-error search (see `affine`). Returns `None` if a scale
/// does not fit in an f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let found = affine::search::<8, 32>(values, affine::Levels { q: 15, scale: 63, first: -1.0 })?;
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&found.d.to_le_bytes());
    block[2..4].copy_from_slice(&found.dmin.to_le_bytes());
    block[4..16].copy_from_slice(&affine::pack_six_bits(&found.scales, &found.minima));
    for (i, q) in found.q.iter().enumerate() {
        block[16 + 32 * (i / 64) + i % 32] |= q << (4 * (i / 32 % 2));
    }
    Some(block)
}
