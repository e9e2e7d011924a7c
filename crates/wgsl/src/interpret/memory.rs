//! Loads, stores and atomic operations on words that several threads may share.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use half::f16;
use naga::{AtomicFunction, ScalarKind};

use super::bytecode::{Atomic, NONE};
use super::layout::{Cell, Layout};
use super::number::{Binary, binary, f};

/// The words of a region.
pub(super) type Words<'a> = &'a [AtomicU32];

// Addresses were clamped when they were computed, so the misses below are unreachable.

pub(super) fn word(words: Words, byte: u32) -> u32 {
    words.get(byte as usize / 4).map_or(0, |word| word.load(Relaxed))
}

/// Replaces the bits of `mask`, counted from a byte, in the word that contains the byte.
fn splice(words: Words, byte: u32, mask: u32, bits: u32) {
    let shift = byte % 4 * 8;
    let Some(word) = words.get(byte as usize / 4) else { return };
    let change = |old: u32| Some((old & !(mask << shift)) | (bits & mask) << shift);
    // The closure always returns `Some`.
    let _ = word.fetch_update(Relaxed, Relaxed, change);
}

/// Loads the register value of a scalar at a byte address.
pub(super) fn load_cell(words: Words, byte: u32, cell: Cell) -> u32 {
    let shifted = |words| word(words, byte) >> (byte % 4 * 8);
    match cell {
        Cell::Word => word(words, byte),
        Cell::Half => f16::from_bits(shifted(words) as u16).to_f32().to_bits(),
        Cell::Byte => shifted(words) & 1,
    }
}

pub(super) fn load(words: Words, at: u32, layout: &Layout, to: &mut [u32]) {
    if layout.plain {
        for (register, word) in to.iter_mut().zip(words.iter().skip(at as usize / 4)) {
            *register = word.load(Relaxed);
        }
        return;
    }
    for (register, (offset, cell)) in to.iter_mut().zip(&layout.cells) {
        *register = load_cell(words, at + offset, *cell);
    }
}

pub(super) fn store(words: Words, at: u32, layout: &Layout, from: &[u32]) {
    if layout.plain {
        for (register, word) in from.iter().zip(words.iter().skip(at as usize / 4)) {
            word.store(*register, Relaxed);
        }
        return;
    }
    for (register, (offset, cell)) in from.iter().zip(&layout.cells) {
        let byte = at + offset;
        match cell {
            Cell::Word => {
                if let Some(word) = words.get(byte as usize / 4) {
                    word.store(*register, Relaxed);
                }
            }
            Cell::Half => {
                splice(words, byte, 0xffff, u32::from(f16::from_f32(f(*register)).to_bits()));
            }
            Cell::Byte => splice(words, byte, 0xff, *register),
        }
    }
}

/// Performs an atomic operation on the word at byte `at`; returns the old value, and whether a
/// comparison succeeded.
pub(super) fn atomic(
    words: Words,
    at: u32,
    what: &Atomic,
    value: u32,
    registers: &[u32],
) -> (u32, bool) {
    let Some(word) = words.get(at as usize / 4) else { return (0, false) };
    let pick = |float, signed, unsigned| match what.kind {
        ScalarKind::Float => float,
        ScalarKind::Sint => signed,
        _ => unsigned,
    };
    let op = match what.fun {
        AtomicFunction::Add => pick(Binary::AddF32, Binary::Add, Binary::Add),
        AtomicFunction::Subtract => pick(Binary::SubF32, Binary::Sub, Binary::Sub),
        AtomicFunction::And => Binary::And,
        AtomicFunction::ExclusiveOr => Binary::Xor,
        AtomicFunction::InclusiveOr => Binary::Or,
        AtomicFunction::Min => pick(Binary::MinF32, Binary::MinI32, Binary::MinU32),
        AtomicFunction::Max => pick(Binary::MaxF32, Binary::MaxI32, Binary::MaxU32),
        AtomicFunction::Exchange { .. } if what.compare == NONE => {
            return (word.swap(value, Relaxed), true);
        }
        AtomicFunction::Exchange { .. } => {
            let expected = registers[what.compare as usize];
            return match word.compare_exchange(expected, value, Relaxed, Relaxed) {
                Ok(old) => (old, true),
                Err(old) => (old, false),
            };
        }
    };
    let old = word.fetch_update(Relaxed, Relaxed, |old| Some(binary(op, old, value)));
    (old.unwrap_or_else(|old| old), true)
}
