//! Decoding of weight blocks in vector registers, for instruction sets whose integer vectors make
//! this faster than decoding through memory.
#![allow(clippy::needless_range_loop, reason = "rows and vectors of constant number, which unroll")]

use super::formats::{Block, Rows, Weights, sums};
use super::{Simd, prefetch};

/// Arithmetic on vectors of integers, with the contract of [`Simd`].
pub(super) trait Integers: Simd {
    /// `LANES` integers.
    type I: Copy;
    /// Loads `LANES` bytes, zero-extended.
    unsafe fn load_u8(p: *const u8) -> Self::I;
    /// Loads `LANES` bytes, sign-extended.
    unsafe fn load_i8(p: *const u8) -> Self::I;
    unsafe fn and(a: Self::I, mask: i32) -> Self::I;
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn shr(a: Self::I, bits: i32) -> Self::I;
    unsafe fn shl(a: Self::I, bits: i32) -> Self::I;
    unsafe fn sub(a: Self::I, b: i32) -> Self::I;
    /// Multiplies by the same integer in every lane.
    unsafe fn times(a: Self::I, b: i32) -> Self::I;
    /// Looks up table entries by indices of 0 to 15, and converts them to f32.
    unsafe fn lookup(table: &[i8; 16], at: Self::I) -> Self::F;
    unsafe fn to_f32(v: Self::I) -> Self::F;
    /// Multiplies floats.
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
}

/// A block format that can be decoded in registers; the implementations are in `unpack`.
pub(super) trait Packed: Block {
    /// Decodes a block into vectors of weights.
    ///
    /// # Safety
    /// `p` holds a block; [`Sink::put`] may be called for `LEN` weights.
    unsafe fn unpack<S: Integers>(p: *const u8, sink: &mut impl Sink<S>);
}

/// Receives the decoded vectors of a block, each with the index of its first weight. It is a trait,
/// not a closure: closures are not always inlined into functions with more target features.
pub(super) trait Sink<S: Simd> {
    /// Receives the vector of the weights from index `at` on.
    ///
    /// # Safety
    /// The CPU must support the instructions of `S`; the sink's own pointers must be valid for
    /// `at + LANES` floats.
    unsafe fn put(&mut self, at: usize, v: S::F);
}

/// Accumulates the dot products of a block and `M` rows of `x`.
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

/// A row of blocks that are decoded in registers; `k` is a multiple of the block length.
pub(super) struct Blocks<P>(std::marker::PhantomData<P>);

impl<S: Integers, P: Packed> Rows<S> for Blocks<P> {
    #[inline(always)]
    unsafe fn dot<const R: usize, const M: usize>(
        rows: [*const u8; R],
        ahead: Option<usize>,
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
                    if let Some(ahead) = ahead {
                        prefetch(rows[r].wrapping_add(ahead + block * P::BYTES), P::BYTES);
                    }
                    let mut sink = DotSink::<S, M> { acc: &mut acc[r], x, x_stride };
                    P::unpack::<S>(rows[r].add(block * P::BYTES), &mut sink);
                }
            }
            sums::<S, R, M>(&acc)
        }
    }
}

impl<S: Integers, P: Packed> Weights<S> for Blocks<P> {
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
