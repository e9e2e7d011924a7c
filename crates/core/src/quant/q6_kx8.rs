//! Q6_Kx8: 2048 weights in 1680 bytes, eight blocks of Q6_K ([`q6_k`]) interleaved by field. It
//! is a GPU weight layout: every field is 16-byte aligned, and the data of a thread is contiguous.
//!
//! A unit `u` in `0..64` has two runs of 16 weights. Weight `l` of the first run is weight
//! `64 (u / 2) + 16 (u % 2) + l` of the block; the second run starts 32 weights later. Thread
//! `n = u % 32` processes two units, numbered `t = u / 32`:
//!
//! | bytes | content |
//! |---|---|
//! | 0..1024 | 16 bytes per unit at `16 u`: the upper 4 bits, first run in the low nibbles |
//! | 1024..1536 | 8 bytes per unit at `16 n + 8 t`: the low 2 bits, 4 bytes per run |
//! | 1536..1664 | 2 bytes per unit at `4 n + 2 t`: the signed scale of each run |
//! | 1664..1680 | `d` of the eight blocks, f16: block `b` at index `2 (b % 4) + b / 4` |
//!
//! The low 2 bits of weight `l` of a run are at bit `2 (l / 4)` of byte `l % 4`. The 6 bits of a
//! weight are Q6_K's `q - 32` in two's complement, so that the byte that a kernel assembles,
//! `4 (q - 32)`, needs no bias.
//!
//! Meaning: as in Q6_K, `w = (d * scale) * (q - 32)`.

use super::{f16_at, q6_k};
use crate::base::Format;
use crate::error::Result;

/// Number of weights in a block.
pub const LEN: usize = 2048;
/// Size of a block in bytes.
pub const BYTES: usize = 1680;

const LOW: usize = 1024;
const SCALES: usize = 1536;
const D: usize = 1664;

/// Number of Q6_K blocks in a block.
const PARTS: usize = LEN / q6_k::LEN;

/// Returns the offset in bytes of the scale `d` of block `b`.
fn d_at(b: usize) -> usize {
    D + 2 * (2 * (b % 4) + b / 4)
}

/// Decodes the 2048 weights of a block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    for u in 0..64 {
        let (t, n) = (u / 32, u % 32);
        let d = f16_at(block, d_at(u / 8));
        for second in 0..2 {
            let scale = d * f32::from(block[SCALES + 4 * n + 2 * t + second].cast_signed());
            for l in 0..16 {
                let upper = block[16 * u + l] >> (4 * second) & 15;
                let lower = block[LOW + 16 * n + 8 * t + 4 * second + l % 4] >> (2 * (l / 4)) & 3;
                let q = (upper << 4 | lower << 2).cast_signed() >> 2;
                out[64 * (u / 2) + 16 * (u % 2) + 32 * second + l] = scale * f32::from(q);
            }
        }
    }
}

/// Encodes 2048 finite values as eight interleaved blocks of Q6_K ([`q6_k::encode_block`]). Returns
/// `None` if a scale does not fit in an f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let mut blocks = [[0; q6_k::BYTES]; PARTS];
    for (block, values) in blocks.iter_mut().zip(values.as_chunks::<{ q6_k::LEN }>().0) {
        *block = q6_k::encode_block(values)?;
    }
    let mut out = [0; BYTES];
    put(&blocks, &mut out);
    Some(out)
}

/// Repacks blocks of Q6_K, eight at a time.
///
/// # Errors
/// Invalid if the bytes are not whole groups of eight blocks.
pub fn from_q6_k(bytes: &[u8]) -> Result<Vec<u8>> {
    super::grouped(Format::Q6Kx8, "eights of blocks", bytes, put)
}

/// Interleaves eight blocks of Q6_K by field.
fn put(blocks: &[[u8; q6_k::BYTES]; PARTS], out: &mut [u8; BYTES]) {
    for (b, block) in blocks.iter().enumerate() {
        let at = d_at(b);
        out[at..at + 2].copy_from_slice(&block[208..]);
        for g in 0..4 {
            // Two adjacent runs of 32 weights (`q6_k`), in groups of 16.
            let (half, above) = (g / 2, 4 * (g % 2));
            for side in 0..2 {
                let u = 8 * b + 2 * g + side;
                let (t, n) = (u / 32, u % 32);
                let scales = 192 + 4 * g + side;
                out[SCALES + 4 * n + 2 * t] = block[scales];
                out[SCALES + 4 * n + 2 * t + 1] = block[scales + 2];
                let bits = sixteen(block, 128 + 32 * half + 16 * side) >> above;
                let of = |second: usize| {
                    let low = sixteen(block, 64 * half + 32 * second + 16 * side) >> above;
                    // The top bit of q - 32 in two's complement is the inverse of that of q.
                    let high = (bits >> (2 * second) & THREES) ^ TWOS;
                    (low >> 2 & THREES | high << 2, low & THREES)
                };
                let ((upper0, lower0), (upper1, lower1)) = (of(0), of(1));
                out[16 * u..][..16].copy_from_slice(&(upper0 | upper1 << 4).to_le_bytes());
                let pairs = u64::from(folded(lower0)) | u64::from(folded(lower1)) << 32;
                out[LOW + 16 * n + 8 * t..][..8].copy_from_slice(&pairs.to_le_bytes());
            }
        }
    }
}

/// Mask of the lowest two bits of every byte.
const THREES: u128 = u128::from_le_bytes([3; 16]);

/// Mask of the second-lowest bit of every byte.
const TWOS: u128 = u128::from_le_bytes([2; 16]);

/// Reads the 16 bytes of a block from byte `at` on.
fn sixteen(block: &[u8; q6_k::BYTES], at: usize) -> u128 {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&block[at..at + 16]);
    u128::from_le_bytes(bytes)
}

/// Packs 16 bytes of two bits each into 4: byte `l` goes to bit `2 (l / 4)` of byte `l % 4`.
fn folded(pairs: u128) -> u32 {
    let part = |i: u32| (pairs >> (32 * i)) as u32;
    part(0) | part(1) << 2 | part(2) << 4 | part(3) << 6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_blocks_keep_their_meaning() {
        let mut state = 1u32;
        let mut bytes = vec![0; 3 * BYTES];
        for byte in &mut bytes {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            *byte = (state >> 24) as u8;
        }
        for (i, block) in bytes.as_chunks_mut::<{ q6_k::BYTES }>().0.iter_mut().enumerate() {
            let d = half::f16::from_f32(0.01 * (i as f32 + 1.0));
            block[208..].copy_from_slice(&d.to_le_bytes());
        }
        let kept = from_q6_k(&bytes).unwrap();
        let mut want = [0.0; q6_k::LEN];
        let mut got = [0.0; LEN];
        for (eight, kept) in bytes.chunks(BYTES).zip(kept.as_chunks::<BYTES>().0) {
            decode_block(kept, &mut got);
            let blocks = eight.as_chunks::<{ q6_k::BYTES }>().0;
            for (block, got) in blocks.iter().zip(got.chunks(q6_k::LEN)) {
                q6_k::decode_block(block, &mut want);
                assert_eq!(got, want);
            }
        }
        assert!(from_q6_k(&bytes[210..]).unwrap_err().is_invalid());
    }
}
