//! Products of packed weights with rows of 8-bit numbers: sums of whole numbers inside a block.
//!
//! A weight is `scale * code + bias`, the same scale and bias for 16 or 32 neighbours, and a number
//! of x is `d * q` (`base::ComputeMode::Int8`). So 32 products are
//! `scale * d * sum(code * q) + bias * d * sum(q)`: the first sum is one instruction or two, the
//! second is made once for each row of x. `unpack` says how blocks come apart, `Codes` what a
//! machine can do with 32 codes at once. With one row of x, codes stay in registers; with more,
//! they go through memory once (`staged`), so that only a few functions exist for each format.
#![allow(clippy::needless_range_loop, reason = "rows and vectors of constant number, which unroll")]

mod arrays;
#[cfg(target_arch = "x86_64")]
mod single;
mod staged;
#[cfg(target_arch = "x86_64")]
mod tiles;
mod unpack;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::FORMATS;
pub(crate) use staged::Packing;

use super::formats::Block;
use warploom_core::base::ComputeMode;

/// Numbers of x that share a factor.
pub(crate) const BLOCK: usize = ComputeMode::BLOCK as usize;

/// Most rows of weights side by side, where a lane is a row (`tiles`).
pub(crate) const MOST_LANES: usize = 16;

/// What rounded numbers mean, for each 32 of a row one after another in four tables: `d`, and `d`
/// times the sums of the first half, of the second, and of all.
pub(crate) type Factors = f32;

/// Numbers in the tables of each 32.
pub(crate) const TABLES: usize = 4;

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
    /// `count` floats, at most eight, and zeros.
    unsafe fn some(p: *const f32, count: usize) -> Self::A;
    /// Pairs of halves at `count` places `stride` bytes apart, at most eight, and zeros: first and
    /// second ones.
    unsafe fn pairs(p: *const u8, stride: usize, count: usize) -> [Self::A; 2];
    /// 32 bytes.
    unsafe fn load(p: *const u8) -> Self::B;
    /// Writes them.
    unsafe fn put(p: *mut u8, v: Self::B);
    /// The lower halves of 16 bytes, then the upper ones.
    unsafe fn nibbles(p: *const u8) -> Self::B;
    /// With the bits of `value`, which `a` lacks, where a bit is set, the lowest first.
    unsafe fn with(a: Self::B, bits: u32, value: u8) -> Self::B;
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
    /// Whole codes, and all runs of a block have one scale and one bias, which are in all eight
    /// places.
    const UNIFORM: bool = false;

    /// Scales and biases of `count` runs: eight, or fewer where blocks are shorter. The others are
    /// of no meaning, but numbers.
    ///
    /// # Safety
    /// `p` holds their blocks.
    unsafe fn scales<C: Codes>(p: *const u8, count: usize) -> Scales<C::A>;

    /// The codes of run `run` of eight.
    ///
    /// # Safety
    /// `p` holds its block.
    unsafe fn run<C: Codes>(p: *const u8, run: usize) -> C::B;
}

/// A product of packed rows with rows that were rounded: `y[i * y_stride + r] = w[r] . x[i]`.
#[derive(Clone, Copy)]
pub(crate) struct IntProduct {
    /// `rows` rows of `row_bytes` bytes, the first `k` weights of each.
    pub(crate) w: *const u8,
    pub(crate) row_bytes: usize,
    pub(crate) rows: usize,
    pub(crate) k: usize,
    /// Rows of `k` rounded numbers, without gaps.
    pub(crate) x: *const i8,
    /// Rows of four tables of `k / 32`, without gaps.
    pub(crate) factors: *const Factors,
    pub(crate) y: *mut f32,
    pub(crate) y_stride: usize,
}

type IntProductFn = unsafe fn(&IntProduct);
/// Products of `m` rows of x: `one` is of the first, and the others follow as it says; `sums` has room for
/// `m * MOST_LANES`.
type TilesFn = unsafe fn(one: &IntProduct, m: usize, sums: *mut f32, packing: &Packing);
type RoundFn =
    unsafe fn(x: *const f32, n: usize, codes: *mut i8, factors: *mut Factors, apart: usize);

/// The functions of one instruction set.
pub(crate) struct Int8 {
    /// `vnni`, `avx2`, `arrays`.
    pub(crate) name: &'static str,
    /// For each format in the order of `Format::ALL`, for each of `WIDTHS`; none for plain ones.
    pub(crate) products: [Option<[IntProductFn; 4]>; FORMATS],
    /// How blocks come apart, for each format.
    pub(crate) packings: [Option<Packing>; FORMATS],
    /// Products of many rows of x, where that is worth more than 8 at a time.
    pub(crate) tiles: Option<TilesFn>,
    /// Products of one row of x with the bits of those, where there are those.
    pub(crate) single: Option<unsafe fn(&IntProduct, &Packing)>,
    /// Rounds `n` numbers, a multiple of 32; the tables of factors are `apart` from each other.
    pub(crate) round: RoundFn,
}

/// Every instruction set that this machine has, best first; the last is `arrays`.
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
    found.push(&arrays::ARRAYS);
    found
}

/// The best that goes with a choice of vectors.
pub(crate) fn beside(arch: &super::Arch) -> &'static Int8 {
    let fits = |int8: &&Int8| match arch.name {
        "avx512" => true,
        "avx2" => int8.name != "vnni",
        _ => int8.name == "arrays",
    };
    available().into_iter().find(fits).unwrap_or(&arrays::ARRAYS)
}

/// See [`IntProduct`], for one row of x, with codes that stay in registers.
///
/// Weights are read from the first byte to the last, since hardware sees what comes next only in
/// that order: four rows side by side read half as fast.
///
/// # Safety
/// The pointers of the task hold what it says, `k` is a multiple of the block's length; `y` is
/// shared with nobody.
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
            // Two short blocks would be two scales.
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

/// Sums of a row, so that none waits for itself: of biases, and of products of even and odd runs.
const SUMS: usize = 3;

/// Where the block of run `at` is in a row: blocks are at least a run.
#[inline(always)]
fn place<P: Block>(at: usize) -> usize {
    at * BLOCK / P::LEN * P::BYTES
}

/// `COUNT` runs of the row of weights at `w`, from run `at` on, with a row of x.
///
/// # Safety
/// As `one_row`; the row has the runs, which are eight or whole blocks.
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
            // Factors of x come from memory as they are, which spreads them at no cost.
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
                Kind::Halves => C::dot_halves(*acc, codes, x, [first[run], second[run]]),
                Kind::Signed => C::dot_signed(*acc, codes, x, first[run]),
            };
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
        // The sum with this number keeps no fraction, rounds as it should, and has the whole number
        // in its low bits: a conversion that saturates would be no vector instruction.
        const WHOLE: f32 = 12_582_912.0;
        let mut whole = [0i32; BLOCK];
        for (q, v) in whole.iter_mut().zip(x) {
            *q = (v * by + WHOLE).to_bits().wrapping_sub(WHOLE.to_bits()) as i32;
        }
        for (code, q) in codes.iter_mut().zip(&whole) {
            *code = *q as i8;
        }
        let mut sums = [0i32; 2];
        for (sum, half) in sums.iter_mut().zip(whole.chunks_exact(16)) {
            half.iter().for_each(|q| *sum += q);
        }
        let [first, second] = sums.map(|sum| d * sum as f32);
        put([d, first, second, d * (sums[0] + sums[1]) as f32]);
    }
}

/// A table of functions for one kind of [`Codes`]; `$feature` are their attributes. One row of x
/// goes through registers where `$registers` says so, else as more rows do: through a stage, of 1,
/// 2, 4 and 8 rows `$m1` to `$m8` at once; `$tiles` is the function of many rows, `$single` that of
/// one with its bits.
macro_rules! table {
    (
        $name:ident, $text:literal, $codes:ty, [$(#[$feature:meta])*], $registers:literal, $tiles:expr, $single:expr,
        [$m1:literal, $m2:literal, $m4:literal, $m8:literal]
    ) => {
        /// The functions of this instruction set.
        pub(super) static $name: super::Int8 = {
            use super::super::formats::*;
            use super::staged::{self, Packing, Stage};
            // SAFETY of all: the caller keeps the contract of the pointers, and tables are handed
            // out only where the instructions exist.
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
