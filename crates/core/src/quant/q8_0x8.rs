//! Q8_0x8: 256 weights in 272 bytes, eight blocks of Q8_0 ([`q8_0`]) interleaved by field. It is
//! a GPU weight layout: every field is 16-byte aligned for vector loads.
//!
//! | bytes | content |
//! |---|---|
//! | 0..16 | `d` of the eight blocks, f16 |
//! | 16..144 | weights of blocks 0, 2, 4 and 6 in turn, as signed bytes |
//! | 144..272 | weights of blocks 1, 3, 5 and 7 in turn, as signed bytes |
//!
//! Meaning: as in Q8_0, `w = q * d`.

use super::{f16_at, q8_0};
use crate::base::Format;
use crate::error::Result;

/// Number of weights in a block.
pub const LEN: usize = 256;
/// Size of a block in bytes.
pub const BYTES: usize = 272;

/// Number of Q8_0 blocks in a block.
const PARTS: usize = LEN / q8_0::LEN;

/// Returns the offset in bytes of the quants of block `part`.
fn prequant_at(part: usize) -> usize {
    16 + part % 2 * 128 + part / 2 * q8_0::LEN
}

/// Decodes the 256 weights of a block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    for (part, out) in out.as_chunks_mut::<{ q8_0::LEN }>().0.iter_mut().enumerate() {
        let (d, at) = (f16_at(block, 2 * part), prequant_at(part));
        for (w, q) in out.iter_mut().zip(&block[at..at + q8_0::LEN]) {
            *w = f32::from(q.cast_signed()) * d;
        }
    }
}

/// Encodes 256 finite values as eight interleaved blocks of Q8_0 ([`q8_0::encode_block`]). Returns
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

/// Repacks blocks of Q8_0, eight at a time.
///
/// # Errors
/// Invalid if the bytes are not whole groups of eight blocks.
pub fn from_q8_0(bytes: &[u8]) -> Result<Vec<u8>> {
    super::grouped(Format::Q8_0x8, "groups of 8 blocks", bytes, put)
}

/// Interleaves eight blocks of Q8_0 by field.
fn put(blocks: &[[u8; q8_0::BYTES]; PARTS], out: &mut [u8; BYTES]) {
    for (part, block) in blocks.iter().enumerate() {
        out[2 * part..2 * part + 2].copy_from_slice(&block[..2]);
        let at = prequant_at(part);
        out[at..at + q8_0::LEN].copy_from_slice(&block[2..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_means_what_its_blocks_mean() {
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
        // The quants of block 2 follow those of block 0; those of block 1 are in the other half.
        assert_eq!(kept[16..48], bytes[2..34]);
        assert_eq!(kept[48..80], bytes[2 * 34 + 2..3 * 34]);
        assert_eq!(kept[144..176], bytes[34 + 2..2 * 34]);
    }

    #[test]
    fn other_than_whole_groups_are_refused() {
        let error = from_q8_0(&[0; 68]).unwrap_err().to_string();
        assert!(error.contains("68 bytes are not groups of 8 blocks"), "{error}");
        assert!(from_q8_0(&[0; 271]).is_err());
    }
}
