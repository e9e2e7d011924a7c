//! I2_S: 128 ternary weights in 36 bytes (2.25 bits per weight), BitNet's format with the scale
//! repeated in each block.
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | `d`, f32: the scale |
//! | 4..36 | `qs`, 2 bits per weight: weight `32 r + l` lies in byte `l` at bit `6 - 2 r` |
//!
//! Meaning: `w[i] = d * (q[i] - 1)`; a `q` of 3 does not occur.
//!
//! A file of microsoft/BitNet (`quantize_i2_s` of its `ggml-bitnet-mad.cpp`, as built for x86)
//! holds the `qs` of all blocks, then one f32 scale of the whole tensor and 28 unused bytes.
//! [`from_file`] converts it to blocks. The repeated scale lets a kernel start at any row, at the
//! cost of an eighth more memory.

use super::ternary;
use crate::error::{Error, Result};

/// Number of weights in a block.
pub const LEN: usize = 128;
/// Size of a block in bytes.
pub const BYTES: usize = 36;

/// Size of a block in a file, in bytes: the weights alone, without a scale.
pub const FILE_BYTES: usize = 32;
/// Number of bytes that follow a tensor's weights in a file, starting with the scale.
pub const FILE_TAIL: usize = 32;

/// Decodes the 128 weights of a block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
    for (i, w) in out.iter_mut().enumerate() {
        let q = block[4 + i % 32] >> (6 - 2 * (i / 32)) & 3;
        *w = d * f32::from(q.cast_signed() - 1);
    }
}

/// Encodes 128 finite values with their largest magnitude as the scale. It never fails.
pub fn encode_block(values: &[f32; LEN]) -> Option<[u8; BYTES]> {
    let (d, digit) = ternary(values);
    let mut block = [0; BYTES];
    block[..4].copy_from_slice(&d.to_le_bytes());
    for (i, value) in values.iter().enumerate() {
        block[4 + i % 32] |= digit(*value) << (6 - 2 * (i / 32));
    }
    Some(block)
}

/// Converts a tensor from a file to blocks.
///
/// # Errors
/// Bad file if the bytes are not whole blocks and a tail, if the scale is not finite, or if a
/// weight is 3, in which case the tensor has a different format that used the same type number.
pub fn from_file(bytes: &[u8]) -> Result<Vec<u8>> {
    let split = bytes.len().checked_sub(FILE_TAIL).filter(|n| n.is_multiple_of(FILE_BYTES));
    let Some((packed, tail)) = split.map(|at| bytes.split_at(at)) else {
        return Err(Error::bad_file(format!(
            "i2_s: {} bytes are not blocks of {FILE_BYTES} and {FILE_TAIL} more",
            bytes.len()
        )));
    };
    let scale = f32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]);
    if !scale.is_finite() {
        return Err(Error::bad_file(format!(
            "i2_s: the scale at byte {} of the tensor is {scale}",
            packed.len()
        )));
    }
    // Both bits of a weight set.
    if let Some(at) = packed.iter().position(|byte| byte & (byte >> 1) & 0x55 != 0) {
        return Err(Error::bad_file(format!(
            "i2_s: byte {at} of the tensor holds a weight of 3, which is not ternary; type 36 was \
             also ggml's removed iq4_nl_4_4"
        )));
    }
    let mut blocks = Vec::with_capacity(packed.len() / FILE_BYTES * BYTES);
    for block in packed.chunks_exact(FILE_BYTES) {
        blocks.extend_from_slice(&tail[..4]);
        blocks.extend_from_slice(block);
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_bitnet_file_holds_is_refused() {
        let file = |len: usize| vec![0x55; len];
        assert!(from_file(&file(FILE_TAIL)).unwrap().is_empty());
        for len in [0, 31, 33, 65] {
            assert!(from_file(&file(len)).unwrap_err().is_bad_file());
        }
        let mut bytes = file(96);
        bytes[40] = 0b0111_0101;
        let error = from_file(&bytes).unwrap_err().to_string();
        assert!(error.contains("byte 40") && error.contains("iq4_nl_4_4"), "{error}");
        let mut bytes = file(96);
        bytes[64..68].copy_from_slice(&f32::INFINITY.to_le_bytes());
        assert!(from_file(&bytes).unwrap_err().to_string().contains("byte 64"));
    }
}
