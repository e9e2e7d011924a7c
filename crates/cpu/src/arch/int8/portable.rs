//! The fallback: operations on 32 codes in plain Rust, which the compiler may turn into any vector
//! instructions (NEON, SSE2).

use super::Codes;

/// Codes and accumulators in arrays.
pub(super) struct Arrays;

macro_rules! each {
    ($($v:ident),*; $body:expr) => {{
        std::array::from_fn(|i| { $(let $v = $v[i];)* $body })
    }};
}

/// Returns eight sums of four products each: lane `l` sums those of bytes `4 * l .. 4 * l + 4`.
#[inline(always)]
fn products(w: [i16; 32], x: [u8; 32]) -> [i32; 8] {
    std::array::from_fn(|l| {
        (4 * l..4 * l + 4).map(|i| i32::from(w[i]) * i32::from(x[i].cast_signed())).sum()
    })
}

impl Codes for Arrays {
    type B = [u8; 32];
    type A = [f32; 8];
    #[inline(always)]
    unsafe fn zero() -> [f32; 8] {
        [0.0; 8]
    }
    #[inline(always)]
    unsafe fn sum(v: [f32; 8]) -> f32 {
        ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]))
    }
    #[inline(always)]
    unsafe fn floats(p: *const f32) -> [f32; 8] {
        // SAFETY: the contract of `Codes`.
        unsafe { p.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, a: [f32; 8]) {
        // SAFETY: the contract of `Codes`.
        unsafe { p.cast::<[f32; 8]>().write_unaligned(a) }
    }
    #[inline(always)]
    unsafe fn splat(v: f32) -> [f32; 8] {
        [v; 8]
    }
    #[inline(always)]
    unsafe fn mul(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each!(a, b; a * b)
    }
    #[inline(always)]
    unsafe fn fma(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        each!(a, b, c; a * b + c)
    }
    #[inline(always)]
    unsafe fn bytes(v: u64) -> [f32; 8] {
        v.to_le_bytes().map(f32::from)
    }
    #[inline(always)]
    unsafe fn signed(v: u64) -> [f32; 8] {
        v.to_le_bytes().map(|byte| f32::from(byte.cast_signed()))
    }
    #[inline(always)]
    unsafe fn some(p: *const f32, count: usize) -> [f32; 8] {
        let mut some = [0.0; 8];
        // SAFETY: the contract of `Codes`.
        unsafe { std::ptr::copy_nonoverlapping(p, some.as_mut_ptr(), count) };
        some
    }
    #[inline(always)]
    unsafe fn pairs(p: *const u8, stride: usize, count: usize) -> [[f32; 8]; 2] {
        [0, 2].map(|second| {
            std::array::from_fn(|i| {
                if i >= count {
                    return 0.0;
                }
                // SAFETY: the contract of `Codes`.
                let bits = unsafe { p.add(i * stride + second).cast::<u16>().read_unaligned() };
                half::f16::from_bits(u16::from_le(bits)).to_f32()
            })
        })
    }
    #[inline(always)]
    unsafe fn load(p: *const u8) -> [u8; 32] {
        // SAFETY: the contract of `Codes`.
        unsafe { p.cast::<[u8; 32]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn put(p: *mut u8, v: [u8; 32]) {
        // SAFETY: the contract of `Codes`.
        unsafe { p.cast::<[u8; 32]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn nibbles(p: *const u8) -> [u8; 32] {
        // SAFETY: the contract of `Codes`.
        let q = unsafe { p.cast::<[u8; 16]>().read_unaligned() };
        std::array::from_fn(|i| if i < 16 { q[i] & 15 } else { q[i - 16] >> 4 })
    }
    #[inline(always)]
    unsafe fn with(a: [u8; 32], bits: u32, value: u8) -> [u8; 32] {
        std::array::from_fn(|i| a[i] | ((bits >> i & 1) as u8 * value))
    }
    #[inline(always)]
    unsafe fn and(a: [u8; 32], mask: u8) -> [u8; 32] {
        each!(a; a & mask)
    }
    #[inline(always)]
    unsafe fn or(a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        each!(a, b; a | b)
    }
    #[inline(always)]
    unsafe fn add(a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        each!(a, b; a.wrapping_add(b))
    }
    #[inline(always)]
    unsafe fn at_least(a: [u8; 32], limit: u8) -> [u8; 32] {
        each!(a; u8::from(a >= limit))
    }
    #[inline(always)]
    unsafe fn shr(a: [u8; 32], bits: i32) -> [u8; 32] {
        each!(a; a >> bits)
    }
    #[inline(always)]
    unsafe fn shl(a: [u8; 32], bits: i32) -> [u8; 32] {
        each!(a; a << bits)
    }
    #[inline(always)]
    unsafe fn lookup(table: &[i8; 16], at: [u8; 32]) -> [u8; 32] {
        each!(at; table[usize::from(at & 15)].cast_unsigned())
    }
    #[inline(always)]
    unsafe fn dot(acc: [f32; 8], w: [u8; 32], x: [u8; 32], scale: f32) -> [f32; 8] {
        let sums = products(w.map(i16::from), x);
        each!(acc, sums; acc + sums as f32 * scale)
    }
    #[inline(always)]
    unsafe fn dot_f16(acc: [f32; 8], w: [u8; 32], x: [u8; 32], scales: [f32; 2]) -> [f32; 8] {
        let sums = products(w.map(i16::from), x);
        std::array::from_fn(|i| acc[i] + sums[i] as f32 * scales[i / 4])
    }
    #[inline(always)]
    unsafe fn dot_signed(acc: [f32; 8], w: [u8; 32], x: [u8; 32], scale: f32) -> [f32; 8] {
        let sums = products(w.map(|w| i16::from(w.cast_signed())), x);
        each!(acc, sums; acc + sums as f32 * scale)
    }
    #[inline(always)]
    unsafe fn half(bits: u16) -> f32 {
        half::f16::from_bits(bits).to_f32()
    }
}

super::table!(ARRAYS, "arrays", Arrays, [], false, None, None, [1, 1, 1, 1]);
