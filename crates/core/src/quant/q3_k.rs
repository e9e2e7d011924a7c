//! Q3_K: 256 weights in 110 bytes (3.4375 bits per weight), ggml's `block_q3_K`.
//!
//! | bytes | content |
//! |---|---|
//! | 0..32 | `hmask`, the third bit of each weight |
//! | 32..96 | `qs`, the low 2 bits of each weight |
//! | 96..108 | `scales`, 16 scales `sc` of 6 bits, packed as below |
//! | 108..110 | `d`, f16: the scale of the scales |
//!
//! Each half of 128 weights has four runs of 32: weight `128 h + 32 r + l` has its low bits in
//! `qs[32 h + l]` at bit `2 r`, and its third bit in `hmask[l]` at bit `4 h + r`.
//! With `s` the 12 bytes of `scales`:
//! `sc[b] = (s[b % 8] >> 4 (b / 8)) & 15 | (s[8 + b % 4] >> 2 (b / 4) & 3) << 4`.
//!
//! Meaning, in sub-block `b = i / 16`: `w[i] = (d * (sc[b] - 32)) * (q[i] - 4)`, `q` in 0..8.

use super::{f16_at, f16_finite, inverse};

/// Number of weights in a block.
pub const LEN: usize = 256;
/// Size of a block in bytes.
pub const BYTES: usize = 110;

const QS: usize = 32;
const SCALES: usize = 96;
const D: usize = 108;

/// Decodes the 256 weights of a block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, D);
    let s = &block[SCALES..D];
    for b in 0..16 {
        let low = s[b % 8] >> (4 * (b / 8)) & 15;
        let high = s[8 + b % 4] >> (2 * (b / 4)) & 3;
        let scale = d * f32::from(i16::from(low | high << 4) - 32);
        let (h, r) = (b / 8, b / 2 % 4);
        for l in 16 * (b % 2)..16 * (b % 2) + 16 {
            let q = block[QS + 32 * h + l] >> (2 * r) & 3;
            let third = block[l] >> (4 * h + r) & 1;
            out[128 * h + 32 * r + l] = scale * f32::from(i16::from(q | third << 2) - 4);
        }
    }
}

/// Encodes 256 finite values so that the value of largest magnitude in each sub-block maps to -4.
/// This is simpler than ggml's search. Returns `None` if the scale does not fit in an f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let mut steps = [0.0f32; 16];
    for (step, sub) in steps.iter_mut().zip(values.as_chunks::<16>().0) {
        *step = sub.iter().fold(0.0f32, |a, &v| if v.abs() > a.abs() { v } else { a }) / -4.0;
    }
    let largest = steps.iter().fold(0.0f32, |a, v| a.max(v.abs()));
    let (d_narrow, d) = f16_finite(largest / 31.0)?;
    let d_inv = inverse(d);

    let mut block = [0; BYTES];
    block[D..].copy_from_slice(&d_narrow.to_le_bytes());
    for (b, sub) in values.as_chunks::<16>().0.iter().enumerate() {
        let scale = (steps[b] * d_inv).round().clamp(-32.0, 31.0) as i8;
        let stored = (scale + 32).cast_unsigned();
        block[SCALES + b % 8] |= (stored & 15) << (4 * (b / 8));
        block[SCALES + 8 + b % 4] |= (stored >> 4) << (2 * (b / 4));
        let inv = inverse(d * f32::from(scale));
        let (h, r) = (b / 8, b / 2 % 4);
        for (j, value) in sub.iter().enumerate() {
            let q = ((value * inv).round().clamp(-4.0, 3.0) as i8 + 4).cast_unsigned();
            let l = 16 * (b % 2) + j;
            block[QS + 32 * h + l] |= (q & 3) << (2 * r);
            block[l] |= (q >> 2) << (4 * h + r);
        }
    }
    Some(block)
}
