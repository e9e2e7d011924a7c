//! Int8 products in AVX2 (with FMA and F16C), and with the AVX-512 VNNI instruction.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::gemm_panels::{IntTiles, Lanes, product};
use super::gemv;
use super::staged::Packing;
use super::{Codes, IntProduct};

/// Operations on 32 bytes for which AVX-512 has better instructions.
pub(super) trait Extra {
    /// Sums products of unsigned bytes up to 127 and signed bytes, four per lane.
    ///
    /// # Safety
    /// The CPU must support the instructions of the implementing type.
    unsafe fn products(w: __m256i, x: __m256i) -> __m256i;
    /// Same as [`Codes::some`].
    ///
    /// # Safety
    /// The contract of [`Codes`].
    unsafe fn some(p: *const f32, count: usize) -> __m256;
    /// Loads `count` 32-bit words, `stride` bytes apart, padded with zeros.
    ///
    /// # Safety
    /// The contract of [`Codes`]; there are four bytes at each place.
    unsafe fn words(p: *const u8, stride: usize, count: usize) -> __m256i;
    /// Same as [`Codes::with`].
    ///
    /// # Safety
    /// The contract of [`Codes`].
    unsafe fn with(a: __m256i, bits: u32, value: u8) -> __m256i;
}

/// AVX2: sums pairs of products in 16 bits, which hold 2 * 128 * 127, then pairs of these sums.
pub(super) struct Pairs;
/// VNNI: sums four products in one instruction.
pub(super) struct Quads;

/// Returns the mask of the first `count` of eight lanes.
///
/// # Safety
/// The CPU must support AVX2.
#[inline(always)]
unsafe fn first(count: usize) -> __m256i {
    // SAFETY: the caller's contract.
    unsafe {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), lanes)
    }
}

impl Extra for Pairs {
    #[inline(always)]
    unsafe fn products(w: __m256i, x: __m256i) -> __m256i {
        // SAFETY: the contract of `Extra`.
        unsafe { _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)) }
    }
    #[inline(always)]
    unsafe fn some(p: *const f32, count: usize) -> __m256 {
        // SAFETY: the contract of `Extra`.
        unsafe { _mm256_maskload_ps(p, first(count)) }
    }
    #[inline(always)]
    unsafe fn words(p: *const u8, stride: usize, count: usize) -> __m256i {
        // SAFETY: the contract of `Extra`.
        unsafe {
            let places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let places = _mm256_mullo_epi32(places, _mm256_set1_epi32(stride as i32));
            let none = _mm256_setzero_si256();
            _mm256_mask_i32gather_epi32::<1>(none, p.cast(), places, first(count))
        }
    }
    #[inline(always)]
    unsafe fn with(a: __m256i, bits: u32, value: u8) -> __m256i {
        // SAFETY: the contract of `Extra`. Copies each byte of bits to eight bytes, which test a
        // bit each.
        unsafe {
            let places = _mm256_setr_epi64x(
                0,
                0x0101_0101_0101_0101,
                0x0202_0202_0202_0202,
                0x0303_0303_0303_0303,
            );
            let spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits.cast_signed()), places);
            let one = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
            let set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, one), one);
            let value = _mm256_set1_epi8(value.cast_signed());
            _mm256_or_si256(a, _mm256_and_si256(set, value))
        }
    }
}

impl Extra for Quads {
    #[inline(always)]
    unsafe fn products(w: __m256i, x: __m256i) -> __m256i {
        // SAFETY: the contract of `Extra`.
        unsafe { _mm256_dpbusd_epi32(_mm256_setzero_si256(), w, x) }
    }
    #[inline(always)]
    unsafe fn some(p: *const f32, count: usize) -> __m256 {
        // SAFETY: the contract of `Extra`.
        unsafe { _mm256_maskz_loadu_ps(0xff >> (8 - count), p) }
    }
    #[inline(always)]
    unsafe fn words(p: *const u8, stride: usize, count: usize) -> __m256i {
        // SAFETY: the contract of `Extra`. Loads one word after another: a gather is slower on many
        // processors.
        unsafe {
            let mut words = _mm256_setzero_si256();
            for i in 0..count {
                let word = p.add(i * stride).cast::<i32>().read_unaligned();
                words = _mm256_mask_set1_epi32(words, 1 << i, word);
            }
            words
        }
    }
    #[inline(always)]
    unsafe fn with(a: __m256i, bits: u32, value: u8) -> __m256i {
        // SAFETY: the contract of `Extra`: the byte lacks those bits.
        unsafe { _mm256_mask_add_epi8(a, bits, a, _mm256_set1_epi8(value.cast_signed())) }
    }
}

/// Codes in vectors of 32 bytes, and eight f32 accumulators.
pub(super) struct Wide<P>(PhantomData<P>);

impl<P: Extra> Codes for Wide<P> {
    type B = __m256i;
    type A = __m256;
    #[inline(always)]
    unsafe fn zero() -> __m256 {
        // SAFETY: the contract of `Codes`.
        unsafe { _mm256_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn sum(v: __m256) -> f32 {
        // SAFETY: the contract of `Codes`.
        unsafe {
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        }
    }
    #[inline(always)]
    unsafe fn floats(p: *const f32) -> __m256 {
        // SAFETY: the contract of `Codes`.
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, a: __m256) {
        // SAFETY: the contract of `Codes`.
        unsafe { _mm256_storeu_ps(p, a) }
    }
    #[inline(always)]
    unsafe fn splat(v: f32) -> __m256 {
        // SAFETY: the contract of `Codes`.
        unsafe { _mm256_set1_ps(v) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        // SAFETY: the contract of `Codes`.
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: the contract of `Codes`.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn bytes(v: u64) -> __m256 {
        // SAFETY: the contract of `Codes`.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(v.cast_signed()))) }
    }
    #[inline(always)]
    unsafe fn signed(v: u64) -> __m256 {
        // SAFETY: the contract of `Codes`.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(v.cast_signed()))) }
    }
    #[inline(always)]
    unsafe fn some(p: *const f32, count: usize) -> __m256 {
        // SAFETY: the contract of `Codes`.
        unsafe { if count == 8 { _mm256_loadu_ps(p) } else { P::some(p, count) } }
    }
    #[inline(always)]
    unsafe fn pairs(p: *const u8, stride: usize, count: usize) -> [__m256; 2] {
        // SAFETY: the contract of `Codes`: four bytes at each place. Packing works within each half
        // of the vector, so the middle quarters are swapped.
        unsafe {
            let both = P::words(p, stride, count);
            let first = _mm256_and_si256(both, _mm256_set1_epi32(0xffff));
            let packed = _mm256_packus_epi32(first, _mm256_srli_epi32::<16>(both));
            let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
            [
                _mm256_cvtph_ps(_mm256_castsi256_si128(packed)),
                _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(packed)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m256i {
        // SAFETY: the contract of `Codes`.
        unsafe { _mm256_loadu_si256(p.cast()) }
    }
    #[inline(always)]
    unsafe fn put(p: *mut u8, v: __m256i) {
        // SAFETY: the contract of `Codes`.
        unsafe { _mm256_storeu_si256(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn nibbles(p: *const u8) -> __m256i {
        // SAFETY: the contract of `Codes`.
        unsafe {
            let q = _mm256_broadcastsi128_si256(_mm_loadu_si128(p.cast()));
            Self::and(_mm256_srlv_epi64(q, _mm256_setr_epi64x(0, 0, 4, 4)), 15)
        }
    }
    #[inline(always)]
    unsafe fn with(a: __m256i, bits: u32, value: u8) -> __m256i {
        // SAFETY: the contract of `Codes`.
        unsafe { P::with(a, bits, value) }
    }
    #[inline(always)]
    unsafe fn and(a: __m256i, mask: u8) -> __m256i {
        // SAFETY: the contract of `Codes`.
        unsafe { _mm256_and_si256(a, _mm256_set1_epi8(mask.cast_signed())) }
    }
    #[inline(always)]
    unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the contract of `Codes`.
        unsafe { _mm256_or_si256(a, b) }
    }
    #[inline(always)]
    unsafe fn add(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the contract of `Codes`.
        unsafe { _mm256_add_epi8(a, b) }
    }
    #[inline(always)]
    unsafe fn at_least(a: __m256i, limit: u8) -> __m256i {
        // SAFETY: the contract of `Codes`.
        unsafe {
            let limit = _mm256_set1_epi8(limit.cast_signed());
            Self::and(_mm256_cmpeq_epi8(_mm256_max_epu8(a, limit), a), 1)
        }
    }
    #[inline(always)]
    unsafe fn shr(a: __m256i, bits: i32) -> __m256i {
        // SAFETY: the contract of `Codes`. A constant count becomes an immediate one.
        unsafe { _mm256_srl_epi16(a, _mm_cvtsi32_si128(bits)) }
    }
    #[inline(always)]
    unsafe fn shl(a: __m256i, bits: i32) -> __m256i {
        // SAFETY: as for `shr`.
        unsafe { _mm256_sll_epi16(a, _mm_cvtsi32_si128(bits)) }
    }
    #[inline(always)]
    unsafe fn lookup(table: &[i8; 16], at: __m256i) -> __m256i {
        // SAFETY: the contract of `Codes`.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, at)
        }
    }
    #[inline(always)]
    unsafe fn dot(acc: __m256, w: __m256i, x: __m256i, scale: f32) -> __m256 {
        // SAFETY: the contract of `Codes`.
        unsafe {
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(P::products(w, x)), _mm256_set1_ps(scale), acc)
        }
    }
    #[inline(always)]
    unsafe fn dot_f16(acc: __m256, w: __m256i, x: __m256i, scales: [f32; 2]) -> __m256 {
        // SAFETY: the contract of `Codes`.
        unsafe {
            let scales = _mm256_set_m128(_mm_set1_ps(scales[1]), _mm_set1_ps(scales[0]));
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(P::products(w, x)), scales, acc)
        }
    }
    #[inline(always)]
    unsafe fn dot_signed(acc: __m256, w: __m256i, x: __m256i, scale: f32) -> __m256 {
        // SAFETY: the contract of `Codes`. The sign of the code moves to the other operand, which
        // is never -128.
        unsafe { Self::dot(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w), scale) }
    }
    #[inline(always)]
    unsafe fn half(bits: u16) -> f32 {
        // SAFETY: the contract of `Codes`.
        unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits)))) }
    }
}

/// Implements `Lanes` with intrinsics that differ only in width; `$dot` multiplies and adds.
macro_rules! lanes {
    (
        $(#[$doc:meta])* $name:ident, $count:literal, $moved:literal, $i:ty, $f:ty, $dot:expr,
        [$zero:ident, $load:ident, $convert:ident, $get:ident, $put:ident, $splat:ident, $mul:ident, $fma:ident]
    ) => {
        $(#[$doc])*
        pub(super) struct $name;

        impl Lanes for $name {
            const COUNT: usize = $count;
            const MOVED: bool = $moved;
            type I = $i;
            type F = $f;
            #[inline(always)]
            unsafe fn none() -> $i {
                // SAFETY: the contract of `Lanes`, here and below.
                unsafe { $zero() }
            }
            #[inline(always)]
            unsafe fn turn(rows: [*const u8; 8], flip: u32, to: *mut u8, stride: usize) {
                // SAFETY: see above.
                unsafe { turn(rows, flip, to, stride) }
            }
            #[inline(always)]
            unsafe fn load(p: *const u8) -> $i {
                // SAFETY: see above.
                unsafe { $load(p.cast()) }
            }
            #[inline(always)]
            unsafe fn dot<const SIGNED: bool>(acc: $i, w: $i, x: i32) -> $i {
                // SAFETY: see above.
                unsafe { $dot(acc, w, x, SIGNED) }
            }
            #[inline(always)]
            unsafe fn floats(v: $i) -> $f {
                // SAFETY: see above.
                unsafe { $convert(v) }
            }
            #[inline(always)]
            unsafe fn get(p: *const f32) -> $f {
                // SAFETY: see above.
                unsafe { $get(p) }
            }
            #[inline(always)]
            unsafe fn put(p: *mut f32, v: $f) {
                // SAFETY: see above.
                unsafe { $put(p, v) }
            }
            #[inline(always)]
            unsafe fn splat(v: f32) -> $f {
                // SAFETY: see above.
                unsafe { $splat(v) }
            }
            #[inline(always)]
            unsafe fn mul(a: $f, b: $f) -> $f {
                // SAFETY: see above.
                unsafe { $mul(a, b) }
            }
            #[inline(always)]
            unsafe fn fma(a: $f, b: $f, c: $f) -> $f {
                // SAFETY: see above.
                unsafe { $fma(a, b, c) }
            }
        }
    };
}

/// Implements [`Lanes::turn`]: joins row `i` with row `i + 4`, then interleaves words in pairs and
/// fours.
///
/// # Safety
/// The contract of [`Lanes`].
#[inline(always)]
unsafe fn turn(rows: [*const u8; 8], flip: u32, to: *mut u8, stride: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        for half in 0..2 {
            let both = |row: usize| {
                let at = |row: usize| _mm_loadu_si128(rows[row].add(16 * half).cast());
                _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(at(row)), at(row + 4))
            };
            let [a, b, c, d] = [both(0), both(1), both(2), both(3)];
            let low = [_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d)];
            let high = [_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d)];
            let words = [
                _mm256_unpacklo_epi64(low[0], low[1]),
                _mm256_unpackhi_epi64(low[0], low[1]),
                _mm256_unpacklo_epi64(high[0], high[1]),
                _mm256_unpackhi_epi64(high[0], high[1]),
            ];
            for (word, v) in words.into_iter().enumerate() {
                let v = match flip {
                    0 => v,
                    _ => _mm256_xor_si256(v, _mm256_set1_epi32(flip.cast_signed())),
                };
                _mm256_storeu_si256(to.add((4 * half + word) * stride).cast(), v);
            }
        }
    }
}

/// Adds to `acc` the products of biased codes and the four bytes `x`, in one instruction.
///
/// # Safety
/// The contract of [`Lanes`].
#[inline(always)]
unsafe fn dot_sixteen(acc: __m512i, w: __m512i, x: i32, _signed: bool) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe { _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x)) }
}

/// Adds to `acc` the products of codes and the four bytes `x`, by 16-bit sums of pairs. The sign of
/// a code moves to `x`, which is never -128.
///
/// # Safety
/// The contract of [`Lanes`].
#[inline(always)]
unsafe fn dot_eight(acc: __m256i, w: __m256i, x: i32, signed: bool) -> __m256i {
    // SAFETY: the caller's contract.
    unsafe {
        let x = _mm256_set1_epi32(x);
        let (w, x) = match signed {
            true => (_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)),
            false => (w, x),
        };
        _mm256_add_epi32(acc, Pairs::products(w, x))
    }
}

lanes!(
    /// 16 lanes, with the VNNI instruction.
    Sixteen, 16, true, __m512i, __m512, dot_sixteen,
    [
        _mm512_setzero_si512, _mm512_loadu_si512, _mm512_cvtepi32_ps, _mm512_loadu_ps,
        _mm512_storeu_ps, _mm512_set1_ps, _mm512_mul_ps, _mm512_fmadd_ps
    ]
);
lanes!(
    /// Eight lanes, with 16-bit sums of pairs.
    Eight, 8, false, __m256i, __m256, dot_eight,
    [
        _mm256_setzero_si256, _mm256_loadu_si256, _mm256_cvtepi32_ps, _mm256_loadu_ps,
        _mm256_storeu_ps, _mm256_set1_ps, _mm256_mul_ps, _mm256_fmadd_ps
    ]
);

/// Computes the products of many rows of x.
///
/// # Safety
/// Same as [`product`]; in addition, the CPU must support this function's target features.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn eight(one: &IntProduct, m: usize, sums: *mut f32, packing: &Packing) {
    // SAFETY: the caller's contract.
    unsafe { product::<Eight>(&IntTiles { one: *one, m, sums }, packing) }
}

/// Computes the products of many rows of x.
///
/// # Safety
/// Same as [`product`]; in addition, the CPU must support this function's target features.
#[target_feature(enable = "avx512vnni,avx512vl,avx512bw,avx512f,avx2,fma,f16c")]
unsafe fn sixteen(one: &IntProduct, m: usize, sums: *mut f32, packing: &Packing) {
    // SAFETY: the caller's contract.
    unsafe { product::<Sixteen>(&IntTiles { one: *one, m, sums }, packing) }
}

/// Computes the products of one row of x, bit-identical to [`eight`].
///
/// # Safety
/// Same as [`gemv::product`]; in addition, the CPU must support this function's target features.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn one_as_eight(task: &IntProduct, packing: &Packing) {
    // SAFETY: the caller's contract.
    unsafe { gemv::product::<Wide<Pairs>, { Eight::MOVED }>(task, packing) }
}

/// Computes the products of one row of x, bit-identical to [`sixteen`].
///
/// # Safety
/// Same as [`gemv::product`]; in addition, the CPU must support this function's target features.
#[target_feature(enable = "avx512vnni,avx512vl,avx512bw,avx512f,avx2,fma,f16c")]
unsafe fn one_as_sixteen(task: &IntProduct, packing: &Packing) {
    // SAFETY: the caller's contract.
    unsafe { gemv::product::<Wide<Quads>, { Sixteen::MOVED }>(task, packing) }
}

super::table!(
    AVX2, "avx2", super::x86::Wide<super::x86::Pairs>,
    [#[target_feature(enable = "avx2,fma,f16c")]],
    true,
    Some(super::x86::eight), Some(super::x86::one_as_eight),
    [1, 2, 4, 8]
);
super::table!(
    VNNI, "vnni", super::x86::Wide<super::x86::Quads>,
    [#[target_feature(enable = "avx512vnni,avx512vl,avx512bw,avx512f,avx2,fma,f16c")]],
    true,
    Some(super::x86::sixteen), Some(super::x86::one_as_sixteen),
    [1, 2, 4, 8]
);
