//! Every storage format against the values of the `gguf` Python package, bit for bit.
//!
//! `tests/golden/quant/make.py` writes the expected values; see there for the layout.

use serde_json::Value as Json;
use warploom_core::base::{DType, Format};
use warploom_core::quant;

const FORMATS: &str = include_str!("../../golden/quant/formats.json");

fn golden() -> Json {
    serde_json::from_str(FORMATS).expect("golden file")
}

fn hex(row: &Json, field: &str) -> Vec<u8> {
    let text = row[field].as_str().unwrap_or_else(|| panic!("golden row has no {field}"));
    let digit = |c: u8| (c as char).to_digit(16).expect("a hex digit") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes"))).collect()
}

/// Equal bits, or both NaN: no format promises the payload of a NaN.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

fn first_difference(got: &[f32], want: &[f32]) -> Option<usize> {
    assert_eq!(got.len(), want.len());
    got.iter().zip(want).position(|(g, w)| !same(*g, *w))
}

#[test]
fn decoding_equals_the_reference_bit_for_bit() {
    let golden = golden();
    for format in Format::ALL {
        let row = &golden[format.name()];
        let (blocks, want) = (hex(row, "blocks"), floats(&hex(row, "values")));
        assert!(want.len() >= 12 * 32, "{format}: too few golden values");
        let mut got = vec![f32::NAN; want.len()];
        quant::decode(format, &blocks, &mut got).expect("golden blocks decode");
        if let Some(at) = first_difference(&got, &want) {
            panic!("{format}: value {at} is {:?}, should be {:?}", got[at], want[at]);
        }
    }
}

#[test]
fn the_comparison_sees_one_flipped_bit() {
    let golden = golden();
    for format in Format::ALL {
        let row = &golden[format.name()];
        let (mut blocks, want) = (hex(row, "blocks"), floats(&hex(row, "values")));
        // A bit in the middle of the third block, whose scales are ordinary numbers. In every
        // block format the middle byte is a quant; in plain ones it belongs to the number.
        let size = format.block_bytes() as usize;
        blocks[2 * size + size / 2] ^= 1;
        let mut got = vec![0.0; want.len()];
        quant::decode(format, &blocks, &mut got).expect("golden blocks decode");
        assert!(first_difference(&got, &want).is_some(), "{format}: a planted fault went unseen");
    }
}

#[test]
fn encoding_equals_the_reference_quantisers() {
    let (golden, mut encoders) = (golden(), 0);
    for format in Format::ALL {
        let row = &golden[format.name()];
        if row["encoded"].is_null() {
            continue;
        }
        encoders += 1;
        let (inputs, want) = (floats(&hex(row, "inputs")), hex(row, "encoded"));
        let got = quant::encode(format, &inputs).expect("golden inputs encode");
        let at = got.iter().zip(&want).position(|(g, w)| g != w);
        assert!(got.len() == want.len() && at.is_none(), "{format}: byte {at:?} differs");
    }
    assert_eq!(encoders, 12, "what gguf quantises, and i2_s");
}

#[test]
fn a_tensor_of_a_bitnet_file_becomes_blocks() {
    let row = &golden()["i2_s"];
    let blocks = quant::i2_s::from_file(&hex(row, "file")).expect("a tensor of i2_s");
    assert_eq!(blocks, hex(row, "blocks"));
}

#[test]
fn every_f16_and_bf16_means_its_fields() {
    for bits in 0..=u16::MAX {
        let [mut half, mut brain] = [[f32::NAN]; 2];
        quant::decode(Format::Plain(DType::F16), &bits.to_le_bytes(), &mut half).expect("f16");
        quant::decode(Format::Plain(DType::BF16), &bits.to_le_bytes(), &mut brain).expect("bf16");

        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
        let want = sign
            * match (exponent, bits & 1023) {
                (31, 0) => f32::INFINITY,
                (31, _) => f32::NAN,
                (0, _) => mantissa * 2f32.powi(-24),
                _ => (1024.0 + mantissa) * 2f32.powi(exponent - 25),
            };
        assert!(same(half[0], want), "f16 {bits:#06x}: {} is not {want}", half[0]);
        assert!(same(brain[0], f32::from_bits(u32::from(bits) << 16)), "bf16 {bits:#06x}");

        if !half[0].is_nan() {
            let back = quant::encode(Format::Plain(DType::F16), &half).expect("f16");
            assert_eq!(back, bits.to_le_bytes());
        }
    }
}

/// Numbers in about -4..4 from a fixed seed, in runs of different sizes and signs.
fn noise(len: usize) -> Vec<f32> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..len).map(|i| (next() + 0.4) * [0.01, 1.0, 3.0, 0.0, -2.0][i / 48 % 5]).collect()
}

#[test]
fn encoding_loses_no_more_than_a_step() {
    // How far a value may move, as a part of the largest magnitude in its block: half a step of
    // the quants, and for the K formats the rounding of the sub-block's scales as well.
    let limits = [
        (Format::Plain(DType::F16), 5e-4),
        (Format::Plain(DType::BF16), 4e-3),
        // The far end from the extreme is clamped: a whole step of 1/8.
        (Format::Q4_0, 1.0 / 8.0 + 1e-3),
        (Format::Q4_1, 1.0 / 15.0 + 2e-3),
        (Format::Q5_0, 1.0 / 16.0 + 1e-3),
        (Format::Q5_1, 1.0 / 31.0 + 2e-3),
        (Format::Q8_0, 0.5 / 127.0 + 1e-3),
        (Format::Q3K, 1.0 / 4.0 + 0.5 / 31.0),
        // The search trades the ends of the span for the middle, by about a step.
        (Format::Q2K, 3.0 / 3.0),
        (Format::Q4K, 3.0 / 15.0),
        (Format::Q5K, 3.0 / 31.0),
        // The widest gap of the table is 24 of 127, and its far end is 113.
        (Format::IQ4NL, 14.0 / 127.0 + 1e-3),
        (Format::IQ4XS, 14.0 / 127.0 + 0.5 / 31.0),
        // Between 4 and 6 of 6; values beyond 6 are at most 8, and clamped.
        (Format::MXFP4, 2.0 / 8.0 + 1e-6),
        (Format::TQ1_0, 0.5 + 1e-3),
        (Format::TQ2_0, 0.5 + 1e-3),
        (Format::I2S, 0.5 + 1e-6),
        (Format::Q6K, 1.0 / 32.0 + 0.5 / 127.0),
    ];
    let values = noise(256 * 40);
    for (format, limit) in limits {
        let bytes = quant::encode(format, &values).expect("finite values");
        assert_eq!(Some(bytes.len() as u64), format.bytes(values.len() as u64));
        let mut back = vec![f32::NAN; values.len()];
        quant::decode(format, &bytes, &mut back).expect("own blocks");
        let block = (format.block_len() as usize).max(32);
        for (b, (want, got)) in values.chunks(block).zip(back.chunks(block)).enumerate() {
            let scale = want.iter().fold(0.0f32, |a, v| a.max(v.abs()));
            for (w, g) in want.iter().zip(got) {
                assert!((w - g).abs() <= limit * scale, "{format} block {b}: {w} became {g}");
            }
        }
    }
}

#[test]
fn zeros_stay_zeros() {
    for format in Format::ALL {
        let bytes = quant::encode(format, &[0.0; 256]).expect("zeros");
        let mut back = [f32::NAN; 256];
        quant::decode(format, &bytes, &mut back).expect("own blocks");
        assert!(back.iter().all(|v| *v == 0.0), "{format}");
    }
}
