//! Q4_K: 256 weights in 144 bytes (4.5 bits a weight), ggml's `block_q4_K`.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | `d`, f16: the scale of the scales |
//! | 2..4 | `dmin`, f16: the scale of the minima |
//! | 4..16 | `scales`, 12 bytes: 8 scales `sc` and 8 minima `mn` of 6 bits, packed as below |
//! | 16..144 | `qs`, 4 groups of 32 bytes: byte `l` of group `g` holds weight `64 g + l` in its low 4 bits, weight `64 g + 32 + l` in its high |
//!
//! With `s` the 12 bytes, for sub-blocks `b` in 0..4 and `b + 4`:
//! `sc[b] = s[b] & 63`, `mn[b] = s[4 + b] & 63`,
//! `sc[b + 4] = (s[8 + b] & 15) | (s[b] >> 6) << 4`,
//! `mn[b + 4] = (s[8 + b] >> 4) | (s[4 + b] >> 6) << 4`.
//!
//! Meaning, for weight `i` in sub-block `b = i / 32`: `w[i] = (d * sc[b]) * q[i] - (dmin * mn[b])`.

use super::{f16_at, f16_finite, inverse};

/// Weights in a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 144;

/// The 8 scales and the 8 minima of a block, each in 0..64.
#[inline]
pub fn scales_and_minima(block: &[u8; BYTES]) -> ([u8; 8], [u8; 8]) {
    let s = &block[4..16];
    let (mut scales, mut minima) = ([0; 8], [0; 8]);
    for b in 0..4 {
        scales[b] = s[b] & 63;
        minima[b] = s[4 + b] & 63;
        scales[b + 4] = (s[8 + b] & 15) | (s[b] >> 6) << 4;
        minima[b + 4] = (s[8 + b] >> 4) | (s[4 + b] >> 6) << 4;
    }
    (scales, minima)
}

/// The 256 weights of a block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, minima) = scales_and_minima(block);
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

/// A valid block near 256 finite values: each sub-block spans min(0, smallest) to its largest in
/// 15 steps. Not ggml's search for the least error. `None` if a scale does not fit f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    // What each of the 8 sub-blocks of 32 would like: a step, and a distance below zero.
    let (mut steps, mut depths) = ([0.0f32; 8], [0.0f32; 8]);
    for (b, sub) in values.as_chunks::<32>().0.iter().enumerate() {
        let min = sub.iter().copied().fold(0.0, f32::min);
        let max = sub.iter().copied().fold(min, f32::max);
        steps[b] = (max - min) / 15.0;
        depths[b] = -min;
    }
    let largest = |all: &[f32; 8]| all.iter().copied().fold(0.0, f32::max);
    let (d_narrow, d) = f16_finite(largest(&steps) / 63.0)?;
    let (dmin_narrow, dmin) = f16_finite(largest(&depths) / 63.0)?;
    let (d_inv, dmin_inv) = (inverse(d), inverse(dmin));

    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&d_narrow.to_le_bytes());
    block[2..4].copy_from_slice(&dmin_narrow.to_le_bytes());
    for b in 0..8 {
        let scale = ((steps[b] * d_inv).round() as u8).min(63);
        let minimum = ((depths[b] * dmin_inv).round() as u8).min(63);
        if b < 4 {
            block[4 + b] |= scale;
            block[8 + b] |= minimum;
        } else {
            block[8 + b] |= (scale & 15) | (minimum & 15) << 4;
            block[b] |= (scale >> 4) << 6;
            block[4 + b] |= (minimum >> 4) << 6;
        }

        let (inv, low) = (inverse(d * f32::from(scale)), dmin * f32::from(minimum));
        for l in 0..32 {
            let q = (((values[32 * b + l] + low) * inv).round() as u8).min(15);
            block[16 + 32 * (b / 2) + l] |= q << (4 * (b % 2));
        }
    }
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_unpack_as_they_were_packed() {
        // Sub-block b spans 0..=15 * (b + 1) and reaches down to -(8 - b): all scales differ.
        let mut values = [0.0; LEN];
        for b in 0..8 {
            values[32 * b] = -((8 - b) as f32);
            values[32 * b + 1] = 15.0 * (b + 1) as f32 - (8 - b) as f32;
        }
        let block = encode_block(&values).unwrap();
        let (scales, minima) = scales_and_minima(&block);
        for b in 0..8 {
            assert_eq!(scales[b], (63.0 * (b + 1) as f32 / 8.0).round() as u8);
            assert_eq!(minima[b], (63.0 * (8 - b) as f32 / 8.0).round() as u8);
        }
    }
}
