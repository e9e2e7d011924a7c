//! AVX-512 (F, BW, VL, DQ): vectors of sixteen f32, thirty-two registers.

use std::arch::x86_64::*;

use super::blocks::{Blocks, Integers};

/// Vectors of sixteen f32 values.
pub(super) struct Avx512;

impl Simd for Avx512 {
    const LANES: usize = 16;
    const REGISTERS: usize = 32;
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
        // SAFETY: the contract of `Simd`. If one operand is NaN, the second is returned.
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sum(v: Self::F) -> f32 {
        // SAFETY: the contract of `Simd`.
        unsafe {
            let v = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehdup_ps(v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehl_ps(v, v)))
        }
    }
    #[inline(always)]
    unsafe fn sums(v: &[Self::F], out: &mut [f32]) {
        let (whole, rest) = v.as_chunks::<16>();
        let (whole_out, rest_out) = out.as_chunks_mut::<16>();
        for (v, out) in whole.iter().zip(whole_out) {
            // SAFETY: the contract of `Simd`.
            unsafe { _mm512_storeu_ps(out.as_mut_ptr(), sums_of_sixteen(v)) };
        }
        for (v, out) in rest.iter().zip(rest_out) {
            // SAFETY: the contract of `Simd`.
            *out = unsafe { Self::sum(*v) };
        }
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

/// Computes sixteen horizontal sums, one per lane. Each of four rounds merges pairs of vectors and
/// adds pairs of lanes.
///
/// # Safety
/// The contract of [`Simd`].
#[inline(always)]
unsafe fn sums_of_sixteen(v: &[__m512; 16]) -> __m512 {
    // SAFETY: the contract of `Simd`; arithmetic on registers.
    unsafe {
        let zero = _mm512_setzero_ps();
        let (mut a, mut b, mut c) = ([zero; 8], [zero; 4], [zero; 2]);
        for i in 0..8 {
            let (x, y) = (v[2 * i], v[2 * i + 1]);
            a[i] = _mm512_add_ps(
                _mm512_shuffle_f32x4::<0x44>(x, y),
                _mm512_shuffle_f32x4::<0xee>(x, y),
            );
        }
        for i in 0..4 {
            let (x, y) = (a[2 * i], a[2 * i + 1]);
            b[i] = _mm512_add_ps(
                _mm512_shuffle_f32x4::<0x88>(x, y),
                _mm512_shuffle_f32x4::<0xdd>(x, y),
            );
        }
        for i in 0..2 {
            let (x, y) = (b[2 * i], b[2 * i + 1]);
            c[i] = _mm512_add_ps(_mm512_shuffle_ps::<0x88>(x, y), _mm512_shuffle_ps::<0xdd>(x, y));
        }
        let sums = _mm512_add_ps(
            _mm512_shuffle_ps::<0x88>(c[0], c[1]),
            _mm512_shuffle_ps::<0xdd>(c[0], c[1]),
        );
        // Lane 4 l + e is vector 4 e + l.
        let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        _mm512_permutexvar_ps(order, sums)
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
    [16, 4, 4, 4, 2]
);
