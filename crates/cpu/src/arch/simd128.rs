//! WebAssembly's vectors of four f32. A module has them everywhere or not at all, so that their
//! instructions need no detection.

use std::arch::wasm32::*;

use super::blocks::{Blocks, Integers};

/// Vectors of four f32 values.
pub(super) struct Simd128;

impl Simd for Simd128 {
    const LANES: usize = 4;
    const REGISTERS: usize = 16;
    type F = v128;
    #[inline(always)]
    unsafe fn splat(v: f32) -> v128 {
        f32x4_splat(v)
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> v128 {
        // SAFETY: the contract of `Simd`.
        unsafe { v128_load(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: v128) {
        // SAFETY: the contract of `Simd`.
        unsafe { v128_store(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn add(a: v128, b: v128) -> v128 {
        f32x4_add(a, b)
    }
    #[inline(always)]
    unsafe fn fma(a: v128, b: v128, c: v128) -> v128 {
        // Rounds twice: only relaxed SIMD has a fused multiply-add.
        f32x4_add(f32x4_mul(a, b), c)
    }
    #[inline(always)]
    unsafe fn max(a: v128, b: v128) -> v128 {
        // The comparison is false for NaN.
        v128_bitselect(a, b, f32x4_gt(a, b))
    }
    #[inline(always)]
    unsafe fn sum(v: v128) -> f32 {
        let v = f32x4_add(v, i32x4_shuffle::<2, 3, 0, 1>(v, v));
        f32x4_extract_lane::<0>(v) + f32x4_extract_lane::<1>(v)
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> v128 {
        // SAFETY: the contract of `Simd`: four f16.
        let bits = unsafe { i32x4_load_extend_u16x4(p.cast()) };
        // Exponent and fraction move to the place that f32 has for them, and the exponent's bias
        // follows by a product, which is exact for subnormal numbers too.
        let magnitude = i32x4_shl(v128_and(bits, i32x4_splat(0x7fff)), 13);
        let scaled = f32x4_mul(magnitude, f32x4_splat(f32::from_bits((254 - 15) << 23)));
        // Infinities and NaNs keep their largest exponent.
        let special = i32x4_ge(magnitude, i32x4_splat(0x7c00 << 13));
        let scaled = v128_or(scaled, v128_and(special, i32x4_splat(0xff << 23)));
        v128_or(scaled, i32x4_shl(v128_and(bits, i32x4_splat(0x8000)), 16))
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> v128 {
        // SAFETY: the contract of `Simd`: four bf16.
        i32x4_shl(unsafe { i32x4_load_extend_u16x4(p.cast()) }, 16)
    }
    #[inline(always)]
    unsafe fn half(bits: u16) -> f32 {
        half::f16::from_bits(bits).to_f32()
    }
}

impl Integers for Simd128 {
    type I = v128;
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> v128 {
        // SAFETY: the contract of `Simd`: four bytes.
        let four = unsafe { v128_load32_zero(p.cast()) };
        u32x4_extend_low_u16x8(u16x8_extend_low_u8x16(four))
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> v128 {
        // SAFETY: the contract of `Simd`: four bytes.
        let four = unsafe { v128_load32_zero(p.cast()) };
        i32x4_extend_low_i16x8(i16x8_extend_low_i8x16(four))
    }
    #[inline(always)]
    unsafe fn and(a: v128, mask: i32) -> v128 {
        v128_and(a, i32x4_splat(mask))
    }
    #[inline(always)]
    unsafe fn or(a: v128, b: v128) -> v128 {
        v128_or(a, b)
    }
    #[inline(always)]
    unsafe fn shr(a: v128, bits: i32) -> v128 {
        i32x4_shr(a, bits as u32)
    }
    #[inline(always)]
    unsafe fn shl(a: v128, bits: i32) -> v128 {
        i32x4_shl(a, bits as u32)
    }
    #[inline(always)]
    unsafe fn sub(a: v128, b: i32) -> v128 {
        i32x4_sub(a, i32x4_splat(b))
    }
    #[inline(always)]
    unsafe fn times(a: v128, b: i32) -> v128 {
        i32x4_mul(a, i32x4_splat(b))
    }
    #[inline(always)]
    unsafe fn lookup(table: &[i8; 16], at: v128) -> v128 {
        // SAFETY: the table has 16 bytes.
        let table = unsafe { v128_load(table.as_ptr().cast()) };
        // The lowest byte of each lane is the index, the others are 0; of the bytes found, only the
        // lowest is kept, with its sign.
        let found = i32x4_shl(i8x16_swizzle(table, at), 24);
        f32x4_convert_i32x4(i32x4_shr(found, 24))
    }
    #[inline(always)]
    unsafe fn to_f32(v: v128) -> v128 {
        f32x4_convert_i32x4(v)
    }
    #[inline(always)]
    unsafe fn mul(a: v128, b: v128) -> v128 {
        f32x4_mul(a, b)
    }
}

super::instantiate!("simd128", Simd128, Blocks, registers, [], [4, 4, 2, 2, 1]);
