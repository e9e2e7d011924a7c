//! Int8 GEMM for many rows of x, over panels of weight rows in which each lane is one row.
//!
//! A panel interleaves four codes of each row, for as many rows as there are lanes. One instruction
//! multiplies four values of a row of x, broadcast to every lane, by the codes of all rows. There
//! are no sums across lanes, and scales are vectors. A panel is unpacked once for all rows of x.

use super::super::prefetch;
use super::staged::{Packing, STAGE, Stage};
use super::{BLOCK, IntProduct, Kind, MOST_LANES, RUNS, TABLES};

/// Maximum number of rows of x whose accumulators are in registers at the same time.
const TOGETHER: usize = 8;

/// Number of values of a row that one instruction multiplies.
const QUAD: usize = 4;

/// Operations on vectors of 32-bit lanes. As for `Simd`, the CPU must support the instructions,
/// and pointers must be valid for the bytes.
pub(super) trait Lanes {
    /// Number of lanes, at most `MOST_LANES`.
    const COUNT: usize;
    /// Whether signed codes are biased by 128, which the bias terms correct.
    const MOVED: bool;
    /// One 32-bit integer, or four bytes, per lane.
    type I: Copy;
    type F: Copy;
    unsafe fn none() -> Self::I;
    /// Transposes eight rows of eight words: word `i` of every row is written to eight contiguous
    /// words at `to + i * stride` bytes, XORed with `flip`.
    unsafe fn turn(rows: [*const u8; 8], flip: u32, to: *mut u8, stride: usize);
    unsafe fn load(p: *const u8) -> Self::I;
    /// Adds to each lane of `acc` the dot product of its four codes and the four signed bytes `x`.
    /// The codes are signed if `SIGNED` is true, unless they are biased.
    unsafe fn dot<const SIGNED: bool>(acc: Self::I, w: Self::I, x: i32) -> Self::I;
    unsafe fn floats(v: Self::I) -> Self::F;
    unsafe fn get(p: *const f32) -> Self::F;
    unsafe fn put(p: *mut f32, v: Self::F);
    unsafe fn splat(v: f32) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// Computes `a * b + c`.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
}

/// A product of packed weight rows and many quantised rows of x.
#[derive(Clone, Copy)]
pub(super) struct IntTiles {
    /// The product for the first rows of x and y, which also defines the strides of the others.
    pub(super) one: IntProduct,
    /// Number of rows of x.
    pub(super) m: usize,
    /// Scratch for `m * MOST_LANES` accumulators.
    pub(super) sums: *mut f32,
}

/// Unpacked runs of the rows of a panel. Data past the last row or run is unspecified.
struct Panel {
    /// For each run, eight groups of four codes per lane.
    codes: [[u8; MOST_LANES * BLOCK]; STAGE],
    /// For each run, the scales of its first and second half; the second only for `Kind::Halves`.
    scale: [[[f32; MOST_LANES]; 2]; STAGE],
    bias: [[[f32; MOST_LANES]; 2]; STAGE],
}

/// Computes the products of [`IntTiles`].
///
/// # Safety
/// The pointers of the task are valid for its sizes, `k` is a multiple of the block length; `y` and
/// `sums` are not shared.
#[inline(always)]
pub(super) unsafe fn product<L: Lanes>(t: &IntTiles, packing: &Packing) {
    let runs = t.one.k / BLOCK;
    let mut stages: [Stage; MOST_LANES] = std::array::from_fn(|_| Stage::new());
    let mut panel = Panel {
        codes: [[0; MOST_LANES * BLOCK]; STAGE],
        scale: [[[0.0; MOST_LANES]; 2]; STAGE],
        bias: [[[0.0; MOST_LANES]; 2]; STAGE],
    };
    // SAFETY: rows stay below `rows`, runs below k / 32, rows of x below m.
    unsafe {
        for first in (0..t.one.rows).step_by(L::COUNT) {
            let lanes = L::COUNT.min(t.one.rows - first);
            std::ptr::write_bytes(t.sums, 0, t.m * L::COUNT);
            for at in (0..runs).step_by(STAGE) {
                let here = STAGE.min(runs - at);
                let bytes = here * BLOCK / packing.len * packing.bytes;
                for lane in 0..lanes {
                    let row = t.one.w.add((first + lane) * t.one.row_bytes);
                    let p = row.add(at * BLOCK / packing.len * packing.bytes);
                    prefetch(p.wrapping_add(L::COUNT * t.one.row_bytes), bytes);
                    (packing.unpack)(p, here, &mut stages[lane]);
                }
                panel.place::<L>(&stages, packing.kind);
                match packing.kind {
                    Kind::Whole => rows::<L, false, false>(t, &panel, at, here),
                    Kind::Halves => rows::<L, true, false>(t, &panel, at, here),
                    Kind::Signed => rows::<L, false, true>(t, &panel, at, here),
                }
            }
            for i in 0..t.m {
                let from = t.sums.add(i * L::COUNT);
                std::ptr::copy_nonoverlapping(from, t.one.y.add(i * t.one.y_stride + first), lanes);
            }
        }
    }
}

impl Stage {
    /// Returns the scale of one half of a run.
    #[inline(always)]
    pub(super) fn scale(&self, half: usize, run: usize) -> f32 {
        self.scale[half][run]
    }

    /// Returns the bias of one half of a run.
    #[inline(always)]
    pub(super) fn bias(&self, half: usize, run: usize) -> f32 {
        self.bias[half][run]
    }
}

impl Panel {
    /// Interleaves the unpacked rows, one stage for each lane.
    ///
    /// # Safety
    /// The contract of [`Lanes`].
    #[inline(always)]
    unsafe fn place<L: Lanes>(&mut self, stages: &[Stage; MOST_LANES], kind: Kind) {
        // SAFETY: eight rows of stages, and lanes up to `COUNT` of what is written.
        unsafe {
            match kind {
                Kind::Signed if L::MOVED => self.place_codes::<L, true>(stages),
                _ => self.place_codes::<L, false>(stages),
            }
            let turn =
                |from: [&[f32; STAGE]; EIGHT], to: *mut [[f32; MOST_LANES]; 2], at: usize| {
                    let from = from.map(|row| row.as_ptr().cast());
                    L::turn(
                        from,
                        0,
                        to.cast::<f32>().add(at).cast(),
                        size_of::<[[f32; MOST_LANES]; 2]>(),
                    );
                };
            let (scale, bias) = (self.scale.as_mut_ptr(), self.bias.as_mut_ptr());
            for half in 0..if kind == Kind::Halves { 2 } else { 1 } {
                for lane in (0..L::COUNT).step_by(EIGHT) {
                    let stages = &stages[lane..lane + EIGHT];
                    let at = half * MOST_LANES + lane;
                    turn(std::array::from_fn(|i| &stages[i].scale[half]), scale, at);
                    turn(std::array::from_fn(|i| &stages[i].bias[half]), bias, at);
                }
            }
            if kind == Kind::Signed && L::MOVED {
                for run in 0..RUNS {
                    let moved = std::array::from_fn(|lane| -128.0 * self.scale[run][0][lane]);
                    self.bias[run][0] = moved;
                }
            }
        }
    }

    /// Interleaves the codes, as part of [`Panel::place`].
    ///
    /// # Safety
    /// Same as [`Panel::place`].
    #[inline(always)]
    unsafe fn place_codes<L: Lanes, const MOVED: bool>(&mut self, stages: &[Stage; MOST_LANES]) {
        for run in 0..STAGE {
            for lane in (0..L::COUNT).step_by(EIGHT) {
                let from = std::array::from_fn(|i| stages[lane + i].codes[run].as_ptr());
                let to = self.codes[run][lane * QUAD..].as_mut_ptr();
                // SAFETY: eight rows of 32 bytes, and as many places for words of eight lanes.
                unsafe { L::turn(from, if MOVED { MOVE } else { 0 }, to, L::COUNT * QUAD) };
            }
        }
    }
}

/// Number of rows, and of words in a row, that [`Lanes::turn`] transposes.
const EIGHT: usize = 8;
const _: () = assert!(STAGE == EIGHT && BLOCK == EIGHT * QUAD);

/// Bits that are inverted to bias four signed codes by 128.
const MOVE: u32 = 0x8080_8080;

/// Multiplies `count` runs of a panel, which start at run `at` of the rows, by every row of x.
///
/// # Safety
/// Same as [`product`].
#[inline(always)]
unsafe fn rows<L: Lanes, const HALVES: bool, const SIGNED: bool>(
    t: &IntTiles,
    panel: &Panel,
    at: usize,
    count: usize,
) {
    let mut i = 0;
    // SAFETY: the caller's contract; rows of x stay below m.
    unsafe {
        while i + TOGETHER <= t.m {
            some::<L, TOGETHER, HALVES, SIGNED>(t, panel, at, count, i);
            i += TOGETHER;
        }
        while i + TOGETHER / 2 <= t.m {
            some::<L, { TOGETHER / 2 }, HALVES, SIGNED>(t, panel, at, count, i);
            i += TOGETHER / 2;
        }
        while i < t.m {
            some::<L, 1, HALVES, SIGNED>(t, panel, at, count, i);
            i += 1;
        }
    }
}

/// Same as [`rows`], for rows `i .. i + N` of x.
///
/// # Safety
/// Same as [`product`].
#[inline(always)]
unsafe fn some<L: Lanes, const N: usize, const HALVES: bool, const SIGNED: bool>(
    t: &IntTiles,
    panel: &Panel,
    at: usize,
    count: usize,
    i: usize,
) {
    let runs = t.one.k / BLOCK;
    // SAFETY: the caller's contract; runs stay below `count`, rows below i + N.
    unsafe {
        let mut sums: [L::F; N] = std::array::from_fn(|n| L::get(t.sums.add((i + n) * L::COUNT)));
        for run in 0..count {
            let x = t.one.x.add(i * t.one.k + (at + run) * BLOCK);
            let factors = t.one.factors.add(i * TABLES * runs + at + run);
            let factor =
                |n: usize, table: usize| L::splat(*factors.add((n * TABLES + table) * runs));
            let codes = panel.codes[run].as_ptr();
            let halves = if HALVES { 2 } else { 1 };
            for half in 0..halves {
                let mut acc = [L::none(); N];
                let quads = BLOCK / QUAD / halves;
                for quad in half * quads..(half + 1) * quads {
                    let w = L::load(codes.add(quad * QUAD * L::COUNT));
                    for n in 0..N {
                        let x = x.add(n * t.one.k + quad * QUAD).cast::<i32>().read_unaligned();
                        acc[n] = L::dot::<SIGNED>(acc[n], w, x);
                    }
                }
                let scale = L::get(panel.scale[run][half].as_ptr());
                for n in 0..N {
                    let scale = L::mul(scale, factor(n, 0));
                    sums[n] = L::fma(L::floats(acc[n]), scale, sums[n]);
                }
                // Sums of x over all 32 values, or over the half.
                if !SIGNED || L::MOVED {
                    let table = if HALVES { 1 + half } else { 3 };
                    let bias = L::get(panel.bias[run][half].as_ptr());
                    for n in 0..N {
                        sums[n] = L::fma(bias, factor(n, table), sums[n]);
                    }
                }
            }
        }
        for n in 0..N {
            L::put(t.sums.add((i + n) * L::COUNT), sums[n]);
        }
    }
}
