//! Synthetic data for the memory of a task: deterministic, and valid in every storage format.

use crate::base::{DType, Format};
use crate::error::Result;
use crate::plan::{Content, Fill};
use warploom_core::quant;

/// Period of the data in elements: a prime, so that no two rows of a weight are equal.
const PERIOD: usize = 65_521;
/// Period of a packed format in blocks, shorter because encoding a block requires a search.
const BLOCKS: usize = 509;
/// Approximate bytes generated at a time.
const PIECE: usize = 4 << 20;

/// Returns bytes to repeat until a tensor is full, in whole words. With `positive` no value is
/// negative.
///
/// # Errors
/// The error of the format's encoder.
pub(super) fn pattern(content: &Content, positive: bool) -> Result<Vec<u8>> {
    let bytes = match &content.fill {
        Fill::Nothing => vec![0xFF; 4096],
        Fill::Words(words) => return Ok(bytes_of(words.iter().copied())),
        Fill::Below(limit) => bytes_of((0..PERIOD as u64).map(|i| (hash(i) >> 16) as u32 % limit)),
        Fill::Counting => return Ok(bytes_of(0..(content.bytes / 4) as u32)),
        Fill::Spans(end) => bytes_of((0..1024).map(|i| if i % 2 == 0 { 0 } else { *end })),
        Fill::Numbers(format) => {
            let count = match format {
                Format::Plain(_) => PERIOD,
                packed => BLOCKS * packed.block_len() as usize,
            };
            let values: Vec<f32> = (0..count as u64).map(|i| number(i, positive)).collect();
            quant::encode(*format, &values)?
        }
    };
    let times = (PIECE / bytes.len()).min(content.bytes as usize / bytes.len() + 1);
    Ok(bytes.repeat(times.next_multiple_of(4)))
}

fn bytes_of(words: impl Iterator<Item = u32>) -> Vec<u8> {
    words.flat_map(u32::to_le_bytes).collect()
}

/// Returns a pseudo-random value from -1 to 1 or, if `positive`, from 0.25 to 1.25.
fn number(i: u64, positive: bool) -> f32 {
    let unit = (hash(i) >> 40) as f32 / (1u32 << 24) as f32;
    if positive { unit + 0.25 } else { 2.0 * unit - 1.0 }
}

/// Hashes an index with the mixing steps of SplitMix64.
fn hash(i: u64) -> u64 {
    let mut x = i.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Describes how a result differs from that of another engine; `None` if they agree. With `loose`,
/// operands are quantised to 8 bits, so values halfway between two steps may round either way.
pub(super) fn differ(dtype: DType, expected: &[u8], got: &[u8], loose: bool) -> Option<String> {
    if !dtype.is_float() {
        let at = expected.iter().zip(got).position(|(a, b)| a != b)?;
        return Some(format!("element {} of {dtype} is another", at as u64 / dtype.bytes()));
    }
    let share = match (dtype, loose) {
        (DType::BF16, _) => 2f64.powi(-6),
        (_, true) => 2f64.powi(-6),
        (DType::F16, _) => 2f64.powi(-8),
        _ => 2f64.powi(-10),
    };
    let (a, b) = (numbers(dtype, expected), numbers(dtype, got));
    let finite = a.iter().filter(|x| x.is_finite());
    let square: f64 = finite.clone().map(|x| x * x).sum();
    let size = (square / finite.count().max(1) as f64).sqrt();
    let off = a.iter().zip(&b).position(|(a, b)| {
        // Unwritten memory is NaN on both sides.
        let same = a == b || (a.is_nan() && b.is_nan());
        let near = (a - b).abs() <= share * (size + a.abs());
        !same && !near
    })?;
    Some(format!("element {off} is {}, not {} (numbers of about {size:.3e})", b[off], a[off]))
}

/// Returns whether all values of a result are finite or unwritten. Unwritten memory keeps its fill.
pub(super) fn is_finite(dtype: DType, bytes: &[u8]) -> bool {
    let untouched = |x: &[u8]| x.iter().all(|byte| *byte == 0xFF);
    let size = dtype.bytes() as usize;
    let all = numbers(dtype, bytes);
    !dtype.is_float()
        || all.iter().zip(bytes.chunks(size)).all(|(x, raw)| x.is_finite() || untouched(raw))
}

fn numbers(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let halves = bytes.as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair));
    match dtype {
        DType::F16 => halves.map(|bits| half::f16::from_bits(bits).to_f64()).collect(),
        DType::BF16 => halves.map(|bits| half::bf16::from_bits(bits).to_f64()).collect(),
        _ => {
            let words = bytes.as_chunks::<4>().0.iter();
            words.map(|word| f64::from(f32::from_le_bytes(*word))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(fill: Fill, bytes: u64) -> Content {
        Content { name: "x".into(), bytes, fill, written: None, resident: false }
    }

    #[test]
    fn every_format_has_numbers() {
        for format in Format::ALL {
            let bytes = pattern(&content(Fill::Numbers(format), 1 << 20), false).unwrap();
            assert!(bytes.len().is_multiple_of(4), "{format}");
            let block = format.block_bytes() as usize;
            let count = format.block_len() as usize * (bytes.len() / block).min(64);
            let mut values = vec![0.0; count];
            let whole = format.bytes(count as u64).unwrap() as usize;
            quant::decode(format, &bytes[..whole], &mut values).unwrap();
            assert!(values.iter().all(|x| x.is_finite() && x.abs() < 1.5), "{format}");
            assert!(values.iter().any(|x| *x != values[0]), "{format}");
        }
    }

    #[test]
    fn differences_are_reported() {
        let bytes = |x: &[f32]| -> Vec<u8> { x.iter().flat_map(|x| x.to_le_bytes()).collect() };
        let right = bytes(&[1.0, -2.0, 3.0, f32::NAN]);
        assert_eq!(differ(DType::F32, &right, &bytes(&[1.0005, -2.0, 3.0, f32::NAN]), false), None);
        for wrong in [
            [1.01, -2.0, 3.0, f32::NAN],
            [1.0, f32::NAN, 3.0, f32::NAN],
            [1.0, -2.0, f32::INFINITY, f32::NAN],
            [1.0, -2.0, 3.0, 0.0],
        ] {
            assert!(differ(DType::F32, &right, &bytes(&wrong), false).is_some(), "{wrong:?}");
        }
        assert_eq!(differ(DType::F32, &right, &bytes(&[1.01, -2.0, 3.0, f32::NAN]), true), None);
        assert_eq!(differ(DType::U32, &[1, 0, 0, 0], &[1, 0, 0, 0], false), None);
        assert!(differ(DType::U32, &[1, 0, 0, 0], &[2, 0, 0, 0], false).is_some());
        assert!(is_finite(DType::F32, &bytes(&[1.0])) && !is_finite(DType::F32, &right));
        assert!(is_finite(DType::F32, &[0xFF; 4]), "nothing wrote it");
    }
}
