//! Int8 products through memory: the codes of a few runs are unpacked once, for any format, and
//! then multiplied by every row of x. The part that depends on the format is a function pointer.

use super::{BLOCK, Coded, Codes, IntProduct, Kind, RUNS, Scales, TABLES};

/// Number of runs in a stage.
pub(super) const STAGE: usize = RUNS;

/// Maximum number of rows of x that are multiplied at a time.
const MOST: usize = crate::arch::WIDTHS[3];

/// Unpacked runs of one weight row. Entries past the last unpacked run are stale.
pub(super) struct Stage {
    pub(super) codes: [[u8; BLOCK]; STAGE],
    /// Scales of the first and of the second half of each run; the second only for `Kind::Halves`.
    pub(super) scale: [[f32; STAGE]; 2],
    pub(super) bias: [[f32; STAGE]; 2],
}

impl Stage {
    pub(super) fn new() -> Stage {
        Stage { codes: [[0; BLOCK]; STAGE], scale: [[0.0; STAGE]; 2], bias: [[0.0; STAGE]; 2] }
    }
}

/// Block decoder of a format.
pub(crate) struct Packing {
    /// The instance of [`unpack`] for the format.
    pub(super) unpack: unsafe fn(p: *const u8, runs: usize, stage: &mut Stage),
    pub(super) kind: Kind,
    /// Number of weights in a block.
    pub(super) len: usize,
    /// Size of a block in bytes.
    pub(super) bytes: usize,
}

/// Unpacks the first `runs` runs of the blocks that start at `p`.
///
/// # Safety
/// `p` holds the runs' blocks; `runs` is at most `STAGE` and a whole number of blocks.
#[inline(always)]
pub(super) unsafe fn unpack<C: Codes, P: Coded>(p: *const u8, runs: usize, stage: &mut Stage) {
    // SAFETY: the caller's contract: runs stay below `runs`.
    unsafe {
        // Formats whose block is eight runs have no fewer.
        let runs = if P::LEN < RUNS * BLOCK { runs } else { RUNS };
        let Scales { scale, bias } = P::scales::<C>(p, runs);
        for half in 0..if P::KIND == Kind::Halves { 2 } else { 1 } {
            C::store(stage.scale[half].as_mut_ptr(), scale[half]);
            C::store(stage.bias[half].as_mut_ptr(), bias[half]);
        }
        for run in 0..runs {
            C::put(stage.codes[run].as_mut_ptr(), P::run::<C>(p, run));
        }
    }
}

/// Computes an [`IntProduct`] for `m` rows of x, `M` of them at a time.
///
/// # Safety
/// The task's pointers are valid for its sizes, `k` is a multiple of the block length; `m` is a
/// multiple of `M` and at most `MOST`; `y` is not shared.
#[inline(always)]
pub(super) unsafe fn product<C: Codes, const M: usize>(
    t: &IntProduct,
    packing: &Packing,
    m: usize,
) {
    let runs = t.k / BLOCK;
    let mut stage = Stage::new();
    // SAFETY: rows and runs stay below those of the task.
    unsafe {
        for row in 0..t.rows {
            let mut acc = [[C::zero(); M]; MOST];
            for at in (0..runs).step_by(STAGE) {
                let here = STAGE.min(runs - at);
                let p = t.w.add(row * t.row_bytes + at * BLOCK / packing.len * packing.bytes);
                (packing.unpack)(p, here, &mut stage);
                for i in (0..m).step_by(M) {
                    let acc = &mut acc[i / M];
                    match packing.kind {
                        Kind::Whole => rows::<C, M, false, false>(t, &stage, at, here, i, acc),
                        Kind::Halves => rows::<C, M, true, false>(t, &stage, at, here, i, acc),
                        Kind::Signed => rows::<C, M, false, true>(t, &stage, at, here, i, acc),
                    }
                }
            }
            for i in 0..m {
                *t.y.add(i * t.y_stride + row) = C::sum(acc[i / M][i % M]);
            }
        }
    }
}

/// Multiplies `count` runs of a stage, which start at run `at`, by rows `i .. i + M` of x.
///
/// # Safety
/// Same as [`product`].
#[inline(always)]
unsafe fn rows<C: Codes, const M: usize, const HALVES: bool, const SIGNED: bool>(
    t: &IntProduct,
    stage: &Stage,
    at: usize,
    count: usize,
    i: usize,
    sums: &mut [C::A; M],
) {
    let runs = t.k / BLOCK;
    // SAFETY: the caller's contract; runs stay below `count`, rows below i + M.
    unsafe {
        let mut acc = *sums;
        // A second accumulator hides latency.
        let mut odd = [C::zero(); M];
        let scale = [0, 1].map(|half| C::floats(stage.scale[half].as_ptr()));
        let bias = [0, 1].map(|half| C::floats(stage.bias[half].as_ptr()));
        let mut scales = [[[0.0f32; RUNS]; 2]; M];
        for r in 0..M {
            let tables = t.factors.add((i + r) * TABLES * runs + at);
            let table = |number: usize| C::some(tables.add(number * runs), count);
            let d = table(0);
            C::store(scales[r][0].as_mut_ptr(), C::mul(scale[0], d));
            if HALVES {
                C::store(scales[r][1].as_mut_ptr(), C::mul(scale[1], d));
                acc[r] = C::fma(bias[0], table(1), acc[r]);
                acc[r] = C::fma(bias[1], table(2), acc[r]);
            } else if !SIGNED {
                acc[r] = C::fma(bias[0], table(3), acc[r]);
            }
        }
        for run in 0..count {
            let codes = C::load(stage.codes[run].as_ptr());
            let x = t.x.add(i * t.k + (at + run) * BLOCK);
            let acc = if M < 4 && run % 2 == 1 { &mut odd } else { &mut acc };
            for r in 0..M {
                let x = C::load(x.add(r * t.k).cast());
                let [first, second] = [scales[r][0][run], scales[r][1][run]];
                acc[r] = if HALVES {
                    C::dot_f16(acc[r], codes, x, [first, second])
                } else if SIGNED {
                    C::dot_signed(acc[r], codes, x, first)
                } else {
                    C::dot(acc[r], codes, x, first)
                };
            }
        }
        for r in 0..M {
            sums[r] = C::fma(C::splat(1.0), odd[r], acc[r]);
        }
    }
}
