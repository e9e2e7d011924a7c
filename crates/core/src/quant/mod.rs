//! Storage formats of weights: decoding and encoding in plain Rust, one file per format.
//!
//! Every kernel is tested against these functions. Decoding is exact: each value is the format's
//! formula in f32 with one rounding per written operation, in the written order (no fused
//! multiply-add), so it equals ggml's own reference bit for bit. The formula also applies to
//! infinite and NaN scales; NaN payloads are not preserved.
//!
//! Encoding follows ggml's reference quantisers for F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, MXFP4,
//! TQ1_0 and TQ2_0, and ggml's least-error search for the K formats with minima (Q2_K, Q4_K, Q5_K).
//! For Q3_K, Q6_K, IQ4_NL and IQ4_XS it uses a simpler quantiser, which is sufficient for tests but
//! slightly less accurate than ggml's search.
//!
//! This module is independent of files, shapes and devices. Multi-byte values are little-endian;
//! blocks run along a tensor's innermost dimension.

use crate::base::{DType, Format};
use crate::error::{Error, Result};

mod affine;
pub mod bf16;
pub mod f16;
pub mod i2_s;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod mxfp4;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_0x8;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q6_kx8;
pub mod q8_0;
pub mod q8_0x2;
pub mod q8_0x8;
pub mod tq1_0;
pub mod tq2_0;

/// Decodes `bytes` of `format` into `out`, one f32 per weight, in order.
///
/// `bytes` must hold exactly `out.len()` weights in whole blocks.
///
/// # Errors
/// Invalid if the lengths do not match or do not fill whole blocks; unsupported for plain integers
/// and booleans, which are not weights.
pub fn decode(format: Format, bytes: &[u8], out: &mut [f32]) -> Result<()> {
    let need = format.bytes(out.len() as u64);
    if need != Some(bytes.len() as u64) {
        return Err(Error::invalid(match need {
            Some(need) => format!(
                "decode {format}: {} values need {need} bytes, got {} bytes",
                out.len(),
                bytes.len()
            ),
            None => not_whole_blocks("decode", format, out.len()),
        }));
    }
    match format {
        Format::Plain(DType::F32) => {
            let (words, _) = bytes.as_chunks::<4>();
            for (value, word) in out.iter_mut().zip(words) {
                *value = f32::from_le_bytes(*word);
            }
        }
        Format::Plain(DType::F16) => decode_blocks(bytes, out, f16::decode_block),
        Format::Plain(DType::BF16) => decode_blocks(bytes, out, bf16::decode_block),
        Format::Plain(dtype) => return Err(not_a_weight("decode", dtype)),
        Format::Q4_0 => decode_blocks(bytes, out, q4_0::decode_block),
        Format::Q4_1 => decode_blocks(bytes, out, q4_1::decode_block),
        Format::Q5_0 => decode_blocks(bytes, out, q5_0::decode_block),
        Format::Q5_1 => decode_blocks(bytes, out, q5_1::decode_block),
        Format::Q8_0 => decode_blocks(bytes, out, q8_0::decode_block),
        Format::Q2K => decode_blocks(bytes, out, q2_k::decode_block),
        Format::Q3K => decode_blocks(bytes, out, q3_k::decode_block),
        Format::Q4K => decode_blocks(bytes, out, q4_k::decode_block),
        Format::Q5K => decode_blocks(bytes, out, q5_k::decode_block),
        Format::Q6K => decode_blocks(bytes, out, q6_k::decode_block),
        Format::IQ4NL => decode_blocks(bytes, out, iq4_nl::decode_block),
        Format::IQ4XS => decode_blocks(bytes, out, iq4_xs::decode_block),
        Format::MXFP4 => decode_blocks(bytes, out, mxfp4::decode_block),
        Format::TQ1_0 => decode_blocks(bytes, out, tq1_0::decode_block),
        Format::TQ2_0 => decode_blocks(bytes, out, tq2_0::decode_block),
        Format::I2S => decode_blocks(bytes, out, i2_s::decode_block),
        Format::Q6Kx8 => decode_blocks(bytes, out, q6_kx8::decode_block),
        Format::Q8_0x2 => decode_blocks(bytes, out, q8_0x2::decode_block),
        Format::Q8_0x8 => decode_blocks(bytes, out, q8_0x8::decode_block),
        Format::Q4_0x8 => decode_blocks(bytes, out, q4_0x8::decode_block),
    }
    Ok(())
}

/// Encodes `values` in `format`, each as a nearby value that its block can represent.
///
/// # Errors
/// Invalid if the values do not fill whole blocks, or if a value of a block format is not finite or
/// needs a scale beyond the range of f16; unsupported for plain integers and booleans.
pub fn encode(format: Format, values: &[f32]) -> Result<Vec<u8>> {
    let Some(need) = format.bytes(values.len() as u64).and_then(|n| usize::try_from(n).ok()) else {
        return Err(Error::invalid(not_whole_blocks("encode", format, values.len())));
    };
    let mut bytes = Vec::with_capacity(need);
    match format {
        Format::Plain(DType::F32) => bytes.extend(values.iter().flat_map(|v| v.to_le_bytes())),
        Format::Plain(DType::F16) => {
            bytes.extend(values.iter().flat_map(|v| f16::encode_block(&[*v])));
        }
        Format::Plain(DType::BF16) => {
            bytes.extend(values.iter().flat_map(|v| bf16::encode_block(&[*v])));
        }
        Format::Plain(dtype) => return Err(not_a_weight("encode", dtype)),
        Format::Q4_0 => encode_blocks(format, values, &mut bytes, q4_0::encode_block)?,
        Format::Q4_1 => encode_blocks(format, values, &mut bytes, q4_1::encode_block)?,
        Format::Q5_0 => encode_blocks(format, values, &mut bytes, q5_0::encode_block)?,
        Format::Q5_1 => encode_blocks(format, values, &mut bytes, q5_1::encode_block)?,
        Format::Q8_0 => encode_blocks(format, values, &mut bytes, q8_0::encode_block)?,
        Format::Q2K => encode_blocks(format, values, &mut bytes, q2_k::encode_block)?,
        Format::Q3K => encode_blocks(format, values, &mut bytes, q3_k::encode_block)?,
        Format::Q4K => encode_blocks(format, values, &mut bytes, q4_k::encode_block)?,
        Format::Q5K => encode_blocks(format, values, &mut bytes, q5_k::encode_block)?,
        Format::Q6K => encode_blocks(format, values, &mut bytes, q6_k::encode_block)?,
        Format::IQ4NL => encode_blocks(format, values, &mut bytes, iq4_nl::encode_block)?,
        Format::IQ4XS => encode_blocks(format, values, &mut bytes, iq4_xs::encode_block)?,
        Format::MXFP4 => encode_blocks(format, values, &mut bytes, mxfp4::encode_block)?,
        Format::TQ1_0 => encode_blocks(format, values, &mut bytes, tq1_0::encode_block)?,
        Format::TQ2_0 => encode_blocks(format, values, &mut bytes, tq2_0::encode_block)?,
        Format::I2S => encode_blocks(format, values, &mut bytes, i2_s::encode_block)?,
        Format::Q6Kx8 => encode_blocks(format, values, &mut bytes, q6_kx8::encode_block)?,
        Format::Q8_0x2 => encode_blocks(format, values, &mut bytes, q8_0x2::encode_block)?,
        Format::Q8_0x8 => encode_blocks(format, values, &mut bytes, q8_0x8::encode_block)?,
        Format::Q4_0x8 => encode_blocks(format, values, &mut bytes, q4_0x8::encode_block)?,
    }
    Ok(bytes)
}

/// Repacks weights from a file format into a GPU weight layout ([`Format::kept`]).
///
/// # Errors
/// Invalid if `to` is not a layout of `from`, or if the bytes are not whole blocks of `to`.
pub fn keep(from: Format, to: Format, bytes: &[u8]) -> Result<Vec<u8>> {
    match (from, to) {
        (Format::Q6K, Format::Q6Kx8) => q6_kx8::from_q6_k(bytes),
        (Format::Q8_0, Format::Q8_0x2) => q8_0x2::from_q8_0(bytes),
        (Format::Q8_0, Format::Q8_0x8) => q8_0x8::from_q8_0(bytes),
        (Format::Q4_0, Format::Q4_0x8) => q4_0x8::from_q4_0(bytes),
        _ => Err(Error::invalid(format!("weights of {from} cannot be repacked as {to}"))),
    }
}

/// Converts groups of `PARTS` blocks of `EACH` bytes to blocks of `BYTES` bytes with `put`; `what`
/// names such groups in errors.
///
/// # Errors
/// Invalid if the bytes are not whole groups.
fn grouped<const EACH: usize, const PARTS: usize, const BYTES: usize>(
    name: Format,
    what: &str,
    bytes: &[u8],
    put: fn(&[[u8; EACH]; PARTS], &mut [u8; BYTES]),
) -> Result<Vec<u8>> {
    let (groups, rest) = bytes.as_chunks::<EACH>().0.as_chunks::<PARTS>();
    if !rest.is_empty() || !bytes.len().is_multiple_of(BYTES) {
        let length = bytes.len();
        return Err(Error::invalid(format!(
            "{name}: {length} bytes are not {what} of {EACH} bytes"
        )));
    }
    let mut out = vec![0; bytes.len()];
    for (group, out) in groups.iter().zip(out.as_chunks_mut::<BYTES>().0) {
        put(group, out);
    }
    Ok(out)
}

/// Runs a block decoder over whole blocks; the caller has checked the lengths.
fn decode_blocks<const BYTES: usize, const LEN: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decode_block: fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    let (blocks, _) = bytes.as_chunks::<BYTES>();
    let (outs, _) = out.as_chunks_mut::<LEN>();
    for (block, out) in blocks.iter().zip(outs) {
        decode_block(block, out);
    }
}

/// Runs a block encoder over whole blocks; the caller has checked the lengths.
///
/// A block encoder returns `None` if a scale exceeds the range of f16.
fn encode_blocks<const BYTES: usize, const LEN: usize>(
    format: Format,
    values: &[f32],
    bytes: &mut Vec<u8>,
    encode_block: fn(&[f32; LEN]) -> Option<[u8; BYTES]>,
) -> Result<()> {
    let (blocks, _) = values.as_chunks::<LEN>();
    for (index, block) in blocks.iter().enumerate() {
        if let Some(at) = block.iter().position(|v| !v.is_finite()) {
            return Err(Error::invalid(format!(
                "encode {format}: value {} is {}, which a block cannot hold",
                index * LEN + at,
                block[at]
            )));
        }
        let encoded = encode_block(block).ok_or_else(|| {
            Error::invalid(format!(
                "encode {format}: values {}..{} need a scale beyond the range of f16",
                index * LEN,
                index * LEN + LEN
            ))
        })?;
        bytes.extend_from_slice(&encoded);
    }
    Ok(())
}

fn not_whole_blocks(action: &str, format: Format, values: usize) -> String {
    format!(
        "{action} {format}: {values} values do not fill whole blocks of {} or overflow",
        format.block_len()
    )
}

fn not_a_weight(action: &str, dtype: DType) -> Error {
    Error::unsupported(format!("{action} {dtype}: only floating-point formats hold weights"))
}

/// Reads the f16 at byte `at` of a block as f32, which is exact. `at + 2` must not exceed `BYTES`.
#[inline]
fn f16_at<const BYTES: usize>(block: &[u8; BYTES], at: usize) -> f32 {
    half::f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Returns the f16 nearest to `value`, and its value as f32, or `None` if the f16 is not finite.
fn f16_finite(value: f32) -> Option<(half::f16, f32)> {
    let narrow = half::f16::from_f32(value);
    narrow.is_finite().then(|| (narrow, narrow.to_f32()))
}

/// Returns `1 / scale`, or 0 if the scale is 0 (a block of zeros) or so small that its inverse
/// overflows.
fn inverse(scale: f32) -> f32 {
    let inverse = 1.0 / scale;
    if inverse.is_finite() { inverse } else { 0.0 }
}

/// Returns a function from the index of a weight to its fifth bit, as 0 or 16. Bit `i` of the 4
/// bytes belongs to weight `i`.
fn fifth_bits(bytes: &[u8]) -> impl Fn(usize) -> u8 {
    let bits = bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    move |i| ((bits >> i & 1) << 4) as u8
}

/// Packs 32 quants of 5 bits as in Q5_0 and Q5_1: the fifth bits, then the nibbles.
fn nibbles_and_fifths(q: &[u8; 32]) -> [u8; 20] {
    let mut bytes = [0; 20];
    for (i, q) in q.iter().enumerate() {
        bytes[i / 8] |= (q >> 4) << (i % 8);
        bytes[4 + i % 16] |= (q & 15) << (4 * (i / 16));
    }
    bytes
}

/// Returns the scale for ternary weights near these values (their largest magnitude), and a
/// function from a value to its digit: 0 is minus the scale, 1 is zero, 2 is the scale.
fn ternary(values: &[f32]) -> (f32, impl Fn(f32) -> u8) {
    let d = values.iter().fold(0.0f32, |a, v| a.max(v.abs()));
    let inv = inverse(d);
    (d, move |v| ((v * inv).round() as i8 + 1).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked() {
        let mut out = [0.0; 32];
        assert!(decode(Format::Q4_0, &[0; 18], &mut out).is_ok());
        for bytes in [0, 17, 19, 36] {
            let error = decode(Format::Q4_0, &vec![0; bytes], &mut out).unwrap_err();
            assert!(error.is_invalid(), "{error}");
            assert!(error.to_string().contains("32 values need 18 bytes"), "{error}");
        }
        let error = decode(Format::Q4_0, &[0; 18], &mut out[..31]).unwrap_err();
        assert!(error.to_string().contains("whole blocks of 32"), "{error}");
        assert!(encode(Format::Q6K, &out).unwrap_err().is_invalid());
    }

    #[test]
    fn integers_are_no_weights() {
        let format = Format::Plain(DType::I32);
        assert!(decode(format, &[0; 4], &mut [0.0]).unwrap_err().is_unsupported());
        assert!(encode(format, &[0.0]).unwrap_err().is_unsupported());
    }

    #[test]
    fn empty_is_fine_in_every_format() {
        for format in Format::ALL {
            decode(format, &[], &mut []).unwrap();
            assert!(encode(format, &[]).unwrap().is_empty());
        }
    }

    #[test]
    fn block_formats_refuse_what_they_cannot_say() {
        for format in Format::ALL.into_iter().filter(|f| f.is_quantised()) {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut values = vec![0.5; 512];
                values[300] = bad;
                let error = encode(format, &values).unwrap_err();
                assert!(error.is_invalid() && error.to_string().contains("value 300"), "{error}");
            }
            let mut values = vec![0.5; 256];
            values[7] = 3e38;
            match (format, encode(format, &values)) {
                // The scales of these have the range of f32.
                (Format::MXFP4 | Format::I2S, encoded) => assert!(encoded.is_ok()),
                (_, encoded) => {
                    assert!(encoded.unwrap_err().to_string().contains("range of f16"), "{format}");
                }
            }
        }
    }
}
