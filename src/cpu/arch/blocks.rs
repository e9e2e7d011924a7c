//! Blocks of weights decoded in registers: where vectors of integers are worth more than memory.
#![allow(clippy::needless_range_loop, reason = "rows and vectors of constant number, which unroll")]

use super::Simd;
use super::formats::{Block, Q4_0, Q4_1, Q4K, Q6K, Q8_0, Weights, sums};

/// Arithmetic on vectors of integers, by the contract of [`Simd`].
pub(super) trait Integers: Simd {
    /// `LANES` integers.
    type I: Copy;
    /// `LANES` bytes, widened without sign.
    unsafe fn load_u8(p: *const u8) -> Self::I;
    /// `LANES` bytes, widened with sign.
    unsafe fn load_i8(p: *const u8) -> Self::I;
    unsafe fn and(a: Self::I, mask: i32) -> Self::I;
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn shr(a: Self::I, bits: i32) -> Self::I;
    unsafe fn shl(a: Self::I, bits: i32) -> Self::I;
    unsafe fn sub(a: Self::I, b: i32) -> Self::I;
    unsafe fn to_f32(v: Self::I) -> Self::F;
    /// Product of floats.
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
}

/// Blocks that come apart in registers.
pub(super) trait Packed: Block {
    /// The weights of a block, in vectors.
    ///
    /// # Safety
    /// `p` holds a block; the sink's contract for `LEN` weights.
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>);
}

/// Takes the vectors of a block, with the place of their first weight in it. A trait and not a
/// closure, because a closure is not always inlined into code with more instructions enabled.
pub(super) trait Sink<S: Simd> {
    /// Takes one vector.
    ///
    /// # Safety
    /// The machine has the instructions of `S`; the sink's own pointers hold `at + LANES`.
    unsafe fn put(&mut self, at: usize, v: S::F);
}

/// Multiplies each vector with the same place of `M` rows of `x`.
struct DotSink<'a, S: Simd, const M: usize> {
    acc: &'a mut [S::F; M],
    x: *const f32,
    x_stride: usize,
}

impl<S: Simd, const M: usize> Sink<S> for DotSink<'_, S, M> {
    #[inline(always)]
    unsafe fn put(&mut self, at: usize, v: S::F) {
        for i in 0..M {
            // SAFETY: the rows of x hold the block, by the contract of `dot`.
            unsafe {
                let x = S::load(self.x.add(i * self.x_stride + at));
                self.acc[i] = S::fma(v, x, self.acc[i]);
            }
        }
    }
}

struct StoreSink(*mut f32);

impl<S: Simd> Sink<S> for StoreSink {
    #[inline(always)]
    unsafe fn put(&mut self, at: usize, v: S::F) {
        // SAFETY: `out` has room for the block, by the contract of `decode`.
        unsafe { S::store(self.0.add(at), v) }
    }
}

/// A row of blocks; `k` is a multiple of their length.
pub(super) struct Blocks<P>(std::marker::PhantomData<P>);

impl<S: Integers, P: Packed> Weights<S> for Blocks<P> {
    #[inline(always)]
    unsafe fn dot<const R: usize, const M: usize>(
        rows: [*const u8; R],
        k: usize,
        x: *const f32,
        x_stride: usize,
    ) -> [[f32; M]; R] {
        // SAFETY: every block index stays below k / LEN.
        unsafe {
            let mut acc = [[S::splat(0.0); M]; R];
            for block in 0..k / P::LEN {
                let x = x.add(block * P::LEN);
                for r in 0..R {
                    let mut sink = DotSink::<S, M> { acc: &mut acc[r], x, x_stride };
                    P::unpack::<S>(rows[r].add(block * P::BYTES), &mut sink);
                }
            }
            sums::<S, R, M>(&acc)
        }
    }

    #[inline(always)]
    unsafe fn decode(w: *const u8, out: *mut f32, k: usize) {
        for block in 0..k / P::LEN {
            // SAFETY: below k / LEN.
            unsafe {
                let mut sink = StoreSink(out.add(block * P::LEN));
                P::unpack::<S>(w.add(block * P::BYTES), &mut sink);
            }
        }
    }
}

#[inline(always)]
unsafe fn half_at<S: Simd>(p: *const u8) -> f32 {
    // SAFETY: the caller's contract: two bytes.
    unsafe { S::half(p.cast::<u16>().read_unaligned()) }
}

impl Packed for Q4_0 {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is a scale and 16 bytes: weight j in the low, j + 16 in the high half.
        unsafe {
            let d = S::splat(half_at::<S>(p));
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
            let (d, m) = (S::splat(half_at::<S>(p)), S::splat(half_at::<S>(p.add(2))));
            for j in (0..16).step_by(S::LANES) {
                let q = S::load_u8(p.add(4 + j));
                sink.put(j, S::fma(S::to_f32(S::and(q, 15)), d, m));
                sink.put(16 + j, S::fma(S::to_f32(S::shr(q, 4)), d, m));
            }
        }
    }
}

impl Packed for Q8_0 {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is a scale and 32 signed bytes.
        unsafe {
            let d = S::splat(half_at::<S>(p));
            for j in (0..32).step_by(S::LANES) {
                sink.put(j, S::mul(S::to_f32(S::load_i8(p.add(2 + j))), d));
            }
        }
    }
}

impl Packed for Q4K {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is two halves, 12 bytes of scales and minima, and 4 times 32 bytes,
        // whose low halves are one sub-block of 32 and whose high halves the next.
        unsafe {
            let (d, dmin) = (half_at::<S>(p), half_at::<S>(p.add(2)));
            let (scales, minima) = q4_k_scales(p.add(4));
            let factors = sixteen::<S>(&[scales.to_le(), minima.to_le()], 1.0, false);
            let (d, dmin) = (S::splat(d), S::splat(-dmin));
            for pair in 0..4 {
                let factor = |i: usize| S::mul(d, S::splat(factors[i]));
                let minimum = |i: usize| S::mul(dmin, S::splat(factors[8 + i]));
                let (d0, m0) = (factor(2 * pair), minimum(2 * pair));
                let (d1, m1) = (factor(2 * pair + 1), minimum(2 * pair + 1));
                for j in (0..32).step_by(S::LANES) {
                    let q = S::load_u8(p.add(16 + pair * 32 + j));
                    sink.put(pair * 64 + j, S::fma(S::to_f32(S::and(q, 15)), d0, m0));
                    sink.put(pair * 64 + 32 + j, S::fma(S::to_f32(S::shr(q, 4)), d1, m1));
                }
            }
        }
    }
}

/// Sixteen bytes, with or without sign, as floats times `factor`.
///
/// # Safety
/// The machine has the instructions of `S`.
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

/// The eight 6-bit scales and minima of a Q4_K block, a byte each, the first lowest.
///
/// # Safety
/// `p` holds 12 bytes.
#[inline(always)]
unsafe fn q4_k_scales(p: *const u8) -> (u64, u64) {
    // SAFETY: the caller's contract.
    let word = |i: usize| unsafe { u32::from_le(p.cast::<u32>().add(i).read_unaligned()) };
    let (a, b, c) = (word(0), word(1), word(2));
    // The first four lie in the low 6 bits of a and b; of the last four, the low 4 bits lie in c
    // and the high 2 bits at the top of a and b.
    let scales = (a & 0x3f3f_3f3f, (c & 0x0f0f_0f0f) | ((a >> 2) & 0x3030_3030));
    let minima = (b & 0x3f3f_3f3f, ((c >> 4) & 0x0f0f_0f0f) | ((b >> 2) & 0x3030_3030));
    let join = |(low, high): (u32, u32)| u64::from(low) | u64::from(high) << 32;
    (join(scales), join(minima))
}

impl Packed for Q6K {
    #[inline(always)]
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>) {
        // SAFETY: a block is 128 bytes of low halves, 64 bytes of upper pairs of bits, 16 signed
        // scales and a half. Each half of the block makes four runs of 32 weights.
        unsafe {
            let scales = p.add(192).cast::<[u64; 2]>().read_unaligned();
            let factors = sixteen::<S>(&scales, half_at::<S>(p.add(208)), true);
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
