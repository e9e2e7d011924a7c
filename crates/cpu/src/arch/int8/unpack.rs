//! Unpacks the blocks of each format to codes; `quant` defines the formats.

use super::super::formats::{
    I2S, IQ4NL, IQ4XS, MXFP4, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0, TQ1_0, TQ2_0,
};
use super::super::scales::{q3_k_scales, q4_k_scales};
use super::{Coded, Codes, Kind, RUNS, Scales};
use crate::arch::formats::Block;
use warploom_core::quant;

#[inline(always)]
unsafe fn f16_at<C: Codes>(p: *const u8) -> f32 {
    // SAFETY: the caller's contract: two bytes.
    unsafe { C::half(u16::from_le(p.cast::<u16>().read_unaligned())) }
}

#[inline(always)]
unsafe fn word_at(p: *const u8) -> u32 {
    // SAFETY: the caller's contract: four bytes.
    u32::from_le(unsafe { p.cast::<u32>().read_unaligned() })
}

/// The meaning of the f16 values at the start of a block of 32.
#[derive(Clone, Copy)]
enum Header {
    /// A scale; the bias is this multiple of it.
    Scale(f32),
    /// A scale and a bias.
    Both,
}

/// Implements `Coded` for blocks of one run that begin with f16 values.
macro_rules! short {
    ($name:ident, $kind:ident, $header:expr, $p:ident, $c:ident, $codes:expr) => {
        impl Coded for $name {
            const KIND: Kind = Kind::$kind;
            #[inline(always)]
            unsafe fn scales<C: Codes>(p: *const u8, count: usize) -> Scales<C::A> {
                // SAFETY: `count` blocks of more than four bytes each.
                unsafe {
                    let [first, second] = C::pairs(p, Self::BYTES, count);
                    match $header {
                        Header::Scale(by) => Scales::new(first, C::mul(first, C::splat(by))),
                        Header::Both => Scales::new(first, second),
                    }
                }
            }
            #[inline(always)]
            unsafe fn run<$c: Codes>(p: *const u8, run: usize) -> $c::B {
                // SAFETY: the places in the block are those of `quant`.
                unsafe {
                    let $p = p.add(run * Self::BYTES);
                    $codes
                }
            }
        }
    };
}
short!(Q4_0, Whole, Header::Scale(-8.0), p, C, C::nibbles(p.add(2)));
short!(Q4_1, Whole, Header::Both, p, C, C::nibbles(p.add(4)));
short!(
    Q5_0,
    Whole,
    Header::Scale(-16.0),
    p,
    C,
    C::with(C::nibbles(p.add(6)), word_at(p.add(2)), 16)
);
short!(Q5_1, Whole, Header::Both, p, C, C::with(C::nibbles(p.add(8)), word_at(p.add(4)), 16));
short!(Q8_0, Signed, Header::Scale(0.0), p, C, C::load(p.add(2)));
short!(
    IQ4NL,
    Signed,
    Header::Scale(0.0),
    p,
    C,
    C::lookup(&quant::iq4_nl::VALUES, C::nibbles(p.add(2)))
);

impl Coded for MXFP4 {
    const KIND: Kind = Kind::Signed;
    #[inline(always)]
    unsafe fn scales<C: Codes>(p: *const u8, count: usize) -> Scales<C::A> {
        // SAFETY: a block is an exponent and 16 bytes.
        unsafe {
            let scales: [f32; RUNS] = std::array::from_fn(|run| match run < count {
                true => quant::mxfp4::scale(*p.add(run * Self::BYTES)),
                false => 0.0,
            });
            Scales::new(C::floats(scales.as_ptr()), C::zero())
        }
    }
    #[inline(always)]
    unsafe fn run<C: Codes>(p: *const u8, run: usize) -> C::B {
        // SAFETY: as above.
        unsafe { C::lookup(&quant::mxfp4::VALUES, C::nibbles(p.add(run * Self::BYTES + 1))) }
    }
}

impl Coded for IQ4XS {
    const KIND: Kind = Kind::Signed;
    #[inline(always)]
    unsafe fn scales<C: Codes>(p: *const u8, _: usize) -> Scales<C::A> {
        // SAFETY: a block is a scale, 16 and then 32 bits of scales, and 8 times 16 bytes as in
        // Q4_0.
        unsafe {
            let d = f16_at::<C>(p);
            let high = u32::from(u16::from_le(p.add(2).cast::<u16>().read_unaligned()));
            let low = word_at(p.add(4));
            let scales: [f32; RUNS] = std::array::from_fn(|run| {
                let scale = (low >> (4 * run) & 15 | (high >> (2 * run) & 3) << 4) as i32 - 32;
                d * scale as f32
            });
            Scales::new(C::floats(scales.as_ptr()), C::zero())
        }
    }
    #[inline(always)]
    unsafe fn run<C: Codes>(p: *const u8, run: usize) -> C::B {
        // SAFETY: as above.
        unsafe { C::lookup(&quant::iq4_nl::VALUES, C::nibbles(p.add(8 + 16 * run))) }
    }
}

/// Separates eight pairs of bytes: returns the first of each, then the second.
#[inline(always)]
fn apart([a, b]: [u64; 2]) -> [u64; 2] {
    // The even bytes of both words, then the odd ones.
    let even = |v: u64| {
        let v = v & 0x00ff_00ff_00ff_00ff;
        let v = (v | v >> 8) & 0x0000_ffff_0000_ffff;
        (v | v >> 16) & 0xffff_ffff
    };
    [even(a) | even(b) << 32, even(a >> 8) | even(b >> 8) << 32]
}

impl Coded for Q2K {
    const KIND: Kind = Kind::Halves;
    #[inline(always)]
    unsafe fn scales<C: Codes>(p: *const u8, _: usize) -> Scales<C::A> {
        // SAFETY: a block is 16 bytes of a scale and a minimum each, 64 bytes of weights and two
        // f16.
        unsafe {
            let (d, dmin) = (C::splat(f16_at::<C>(p.add(80))), C::splat(-f16_at::<C>(p.add(82))));
            let pairs = apart(p.cast::<[u64; 2]>().read_unaligned().map(u64::from_le));
            const LOW: u64 = 0x0f0f_0f0f_0f0f_0f0f;
            Scales {
                scale: pairs.map(|v| C::mul(C::bytes(v & LOW), d)),
                bias: pairs.map(|v| C::mul(C::bytes(v >> 4 & LOW), dmin)),
            }
        }
    }
    #[inline(always)]
    unsafe fn run<C: Codes>(p: *const u8, run: usize) -> C::B {
        // SAFETY: as above. Each half of the block makes four runs.
        unsafe { C::and(C::shr(C::load(p.add(16 + 32 * (run / 4))), 2 * (run as i32 % 4)), 3) }
    }
}

impl Coded for Q3K {
    const KIND: Kind = Kind::Halves;
    #[inline(always)]
    unsafe fn scales<C: Codes>(p: *const u8, _: usize) -> Scales<C::A> {
        // SAFETY: a block is 32 bytes of third bits, 64 of low pairs of bits, 12 of scales and an
        // f16.
        unsafe {
            let d = C::splat(f16_at::<C>(p.add(108)));
            let scales = apart(q3_k_scales(p.add(96)).map(u64::from_le));
            let scale = scales.map(|v| C::mul(C::signed(v), d));
            Scales { scale, bias: scale.map(|s| C::mul(s, C::splat(-4.0))) }
        }
    }
    #[inline(always)]
    unsafe fn run<C: Codes>(p: *const u8, run: usize) -> C::B {
        // SAFETY: as above. Each half of the block makes four runs; bit b of the third bits is of
        // run b.
        unsafe {
            let low = C::and(C::shr(C::load(p.add(32 + 32 * (run / 4))), 2 * (run as i32 % 4)), 3);
            let thirds = C::load(p);
            let third = match run {
                0..2 => C::shl(thirds, 2 - run as i32),
                _ => C::shr(thirds, run as i32 - 2),
            };
            C::or(low, C::and(third, 4))
        }
    }
}

/// Returns the scales `d * sc` and the biases `-dmin * mn` of the 8 runs of a Q4_K or Q5_K block.
///
/// # Safety
/// `p` holds two f16, then 12 bytes.
#[inline(always)]
unsafe fn six_bits<C: Codes>(p: *const u8) -> Scales<C::A> {
    // SAFETY: the caller's contract.
    unsafe {
        let (d, dmin) = (C::splat(f16_at::<C>(p)), C::splat(-f16_at::<C>(p.add(2))));
        let (scales, minima) = q4_k_scales(p.add(4));
        Scales::new(C::mul(C::bytes(scales), d), C::mul(C::bytes(minima), dmin))
    }
}

/// Returns the low or, if `upper` is set, the high nibbles of 32 bytes.
///
/// # Safety
/// `p` holds 32 bytes.
#[inline(always)]
unsafe fn nibbles_of<C: Codes>(p: *const u8, upper: bool) -> C::B {
    // SAFETY: the caller's contract.
    unsafe {
        let q = C::load(p);
        C::and(if upper { C::shr(q, 4) } else { q }, 15)
    }
}

impl Coded for Q4K {
    const KIND: Kind = Kind::Whole;
    #[inline(always)]
    unsafe fn scales<C: Codes>(p: *const u8, _: usize) -> Scales<C::A> {
        // SAFETY: a block is two f16, 12 bytes of scales and minima, and 4 times 32 bytes,
        // whose low nibbles are one run and whose high nibbles the next.
        unsafe { six_bits::<C>(p) }
    }
    #[inline(always)]
    unsafe fn run<C: Codes>(p: *const u8, run: usize) -> C::B {
        // SAFETY: as above.
        unsafe { nibbles_of::<C>(p.add(16 + run / 2 * 32), run % 2 == 1) }
    }
}

impl Coded for Q5K {
    const KIND: Kind = Kind::Whole;
    #[inline(always)]
    unsafe fn scales<C: Codes>(p: *const u8, _: usize) -> Scales<C::A> {
        // SAFETY: as Q4_K, with 32 bytes of fifth bits before the others: bit b of byte l is
        // weight l of run b.
        unsafe { six_bits::<C>(p) }
    }
    #[inline(always)]
    unsafe fn run<C: Codes>(p: *const u8, run: usize) -> C::B {
        // SAFETY: as above.
        unsafe {
            let low = nibbles_of::<C>(p.add(48 + run / 2 * 32), run % 2 == 1);
            let fifths = C::load(p.add(16));
            let fifth = match run {
                0..4 => C::shl(fifths, 4 - run as i32),
                _ => C::shr(fifths, run as i32 - 4),
            };
            C::or(low, C::and(fifth, 16))
        }
    }
}

impl Coded for Q6K {
    const KIND: Kind = Kind::Halves;
    #[inline(always)]
    unsafe fn scales<C: Codes>(p: *const u8, _: usize) -> Scales<C::A> {
        // SAFETY: a block is 128 bytes of low nibbles, 64 bytes of upper pairs of bits, 16 signed
        // scales and an f16.
        unsafe {
            let d = C::splat(f16_at::<C>(p.add(208)));
            let scales = apart(p.add(192).cast::<[u64; 2]>().read_unaligned().map(u64::from_le));
            let scale = scales.map(|v| C::mul(C::signed(v), d));
            Scales { scale, bias: scale.map(|s| C::mul(s, C::splat(-32.0))) }
        }
    }
    #[inline(always)]
    unsafe fn run<C: Codes>(p: *const u8, run: usize) -> C::B {
        // SAFETY: as above. Each half of the block makes four runs.
        unsafe {
            let (half, quarter) = (run / 4, run % 4);
            let low = nibbles_of::<C>(p.add(64 * half + 32 * (quarter % 2)), quarter > 1);
            let high = C::load(p.add(128 + 32 * half));
            let high = match quarter {
                0..2 => C::shl(high, 4 - 2 * quarter as i32),
                _ => C::shr(high, 2 * quarter as i32 - 4),
            };
            C::or(low, C::and(high, 0x30))
        }
    }
}

/// Returns the scale of a ternary block, and the bias that subtracts 1 from its codes.
#[inline(always)]
unsafe fn ternary<C: Codes>(d: f32) -> Scales<C::A> {
    // SAFETY: the caller ensures CPU support.
    unsafe { Scales::new(C::splat(d), C::splat(-d)) }
}

impl Coded for TQ1_0 {
    const KIND: Kind = Kind::Whole;
    const UNIFORM: bool = true;
    #[inline(always)]
    unsafe fn scales<C: Codes>(p: *const u8, _: usize) -> Scales<C::A> {
        // SAFETY: a block is 32 and then 16 bytes of five digits each, 4 bytes of four, an f16.
        unsafe { ternary::<C>(f16_at::<C>(p.add(52))) }
    }
    #[inline(always)]
    unsafe fn run<C: Codes>(p: *const u8, run: usize) -> C::B {
        // SAFETY: as above.
        unsafe {
            let rest = match run {
                0..5 => {
                    let mut rest = C::load(p);
                    for _ in 0..run {
                        rest = C::add(rest, C::add(rest, rest));
                    }
                    rest
                }
                _ => {
                    let tail = run - 5;
                    let mut rest = [0u8; 32];
                    let middle = p.add(32).cast::<[u8; 16]>().read_unaligned();
                    let power = [1u8, 9, 81][tail];
                    rest[..16].copy_from_slice(&middle.map(|v| v.wrapping_mul(power)));
                    if tail < 2 {
                        let next = power.wrapping_mul(3);
                        rest[16..].copy_from_slice(&middle.map(|v| v.wrapping_mul(next)));
                    } else {
                        let last = p.add(48).cast::<[u8; 4]>().read_unaligned();
                        for (n, power) in [1u8, 3, 9, 27].into_iter().enumerate() {
                            let at = 16 + 4 * n;
                            let digits = last.map(|v| v.wrapping_mul(power));
                            rest[at..at + 4].copy_from_slice(&digits);
                        }
                    }
                    C::load(rest.as_ptr())
                }
            };
            // The integer part of three times a fraction of 256.
            C::add(C::at_least(rest, 86), C::at_least(rest, 171))
        }
    }
}

impl Coded for TQ2_0 {
    const KIND: Kind = Kind::Whole;
    const UNIFORM: bool = true;
    #[inline(always)]
    unsafe fn scales<C: Codes>(p: *const u8, _: usize) -> Scales<C::A> {
        // SAFETY: a block is 64 bytes and an f16.
        unsafe { ternary::<C>(f16_at::<C>(p.add(64))) }
    }
    #[inline(always)]
    unsafe fn run<C: Codes>(p: *const u8, run: usize) -> C::B {
        // SAFETY: as above. Each half of the block makes four runs.
        unsafe { C::and(C::shr(C::load(p.add(32 * (run / 4))), 2 * (run as i32 % 4)), 3) }
    }
}

impl Coded for I2S {
    const KIND: Kind = Kind::Whole;
    const UNIFORM: bool = true;
    #[inline(always)]
    unsafe fn scales<C: Codes>(p: *const u8, count: usize) -> Scales<C::A> {
        // SAFETY: a block is a float and 32 bytes; two blocks are eight runs.
        unsafe {
            let d = |block: usize| f32::from_bits(word_at(p.add(block * Self::BYTES)));
            let d = [d(0), d(usize::from(count > 4))];
            let scales: [f32; RUNS] = std::array::from_fn(|run| d[run / 4]);
            let scale = C::floats(scales.as_ptr());
            Scales::new(scale, C::mul(scale, C::splat(-1.0)))
        }
    }
    #[inline(always)]
    unsafe fn run<C: Codes>(p: *const u8, run: usize) -> C::B {
        // SAFETY: as above. The first of four runs lies in the highest bits.
        unsafe {
            let q = C::load(p.add(run / 4 * Self::BYTES + 4));
            C::and(C::shr(q, 6 - 2 * (run as i32 % 4)), 3)
        }
    }
}
