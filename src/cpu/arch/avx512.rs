//! AVX-512 (F, BW, VL, DQ): sixteen numbers, thirty-two registers.

use std::arch::x86_64::*;

use super::blocks::{Blocks, Integers};

/// Sixteen numbers.
pub(super) struct Avx512;

impl Simd for Avx512 {
    const LANES: usize = 16;
    type F = __m512;
    #[inline(always)]
    unsafe fn splat(v: f32) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm512_set1_ps(v) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::F) {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the contract of `Simd`. The second operand is taken where one is NaN.
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sum(v: Self::F) -> f32 {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm512_reduce_add_ps(v) }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn half(bits: u16) -> f32 {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits)))) }
    }
}

impl Integers for Avx512 {
    type I = __m512i;
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> Self::I {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> Self::I {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn and(a: Self::I, mask: i32) -> Self::I {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm512_and_si512(a, _mm512_set1_epi32(mask)) }
    }
    #[inline(always)]
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn shr(a: Self::I, bits: i32) -> Self::I {
        // SAFETY: the contract of `Simd`. A constant count becomes an immediate one.
        unsafe { _mm512_srlv_epi32(a, _mm512_set1_epi32(bits)) }
    }
    #[inline(always)]
    unsafe fn shl(a: Self::I, bits: i32) -> Self::I {
        // SAFETY: as for `shr`.
        unsafe { _mm512_sllv_epi32(a, _mm512_set1_epi32(bits)) }
    }
    #[inline(always)]
    unsafe fn sub(a: Self::I, b: i32) -> Self::I {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm512_sub_epi32(a, _mm512_set1_epi32(b)) }
    }
    #[inline(always)]
    unsafe fn times(a: Self::I, b: i32) -> Self::I {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm512_mullo_epi32(a, _mm512_set1_epi32(b)) }
    }
    #[inline(always)]
    unsafe fn lookup(table: &[i8; 16], at: Self::I) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe {
            let wide = _mm512_cvtepi8_epi32(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_permutexvar_ps(at, _mm512_cvtepi32_ps(wide))
        }
    }
    #[inline(always)]
    unsafe fn to_f32(v: Self::I) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm512_cvtepi32_ps(v) }
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm512_mul_ps(a, b) }
    }
}

super::instantiate!(
    "avx512",
    Avx512,
    Blocks,
    registers,
    [#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]],
    [4, 4, 4, 2]
);
