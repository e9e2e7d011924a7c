//! Int8 products in WebAssembly's vectors of 16 bytes. A module has them everywhere or not at all,
//! so that their instructions need no detection. 16 products and their sums by fours are two products
//! of eight 16-bit numbers. With relaxed SIMD they would be one instruction, and answers an eighth
//! faster (SmolLM2 in Q4_1, Chromium 156), but a browser without it refuses the whole module: that
//! takes a second one.

use std::arch::wasm32::*;

use super::super::Simd;
use super::super::simd128::Simd128;
use super::Codes;

/// 32 codes in two vectors, and eight f32 accumulators in two.
pub(super) struct Pair;

/// Returns four sums of four products each, of codes of 0 to 127 and signed bytes.
#[inline(always)]
fn products(w: v128, x: v128, sums: v128) -> v128 {
    let low = i32x4_dot_i16x8(u16x8_extend_low_u8x16(w), i16x8_extend_low_i8x16(x));
    let high = i32x4_dot_i16x8(u16x8_extend_high_u8x16(w), i16x8_extend_high_i8x16(x));
    i32x4_add(i32x4_add(low, high), sums)
}

/// Same as [`products`], with codes of -127 to 127.
#[inline(always)]
fn signed_products(w: v128, x: v128, sums: v128) -> v128 {
    let low = i32x4_dot_i16x8(i16x8_extend_low_i8x16(w), i16x8_extend_low_i8x16(x));
    let high = i32x4_dot_i16x8(i16x8_extend_high_i8x16(w), i16x8_extend_high_i8x16(x));
    i32x4_add(i32x4_add(low, high), sums)
}

/// Computes `acc + sums * scale`.
#[inline(always)]
fn add(acc: v128, sums: v128, scale: f32) -> v128 {
    f32x4_add(acc, f32x4_mul(f32x4_convert_i32x4(sums), f32x4_splat(scale)))
}

/// Applies a function to both vectors.
macro_rules! both {
    ($($v:ident),*; $body:expr) => {{
        let [first, second] = [0, 1].map(|i| { $(let $v = $v[i];)* $body });
        [first, second]
    }};
}

impl Codes for Pair {
    type B = [v128; 2];
    type A = [v128; 2];
    #[inline(always)]
    unsafe fn zero() -> [v128; 2] {
        [f32x4_splat(0.0); 2]
    }
    #[inline(always)]
    unsafe fn sum(v: [v128; 2]) -> f32 {
        // SAFETY: the contract of `Codes`.
        unsafe { Simd128::sum(f32x4_add(v[0], v[1])) }
    }
    #[inline(always)]
    unsafe fn floats(p: *const f32) -> [v128; 2] {
        // SAFETY: the contract of `Codes`.
        unsafe { [v128_load(p.cast()), v128_load(p.add(4).cast())] }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, a: [v128; 2]) {
        // SAFETY: the contract of `Codes`.
        unsafe {
            v128_store(p.cast(), a[0]);
            v128_store(p.add(4).cast(), a[1]);
        }
    }
    #[inline(always)]
    unsafe fn splat(v: f32) -> [v128; 2] {
        [f32x4_splat(v); 2]
    }
    #[inline(always)]
    unsafe fn mul(a: [v128; 2], b: [v128; 2]) -> [v128; 2] {
        both!(a, b; f32x4_mul(a, b))
    }
    #[inline(always)]
    unsafe fn fma(a: [v128; 2], b: [v128; 2], c: [v128; 2]) -> [v128; 2] {
        both!(a, b, c; f32x4_add(f32x4_mul(a, b), c))
    }
    #[inline(always)]
    unsafe fn bytes(v: u64) -> [v128; 2] {
        let words = u16x8_extend_low_u8x16(u64x2_splat(v));
        [u32x4_extend_low_u16x8(words), u32x4_extend_high_u16x8(words)]
            .map(|four| f32x4_convert_u32x4(four))
    }
    #[inline(always)]
    unsafe fn signed(v: u64) -> [v128; 2] {
        let words = i16x8_extend_low_i8x16(u64x2_splat(v));
        [i32x4_extend_low_i16x8(words), i32x4_extend_high_i16x8(words)]
            .map(|four| f32x4_convert_i32x4(four))
    }
    #[inline(always)]
    unsafe fn some(p: *const f32, count: usize) -> [v128; 2] {
        // SAFETY: the contract of `Codes`.
        unsafe {
            if count == 8 {
                return Self::floats(p);
            }
            let mut some = [0.0f32; 8];
            std::ptr::copy_nonoverlapping(p, some.as_mut_ptr(), count);
            Self::floats(some.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn pairs(p: *const u8, stride: usize, count: usize) -> [[v128; 2]; 2] {
        [0, 2].map(|second| {
            let mut halves = [0u16; 8];
            for (i, half) in halves.iter_mut().enumerate().take(count) {
                // SAFETY: the contract of `Codes`.
                *half = unsafe { p.add(i * stride + second).cast::<u16>().read_unaligned() };
            }
            let halves = halves.as_ptr().cast::<u8>();
            // SAFETY: eight f16.
            unsafe { [Simd128::load_f16(halves), Simd128::load_f16(halves.add(8))] }
        })
    }
    #[inline(always)]
    unsafe fn load(p: *const u8) -> [v128; 2] {
        // SAFETY: the contract of `Codes`.
        unsafe { [v128_load(p.cast()), v128_load(p.add(16).cast())] }
    }
    #[inline(always)]
    unsafe fn put(p: *mut u8, v: [v128; 2]) {
        // SAFETY: the contract of `Codes`.
        unsafe {
            v128_store(p.cast(), v[0]);
            v128_store(p.add(16).cast(), v[1]);
        }
    }
    #[inline(always)]
    unsafe fn nibbles(p: *const u8) -> [v128; 2] {
        // SAFETY: the contract of `Codes`.
        let q = unsafe { v128_load(p.cast()) };
        [v128_and(q, u8x16_splat(15)), u8x16_shr(q, 4)]
    }
    #[inline(always)]
    unsafe fn with(a: [v128; 2], bits: u32, value: u8) -> [v128; 2] {
        // Copies each byte of bits to eight bytes, which test a bit each.
        let (bits, value) = (u32x4_splat(bits), u8x16_splat(value));
        let bytes = [
            u8x16(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
            u8x16(2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3),
        ];
        let one = u64x2_splat(0x8040_2010_0804_0201);
        both!(a, bytes; {
            let set = u8x16_eq(v128_and(u8x16_swizzle(bits, bytes), one), one);
            v128_or(a, v128_and(set, value))
        })
    }
    #[inline(always)]
    unsafe fn and(a: [v128; 2], mask: u8) -> [v128; 2] {
        both!(a; v128_and(a, u8x16_splat(mask)))
    }
    #[inline(always)]
    unsafe fn or(a: [v128; 2], b: [v128; 2]) -> [v128; 2] {
        both!(a, b; v128_or(a, b))
    }
    #[inline(always)]
    unsafe fn add(a: [v128; 2], b: [v128; 2]) -> [v128; 2] {
        both!(a, b; u8x16_add(a, b))
    }
    #[inline(always)]
    unsafe fn at_least(a: [v128; 2], limit: u8) -> [v128; 2] {
        both!(a; v128_and(u8x16_ge(a, u8x16_splat(limit)), u8x16_splat(1)))
    }
    #[inline(always)]
    unsafe fn shr(a: [v128; 2], bits: i32) -> [v128; 2] {
        both!(a; u8x16_shr(a, bits.cast_unsigned()))
    }
    #[inline(always)]
    unsafe fn shl(a: [v128; 2], bits: i32) -> [v128; 2] {
        both!(a; u8x16_shl(a, bits.cast_unsigned()))
    }
    #[inline(always)]
    unsafe fn lookup(table: &[i8; 16], at: [v128; 2]) -> [v128; 2] {
        // SAFETY: the table has 16 bytes.
        let table = unsafe { v128_load(table.as_ptr().cast()) };
        both!(at; u8x16_swizzle(table, at))
    }
    #[inline(always)]
    unsafe fn dot(acc: [v128; 2], w: [v128; 2], x: [v128; 2], scale: f32) -> [v128; 2] {
        // One conversion for both halves: the accumulators are summed in the end.
        let sums = products(w[1], x[1], products(w[0], x[0], i32x4_splat(0)));
        [add(acc[0], sums, scale), acc[1]]
    }
    #[inline(always)]
    unsafe fn dot_f16(acc: [v128; 2], w: [v128; 2], x: [v128; 2], scales: [f32; 2]) -> [v128; 2] {
        let sums = [products(w[0], x[0], i32x4_splat(0)), products(w[1], x[1], i32x4_splat(0))];
        [add(acc[0], sums[0], scales[0]), add(acc[1], sums[1], scales[1])]
    }
    #[inline(always)]
    unsafe fn dot_signed(acc: [v128; 2], w: [v128; 2], x: [v128; 2], scale: f32) -> [v128; 2] {
        let sums = signed_products(w[1], x[1], signed_products(w[0], x[0], i32x4_splat(0)));
        [add(acc[0], sums, scale), acc[1]]
    }
    #[inline(always)]
    unsafe fn half(bits: u16) -> f32 {
        half::f16::from_bits(bits).to_f32()
    }
}

super::table!(SIMD128, "simd128", Pair, [], true, None, None, [1, 1, 2, 2]);
