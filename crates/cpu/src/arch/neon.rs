//! NEON: vectors of four f32, thirty-two registers.

use std::arch::aarch64::*;

use super::blocks::{Blocks, Integers};

/// Vectors of four f32 values.
pub(super) struct Neon;

impl Simd for Neon {
    const LANES: usize = 4;
    const REGISTERS: usize = 32;
    type F = float32x4_t;
    #[inline(always)]
    unsafe fn splat(v: f32) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { vdupq_n_f32(v) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { vld1q_f32(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::F) {
        // SAFETY: the contract of `Simd`.
        unsafe { vst1q_f32(p, v) }
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { vaddq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { vfmaq_f32(c, a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the contract of `Simd`. If one operand is NaN, this instruction returns the
        // other.
        unsafe { vmaxnmq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn sum(v: Self::F) -> f32 {
        // SAFETY: the contract of `Simd`.
        unsafe { vaddvq_f32(v) }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> Self::F {
        // SAFETY: the contract of `Simd`: four f16. The conversion is part of base NEON on
        // 64-bit ARM; `half` knows it and reads no detection flag in a loop.
        unsafe {
            let bits = p.cast::<[u16; 4]>().read_unaligned();
            let wide: [f32; 4] = std::array::from_fn(|i| half::f16::from_bits(bits[i]).to_f32());
            vld1q_f32(wide.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> Self::F {
        // SAFETY: the contract of `Simd`: four bf16.
        unsafe {
            let bits = vcreate_u16(p.cast::<u64>().read_unaligned());
            vreinterpretq_f32_u32(vshlq_n_u32::<16>(vmovl_u16(bits)))
        }
    }
    #[inline(always)]
    unsafe fn half(bits: u16) -> f32 {
        half::f16::from_bits(bits).to_f32()
    }
}

impl Integers for Neon {
    type I = int32x4_t;
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> Self::I {
        // SAFETY: the contract of `Simd`: four bytes.
        unsafe {
            let four = vcreate_u8(u64::from(p.cast::<u32>().read_unaligned()));
            vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(four))))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> Self::I {
        // SAFETY: the contract of `Simd`: four bytes.
        unsafe {
            let four = vcreate_s8(u64::from(p.cast::<u32>().read_unaligned()));
            vmovl_s16(vget_low_s16(vmovl_s8(four)))
        }
    }
    #[inline(always)]
    unsafe fn and(a: Self::I, mask: i32) -> Self::I {
        // SAFETY: the contract of `Simd`.
        unsafe { vandq_s32(a, vdupq_n_s32(mask)) }
    }
    #[inline(always)]
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: the contract of `Simd`.
        unsafe { vorrq_s32(a, b) }
    }
    #[inline(always)]
    unsafe fn shr(a: Self::I, bits: i32) -> Self::I {
        // SAFETY: the contract of `Simd`. A right shift is a left shift by a negative count.
        unsafe { vshlq_s32(a, vdupq_n_s32(-bits)) }
    }
    #[inline(always)]
    unsafe fn shl(a: Self::I, bits: i32) -> Self::I {
        // SAFETY: the contract of `Simd`.
        unsafe { vshlq_s32(a, vdupq_n_s32(bits)) }
    }
    #[inline(always)]
    unsafe fn sub(a: Self::I, b: i32) -> Self::I {
        // SAFETY: the contract of `Simd`.
        unsafe { vsubq_s32(a, vdupq_n_s32(b)) }
    }
    #[inline(always)]
    unsafe fn times(a: Self::I, b: i32) -> Self::I {
        // SAFETY: the contract of `Simd`.
        unsafe { vmulq_s32(a, vdupq_n_s32(b)) }
    }
    #[inline(always)]
    unsafe fn lookup(table: &[i8; 16], at: Self::I) -> Self::F {
        // SAFETY: the contract of `Simd`. The lowest byte of each lane is the index, the others are
        // 0; of the bytes found, only the lowest is kept, with its sign.
        unsafe {
            let found = vqtbl1q_s8(vld1q_s8(table.as_ptr()), vreinterpretq_u8_s32(at));
            let found = vshlq_n_s32::<24>(vreinterpretq_s32_s8(found));
            vcvtq_f32_s32(vshrq_n_s32::<24>(found))
        }
    }
    #[inline(always)]
    unsafe fn to_f32(v: Self::I) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { vcvtq_f32_s32(v) }
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { vmulq_f32(a, b) }
    }
}

super::instantiate!(
    "neon",
    Neon,
    Blocks,
    registers,
    [#[target_feature(enable = "neon")]],
    [4, 4, 4, 4, 2]
);
