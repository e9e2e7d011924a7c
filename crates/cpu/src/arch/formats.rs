//! Weight rows in each storage format: dot products with f32 rows, and decoding.
#![allow(clippy::needless_range_loop, reason = "rows and vectors of constant number, which unroll")]

use super::{LINE, Simd, prefetch};
use warploom_core::quant;

/// A format of weight rows that can be decoded to f32.
pub(super) trait Weights<S: Simd> {
    /// Decodes `k` weights to f32.
    ///
    /// # Safety
    /// `w` holds `k` weights, and `out` has room for `k` floats.
    unsafe fn decode(w: *const u8, out: *mut f32, k: usize);
}

/// A format of weight rows that can be multiplied while they are read.
pub(super) trait Rows<S: Simd>: Weights<S> {
    /// Computes `M` dot products for each of `R` rows: `acc[r][i] = w[r] . x[i]`. If `ahead` is
    /// set, prefetches each row this number of bytes past its current position.
    ///
    /// # Safety
    /// Each row holds `k` weights; each `x[i]`, which starts at `x + i * x_stride`, holds `k`
    /// floats.
    unsafe fn dot<const R: usize, const M: usize>(
        rows: [*const u8; R],
        ahead: Option<usize>,
        k: usize,
        x: *const f32,
        x_stride: usize,
    ) -> [[f32; M]; R];
}

/// Returns the horizontal sums of the accumulators.
///
/// # Safety
/// The CPU must support the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn sums<S: Simd, const R: usize, const M: usize>(
    acc: &[[S::F; M]; R],
) -> [[f32; M]; R] {
    let mut out = [[0.0; M]; R];
    // SAFETY: arithmetic only; the caller ensures CPU support.
    unsafe { S::sums(acc.as_flattened(), out.as_flattened_mut()) };
    out
}

/// An element type that is not packed in blocks.
pub(super) trait Plain {
    /// Size of an element in bytes.
    const BYTES: usize;
    /// Loads `LANES` elements as f32.
    ///
    /// # Safety
    /// `p` holds `LANES` elements.
    unsafe fn load<S: Simd>(p: *const u8) -> S::F;
    /// Loads one element as f32.
    ///
    /// # Safety
    /// `p` holds one element.
    unsafe fn one<S: Simd>(p: *const u8) -> f32;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Bf16;

impl Plain for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        // SAFETY: the caller's contract.
        unsafe { S::load(p.cast()) }
    }
    #[inline(always)]
    unsafe fn one<S: Simd>(p: *const u8) -> f32 {
        // SAFETY: the caller's contract.
        unsafe { p.cast::<f32>().read_unaligned() }
    }
}

impl Plain for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        // SAFETY: the caller's contract.
        unsafe { S::load_f16(p) }
    }
    #[inline(always)]
    unsafe fn one<S: Simd>(p: *const u8) -> f32 {
        // SAFETY: the caller's contract.
        unsafe { S::half(p.cast::<u16>().read_unaligned()) }
    }
}

impl Plain for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        // SAFETY: the caller's contract.
        unsafe { S::load_bf16(p) }
    }
    #[inline(always)]
    unsafe fn one<S: Simd>(p: *const u8) -> f32 {
        // SAFETY: the caller's contract.
        let bits = unsafe { p.cast::<u16>().read_unaligned() };
        f32::from_bits(u32::from(bits) << 16)
    }
}

impl<S: Simd, E: Plain> Rows<S> for E {
    #[inline(always)]
    unsafe fn dot<const R: usize, const M: usize>(
        rows: [*const u8; R],
        ahead: Option<usize>,
        k: usize,
        x: *const f32,
        x_stride: usize,
    ) -> [[f32; M]; R] {
        // SAFETY: every index stays below k, by the bounds of the loop.
        unsafe {
            let mut acc = [[S::splat(0.0); M]; R];
            let body = k - k % S::LANES;
            accumulate::<S, E, R, M>(&mut acc, rows, ahead, body, x, x_stride);
            let mut out = sums::<S, R, M>(&acc);
            for c in body..k {
                for r in 0..R {
                    let w = E::one::<S>(rows[r].add(c * E::BYTES));
                    for i in 0..M {
                        out[r][i] += w * *x.add(i * x_stride + c);
                    }
                }
            }
            out
        }
    }
}

/// Adds the products of `k` elements, a multiple of `LANES`, to the accumulators. Prefetches as
/// [`Rows::dot`] does.
///
/// # Safety
/// Same as [`Rows::dot`].
#[inline(always)]
pub(super) unsafe fn accumulate<S: Simd, E: Plain, const R: usize, const M: usize>(
    acc: &mut [[S::F; M]; R],
    rows: [*const u8; R],
    ahead: Option<usize>,
    k: usize,
    x: *const f32,
    x_stride: usize,
) {
    let mut c = 0;
    while c < k {
        for r in 0..R {
            let line = c * E::BYTES % LINE == 0;
            if let Some(ahead) = ahead.filter(|_| line) {
                prefetch(rows[r].wrapping_add(c * E::BYTES + ahead), 1);
            }
            // SAFETY: c + LANES is at most k.
            unsafe {
                let w = E::load::<S>(rows[r].add(c * E::BYTES));
                for i in 0..M {
                    acc[r][i] = S::fma(w, S::load(x.add(i * x_stride + c)), acc[r][i]);
                }
            }
        }
        c += S::LANES;
    }
}

impl<S: Simd, E: Plain> Weights<S> for E {
    #[inline(always)]
    unsafe fn decode(w: *const u8, out: *mut f32, k: usize) {
        let body = k - k % S::LANES;
        for c in (0..body).step_by(S::LANES) {
            // SAFETY: below k.
            unsafe { S::store(out.add(c), E::load::<S>(w.add(c * E::BYTES))) };
        }
        for c in body..k {
            // SAFETY: below k.
            unsafe { *out.add(c) = E::one::<S>(w.add(c * E::BYTES)) };
        }
    }
}

/// A row of blocks on instruction sets with too few registers to decode blocks in them: each block
/// is decoded to memory by the functions of `quant`.
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
pub(super) struct Decoded<P>(std::marker::PhantomData<P>);

#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
impl<S: Simd, P: Block> Weights<S> for Decoded<P> {
    #[inline(always)]
    unsafe fn decode(w: *const u8, out: *mut f32, k: usize) {
        for block in 0..k / P::LEN {
            // SAFETY: below k / LEN.
            unsafe { P::meaning(w.add(block * P::BYTES), out.add(block * P::LEN)) };
        }
    }
}

/// A storage format made of blocks of weights that share scales.
pub(super) trait Block {
    /// Number of weights in a block, at most 256.
    const LEN: usize;
    /// Size of a block in bytes.
    const BYTES: usize;
    /// Decodes a block with the reference function of `quant`.
    ///
    /// # Safety
    /// `p` holds a block, and `out` has room for `LEN` floats.
    #[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
    unsafe fn meaning(p: *const u8, out: *mut f32);
}

macro_rules! blocks {
    ($($name:ident $module:ident),*) => {$(
        pub(super) struct $name;
        impl Block for $name {
            const LEN: usize = quant::$module::LEN;
            const BYTES: usize = quant::$module::BYTES;
            #[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
            unsafe fn meaning(p: *const u8, out: *mut f32) {
                // SAFETY: the caller's contract: a block, and room for its weights.
                unsafe { quant::$module::decode_block(&*p.cast(), &mut *out.cast()) }
            }
        }
    )*};
}
blocks!(
    Q4_0 q4_0,
    Q4_1 q4_1,
    Q5_0 q5_0,
    Q5_1 q5_1,
    Q8_0 q8_0,
    Q2K q2_k,
    Q3K q3_k,
    Q4K q4_k,
    Q5K q5_k,
    Q6K q6_k,
    IQ4NL iq4_nl,
    IQ4XS iq4_xs,
    MXFP4 mxfp4,
    TQ1_0 tq1_0,
    TQ2_0 tq2_0,
    I2S i2_s
);
