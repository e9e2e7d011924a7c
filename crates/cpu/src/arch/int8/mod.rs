//! Products of packed weights and 8-bit quantised rows: integer sums inside each block.
//!
//! A weight is `scale * code + bias`, with one scale and bias for each 16 or 32 neighbouring
//! weights, and a value of x is `d * q` (`base::ComputeMode::Int8`). So 32 products are
//! `scale * d * sum(code * q) + bias * d * sum(q)`: the first sum takes one or two instructions,
//! the second is computed once for each row of x. `unpack` decodes blocks to codes; `Codes` is the
//! set of operations on 32 codes. With one row of x, codes stay in registers. With more rows, they
//! go through memory once (`staged`), so that fewer functions are compiled for each format.
#![allow(clippy::needless_range_loop, reason = "rows and vectors of constant number, which unroll")]

#[cfg(target_arch = "x86_64")]
mod gemm_panels;
#[cfg(target_arch = "x86_64")]
mod gemv;
// As in `arch`: a module with SIMD runs with it everywhere.
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
mod portable;
mod round;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod simd128;
mod staged;
mod unpack;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::FORMATS;
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
use portable::ARRAYS as LAST;
use round::round;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use simd128::SIMD128 as LAST;
pub(crate) use staged::Packing;

use super::formats::Block;
use warploom_core::base::ComputeMode;

/// Number of values of x that share a factor.
pub(crate) const BLOCK: usize = ComputeMode::BLOCK as usize;

/// Maximum number of weight rows in a panel, in which each lane is a row (`gemm_panels`).
pub(crate) const MOST_LANES: usize = 16;

/// An entry of the four factor tables of a quantised row. Per 32 values, the tables hold `d`, and
/// `d` times the sum of the first 16 quantised values, of the last 16, and of all.
pub(crate) type Factors = f32;

/// Number of factor tables of a quantised row.
pub(crate) const TABLES: usize = 4;

/// Operations on 32 one-byte codes and eight f32 accumulators. As for `Simd`, the CPU must support
/// the instructions, and pointers must be valid for the bytes.
pub(super) trait Codes {
    /// 32 bytes.
    type B: Copy;
    /// Eight floats.
    type A: Copy;
    unsafe fn zero() -> Self::A;
    unsafe fn sum(a: Self::A) -> f32;
    /// Loads eight floats.
    unsafe fn floats(p: *const f32) -> Self::A;
    unsafe fn store(p: *mut f32, a: Self::A);
    unsafe fn splat(v: f32) -> Self::A;
    unsafe fn mul(a: Self::A, b: Self::A) -> Self::A;
    /// Computes `a * b + c`.
    unsafe fn fma(a: Self::A, b: Self::A, c: Self::A) -> Self::A;
    /// Converts eight unsigned bytes to floats.
    unsafe fn bytes(v: u64) -> Self::A;
    /// Converts eight signed bytes to floats.
    unsafe fn signed(v: u64) -> Self::A;
    /// Loads `count` floats, at most eight, padded with zeros.
    unsafe fn some(p: *const f32, count: usize) -> Self::A;
    /// Loads `count` pairs of f16, at most eight, `stride` bytes apart: the first of each, then the
    /// second, padded with zeros.
    unsafe fn pairs(p: *const u8, stride: usize, count: usize) -> [Self::A; 2];
    /// Loads 32 bytes.
    unsafe fn load(p: *const u8) -> Self::B;
    /// Stores 32 bytes.
    unsafe fn put(p: *mut u8, v: Self::B);
    /// Returns the low nibbles of 16 bytes, then the high ones.
    unsafe fn nibbles(p: *const u8) -> Self::B;
    /// Sets the bits of `value`, which are clear in `a`, in each byte whose bit in `bits` is set.
    unsafe fn with(a: Self::B, bits: u32, value: u8) -> Self::B;
    unsafe fn and(a: Self::B, mask: u8) -> Self::B;
    unsafe fn or(a: Self::B, b: Self::B) -> Self::B;
    unsafe fn add(a: Self::B, b: Self::B) -> Self::B;
    /// Returns 1 in each byte that is at least `limit`, and 0 in the others.
    unsafe fn at_least(a: Self::B, limit: u8) -> Self::B;
    /// Shifts right. Bits of the next byte may shift in: the caller masks them.
    unsafe fn shr(a: Self::B, bits: i32) -> Self::B;
    /// Shifts left. Bits of the previous byte may shift in: the caller masks them.
    unsafe fn shl(a: Self::B, bits: i32) -> Self::B;
    /// Looks up table entries by indices of 0 to 15.
    unsafe fn lookup(table: &[i8; 16], at: Self::B) -> Self::B;
    /// Adds the products of codes of 0 to 127 and signed bytes, times a scale, to `acc`.
    unsafe fn dot(acc: Self::A, w: Self::B, x: Self::B, scale: f32) -> Self::A;
    /// Same as [`Codes::dot`], with a scale for each half of the codes.
    unsafe fn dot_f16(acc: Self::A, w: Self::B, x: Self::B, scales: [f32; 2]) -> Self::A;
    /// Same as [`Codes::dot`], with signed codes.
    unsafe fn dot_signed(acc: Self::A, w: Self::B, x: Self::B, scale: f32) -> Self::A;
    /// Converts one f16, given as bits, to f32.
    unsafe fn half(bits: u16) -> f32;
}

/// Number of runs of 32 that are multiplied together, so that their scales are computed together.
const RUNS: usize = 8;

/// Scales and biases of eight runs; two of each if the halves of a run differ.
pub(super) struct Scales<A> {
    scale: [A; 2],
    bias: [A; 2],
}

impl<A: Copy> Scales<A> {
    fn new(scale: A, bias: A) -> Scales<A> {
        Scales { scale: [scale; 2], bias: [bias; 2] }
    }
}

/// The range of a format's codes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// 0 to 127.
    Whole,
    /// 0 to 127, with a scale and a bias for each half of a run.
    Halves,
    /// -127 to 127, without a bias.
    Signed,
}

/// A block format whose codes are unpacked in registers. Eight runs are one block of 256 weights,
/// or several shorter blocks.
pub(super) trait Coded: Block {
    /// Range of the codes.
    const KIND: Kind;
    /// Whether codes are `Whole` and all runs of a block share one scale and bias, which
    /// [`Coded::scales`] repeats for each run.
    const UNIFORM: bool = false;

    /// Returns the scales and biases of `count` runs: eight, or fewer for shorter blocks. The
    /// remaining entries are unspecified finite values.
    ///
    /// # Safety
    /// `p` holds the blocks of the runs.
    unsafe fn scales<C: Codes>(p: *const u8, count: usize) -> Scales<C::A>;

    /// Returns the codes of the run with index `run` (0 to 7).
    ///
    /// # Safety
    /// `p` holds the blocks up to that of the run.
    unsafe fn run<C: Codes>(p: *const u8, run: usize) -> C::B;
}

/// A product of packed weight rows and quantised rows: `y[i * y_stride + r] = w[r] . x[i]`.
#[derive(Clone, Copy)]
pub(crate) struct IntProduct {
    /// `rows` rows of `row_bytes` bytes; the first `k` weights of each are multiplied.
    pub(crate) w: *const u8,
    pub(crate) row_bytes: usize,
    pub(crate) rows: usize,
    pub(crate) k: usize,
    /// Contiguous rows of `k` quantised values.
    pub(crate) x: *const i8,
    /// Contiguous rows of four tables of `k / 32` factors.
    pub(crate) factors: *const Factors,
    pub(crate) y: *mut f32,
    pub(crate) y_stride: usize,
}

type IntProductFn = unsafe fn(&IntProduct);
/// Computes products of `m` rows of x. `one` describes the first row and the strides of the others;
/// `sums` has room for `m * MOST_LANES` floats.
type TilesFn = unsafe fn(one: &IntProduct, m: usize, sums: *mut f32, packing: &Packing);
type RoundFn =
    unsafe fn(x: *const f32, n: usize, codes: *mut i8, factors: *mut Factors, apart: usize);

/// Int8 function table of one instruction set.
pub(crate) struct Int8 {
    /// `vnni`, `avx2`, `simd128` or `arrays`.
    pub(crate) name: &'static str,
    /// Product functions for each format, in the order of `Format::ALL`, and each of `WIDTHS`;
    /// `None` for plain formats.
    pub(crate) products: [Option<[IntProductFn; 4]>; FORMATS],
    /// Block decoder of each format; `None` for plain formats.
    pub(crate) packings: [Option<Packing>; FORMATS],
    /// GEMM for many rows of x, if it is faster than 8 rows at a time.
    pub(crate) tiles: Option<TilesFn>,
    /// GEMV with results bit-identical to `tiles`; present if `tiles` is.
    pub(crate) single: Option<unsafe fn(&IntProduct, &Packing)>,
    /// Quantises `n` values, a multiple of 32; the tables of factors are `apart` floats apart.
    pub(crate) round: RoundFn,
}

/// Returns every int8 instruction set that this machine supports, best first; the last is there on
/// every machine.
pub(crate) fn available() -> Vec<&'static Int8> {
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let vnni = is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512f");
        if avx2 && vnni {
            found.push(&x86::VNNI);
        }
        if avx2 {
            found.push(&x86::AVX2);
        }
    }
    found.push(&LAST);
    found
}

/// Returns the best int8 functions to use with an f32 instruction set.
pub(crate) fn beside(arch: &super::Arch) -> &'static Int8 {
    let fits = |int8: &&Int8| match arch.name {
        "avx512" => true,
        "avx2" => int8.name != "vnni",
        _ => int8.name == LAST.name,
    };
    available().into_iter().find(fits).unwrap_or(&LAST)
}

/// Computes an [`IntProduct`] for one row of x, with codes that stay in registers.
///
/// Reads the weights in address order, the only order that the hardware prefetcher follows: four
/// rows at a time are read at half the speed.
///
/// # Safety
/// The pointers of the task are valid for its sizes, `k` is a multiple of the block length; `y` is
/// not shared.
#[inline(always)]
unsafe fn one_row<C: Codes, P: Coded>(t: &IntProduct) {
    const {
        assert!(P::LEN == BLOCK || P::LEN == 4 * BLOCK || P::LEN == RUNS * BLOCK);
        assert!(!P::UNIFORM || matches!(P::KIND, Kind::Whole));
    }
    let runs = t.k / BLOCK;
    // SAFETY: rows stay below `rows`, runs below k / 32, and blocks below k / LEN: what is left of
    // eight runs is a whole number of shorter blocks.
    unsafe {
        for row in 0..t.rows {
            let w = t.w.add(row * t.row_bytes);
            let mut sums = [C::zero(); SUMS];
            let mut at = 0;
            // Two short blocks would need two scales.
            while !(P::UNIFORM && P::LEN < RUNS * BLOCK) && at + RUNS <= runs {
                some_runs::<C, P, RUNS>(t, w, at, &mut sums);
                at += RUNS;
            }
            if P::LEN < RUNS * BLOCK {
                while at + 4 <= runs {
                    some_runs::<C, P, 4>(t, w, at, &mut sums);
                    at += 4;
                }
                while P::LEN == BLOCK && at < runs {
                    some_runs::<C, P, 1>(t, w, at, &mut sums);
                    at += 1;
                }
            }
            let [low, first, second] = sums;
            let one = C::splat(1.0);
            *t.y.add(row) = C::sum(C::fma(one, low, C::fma(one, first, second)));
        }
    }
}

/// Number of accumulators of a row: one of biases, and two of products, of even and of odd runs, to
/// hide latency.
const SUMS: usize = 3;

/// Returns the offset of the block of run `at` in a row, in bytes; a block is at least one run.
#[inline(always)]
fn place<P: Block>(at: usize) -> usize {
    at * BLOCK / P::LEN * P::BYTES
}

/// Multiplies `COUNT` runs of the weight row `w`, from run `at` on, by a row of x.
///
/// # Safety
/// Same as [`one_row`], and the row has the runs, which are eight or whole blocks.
#[inline(always)]
unsafe fn some_runs<C: Codes, P: Coded, const COUNT: usize>(
    t: &IntProduct,
    w: *const u8,
    at: usize,
    sums: &mut [C::A; SUMS],
) {
    let (runs, factors) = (t.k / BLOCK, t.factors.wrapping_add(at));
    let p = w.wrapping_add(place::<P>(at));
    // SAFETY: the caller's contract.
    unsafe {
        let Scales { scale, bias } = P::scales::<C>(p, COUNT);
        let mut scales = [[0.0f32; RUNS]; 2];
        let d = C::some(factors, COUNT);
        C::store(scales[0].as_mut_ptr(), C::mul(scale[0], d));
        let low = &mut sums[0];
        match P::KIND {
            Kind::Signed => {}
            Kind::Whole => *low = C::fma(bias[0], C::some(factors.add(3 * runs), COUNT), *low),
            Kind::Halves => {
                C::store(scales[1].as_mut_ptr(), C::mul(scale[1], d));
                *low = C::fma(bias[0], C::some(factors.add(runs), COUNT), *low);
                *low = C::fma(bias[1], C::some(factors.add(2 * runs), COUNT), *low);
            }
        }
        if P::UNIFORM {
            // Factors of x are memory operands, which broadcasts them at no cost.
            let mut both = [C::zero(); 2];
            for run in 0..COUNT {
                let x = C::load(t.x.add((at + run) * BLOCK).cast());
                let sum = &mut both[run % 2];
                *sum = C::dot(*sum, P::run::<C>(p, run), x, *factors.add(run));
            }
            for (sum, both) in sums[1..].iter_mut().zip(both) {
                *sum = C::fma(scale[0], both, *sum);
            }
            return;
        }
        let [first, second] = &scales;
        for run in 0..COUNT {
            let codes = P::run::<C>(p, run);
            let x = C::load(t.x.add((at + run) * BLOCK).cast());
            let acc = &mut sums[1 + run % 2];
            *acc = match P::KIND {
                Kind::Whole => C::dot(*acc, codes, x, first[run]),
                Kind::Halves => C::dot_f16(*acc, codes, x, [first[run], second[run]]),
                Kind::Signed => C::dot_signed(*acc, codes, x, first[run]),
            };
        }
    }
}

/// Defines the function table of one kind of [`Codes`]; `$feature` are the functions' attributes.
/// One row of x is multiplied from registers if `$registers` is true, else through a stage as for
/// more rows. `$m1` to `$m8` are the numbers of rows of x that are multiplied at once, for 1, 2, 4
/// and 8 rows. `$tiles` is the GEMM of many rows, `$single` the bit-identical GEMV.
macro_rules! table {
    (
        $name:ident, $text:literal, $codes:ty, [$(#[$feature:meta])*], $registers:literal, $tiles:expr, $single:expr,
        [$m1:literal, $m2:literal, $m4:literal, $m8:literal]
    ) => {
        /// Function table of this instruction set.
        pub(super) static $name: super::Int8 = {
            use super::super::formats::*;
            use super::staged::{self, Packing, Stage};
            // SAFETY of all: the caller keeps the contract of the pointers, and `available` returns
            // only tables whose instructions exist.
            $(#[$feature])*
            unsafe fn one<P: super::Coded>(task: &super::IntProduct) {
                // SAFETY: see above.
                unsafe {
                    match $registers {
                        true => super::one_row::<$codes, P>(task),
                        false => stages::<$m1>(task, &packing::<P>(), 1),
                    }
                }
            }
            $(#[$feature])*
            unsafe fn more<P: super::Coded, const AT_ONCE: usize, const M: usize>(
                task: &super::IntProduct,
            ) {
                // SAFETY: see above.
                unsafe { stages::<AT_ONCE>(task, &packing::<P>(), M) }
            }
            const fn packing<P: super::Coded>() -> Packing {
                Packing { unpack: unpack::<P>, kind: P::KIND, len: P::LEN, bytes: P::BYTES }
            }
            $(#[$feature])*
            unsafe fn unpack<P: super::Coded>(p: *const u8, runs: usize, stage: &mut Stage) {
                // SAFETY: see above.
                unsafe { staged::unpack::<$codes, P>(p, runs, stage) }
            }
            $(#[$feature])*
            unsafe fn stages<const AT_ONCE: usize>(
                task: &super::IntProduct,
                packing: &Packing,
                m: usize,
            ) {
                // SAFETY: see above.
                unsafe { staged::product::<$codes, AT_ONCE>(task, packing, m) }
            }
            $(#[$feature])*
            unsafe fn round(
                x: *const f32,
                n: usize,
                codes: *mut i8,
                factors: *mut super::Factors,
                apart: usize,
            ) {
                // SAFETY: see above.
                unsafe { super::round(x, n, codes, factors, apart) }
            }
            macro_rules! widths {
                ($format:ty) => {
                    Some([
                        one::<$format>,
                        more::<$format, $m2, 2>,
                        more::<$format, $m4, 4>,
                        more::<$format, $m8, 8>,
                    ])
                };
            }
            super::Int8 {
                name: $text,
                packings: [
                    None,
                    None,
                    None,
                    Some(packing::<Q4_0>()),
                    Some(packing::<Q4_1>()),
                    Some(packing::<Q5_0>()),
                    Some(packing::<Q5_1>()),
                    Some(packing::<Q8_0>()),
                    Some(packing::<Q2K>()),
                    Some(packing::<Q3K>()),
                    Some(packing::<Q4K>()),
                    Some(packing::<Q5K>()),
                    Some(packing::<Q6K>()),
                    Some(packing::<IQ4NL>()),
                    Some(packing::<IQ4XS>()),
                    Some(packing::<MXFP4>()),
                    Some(packing::<TQ1_0>()),
                    Some(packing::<TQ2_0>()),
                    Some(packing::<I2S>()),
                ],
                tiles: $tiles,
                single: $single,
                products: [
                    None,
                    None,
                    None,
                    widths!(Q4_0),
                    widths!(Q4_1),
                    widths!(Q5_0),
                    widths!(Q5_1),
                    widths!(Q8_0),
                    widths!(Q2K),
                    widths!(Q3K),
                    widths!(Q4K),
                    widths!(Q5K),
                    widths!(Q6K),
                    widths!(IQ4NL),
                    widths!(IQ4XS),
                    widths!(MXFP4),
                    widths!(TQ1_0),
                    widths!(TQ2_0),
                    widths!(I2S),
                ],
                round,
            }
        };
    };
}
use table;

#[cfg(test)]
mod tests;
