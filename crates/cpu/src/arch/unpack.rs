//! Decodes the blocks of each format in registers; `quant` defines the formats.

use super::Simd;
use super::blocks::{Integers, Packed, Sink};
use super::formats::{
    I2S, IQ4NL, IQ4XS, MXFP4, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0, TQ1_0, TQ2_0,
};
use super::scales::{q3_k_scales, q4_k_scales};
use warploom_core::quant;

#[inline(always)]
unsafe fn f16_at<S: Simd>(p: *const u8) -> f32 {
    // SAFETY: the caller's contract: two bytes.
    unsafe { S::half(p.cast::<u16>().read_unaligned()) }
}

impl Packed for Q4_0 {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is a scale and 16 bytes: weight j in the low, j + 16 in the high nibble.
        unsafe {
            let d = S::splat(f16_at::<S>(p));
            for j in (0..16).step_by(S::LANES) {
                let q = S::load_u8(p.add(2 + j));
                sink.put(j, S::mul(S::to_f32(S::sub(S::and(q, 15), 8)), d));
                sink.put(16 + j, S::mul(S::to_f32(S::sub(S::shr(q, 4), 8)), d));
            }
        }
    }
}

impl Packed for Q4_1 {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is a scale, a minimum and 16 bytes as in Q4_0.
        unsafe {
            let (d, m) = (S::splat(f16_at::<S>(p)), S::splat(f16_at::<S>(p.add(2))));
            for j in (0..16).step_by(S::LANES) {
                let q = S::load_u8(p.add(4 + j));
                sink.put(j, S::fma(S::to_f32(S::and(q, 15)), d, m));
                sink.put(16 + j, S::fma(S::to_f32(S::shr(q, 4)), d, m));
            }
        }
    }
}

impl Packed for Q5_0 {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is a scale, 32 fifth bits, and 16 bytes as in Q4_0.
        unsafe {
            let d = S::splat(f16_at::<S>(p));
            let fifths = spread(p.add(2).cast::<u32>().read_unaligned());
            let high = |at: usize| S::shl(S::load_u8(fifths.as_ptr().cast::<u8>().add(at)), 4);
            for j in (0..16).step_by(S::LANES) {
                let q = S::load_u8(p.add(6 + j));
                let (near, far) =
                    (S::or(S::and(q, 15), high(j)), S::or(S::shr(q, 4), high(16 + j)));
                sink.put(j, S::mul(S::to_f32(S::sub(near, 16)), d));
                sink.put(16 + j, S::mul(S::to_f32(S::sub(far, 16)), d));
            }
        }
    }
}

impl Packed for Q5_1 {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is a scale, a minimum, 32 fifth bits, and 16 bytes as in Q4_0.
        unsafe {
            let (d, m) = (S::splat(f16_at::<S>(p)), S::splat(f16_at::<S>(p.add(2))));
            let fifths = spread(p.add(4).cast::<u32>().read_unaligned());
            let high = |at: usize| S::shl(S::load_u8(fifths.as_ptr().cast::<u8>().add(at)), 4);
            for j in (0..16).step_by(S::LANES) {
                let q = S::load_u8(p.add(8 + j));
                let (near, far) =
                    (S::or(S::and(q, 15), high(j)), S::or(S::shr(q, 4), high(16 + j)));
                sink.put(j, S::fma(S::to_f32(near), d, m));
                sink.put(16 + j, S::fma(S::to_f32(far), d, m));
            }
        }
    }
}

/// Expands 32 bits to 32 bytes of 0 or 1, the lowest bit first.
#[inline(always)]
fn spread(bits: u32) -> [u64; 4] {
    u32::from_le(bits).to_le_bytes().map(|byte| {
        // Seven copies of seven bits, shifted by seven each, do not overlap.
        let low = (u64::from(byte & 127) * 0x0002_0408_1020_4081) & 0x0101_0101_0101_0101;
        (low | u64::from(byte >> 7) << 56).to_le()
    })
}

impl Packed for Q8_0 {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is a scale and 32 signed bytes.
        unsafe {
            let d = S::splat(f16_at::<S>(p));
            for j in (0..32).step_by(S::LANES) {
                sink.put(j, S::mul(S::to_f32(S::load_i8(p.add(2 + j))), d));
            }
        }
    }
}

impl Packed for Q4K {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is two f16, 12 bytes of scales and minima, and 4 times 32 bytes,
        // whose low nibbles are one sub-block of 32 and whose high nibbles the next.
        unsafe {
            let [scales, minima] = six_bits::<S>(p);
            for pair in 0..4 {
                let (d0, m0) = (S::splat(scales[2 * pair]), S::splat(minima[2 * pair]));
                let (d1, m1) = (S::splat(scales[2 * pair + 1]), S::splat(minima[2 * pair + 1]));
                for j in (0..32).step_by(S::LANES) {
                    let q = S::load_u8(p.add(16 + pair * 32 + j));
                    sink.put(pair * 64 + j, S::fma(S::to_f32(S::and(q, 15)), d0, m0));
                    sink.put(pair * 64 + 32 + j, S::fma(S::to_f32(S::shr(q, 4)), d1, m1));
                }
            }
        }
    }
}

impl Packed for Q5K {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: as Q4_K, with 32 bytes of fifth bits before the others: bit b of byte l is
        // weight l of sub-block b.
        unsafe {
            let [scales, minima] = six_bits::<S>(p);
            for pair in 0..4 {
                let (d0, m0) = (S::splat(scales[2 * pair]), S::splat(minima[2 * pair]));
                let (d1, m1) = (S::splat(scales[2 * pair + 1]), S::splat(minima[2 * pair + 1]));
                for j in (0..32).step_by(S::LANES) {
                    let q = S::load_u8(p.add(48 + pair * 32 + j));
                    // The bits of this pair, in the lowest position.
                    let h = S::shr(S::load_u8(p.add(16 + j)), 2 * pair as i32);
                    let q0 = S::or(S::and(q, 15), S::and(S::shl(h, 4), 16));
                    let q1 = S::or(S::shr(q, 4), S::and(S::shl(h, 3), 16));
                    sink.put(pair * 64 + j, S::fma(S::to_f32(q0), d0, m0));
                    sink.put(pair * 64 + 32 + j, S::fma(S::to_f32(q1), d1, m1));
                }
            }
        }
    }
}

/// Returns the scales `d * sc` and the minima `-dmin * mn` of the 8 sub-blocks of a Q4_K or Q5_K
/// block.
///
/// # Safety
/// `p` must point to a block, and the CPU must support the instructions of `S`.
#[inline(always)]
unsafe fn six_bits<S: Integers>(p: *const u8) -> [[f32; 8]; 2] {
    // SAFETY: the caller's contract: two f16, then 12 bytes.
    unsafe {
        let (d, dmin) = (f16_at::<S>(p), f16_at::<S>(p.add(2)));
        let (scales, minima) = q4_k_scales(p.add(4));
        let all = sixteen::<S>(&[scales.to_le(), minima.to_le()], 1.0, false);
        std::array::from_fn(|which| {
            let factor = if which == 0 { d } else { -dmin };
            std::array::from_fn(|b| factor * all[8 * which + b])
        })
    }
}

impl Packed for Q2K {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is 16 bytes of a scale and a minimum each, 64 bytes of weights and two
        // f16. Each half of the block makes four runs of 32 weights.
        unsafe {
            let (d, dmin) = (f16_at::<S>(p.add(80)), f16_at::<S>(p.add(82)));
            let pairs = p.cast::<[u64; 2]>().read_unaligned();
            const LOW: u64 = 0x0f0f_0f0f_0f0f_0f0f;
            let scales = sixteen::<S>(&pairs.map(|v| v & LOW), d, false);
            let minima = sixteen::<S>(&pairs.map(|v| (v >> 4) & LOW), -dmin, false);
            for half in 0..2 {
                for j in (0..32).step_by(S::LANES) {
                    let q = S::load_u8(p.add(16 + 32 * half + j));
                    for run in 0..4 {
                        let b = 8 * half + 2 * run + j / 16;
                        let (scale, minimum) = (S::splat(scales[b]), S::splat(minima[b]));
                        let q = S::to_f32(S::and(S::shr(q, 2 * run as i32), 3));
                        sink.put(128 * half + 32 * run + j, S::fma(q, scale, minimum));
                    }
                }
            }
        }
    }
}

impl Packed for Q3K {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is 32 bytes of third bits, 64 of low pairs of bits, 12 of scales and an
        // f16. Each half of the block makes four runs of 32 weights.
        unsafe {
            let scales = q3_k_scales(p.add(96));
            let factors = sixteen::<S>(&scales, f16_at::<S>(p.add(108)), true);
            for half in 0..2 {
                for j in (0..32).step_by(S::LANES) {
                    let low = S::load_u8(p.add(32 + 32 * half + j));
                    let third = S::shr(S::load_u8(p.add(j)), 4 * half as i32);
                    for run in 0..4 {
                        let scale = S::splat(factors[8 * half + 2 * run + j / 16]);
                        let low = S::and(S::shr(low, 2 * run as i32), 3);
                        let third = S::and(S::shl(S::shr(third, run as i32), 2), 4);
                        let q = S::sub(S::or(low, third), 4);
                        sink.put(128 * half + 32 * run + j, S::mul(S::to_f32(q), scale));
                    }
                }
            }
        }
    }
}

/// Converts sixteen bytes, signed or unsigned, to floats and multiplies them by `factor`.
///
/// # Safety
/// The CPU must support the instructions of `S`.
#[inline(always)]
unsafe fn sixteen<S: Integers>(bytes: &[u64; 2], factor: f32, signed: bool) -> [f32; 16] {
    let mut floats = [0.0; 16];
    for j in (0..16).step_by(S::LANES) {
        // SAFETY: j + LANES is at most 16, as LANES divides it.
        unsafe {
            let from = bytes.as_ptr().cast::<u8>().add(j);
            let v = if signed { S::load_i8(from) } else { S::load_u8(from) };
            S::store(floats.as_mut_ptr().add(j), S::mul(S::to_f32(v), S::splat(factor)));
        }
    }
    floats
}

impl Packed for Q6K {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is 128 bytes of low nibbles, 64 bytes of upper pairs of bits, 16 signed
        // scales and an f16. Each half of the block makes four runs of 32 weights.
        unsafe {
            let scales = p.add(192).cast::<[u64; 2]>().read_unaligned();
            let factors = sixteen::<S>(&scales, f16_at::<S>(p.add(208)), true);
            for half in 0..2 {
                let (ql, qh) = (p.add(64 * half), p.add(128 + 32 * half));
                for j in (0..32).step_by(S::LANES) {
                    let scale = |run: usize| S::splat(factors[8 * half + 2 * run + j / 16]);
                    let (l0, l1) = (S::load_u8(ql.add(j)), S::load_u8(ql.add(32 + j)));
                    let h = S::load_u8(qh.add(j));
                    let q0 = S::or(S::and(l0, 15), S::and(S::shl(h, 4), 0x30));
                    let q1 = S::or(S::and(l1, 15), S::and(S::shl(h, 2), 0x30));
                    let q2 = S::or(S::shr(l0, 4), S::and(h, 0x30));
                    let q3 = S::or(S::shr(l1, 4), S::and(S::shr(h, 2), 0x30));
                    let at = 128 * half + j;
                    sink.put(at, S::mul(S::to_f32(S::sub(q0, 32)), scale(0)));
                    sink.put(at + 32, S::mul(S::to_f32(S::sub(q1, 32)), scale(1)));
                    sink.put(at + 64, S::mul(S::to_f32(S::sub(q2, 32)), scale(2)));
                    sink.put(at + 96, S::mul(S::to_f32(S::sub(q3, 32)), scale(3)));
                }
            }
        }
    }
}

impl Packed for IQ4NL {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is a scale and 16 bytes as in Q4_0.
        unsafe { table_of_32(f16_at::<S>(p), &quant::iq4_nl::VALUES, p.add(2), 0, sink) }
    }
}

impl Packed for MXFP4 {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is an exponent and 16 bytes as in Q4_0.
        unsafe {
            table_of_32(quant::mxfp4::scale(*p), &quant::mxfp4::VALUES, p.add(1), 0, sink);
        }
    }
}

impl Packed for IQ4XS {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is a scale, 16 and then 32 bits of scales, and 8 times 16 bytes as in
        // Q4_0.
        unsafe {
            let d = f16_at::<S>(p);
            let high = u32::from(u16::from_le(p.add(2).cast::<u16>().read_unaligned()));
            let low = u32::from_le(p.add(4).cast::<u32>().read_unaligned());
            for b in 0..8 {
                let scale = (low >> (4 * b) & 15 | (high >> (2 * b) & 3) << 4) as i32 - 32;
                let from = p.add(8 + 16 * b);
                table_of_32(d * scale as f32, &quant::iq4_nl::VALUES, from, 32 * b, sink);
            }
        }
    }
}

/// Decodes 32 weights, from index `at` on, from 16 bytes of two table indices each: the table's
/// values times `d`.
///
/// # Safety
/// `p` holds 16 bytes; [`Sink::put`] may be called for 32 weights from `at` on.
#[inline(always)]
unsafe fn table_of_32<S: Integers>(
    d: f32,
    table: &[i8; 16],
    p: *const u8,
    at: usize,
    sink: &mut impl Sink<S>,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let d = S::splat(d);
        for j in (0..16).step_by(S::LANES) {
            let q = S::load_u8(p.add(j));
            sink.put(at + j, S::mul(S::lookup(table, S::and(q, 15)), d));
            sink.put(at + 16 + j, S::mul(S::lookup(table, S::shr(q, 4)), d));
        }
    }
}

impl Packed for TQ1_0 {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is 32 and then 16 bytes of five digits each, 4 bytes of four, an f16.
        unsafe {
            let d = S::splat(f16_at::<S>(p.add(52)));
            // The first digit of the lowest byte.
            let digit = |rest| {
                let digit = S::shr(S::times(S::and(rest, 255), 3), 8);
                S::mul(S::to_f32(S::sub(digit, 1)), d)
            };
            for n in 0..5 {
                let power = 3i32.pow(n as u32);
                for j in (0..32).step_by(S::LANES) {
                    let rest = S::times(S::load_u8(p.add(j)), power);
                    sink.put(32 * n + j, digit(rest));
                }
                for j in (0..16).step_by(S::LANES) {
                    let rest = S::times(S::load_u8(p.add(32 + j)), power);
                    sink.put(160 + 16 * n + j, digit(rest));
                }
            }
            let last = p.add(48).cast::<[u8; 4]>().read_unaligned();
            let powers = [1u8, 3, 9, 27].map(|power| last.map(|byte| byte.wrapping_mul(power)));
            for j in (0..16).step_by(S::LANES) {
                sink.put(240 + j, digit(S::load_u8(powers.as_ptr().cast::<u8>().add(j))));
            }
        }
    }
}

impl Packed for TQ2_0 {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is 64 bytes and an f16. Each half of it makes four runs of 32 weights.
        unsafe {
            let d = S::splat(f16_at::<S>(p.add(64)));
            for half in 0..2 {
                for j in (0..32).step_by(S::LANES) {
                    let q = S::load_u8(p.add(32 * half + j));
                    for run in 0..4 {
                        let q = S::sub(S::and(S::shr(q, 2 * run as i32), 3), 1);
                        sink.put(128 * half + 32 * run + j, S::mul(S::to_f32(q), d));
                    }
                }
            }
        }
    }
}

impl Packed for I2S {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is a float and 32 bytes, which make four runs of 32 weights, the first
        // in the highest bits.
        unsafe {
            let bits = u32::from_le(p.cast::<u32>().read_unaligned());
            let d = S::splat(f32::from_bits(bits));
            for j in (0..32).step_by(S::LANES) {
                let q = S::load_u8(p.add(4 + j));
                for run in 0..4 {
                    let q = S::sub(S::and(S::shr(q, 6 - 2 * run as i32), 3), 1);
                    sink.put(32 * run + j, S::mul(S::to_f32(q), d));
                }
            }
        }
    }
}
