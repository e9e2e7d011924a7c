//! Q8_0x2: 64 weights in 68 bytes, two blocks of Q8_0 ([`q8_0`]) interleaved by field. It is a GPU
//! weight layout: every field is 4-byte aligned, unlike in blocks of 34 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | `d` of the two blocks, f16 |
//! | 4..68 | eight units of 8 signed bytes, first the four of block 0 |
//!
//! Unit `t` of a block has its weights `4 t..4 t + 4` and `4 t + 16..4 t + 20`.
//!
//! Meaning: as in Q8_0, `w = q * d`.

use super::{f16_at, q8_0};
use crate::base::Format;
use crate::error::Result;

/// Number of weights in a block.
pub const LEN: usize = 64;
/// Size of a block in bytes.
pub const BYTES: usize = 68;

/// Number of Q8_0 blocks in a block.
const PARTS: usize = LEN / q8_0::LEN;

/// Returns the offset in bytes of word `word` (four weights) of block `part`.
fn word_at(part: usize, word: usize) -> usize {
    4 + 32 * part + 8 * (word % 4) + 4 * (word / 4)
}

/// Decodes the 64 weights of a block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    for (part, out) in out.as_chunks_mut::<{ q8_0::LEN }>().0.iter_mut().enumerate() {
        let d = f16_at(block, 2 * part);
        for (word, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let at = word_at(part, word);
            for (w, q) in out.iter_mut().zip(&block[at..at + 4]) {
                *w = f32::from(q.cast_signed()) * d;
            }
        }
    }
}

/// Encodes 64 finite values as two interleaved blocks of Q8_0 ([`q8_0::encode_block`]). Returns
/// `None` if a scale does not fit in an f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let mut blocks = [[0; q8_0::BYTES]; PARTS];
    for (block, values) in blocks.iter_mut().zip(values.as_chunks::<{ q8_0::LEN }>().0) {
        *block = q8_0::encode_block(values)?;
    }
    let mut out = [0; BYTES];
    put(&blocks, &mut out);
    Some(out)
}

/// Repacks blocks of Q8_0, two at a time.
///
/// # Errors
/// Invalid if the bytes are not whole pairs of blocks.
pub fn from_q8_0(bytes: &[u8]) -> Result<Vec<u8>> {
    super::grouped(Format::Q8_0x2, "pairs of blocks", bytes, put)
}

/// Interleaves two blocks of Q8_0 by field.
fn put(blocks: &[[u8; q8_0::BYTES]; PARTS], out: &mut [u8; BYTES]) {
    for (part, block) in blocks.iter().enumerate() {
        out[2 * part..2 * part + 2].copy_from_slice(&block[..2]);
        for (word, codes) in block[2..].as_chunks::<4>().0.iter().enumerate() {
            let at = word_at(part, word);
            out[at..at + 4].copy_from_slice(codes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_means_what_its_blocks_mean() {
        let bytes: Vec<u8> = (0..3 * BYTES).map(|i| (i * 37 + i / 5) as u8 & 0x7b).collect();
        let kept = from_q8_0(&bytes).unwrap();
        let mut want = vec![0.0; 3 * LEN];
        let blocks = bytes.as_chunks::<{ q8_0::BYTES }>().0;
        for (block, out) in blocks.iter().zip(want.as_chunks_mut::<{ q8_0::LEN }>().0) {
            q8_0::decode_block(block, out);
        }
        let mut have = vec![0.0; 3 * LEN];
        for (block, out) in kept.as_chunks::<BYTES>().0.iter().zip(have.as_chunks_mut::<LEN>().0) {
            decode_block(block, out);
        }
        assert_eq!(have, want);
        assert!(want.iter().any(|w| *w != 0.0));
        // Words t and t + 4 of a block are adjacent.
        assert_eq!(kept[4..8], bytes[2..6]);
        assert_eq!(kept[8..12], bytes[18..22]);
        assert_eq!(kept[36..40], bytes[36..40]);
    }

    #[test]
    fn half_a_pair_is_refused() {
        let error = from_q8_0(&[0; 34]).unwrap_err().to_string();
        assert!(error.contains("34 bytes are not pairs"), "{error}");
        assert!(from_q8_0(&[0; 67]).is_err());
    }
}
