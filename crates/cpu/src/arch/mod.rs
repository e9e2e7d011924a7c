//! Vector functions: written once, generic over [`Simd`], and compiled for each instruction set.
//!
//! `generic`, `formats`, `blocks`, `unpack` and `int8` hold the loops, always inlined. The file of
//! each architecture defines its vector and instantiates every loop in functions that enable its
//! instructions. The instruction set is chosen once, when a device is opened; its functions are
//! then called through a table of function pointers.
//!
//! Invariant: a table is only returned on a machine that has its instructions, so a call through it
//! needs no check beyond the contract of the function.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    all(target_arch = "wasm32", target_feature = "simd128")
))]
mod blocks;
mod formats;
mod generic;
pub(super) mod int8;
pub(super) mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
// A browser refuses a module with SIMD that it lacks as a whole, so the fallback would never run.
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
mod scalar;
mod scales;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod simd128;
#[cfg(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    all(target_arch = "wasm32", target_feature = "simd128")
))]
mod unpack;

use warploom_core::base::{DType, Format};

/// A vector of `LANES` f32 values with the operations that the loops use.
///
/// Every method is `unsafe`: the CPU must support the instructions, and pointers must be valid for
/// the bytes of all lanes. No alignment is required.
pub(super) trait Simd {
    /// Number of values in a vector.
    const LANES: usize;
    /// The vector type.
    type F: Copy;
    /// Number of vector registers.
    const REGISTERS: usize;
    unsafe fn splat(v: f32) -> Self::F;
    unsafe fn load(p: *const f32) -> Self::F;
    unsafe fn store(p: *mut f32, v: Self::F);
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    /// Computes `a * b + c`.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Returns the larger value of each lane; `b` if `a` is NaN.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sum(v: Self::F) -> f32;
    /// Computes the horizontal sum of each vector, bit-identical to [`Simd::sum`]; `out` is as long
    /// as `v`.
    #[inline(always)]
    unsafe fn sums(v: &[Self::F], out: &mut [f32]) {
        for (v, out) in v.iter().zip(out) {
            // SAFETY: the contract of this function.
            *out = unsafe { Self::sum(*v) };
        }
    }
    /// Loads `LANES` f16 values.
    unsafe fn load_f16(p: *const u8) -> Self::F;
    /// Loads `LANES` bf16 values.
    unsafe fn load_bf16(p: *const u8) -> Self::F;
    /// Converts one f16, given as bits, to f32.
    unsafe fn half(bits: u16) -> f32;
}

/// A product of packed weight rows with a few rows of `x`: `y[i * y_stride + r] = w[r] . x[i]`.
#[derive(Clone, Copy)]
pub(super) struct Product {
    /// `rows` rows of `row_bytes` bytes; the first `k` weights of each are multiplied.
    pub(super) w: *const u8,
    pub(super) row_bytes: usize,
    pub(super) rows: usize,
    pub(super) k: usize,
    /// Rows of `k` floats, `x_stride` floats apart.
    pub(super) x: *const f32,
    pub(super) x_stride: usize,
    pub(super) y: *mut f32,
    pub(super) y_stride: usize,
    /// Whether the weights are in main memory, so that they are prefetched or read in address
    /// order.
    pub(super) far: bool,
}

/// Weighted sums of the rows of v: `out[i * out_stride + c] += sum over s of p[i * p_stride + s] *
/// v[s][c]`, for `c < cols`, `s < len`. Rows of v are `v_bytes` bytes apart.
#[derive(Clone, Copy)]
pub(super) struct Weighted {
    pub(super) p: *const f32,
    pub(super) p_stride: usize,
    pub(super) v: *const u8,
    pub(super) v_bytes: usize,
    pub(super) len: usize,
    pub(super) cols: usize,
    pub(super) out: *mut f32,
    pub(super) out_stride: usize,
}

/// Size of a cache line in bytes.
const LINE: usize = 64;

/// Prefetches `bytes` bytes from `p` on, which need not be valid memory. The hardware prefetcher
/// does not follow several rows that are read in parallel, a few hundred bytes of each.
#[inline(always)]
pub(super) fn prefetch(p: *const u8, bytes: usize) {
    for at in (0..bytes).step_by(LINE) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: part of every x86-64, and nothing is read.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(p.wrapping_add(at).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (p, at);
    }
}

/// Numbers of rows of `x` for which product functions are compiled.
pub(super) const WIDTHS: [usize; 4] = [1, 2, 4, 8];

const FORMATS: usize = Format::ALL.len();

type ProductFn = unsafe fn(&Product);
type DecodeFn = unsafe fn(w: *const u8, out: *mut f32, k: usize);
type WeightedFn = unsafe fn(&Weighted);

/// Function table of one instruction set. The functions are `unsafe` only because of their
/// pointers.
pub(super) struct Arch {
    /// `avx512`, `avx2`, `neon`, `simd128` or `scalar`.
    pub(super) name: &'static str,
    /// Product functions for each format, in the order of [`Format::ALL`], and each of [`WIDTHS`].
    pub(super) products: [[ProductFn; 4]; FORMATS],
    /// Product function of each format for one row of `x`, in the reduction order of several rows.
    pub(super) alike: [ProductFn; FORMATS],
    /// Decoder of each format to f32.
    pub(super) decode: [DecodeFn; FORMATS],
    /// Weighted sums for 1 and 4 rows, with f32 values.
    pub(super) weighted: [WeightedFn; 2],
    /// Weighted sums for 1 and 4 rows, with f16 values.
    pub(super) weighted_f16: [WeightedFn; 2],
    /// Returns the sum of `x`.
    pub(super) sum: unsafe fn(x: *const f32, n: usize) -> f32,
    /// Returns the sum of `(x - shift)^2`.
    pub(super) sum_squares: unsafe fn(x: *const f32, n: usize, shift: f32) -> f32,
    /// Returns the maximum of `x`, skipping NaN; -inf if there is none.
    pub(super) largest: unsafe fn(x: *const f32, n: usize) -> f32,
    /// Computes `y = (x - shift) * scale * w (+ b)`; `x` may be `y`, `b` may be null.
    pub(super) normalise: unsafe fn(&Normalise),
    /// Computes `y = exp(x - shift)` and returns the sum of `y`; `x` may be `y`.
    pub(super) exp_sum: unsafe fn(x: *const f32, y: *mut f32, n: usize, shift: f32) -> f32,
    /// Computes `y *= scale`.
    pub(super) scale: unsafe fn(y: *mut f32, n: usize, scale: f32),
    /// Executes one step of a fused kernel on a tile.
    pub(super) step: unsafe fn(super::fused::StepOp, &super::fused::Operands),
    /// Accumulates the values of a tile into the partial results of a reduction.
    pub(super) fold: unsafe fn(&super::fused::Fold),
}

/// The operands of `y = (x - shift) * scale * w (+ b)` for `n` elements.
#[derive(Clone, Copy)]
pub(super) struct Normalise {
    pub(super) x: *const f32,
    pub(super) w: *const f32,
    /// The bias; may be null.
    pub(super) b: *const f32,
    pub(super) y: *mut f32,
    pub(super) n: usize,
    pub(super) shift: f32,
    pub(super) scale: f32,
}

/// Returns the index of a format in the function tables, or `None` for formats that hold no floats.
pub(super) fn format_index(format: Format) -> Option<usize> {
    match format {
        Format::Plain(DType::I32 | DType::U32 | DType::Bool) => None,
        _ => Format::ALL.iter().position(|f| *f == format),
    }
}

/// Returns every instruction set that this machine supports, best first; the last is `scalar`,
/// except in WebAssembly with SIMD.
pub(super) fn available() -> Vec<&'static Arch> {
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("f16c")
        {
            found.push(&avx512::ARCH);
        }
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
        {
            found.push(&avx2::ARCH);
        }
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("neon") {
        found.push(&neon::ARCH);
    }
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    found.push(&simd128::ARCH);
    #[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
    found.push(&scalar::ARCH);
    found
}

/// Returns the best instruction set that this machine supports.
pub(super) fn choose() -> &'static Arch {
    available()[0]
}

/// Instantiates every loop for one vector type. `$blocks` decodes blocks; `$feature` are the
/// functions' attributes. The numbers are those of the weight rows that are multiplied at a time,
/// chosen so that the accumulators fit in registers: by 1 row of `x`, for plain and for packed
/// weights, then by 2, 4 and 8 rows, for either. For one row of `x`, blocks are decoded in
/// registers if `$one` is `registers`, otherwise through memory.
macro_rules! instantiate {
    (
        $name:literal, $simd:ty, $blocks:ident, $one:ident, [$(#[$feature:meta])*],
        [$p1:literal, $r1:literal, $r2:literal, $r4:literal, $r8:literal]
    ) => {
        use crate::arch::{Arch, Normalise, Product, Simd, Weighted, formats, generic};

        // SAFETY of every function below: the caller keeps the contract of the loop's pointers, and
        // `available` returns only tables whose instructions exist.
        $(#[$feature])*
        unsafe fn plain<W, const R: usize, const M: usize>(task: &Product)
        where
            W: formats::Rows<$simd>,
        {
            // SAFETY: see above.
            unsafe {
                let mut done = generic::product::<$simd, W, R, M>(task, 0);
                if R > 4 {
                    done = generic::product::<$simd, W, 4, M>(task, done);
                }
                generic::product::<$simd, W, 1, M>(task, done);
            }
        }
        $(#[$feature])*
        unsafe fn one_plain<W>(task: &Product)
        where
            W: formats::Plain + formats::Rows<$simd>,
        {
            // SAFETY: see above.
            unsafe {
                match task.far {
                    true => generic::in_order::<$simd, W>(task),
                    false => plain::<W, $p1, 1>(task),
                }
            }
        }
        super::instantiate!(@$one $simd, $blocks, [$(#[$feature])*], $r1);
        $(#[$feature])*
        unsafe fn memory<P: formats::Block, const R: usize, const M: usize>(task: &Product)
        where
            $blocks<P>: formats::Weights<$simd>,
        {
            // SAFETY: see above.
            unsafe { staged::<R, M>(task, &packing::<P>(), 0) }
        }
        $(#[$feature])*
        unsafe fn staged<const R: usize, const M: usize>(
            task: &Product,
            packing: &generic::Packing,
            first: usize,
        ) {
            // SAFETY: see above.
            unsafe {
                let done = generic::staged::<$simd, R, M>(task, packing, first);
                generic::staged::<$simd, 1, M>(task, packing, done);
            }
        }
        const fn packing<P: formats::Block>() -> generic::Packing
        where
            $blocks<P>: formats::Weights<$simd>,
        {
            generic::Packing { decode: decode::<$blocks<P>>, len: P::LEN, bytes: P::BYTES }
        }
        $(#[$feature])*
        unsafe fn decode<W: formats::Weights<$simd>>(w: *const u8, out: *mut f32, k: usize) {
            // SAFETY: see above.
            unsafe { W::decode(w, out, k) }
        }
        $(#[$feature])*
        unsafe fn weighted<E: formats::Plain, const M: usize>(task: &Weighted) {
            // SAFETY: see above.
            unsafe { generic::weighted::<$simd, E, M>(task) }
        }
        $(#[$feature])*
        unsafe fn sum(x: *const f32, n: usize) -> f32 {
            // SAFETY: see above.
            unsafe { generic::sum::<$simd>(x, n) }
        }
        $(#[$feature])*
        unsafe fn sum_squares(x: *const f32, n: usize, shift: f32) -> f32 {
            // SAFETY: see above.
            unsafe { generic::sum_squares::<$simd>(x, n, shift) }
        }
        $(#[$feature])*
        unsafe fn largest(x: *const f32, n: usize) -> f32 {
            // SAFETY: see above.
            unsafe { generic::largest::<$simd>(x, n) }
        }
        $(#[$feature])*
        unsafe fn normalise(task: &Normalise) {
            // SAFETY: see above.
            unsafe { generic::normalise(task) }
        }
        $(#[$feature])*
        unsafe fn exp_sum(x: *const f32, y: *mut f32, n: usize, shift: f32) -> f32 {
            // SAFETY: see above.
            unsafe { generic::exp_sum(x, y, n, shift) }
        }
        $(#[$feature])*
        unsafe fn scale(y: *mut f32, n: usize, scale: f32) {
            // SAFETY: see above.
            unsafe { generic::scale(y, n, scale) }
        }
        $(#[$feature])*
        unsafe fn step(op: crate::fused::StepOp, operands: &crate::fused::Operands) {
            // SAFETY: see above.
            unsafe { crate::fused::step(op, operands) }
        }
        $(#[$feature])*
        unsafe fn fold(task: &crate::fused::Fold) {
            // SAFETY: see above.
            unsafe { crate::fused::fold(task) }
        }

        /// Function table of this instruction set.
        pub(in crate) static ARCH: Arch = Arch {
            name: $name,
            products: [
                super::instantiate!(@plain formats::F32, $r2, $r4, $r8),
                super::instantiate!(@plain formats::F16, $r2, $r4, $r8),
                super::instantiate!(@plain formats::Bf16, $r2, $r4, $r8),
                super::instantiate!(@blocks formats::Q4_0, $r1, $r2, $r4, $r8),
                super::instantiate!(@blocks formats::Q4_1, $r1, $r2, $r4, $r8),
                super::instantiate!(@blocks formats::Q5_0, $r1, $r2, $r4, $r8),
                super::instantiate!(@blocks formats::Q5_1, $r1, $r2, $r4, $r8),
                super::instantiate!(@blocks formats::Q8_0, $r1, $r2, $r4, $r8),
                super::instantiate!(@blocks formats::Q2K, $r1, $r2, $r4, $r8),
                super::instantiate!(@blocks formats::Q3K, $r1, $r2, $r4, $r8),
                super::instantiate!(@blocks formats::Q4K, $r1, $r2, $r4, $r8),
                super::instantiate!(@blocks formats::Q5K, $r1, $r2, $r4, $r8),
                super::instantiate!(@blocks formats::Q6K, $r1, $r2, $r4, $r8),
                super::instantiate!(@blocks formats::IQ4NL, $r1, $r2, $r4, $r8),
                super::instantiate!(@blocks formats::IQ4XS, $r1, $r2, $r4, $r8),
                super::instantiate!(@blocks formats::MXFP4, $r1, $r2, $r4, $r8),
                super::instantiate!(@blocks formats::TQ1_0, $r1, $r2, $r4, $r8),
                super::instantiate!(@blocks formats::TQ2_0, $r1, $r2, $r4, $r8),
                super::instantiate!(@blocks formats::I2S, $r1, $r2, $r4, $r8),
            ],
            alike: [
                plain::<formats::F32, $p1, 1>,
                plain::<formats::F16, $p1, 1>,
                plain::<formats::Bf16, $p1, 1>,
                memory::<formats::Q4_0, $r2, 1>,
                memory::<formats::Q4_1, $r2, 1>,
                memory::<formats::Q5_0, $r2, 1>,
                memory::<formats::Q5_1, $r2, 1>,
                memory::<formats::Q8_0, $r2, 1>,
                memory::<formats::Q2K, $r2, 1>,
                memory::<formats::Q3K, $r2, 1>,
                memory::<formats::Q4K, $r2, 1>,
                memory::<formats::Q5K, $r2, 1>,
                memory::<formats::Q6K, $r2, 1>,
                memory::<formats::IQ4NL, $r2, 1>,
                memory::<formats::IQ4XS, $r2, 1>,
                memory::<formats::MXFP4, $r2, 1>,
                memory::<formats::TQ1_0, $r2, 1>,
                memory::<formats::TQ2_0, $r2, 1>,
                memory::<formats::I2S, $r2, 1>,
            ],
            decode: [
                decode::<formats::F32>,
                decode::<formats::F16>,
                decode::<formats::Bf16>,
                decode::<$blocks<formats::Q4_0>>,
                decode::<$blocks<formats::Q4_1>>,
                decode::<$blocks<formats::Q5_0>>,
                decode::<$blocks<formats::Q5_1>>,
                decode::<$blocks<formats::Q8_0>>,
                decode::<$blocks<formats::Q2K>>,
                decode::<$blocks<formats::Q3K>>,
                decode::<$blocks<formats::Q4K>>,
                decode::<$blocks<formats::Q5K>>,
                decode::<$blocks<formats::Q6K>>,
                decode::<$blocks<formats::IQ4NL>>,
                decode::<$blocks<formats::IQ4XS>>,
                decode::<$blocks<formats::MXFP4>>,
                decode::<$blocks<formats::TQ1_0>>,
                decode::<$blocks<formats::TQ2_0>>,
                decode::<$blocks<formats::I2S>>,
            ],
            weighted: [weighted::<formats::F32, 1>, weighted::<formats::F32, 4>],
            weighted_f16: [weighted::<formats::F16, 1>, weighted::<formats::F16, 4>],
            sum,
            sum_squares,
            largest,
            normalise,
            exp_sum,
            scale,
            step,
            fold,
        };
    };
    (@plain $w:ty, $r2:literal, $r4:literal, $r8:literal) => {
        [one_plain::<$w>, plain::<$w, $r2, 2>, plain::<$w, $r4, 4>, plain::<$w, $r8, 8>]
    };
    (@blocks $p:ty, $r1:literal, $r2:literal, $r4:literal, $r8:literal) => {
        [one::<$p>, memory::<$p, $r2, 2>, memory::<$p, $r4, 4>, memory::<$p, $r8, 8>]
    };
    (@registers $simd:ty, $blocks:ident, [$(#[$feature:meta])*], $r1:literal) => {
        $(#[$feature])*
        unsafe fn one<P: super::blocks::Packed>(task: &Product) {
            // SAFETY: as for all functions here.
            unsafe {
                let done = generic::product::<$simd, $blocks<P>, $r1, 1>(task, 0);
                staged::<1, 1>(task, &packing::<P>(), done);
            }
        }
    };
    (@memory $simd:ty, $blocks:ident, [$(#[$feature:meta])*], $r1:literal) => {
        unsafe fn one<P: formats::Block>(task: &Product) {
            // SAFETY: as for all functions here.
            unsafe { memory::<P, $r1, 1>(task) }
        }
    };
}
use instantiate;

#[cfg(test)]
mod tests;
