//! Computes `pack*` and `unpack*`, the conversions between a vector and a word.

use half::f16;
use naga::MathFunction as F;

use super::number::{bounded, f};

/// Returns the number of components of the vector that a function packs or unpacks.
pub(super) fn components(fun: F) -> usize {
    match fun {
        F::Pack2x16snorm
        | F::Pack2x16unorm
        | F::Pack2x16float
        | F::Unpack2x16snorm
        | F::Unpack2x16unorm
        | F::Unpack2x16float => 2,
        _ => 4,
    }
}

/// Returns whether the function packs a vector into a word.
pub(super) fn packs(fun: F) -> bool {
    matches!(
        fun,
        F::Pack4x8snorm
            | F::Pack4x8unorm
            | F::Pack2x16snorm
            | F::Pack2x16unorm
            | F::Pack2x16float
            | F::Pack4xI8
            | F::Pack4xU8
            | F::Pack4xI8Clamp
            | F::Pack4xU8Clamp
    )
}

/// Returns whether the function packs or unpacks.
pub(super) fn is_packing(fun: F) -> bool {
    let unpacks = matches!(
        fun,
        F::Unpack4x8snorm
            | F::Unpack4x8unorm
            | F::Unpack2x16snorm
            | F::Unpack2x16unorm
            | F::Unpack2x16float
            | F::Unpack4xI8
            | F::Unpack4xU8
    );
    unpacks || packs(fun)
}

/// Packs components into a word.
pub(super) fn pack(fun: F, parts: &[u32]) -> u32 {
    let bits = 32 / parts.len() as u32;
    let mask = u32::MAX >> (32 - bits);
    let signed = |a: u32, most: f32| (0.5 + most * bounded(f(a), -1.0, 1.0)).floor() as i32 as u32;
    let unsigned = |a: u32, most: f32| (0.5 + most * bounded(f(a), 0.0, 1.0)).floor() as u32;
    let part = |a: u32| match fun {
        F::Pack4x8snorm => signed(a, 127.0),
        F::Pack4x8unorm => unsigned(a, 255.0),
        F::Pack2x16snorm => signed(a, 32767.0),
        F::Pack2x16unorm => unsigned(a, 65535.0),
        F::Pack2x16float => u32::from(f16::from_f32(f(a)).to_bits()),
        F::Pack4xI8Clamp => (a as i32).clamp(-128, 127) as u32,
        F::Pack4xU8Clamp => a.min(255),
        _ => a,
    };
    let shifted = parts.iter().enumerate().map(|(i, a)| (part(*a) & mask) << (bits * i as u32));
    shifted.fold(0, |word, part| word | part)
}

/// Unpacks one component of a word.
pub(super) fn unpack(fun: F, word: u32, i: usize) -> u32 {
    let bits = 32 / components(fun) as u32;
    let high = word << (32 - bits * (i as u32 + 1));
    let (unsigned, signed) = (high >> (32 - bits), high as i32 >> (32 - bits));
    match fun {
        F::Unpack4x8snorm => (signed as f32 / 127.0).max(-1.0).to_bits(),
        F::Unpack4x8unorm => (unsigned as f32 / 255.0).to_bits(),
        F::Unpack2x16snorm => (signed as f32 / 32767.0).max(-1.0).to_bits(),
        F::Unpack2x16unorm => (unsigned as f32 / 65535.0).to_bits(),
        F::Unpack2x16float => f16::from_bits(unsigned as u16).to_f32().to_bits(),
        F::Unpack4xI8 => signed as u32,
        _ => unsigned,
    }
}
