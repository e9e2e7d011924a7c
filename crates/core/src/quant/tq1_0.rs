//! TQ1_0: 256 ternary weights in 54 bytes (1.6875 bits per weight), ggml's `block_tq1_0`.
//!
//! | bytes | content |
//! |---|---|
//! | 0..32 | byte `j` holds weights `j`, `32 + j`, .. `128 + j`: five digits |
//! | 32..48 | byte `j` holds weights `160 + j`, `176 + j`, .. `224 + j`: five digits |
//! | 48..52 | byte `j` holds weights `240 + j`, `244 + j`, `248 + j`, `252 + j`: four digits |
//! | 52..54 | `d`, f16: the scale |
//!
//! The digits of a byte are those of the fraction `byte / 256` in base 3: digit `n` is
//! `3 * (byte * 3^n mod 256) / 256`, rounded down.
//!
//! Meaning: `w[i] = d * (digit[i] - 1)`.

use super::{f16_at, f16_finite, ternary};

/// Number of weights in a block.
pub const LEN: usize = 256;
/// Size of a block in bytes.
pub const BYTES: usize = 54;

const D: usize = 52;

/// Runs of bytes with equal layout: first byte, number of bytes, digits per byte, first weight.
const RUNS: [(usize, usize, usize, usize); 3] = [(0, 32, 5, 0), (32, 16, 5, 160), (48, 4, 4, 240)];
const POWERS: [u8; 5] = [1, 3, 9, 27, 81];

/// Decodes the 256 weights of a block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, D);
    for (first, count, digits, weight) in RUNS {
        for (n, power) in POWERS[..digits].iter().enumerate() {
            for j in 0..count {
                let rest = block[first + j].wrapping_mul(*power);
                let digit = (u16::from(rest) * 3) >> 8;
                out[weight + n * count + j] = d * f32::from(digit.cast_signed() - 1);
            }
        }
    }
}

/// Encodes 256 finite values like ggml's reference: the largest magnitude is the scale. Returns
/// `None` if it does not fit in an f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let (d, digits_of) = ternary(values);
    let mut block = [0; BYTES];
    block[D..].copy_from_slice(&f16_finite(d)?.0.to_le_bytes());
    for (first, count, digits, weight) in RUNS {
        for j in 0..count {
            let number = (0..digits).fold(0, |sum, n| {
                let digit = digits_of(values[weight + n * count + j]);
                sum + u32::from(digit) * u32::from(POWERS[4 - n])
            });
            block[first + j] = (number * 256).div_ceil(243) as u8;
        }
    }
    Some(block)
}
