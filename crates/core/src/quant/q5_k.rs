//! Q5_K: 256 weights in 176 bytes (5.5 bits per weight), ggml's `block_q5_K`.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16: the scale of the scales |
//! | 2..4 | `dmin`, f16: the scale of the minima |
//! | 4..16 | `scales`: 8 scales `sc` and 8 minima `mn` of 6 bits, packed as in Q4_K |
//! | 16..48 | `qh`: bit `b` of byte `l` is the fifth bit of weight `32 b + l` |
//! | 48..176 | `qs`, 4 groups of 32 bytes: the low 4 bits of two weights per byte |
//!
//! Byte `l` of group `g` of `qs` holds the bits of weight `64 g + l` in its low nibble and those of
//! weight `64 g + 32 + l` in its high nibble.
//!
//! Meaning, for weight `i` in sub-block `b = i / 32`: `w[i] = (d * sc[b]) * q[i] - (dmin * mn[b])`.

use super::{affine, f16_at};

/// Number of weights in a block.
pub const LEN: usize = 256;
/// Size of a block in bytes.
pub const BYTES: usize = 176;

const QH: usize = 16;
const QS: usize = 48;

/// Decodes the 256 weights of a block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, minima) = affine::unpack_six_bits(&block[4..16]);
    for b in 0..8 {
        let (scale, minimum) = (d * f32::from(scales[b]), dmin * f32::from(minima[b]));
        for l in 0..32 {
            let low = block[QS + 32 * (b / 2) + l] >> (4 * (b % 2)) & 15;
            let fifth = block[QH + l] >> b & 1;
            out[32 * b + l] = scale * f32::from(low | fifth << 4) - minimum;
        }
    }
}

/// Encodes 256 finite values by ggml's least-error search (see `affine`). Returns `None` if a scale
/// does not fit in an f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let found = affine::search::<8, 32>(values, affine::Levels { q: 31, scale: 63, first: -0.5 })?;
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&found.d.to_le_bytes());
    block[2..4].copy_from_slice(&found.dmin.to_le_bytes());
    block[4..16].copy_from_slice(&affine::pack_six_bits(&found.scales, &found.minima));
    for (i, q) in found.q.iter().enumerate() {
        let (b, l) = (i / 32, i % 32);
        block[QS + 32 * (b / 2) + l] |= (q & 15) << (4 * (b % 2));
        block[QH + l] |= (q >> 4) << b;
    }
    Some(block)
}
