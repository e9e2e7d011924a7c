//! Q4_0x8: 256 weights in 144 bytes, eight blocks of Q4_0 ([`q4_0`]) interleaved by field. It is a
//! GPU weight layout: every field is 16-byte aligned for vector loads, and nibbles are ordered as
//! in Q4_K.
//!
//! | bytes | content |
//! |---|---|
//! | 0..16 | `d` of the eight blocks, f16 |
//! | 16..144 | four groups of 32 bytes, each for two blocks |
//!
//! Byte `j` of group `g` holds weight `j` of block `2 g` in its low nibble and weight `j` of block
//! `2 g + 1` in its high nibble.
//!
//! Meaning: as in Q4_0, `w = (q - 8) * d`.

use super::{f16_at, q4_0};
use crate::base::Format;
use crate::error::Result;

/// Number of weights in a block.
pub const LEN: usize = 256;
/// Size of a block in bytes.
pub const BYTES: usize = 144;

/// Number of Q4_0 blocks in a block.
const PARTS: usize = LEN / q4_0::LEN;

/// Returns the offset of the byte that holds weight `j` of block `part`, and the weight's first bit
/// in it.
fn code_at(part: usize, j: usize) -> (usize, u32) {
    (16 + part / 2 * 32 + j, part as u32 % 2 * 4)
}

/// Decodes the 256 weights of a block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    for (part, out) in out.as_chunks_mut::<{ q4_0::LEN }>().0.iter_mut().enumerate() {
        let d = f16_at(block, 2 * part);
        for (j, w) in out.iter_mut().enumerate() {
            let (at, up) = code_at(part, j);
            *w = (f32::from(block[at] >> up & 15) - 8.0) * d;
        }
    }
}

/// Encodes 256 finite values as eight interleaved blocks of Q4_0 ([`q4_0::encode_block`]). Returns
/// `None` if a scale does not fit in an f16.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let mut blocks = [[0; q4_0::BYTES]; PARTS];
    for (block, values) in blocks.iter_mut().zip(values.as_chunks::<{ q4_0::LEN }>().0) {
        *block = q4_0::encode_block(values)?;
    }
    let mut out = [0; BYTES];
    put(&blocks, &mut out);
    Some(out)
}

/// Repacks blocks of Q4_0, eight at a time.
///
/// # Errors
/// Invalid if the bytes are not whole groups of eight blocks.
pub fn from_q4_0(bytes: &[u8]) -> Result<Vec<u8>> {
    super::grouped(Format::Q4_0x8, "groups of 8 blocks", bytes, put)
}

/// Interleaves eight blocks of Q4_0 by field.
fn put(blocks: &[[u8; q4_0::BYTES]; PARTS], out: &mut [u8; BYTES]) {
    let (heads, codes) = out.split_at_mut(16);
    for (head, block) in heads.as_chunks_mut::<2>().0.iter_mut().zip(blocks) {
        head.copy_from_slice(&block[..2]);
    }
    let pairs = blocks.as_chunks::<2>().0.iter();
    for ([even, odd], out) in pairs.zip(codes.as_chunks_mut::<32>().0) {
        // Byte j of a block holds weight j in its low nibble and weight 16 + j in its high nibble.
        let (first, second) = out.split_at_mut(16);
        let both = even[2..].iter().zip(&odd[2..]);
        for ((even, odd), (first, second)) in both.zip(first.iter_mut().zip(second)) {
            *first = even & 15 | odd << 4;
            *second = even >> 4 | odd & 0xf0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_means_what_its_blocks_mean() {
        let bytes: Vec<u8> = (0..3 * BYTES).map(|i| (i * 37 + i / 5) as u8 & 0x7b).collect();
        let kept = from_q4_0(&bytes).unwrap();
        let mut want = vec![0.0; 3 * LEN];
        let blocks = bytes.as_chunks::<{ q4_0::BYTES }>().0;
        for (block, out) in blocks.iter().zip(want.as_chunks_mut::<{ q4_0::LEN }>().0) {
            q4_0::decode_block(block, out);
        }
        let mut have = vec![0.0; 3 * LEN];
        for (block, out) in kept.as_chunks::<BYTES>().0.iter().zip(have.as_chunks_mut::<LEN>().0) {
            decode_block(block, out);
        }
        assert_eq!(have, want);
        assert!(want.iter().any(|w| *w != 0.0));
        // Weight 0 of block 0 is low, of block 1 high; weight 16 of both is 16 bytes further.
        assert_eq!(kept[16], bytes[2] & 15 | (bytes[18 + 2] & 15) << 4);
        assert_eq!(kept[32], bytes[2] >> 4 | bytes[18 + 2] & 0xf0);
    }

    #[test]
    fn other_than_whole_groups_are_refused() {
        let error = from_q4_0(&[0; 36]).unwrap_err().to_string();
        assert!(error.contains("36 bytes are not groups of 8 blocks"), "{error}");
        assert!(from_q4_0(&[0; 143]).is_err());
    }
}
