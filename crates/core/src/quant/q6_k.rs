//! Q6_K: 256 weights in 210 bytes (6.5625 bits per weight), ggml's `block_q6_K`.
//!
//! | bytes | content |
//! |---|---|
//! | 0..128 | `ql`, the low 4 bits of each weight |
//! | 128..192 | `qh`, the high 2 bits of each weight |
//! | 192..208 | `scales`, 16 signed bytes: sub-block `b` is weights `16 b .. 16 b + 16` |
//! | 208..210 | `d`, f16: the scale of the scales |
//!
//! Each half of 128 weights has four runs of 32. Weight `128 h + 32 r + l` has its low bits in
//! `ql[64 h + 32 (r % 2) + l]` (low nibble for `r < 2`, otherwise high) and its high bits in
//! `qh[32 h + l]` at bit `2 r`.
//!
//! Meaning: `w[i] = (d * scales[i / 16]) * (q[i] - 32)`, `q` in 0..64.

use super::{f16_at, f16_finite, inverse};

/// Number of weights in a block.
pub const LEN: usize = 256;
/// Size of a block in bytes.
pub const BYTES: usize = 210;

const QH: usize = 128;
const SCALES: usize = 192;
const D: usize = 208;

/// Decodes the 256 weights of a block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, D);
    for h in 0..2 {
        for r in 0..4 {
            for l in 0..32 {
                let low = block[64 * h + 32 * (r % 2) + l] >> (4 * (r / 2)) & 15;
                let high = block[QH + 32 * h + l] >> (2 * r) & 3;
                let q = i16::from(low | high << 4) - 32;
                let i = 128 * h + 32 * r + l;
                let scale = d * f32::from(block[SCALES + i / 16].cast_signed());
                out[i] = scale * f32::from(q);
            }
        }
    }
}

/// Encodes 256 finite values so that the value of largest magnitude in each sub-block maps to -32.
/// This is simpler than ggml's search. Returns `None` if the scale does not fit in an f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    // The ideal step of each sub-block, with the sign that the sub-block needs.
    let mut steps = [0.0f32; 16];
    for (step, sub) in steps.iter_mut().zip(values.as_chunks::<16>().0) {
        let extreme = sub.iter().fold(0.0f32, |a, &v| if v.abs() > a.abs() { v } else { a });
        *step = extreme / -32.0;
    }
    let largest = steps.iter().fold(0.0f32, |a, v| a.max(v.abs()));
    let (d_narrow, d) = f16_finite(largest / 127.0)?;
    let d_inv = inverse(d);

    let mut block = [0; BYTES];
    block[D..].copy_from_slice(&d_narrow.to_le_bytes());
    for (i, value) in values.iter().enumerate() {
        let scale = (steps[i / 16] * d_inv).round() as i8;
        block[SCALES + i / 16] = scale.cast_unsigned();
        let q = (value * inverse(d * f32::from(scale))).round().clamp(-32.0, 31.0) as i8;
        let q = (q + 32).cast_unsigned();
        let (h, r, l) = (i / 128, i / 32 % 4, i % 32);
        block[64 * h + 32 * (r % 2) + l] |= (q & 15) << (4 * (r / 2));
        block[QH + 32 * h + l] |= (q >> 4) << (2 * r);
    }
    Some(block)
}
