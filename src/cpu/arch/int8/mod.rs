//! Products of packed weights with rows of 8-bit numbers: sums of whole numbers inside a block.
//!
//! A weight is `scale * code + bias`, the same scale and bias for 16 or 32 neighbours, and a number
//! of x is `d * q` (`base::ComputeMode::Int8`). So 32 products are
//! `scale * d * sum(code * q) + bias * d * sum(q)`: the first sum is one instruction or two, the
//! second is made once for each row of x. `unpack` says how blocks come apart, `Codes` what a
//! machine can do with 32 codes at once.
#![allow(clippy::needless_range_loop, reason = "rows and vectors of constant number, which unroll")]

mod arrays;
mod unpack;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::FORMATS;
use super::formats::Block;
use crate::base::ComputeMode;

/// Numbers of x that share a factor.
pub(in crate::cpu) const BLOCK: usize = ComputeMode::BLOCK as usize;

/// What rounded numbers mean, for each 32 of a row one after another in four tables: `d`, and `d`
/// times the sums of the first half, of the second, and of all.
pub(in crate::cpu) type Factors = f32;

/// Numbers in the tables of each 32.
pub(in crate::cpu) const TABLES: usize = 4;

/// 32 codes of a byte each, and eight running sums. As for `Simd`, the machine must have the
/// instructions, and pointers must hold the bytes.
pub(super) trait Codes {
    /// 32 bytes.
    type B: Copy;
    /// Eight floats.
    type A: Copy;
    unsafe fn zero() -> Self::A;
    unsafe fn sum(a: Self::A) -> f32;
    /// Eight floats.
    unsafe fn floats(p: *const f32) -> Self::A;
    unsafe fn store(p: *mut f32, a: Self::A);
    unsafe fn splat(v: f32) -> Self::A;
    unsafe fn mul(a: Self::A, b: Self::A) -> Self::A;
    /// `a * b + c`.
    unsafe fn fma(a: Self::A, b: Self::A, c: Self::A) -> Self::A;
    /// Eight bytes, without sign.
    unsafe fn bytes(v: u64) -> Self::A;
    /// Eight signed bytes.
    unsafe fn signed(v: u64) -> Self::A;
    /// Pairs of halves at eight places `stride` bytes apart: first and second ones.
    unsafe fn pairs(p: *const u8, stride: usize) -> [Self::A; 2];
    /// 32 bytes.
    unsafe fn load(p: *const u8) -> Self::B;
    /// The lower halves of 16 bytes, then the upper ones.
    unsafe fn nibbles(p: *const u8) -> Self::B;
    /// `value` where a bit is set, the lowest first, and 0 elsewhere.
    unsafe fn bits(bits: u32, value: u8) -> Self::B;
    unsafe fn and(a: Self::B, mask: u8) -> Self::B;
    unsafe fn or(a: Self::B, b: Self::B) -> Self::B;
    unsafe fn add(a: Self::B, b: Self::B) -> Self::B;
    /// 1 where a byte is at least so much.
    unsafe fn at_least(a: Self::B, limit: u8) -> Self::B;
    /// Moves bits down. Bits of the next byte come in: to be masked.
    unsafe fn shr(a: Self::B, bits: i32) -> Self::B;
    /// Moves bits up. Bits of the byte before come in: to be masked.
    unsafe fn shl(a: Self::B, bits: i32) -> Self::B;
    /// The numbers of a table at places of 0 to 15.
    unsafe fn lookup(table: &[i8; 16], at: Self::B) -> Self::B;
    /// `acc` and the products of codes of 0 to 127 with signed bytes, times a scale.
    unsafe fn dot(acc: Self::A, w: Self::B, x: Self::B, scale: f32) -> Self::A;
    /// The same with a scale for each half.
    unsafe fn dot_halves(acc: Self::A, w: Self::B, x: Self::B, scales: [f32; 2]) -> Self::A;
    /// The same with signed codes.
    unsafe fn dot_signed(acc: Self::A, w: Self::B, x: Self::B, scale: f32) -> Self::A;
    /// A half, by its bits.
    unsafe fn half(bits: u16) -> f32;
}

/// Runs of 32 that are multiplied together, so that their scales are made together.
const RUNS: usize = 8;

/// Scales and biases of eight runs. Where halves of runs differ, two of each.
pub(super) struct Scales<A> {
    scale: [A; 2],
    bias: [A; 2],
}

impl<A: Copy> Scales<A> {
    fn new(scale: A, bias: A) -> Scales<A> {
        Scales { scale: [scale; 2], bias: [bias; 2] }
    }
}

/// What the codes of a format are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// 0 to 127.
    Whole,
    /// 0 to 127, with scale and bias for each half of a run.
    Halves,
    /// -127 to 127, without a bias.
    Signed,
}

/// Blocks whose codes come apart in registers. Eight runs are one block of 256 weights, or several
/// shorter ones.
pub(super) trait Coded: Block {
    /// What the codes are.
    const KIND: Kind;

    /// Scales and biases of eight runs.
    ///
    /// # Safety
    /// `p` holds their blocks.
    unsafe fn scales<C: Codes>(p: *const u8) -> Scales<C::A>;

    /// The codes of run `run` of eight.
    ///
    /// # Safety
    /// `p` holds its block.
    unsafe fn run<C: Codes>(p: *const u8, run: usize) -> C::B;

    /// Scale and bias of the run that starts at `p`, for formats of shorter blocks.
    ///
    /// # Safety
    /// `p` holds a block.
    unsafe fn one<C: Codes>(p: *const u8) -> [f32; 2];
}

/// A product of packed rows with rows that were rounded: `y[i * y_stride + r] = w[r] . x[i]`.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct IntProduct {
    /// `rows` rows of `row_bytes` bytes, the first `k` weights of each.
    pub(in crate::cpu) w: *const u8,
    pub(in crate::cpu) row_bytes: usize,
    pub(in crate::cpu) rows: usize,
    pub(in crate::cpu) k: usize,
    /// Rows of `k` rounded numbers, without gaps.
    pub(in crate::cpu) x: *const i8,
    /// Rows of four tables of `k / 32`, without gaps.
    pub(in crate::cpu) factors: *const Factors,
    pub(in crate::cpu) y: *mut f32,
    pub(in crate::cpu) y_stride: usize,
}

type IntProductFn = unsafe fn(&IntProduct);
type RoundFn =
    unsafe fn(x: *const f32, n: usize, codes: *mut i8, factors: *mut Factors, apart: usize);

/// The functions of one instruction set.
pub(in crate::cpu) struct Int8 {
    /// `vnni`, `avx2`, `arrays`.
    pub(in crate::cpu) name: &'static str,
    /// For each format in the order of `Format::ALL`, for each of `WIDTHS`; none for plain ones.
    pub(in crate::cpu) products: [Option<[IntProductFn; 4]>; FORMATS],
    /// Rounds `n` numbers, a multiple of 32; the tables of factors are `apart` from each other.
    pub(in crate::cpu) round: RoundFn,
}

/// Every instruction set that this machine has, best first; the last is `arrays`.
pub(in crate::cpu) fn available() -> Vec<&'static Int8> {
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
    found.push(&arrays::ARRAYS);
    found
}

/// The best that goes with a choice of vectors.
pub(in crate::cpu) fn beside(arch: &super::Arch) -> &'static Int8 {
    let fits = |int8: &&Int8| match arch.name {
        "avx512" => true,
        "avx2" => int8.name != "vnni",
        _ => int8.name == "arrays",
    };
    available().into_iter().find(fits).unwrap_or(&arrays::ARRAYS)
}

/// See [`IntProduct`], for `M` rows of x and `R` rows of weights at once.
///
/// # Safety
/// The pointers of the task hold what it says, `k` is a multiple of the block's length; `y` is
/// shared with nobody.
#[inline(always)]
unsafe fn product<C: Codes, P: Coded, const R: usize, const M: usize>(task: &IntProduct) {
    let mut row = 0;
    // SAFETY: rows stay below `rows`.
    unsafe {
        while row + R <= task.rows {
            some_rows::<C, P, R, M>(task, row);
            row += R;
        }
        while row < task.rows {
            some_rows::<C, P, 1, M>(task, row);
            row += 1;
        }
    }
}

/// # Safety
/// As `product`; `row + R` is at most `rows`.
#[inline(always)]
unsafe fn some_rows<C: Codes, P: Coded, const R: usize, const M: usize>(
    t: &IntProduct,
    row: usize,
) {
    let runs = t.k / BLOCK;
    // Where run `at` of x and of the weights is: blocks are at least a run.
    let place = |at: usize| at * BLOCK / P::LEN * P::BYTES;
    // SAFETY: runs stay below k / 32, and blocks below k / LEN: shorter blocks are of one run or
    // four, and what is left of eight is a whole number of these.
    unsafe {
        let mut acc = [[C::zero(); M]; R];
        let mut low = [[C::zero(); M]; R];
        let mut at = 0;
        while at + RUNS <= runs {
            for r in 0..R {
                let p = t.w.add((row + r) * t.row_bytes + place(at));
                eight::<C, P, M>(t, p, at, &mut acc[r], &mut low[r]);
            }
            at += RUNS;
        }
        while at < runs {
            for r in 0..R {
                let p = t.w.add((row + r) * t.row_bytes + place(at));
                let codes = P::run::<C>(p, at % (P::LEN / BLOCK));
                let [scale, bias] = P::one::<C>(p);
                for i in 0..M {
                    let factors = t.factors.add(i * TABLES * runs + at);
                    let x = C::load(t.x.add(i * t.k + at * BLOCK).cast());
                    let scale = scale * *factors;
                    acc[r][i] = match P::KIND {
                        Kind::Signed => C::dot_signed(acc[r][i], codes, x, scale),
                        _ => C::dot(acc[r][i], codes, x, scale),
                    };
                    // One of the eight sums of biases.
                    let mut first = [0.0; 8];
                    first[0] = bias * *factors.add(3 * runs);
                    low[r][i] = C::fma(C::splat(1.0), C::floats(first.as_ptr()), low[r][i]);
                }
            }
            at += 1;
        }
        for r in 0..R {
            for i in 0..M {
                let sum = C::fma(C::splat(1.0), low[r][i], acc[r][i]);
                *t.y.add(i * t.y_stride + row + r) = C::sum(sum);
            }
        }
    }
}

/// Eight runs of one row of weights, from run `at` on, with `M` rows of x.
///
/// # Safety
/// As `some_rows`; `p` holds the runs.
#[inline(always)]
unsafe fn eight<C: Codes, P: Coded, const M: usize>(
    t: &IntProduct,
    p: *const u8,
    at: usize,
    acc: &mut [C::A; M],
    low: &mut [C::A; M],
) {
    let runs = t.k / BLOCK;
    // SAFETY: the caller's contract.
    unsafe {
        let Scales { scale, bias } = P::scales::<C>(p);
        // Through memory, which spreads a number over a vector at no cost.
        let mut scales = [[[0.0f32; RUNS]; 2]; M];
        for i in 0..M {
            let factors = t.factors.add(i * TABLES * runs + at);
            let d = C::floats(factors);
            C::store(scales[i][0].as_mut_ptr(), C::mul(scale[0], d));
            match P::KIND {
                Kind::Signed => {}
                Kind::Whole => low[i] = C::fma(bias[0], C::floats(factors.add(3 * runs)), low[i]),
                Kind::Halves => {
                    C::store(scales[i][1].as_mut_ptr(), C::mul(scale[1], d));
                    low[i] = C::fma(bias[0], C::floats(factors.add(runs)), low[i]);
                    low[i] = C::fma(bias[1], C::floats(factors.add(2 * runs)), low[i]);
                }
            }
        }
        for run in 0..RUNS {
            let codes = P::run::<C>(p, run);
            for i in 0..M {
                let x = C::load(t.x.add(i * t.k + (at + run) * BLOCK).cast());
                let [first, second] = &scales[i];
                acc[i] = match P::KIND {
                    Kind::Whole => C::dot(acc[i], codes, x, first[run]),
                    Kind::Halves => C::dot_halves(acc[i], codes, x, [first[run], second[run]]),
                    Kind::Signed => C::dot_signed(acc[i], codes, x, first[run]),
                };
            }
        }
    }
}

/// Blocks without a larger number count as zeros: 127 over it may be infinite.
const TINY: f32 = 1e-30;

/// Rounds `n` numbers to codes and factors, whose tables are `apart` from each other.
///
/// # Safety
/// `x` and `codes` hold `n` numbers, a multiple of 32, each table of `factors` one for each 32.
#[inline(always)]
unsafe fn round(x: *const f32, n: usize, codes: *mut i8, factors: *mut Factors, apart: usize) {
    for block in 0..n / BLOCK {
        // SAFETY: the block lies below n.
        let (x, codes) = unsafe {
            let at = block * BLOCK;
            let x = &*x.add(at).cast::<[f32; BLOCK]>();
            (x, &mut *codes.add(at).cast::<[i8; BLOCK]>())
        };
        let put = |values: [f32; TABLES]| {
            for (table, value) in values.into_iter().enumerate() {
                // SAFETY: as above.
                unsafe { *factors.add(table * apart + block) = value };
            }
        };
        // As bits, infinities and NaN are larger than any number.
        let most = x.iter().fold(0u32, |most, v| most.max(v.to_bits() & 0x7fff_ffff));
        if most >= f32::INFINITY.to_bits() {
            *codes = [0; BLOCK];
            put([f32::NAN; TABLES]);
            continue;
        }
        let most = f32::from_bits(most);
        let [by, d] = if most > TINY { [127.0 / most, most / 127.0] } else { [0.0; 2] };
        // The sum with this number keeps no fraction, and rounds as it should.
        const WHOLE: f32 = 12_582_912.0;
        let mut sums = [0i32; 2];
        for half in 0..2 {
            for j in half * 16..half * 16 + 16 {
                let q = ((x[j] * by + WHOLE) - WHOLE) as i32;
                codes[j] = q as i8;
                sums[half] += q;
            }
        }
        let [first, second] = sums.map(|sum| d * sum as f32);
        put([d, first, second, d * (sums[0] + sums[1]) as f32]);
    }
}

/// A table of functions for one kind of [`Codes`]; `$feature` are their attributes, the numbers
/// how many weight rows go at once for 1, 2, 4 and 8 rows of x.
macro_rules! table {
    (
        $name:ident, $text:literal, $codes:ty, [$(#[$feature:meta])*],
        [$r1:literal, $r2:literal, $r4:literal, $r8:literal]
    ) => {
        /// The functions of this instruction set.
        pub(super) static $name: super::Int8 = {
            use super::super::formats::*;
            // SAFETY of both: the caller keeps the contract of the pointers, and tables are handed
            // out only where the instructions exist.
            $(#[$feature])*
            unsafe fn product<P: super::Coded, const R: usize, const M: usize>(
                task: &super::IntProduct,
            ) {
                // SAFETY: see above.
                unsafe { super::product::<$codes, P, R, M>(task) }
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
                        product::<$format, $r1, 1>,
                        product::<$format, $r2, 2>,
                        product::<$format, $r4, 4>,
                        product::<$format, $r8, 8>,
                    ])
                };
            }
            super::Int8 {
                name: $text,
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
