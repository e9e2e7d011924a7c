//! AVX2 with FMA and F16C: vectors of eight f32, sixteen registers.

use std::arch::x86_64::*;

use super::blocks::{Blocks, Integers};

/// Vectors of eight f32 values.
pub(super) struct Avx2;

impl Simd for Avx2 {
    const LANES: usize = 8;
    const REGISTERS: usize = 16;
    type F = __m256;
    #[inline(always)]
    unsafe fn splat(v: f32) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm256_set1_ps(v) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::F) {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm256_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the contract of `Simd`. If one operand is NaN, the second is returned.
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sum(v: Self::F) -> f32 {
        // SAFETY: the contract of `Simd`.
        unsafe {
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehdup_ps(v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehl_ps(v, v)))
        }
    }
    #[inline(always)]
    unsafe fn sums(v: &[Self::F], out: &mut [f32]) {
        let (whole, rest) = v.as_chunks::<8>();
        let (whole_out, rest_out) = out.as_chunks_mut::<8>();
        for (v, out) in whole.iter().zip(whole_out) {
            // SAFETY: the contract of `Simd`.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr(), sums_of_eight(v)) };
        }
        for (v, out) in rest.iter().zip(rest_out) {
            // SAFETY: the contract of `Simd`.
            *out = unsafe { Self::sum(*v) };
        }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn half(bits: u16) -> f32 {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits)))) }
    }
}

/// Computes eight horizontal sums, one per lane. Each of three rounds merges pairs of vectors and
/// adds pairs of lanes.
///
/// # Safety
/// The contract of [`Simd`].
#[inline(always)]
unsafe fn sums_of_eight(v: &[__m256; 8]) -> __m256 {
    // SAFETY: the contract of `Simd`; arithmetic on registers.
    unsafe {
        let zero = _mm256_setzero_ps();
        let (mut a, mut b) = ([zero; 4], [zero; 2]);
        for i in 0..4 {
            // Pairing vectors i and i + 4 leaves the lanes in order.
            let (x, y) = (v[i], v[i + 4]);
            a[i] = _mm256_add_ps(
                _mm256_permute2f128_ps::<0x20>(x, y),
                _mm256_permute2f128_ps::<0x31>(x, y),
            );
        }
        for i in 0..2 {
            b[i] = _mm256_hadd_ps(a[2 * i], a[2 * i + 1]);
        }
        _mm256_hadd_ps(b[0], b[1])
    }
}

impl Integers for Avx2 {
    type I = __m256i;
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> Self::I {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> Self::I {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast())) }
    }
    #[inline(always)]
    unsafe fn and(a: Self::I, mask: i32) -> Self::I {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm256_and_si256(a, _mm256_set1_epi32(mask)) }
    }
    #[inline(always)]
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm256_or_si256(a, b) }
    }
    #[inline(always)]
    unsafe fn shr(a: Self::I, bits: i32) -> Self::I {
        // SAFETY: the contract of `Simd`. A constant count becomes an immediate one.
        unsafe { _mm256_srlv_epi32(a, _mm256_set1_epi32(bits)) }
    }
    #[inline(always)]
    unsafe fn shl(a: Self::I, bits: i32) -> Self::I {
        // SAFETY: as for `shr`.
        unsafe { _mm256_sllv_epi32(a, _mm256_set1_epi32(bits)) }
    }
    #[inline(always)]
    unsafe fn sub(a: Self::I, b: i32) -> Self::I {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm256_sub_epi32(a, _mm256_set1_epi32(b)) }
    }
    #[inline(always)]
    unsafe fn times(a: Self::I, b: i32) -> Self::I {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm256_mullo_epi32(a, _mm256_set1_epi32(b)) }
    }
    #[inline(always)]
    unsafe fn lookup(table: &[i8; 16], at: Self::I) -> Self::F {
        // SAFETY: the contract of `Simd`. Both halves of the table are looked up; bit 3 of the
        // index, moved to the sign, selects one.
        unsafe {
            let bytes = table.as_ptr();
            let low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(bytes.cast())));
            let high = bytes.add(8).cast();
            let high = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(high)));
            let choice = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(at));
            let low = _mm256_permutevar8x32_ps(low, at);
            _mm256_blendv_ps(low, _mm256_permutevar8x32_ps(high, at), choice)
        }
    }
    #[inline(always)]
    unsafe fn to_f32(v: Self::I) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm256_cvtepi32_ps(v) }
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the contract of `Simd`.
        unsafe { _mm256_mul_ps(a, b) }
    }
}

super::instantiate!(
    "avx2",
    Avx2,
    Blocks,
    registers,
    [#[target_feature(enable = "avx2,fma,f16c")]],
    [8, 4, 2, 2, 1]
);
