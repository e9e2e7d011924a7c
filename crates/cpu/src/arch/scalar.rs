//! The fallback: arrays of eight f32 in plain Rust, which the compiler may turn into any vector
//! instructions (wasm, SSE2).

use super::formats::Decoded;

/// Vectors of eight f32 values.
pub(super) struct Scalar;

macro_rules! each {
    ($($v:ident),*; $body:expr) => {{
        std::array::from_fn(|i| { $(let $v = $v[i];)* $body })
    }};
}

impl Simd for Scalar {
    const LANES: usize = 8;
    const REGISTERS: usize = 4;
    type F = [f32; 8];
    #[inline(always)]
    unsafe fn splat(v: f32) -> [f32; 8] {
        [v; 8]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> [f32; 8] {
        // SAFETY: the contract of `Simd`.
        unsafe { p.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: [f32; 8]) {
        // SAFETY: the contract of `Simd`.
        unsafe { p.cast::<[f32; 8]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn add(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each!(a, b; a + b)
    }
    #[inline(always)]
    unsafe fn fma(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        // Rounds twice: without the instruction, a fused multiply-add is a library call.
        each!(a, b, c; a * b + c)
    }
    #[inline(always)]
    unsafe fn max(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each!(a, b; if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn sum(v: [f32; 8]) -> f32 {
        ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]))
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> [f32; 8] {
        // SAFETY: the contract of `Simd`.
        let bits = unsafe { p.cast::<[u16; 8]>().read_unaligned() };
        bits.map(|b| half::f16::from_bits(b).to_f32())
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> [f32; 8] {
        // SAFETY: the contract of `Simd`.
        let bits = unsafe { p.cast::<[u16; 8]>().read_unaligned() };
        bits.map(|b| f32::from_bits(u32::from(b) << 16))
    }
    #[inline(always)]
    unsafe fn half(bits: u16) -> f32 {
        half::f16::from_bits(bits).to_f32()
    }
}

super::instantiate!("scalar", Scalar, Decoded, memory, [], [2, 2, 2, 1, 1]);
