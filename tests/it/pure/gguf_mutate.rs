//! An endless sequence of nearly valid GGUF files, from a seed.

use super::gguf_writer::{Meta, Spot, Writer, Written, ramp, small};
use warploom_core::base::{DType, Format};

/// Alternates files with 1 to 3 changed fields and files with changed bytes.
pub(crate) struct Mutator {
    state: u64,
    bases: Vec<Written>,
    turn: u64,
}

impl Mutator {
    pub(crate) fn new(seed: u64) -> Mutator {
        Mutator { state: seed | 1, bases: bases(), turn: 0 }
    }

    /// The next file.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        self.turn += 1;
        let base = self.below(self.bases.len());
        if self.turn.is_multiple_of(2) { self.fields(base) } else { self.bytes(base) }
    }

    /// xorshift64*.
    fn random(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.random()) * n as u128) >> 64) as usize
    }

    fn fields(&mut self, base: usize) -> Vec<u8> {
        let mut file = self.bases[base].clone();
        for _ in 0..=self.below(3) {
            let Spot { at, len, .. } = file.spots[self.below(file.spots.len())].clone();
            let number = file.bytes[at..at + len]
                .iter()
                .take(8)
                .enumerate()
                .fold(0u64, |n, (i, &byte)| n | u64::from(byte) << (8 * i));
            let changed = self.interesting(number, file.bytes.len() as u64).to_le_bytes();
            if len > 8 {
                // A name or data: one byte of it.
                let i = at + self.below(len);
                file.bytes[i] = changed[0];
            } else {
                file.bytes[at..at + len].copy_from_slice(&changed[..len]);
            }
        }
        file.bytes
    }

    /// A number that has broken a parser before, or is close to a valid one.
    fn interesting(&mut self, number: u64, file_len: u64) -> u64 {
        let bit = 1u64 << self.below(64);
        match self.below(12) {
            0 => 0,
            1 => u64::MAX - self.below(64) as u64,
            2 => bit,
            3 => bit.wrapping_sub(1),
            4 => bit.wrapping_add(number),
            5 => number.wrapping_add(1),
            6 => number.wrapping_sub(1),
            7 => number ^ bit,
            8 => file_len.wrapping_sub(self.below(64) as u64),
            9 => self.below(64) as u64,
            // The least that wraps to `number` when multiplied by a size.
            10 => number.wrapping_add(u64::MAX / (1 << self.below(6))),
            _ => self.random(),
        }
    }

    fn bytes(&mut self, base: usize) -> Vec<u8> {
        let mut bytes = self.bases[base].bytes.clone();
        // Mostly in the head: the data is allowed to be anything.
        let reach = if self.below(8) == 0 { bytes.len() } else { self.bases[base].head_len };
        for _ in 0..=self.below(4) {
            let at = self.below(reach.min(bytes.len()).max(1));
            match self.below(8) {
                0..=2 if at < bytes.len() => bytes[at] = self.random() as u8,
                3 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                4 => drop(bytes.drain(at..(at + 1 + self.below(16)).min(bytes.len()).max(at))),
                5 => {
                    let extra: Vec<u8> =
                        (0..=self.below(16)).map(|_| self.random() as u8).collect();
                    bytes.splice(at.min(bytes.len())..at.min(bytes.len()), extra);
                }
                6 => bytes.truncate(self.below(bytes.len() + 1)),
                _ => {
                    // A part of another file overwrites this one.
                    let (other, most) = (self.below(self.bases.len()), 1 + self.below(48));
                    let from = self.below(self.bases[other].bytes.len());
                    let piece = self.bases[other].bytes[from..].iter().take(most);
                    for (byte, new) in bytes.iter_mut().skip(at).zip(piece) {
                        *byte = *new;
                    }
                }
            }
        }
        bytes
    }
}

fn bases() -> Vec<Written> {
    let every_kind = Writer::new()
        .version(2)
        .alignment(8)
        .key("k.u8", Meta::U8(1))
        .key("k.i8", Meta::I8(-1))
        .key("k.u16", Meta::U16(2))
        .key("k.i16", Meta::I16(-2))
        .key("k.u64", Meta::U64(1 << 40))
        .key("k.i64", Meta::I64(-3))
        .key("k.f64", Meta::F64(0.25))
        .key("k.u64s", Meta::Array(10, vec![Meta::U64(1), Meta::U64(u64::MAX)]))
        .tensor("scalar", &[], Format::F32, &[1.0])
        .tensor("h", &[3, 1, 2], Format::Plain(DType::F16), &ramp(6))
        .raw_tensor("new", &[2], 77, vec![0; 16])
        .raw_tensor("ids", &[2], 26, vec![0; 8]);
    let blocks = Writer::new()
        .key("general.architecture", Meta::Str("llama".into()))
        .key("tokens", Meta::strings(["a", "b", "ab"]))
        .tensor("q4_0", &[2, 32], Format::Q4_0, &ramp(64))
        .tensor("q4_1", &[1, 1, 2, 32], Format::Q4_1, &ramp(64))
        .tensor("q4_k", &[256], Format::Q4K, &ramp(256))
        .tensor("q6_k", &[256], Format::Q6K, &ramp(256))
        .tensor("mxfp4", &[2, 32], Format::MXFP4, &ramp(64))
        .tensor("iq4_xs", &[1, 256], Format::IQ4XS, &ramp(256))
        .tensor("tq1_0", &[1, 256], Format::TQ1_0, &ramp(256))
        .raw_tensor("i2_s", &[1, 128], 36, vec![0x55; 64]);
    let empty = Writer::new();
    [small(), every_kind, blocks, empty].iter().map(Writer::write).collect()
}
