//! Int8 GEMV (one row of x) with results bit-identical to the GEMM of `gemm_panels`.
//!
//! The GEMM sums each run of 32 in integers before it converts to f32. Here the 32 codes of one row
//! are adjacent: products and their sums are integers below 2^24, which f32 holds exactly, so the
//! order inside a run does not matter. The other f32 operations on a row are those of its lane in
//! the GEMM, in the same order.

use super::super::prefetch;
use super::staged::{Packing, STAGE, Stage};
use super::{BLOCK, Codes, IntProduct, Kind};

/// Number of weight rows processed together; their independent accumulators hide latency.
const ROWS: usize = 4;

/// Computes an [`IntProduct`] for one row of x. `MOVED` is
/// [`MOVED`](super::gemm_panels::Lanes::MOVED) of the GEMM's lanes.
///
/// # Safety
/// The task's pointers are valid for its sizes, `k` is a multiple of the block length; `y` is not
/// shared.
#[inline(always)]
pub(super) unsafe fn product<C: Codes, const MOVED: bool>(t: &IntProduct, packing: &Packing) {
    // SAFETY: the caller's contract.
    unsafe {
        match packing.kind {
            Kind::Whole => all::<C, false, false, MOVED>(t, packing),
            Kind::Halves => all::<C, true, false, MOVED>(t, packing),
            Kind::Signed => all::<C, false, true, MOVED>(t, packing),
        }
    }
}

/// Computes all weight rows, for one kind of codes.
///
/// # Safety
/// Same as [`product`].
#[inline(always)]
unsafe fn all<C: Codes, const HALVES: bool, const SIGNED: bool, const MOVED: bool>(
    t: &IntProduct,
    packing: &Packing,
) {
    let mut stages: [Stage; ROWS] = std::array::from_fn(|_| Stage::new());
    let whole = t.rows - t.rows % ROWS;
    // SAFETY: rows stay below `rows`.
    unsafe {
        for row in (0..whole).step_by(ROWS) {
            rows::<C, ROWS, HALVES, SIGNED, MOVED>(t, packing, row, &mut stages);
        }
        for row in whole..t.rows {
            rows::<C, 1, HALVES, SIGNED, MOVED>(t, packing, row, &mut stages);
        }
    }
}

/// Computes `R` weight rows from `first` on.
///
/// # Safety
/// Same as [`product`], and the rows exist.
#[inline(always)]
unsafe fn rows<
    C: Codes,
    const R: usize,
    const HALVES: bool,
    const SIGNED: bool,
    const MOVED: bool,
>(
    t: &IntProduct,
    packing: &Packing,
    first: usize,
    stages: &mut [Stage; ROWS],
) {
    const ONES: [u8; BLOCK] = [1; BLOCK];
    let runs = t.k / BLOCK;
    let mut sums = [0.0f32; R];
    // SAFETY: rows stay below first + R, runs below k / 32.
    unsafe {
        for at in (0..runs).step_by(STAGE) {
            let here = STAGE.min(runs - at);
            let bytes = here * BLOCK / packing.len * packing.bytes;
            for (r, stage) in stages.iter_mut().enumerate().take(R) {
                let row = t.w.add((first + r) * t.row_bytes);
                let p = row.add(at * BLOCK / packing.len * packing.bytes);
                prefetch(p.wrapping_add(R * t.row_bytes), bytes);
                (packing.unpack)(p, here, stage);
            }
            for run in 0..here {
                let x = C::load(t.x.add((at + run) * BLOCK).cast());
                let factor = |table: usize| *t.factors.add(table * runs + at + run);
                let moved = match SIGNED && MOVED {
                    true => 128.0 * C::sum(C::dot(C::zero(), C::load(ONES.as_ptr()), x, 1.0)),
                    false => 0.0,
                };
                for (sum, stage) in sums.iter_mut().zip(&*stages) {
                    let codes = C::load(stage.codes[run].as_ptr());
                    let mut add = |products: f32, half: usize, bias: f32, table: usize| {
                        *sum = products.mul_add(stage.scale(half, run) * factor(0), *sum);
                        if !SIGNED || MOVED {
                            *sum = bias.mul_add(factor(table), *sum);
                        }
                    };
                    if HALVES {
                        let first = C::dot_f16(C::zero(), codes, x, [1.0, 0.0]);
                        let second = C::dot_f16(C::zero(), codes, x, [0.0, 1.0]);
                        add(C::sum(first), 0, stage.bias(0, run), 1);
                        add(C::sum(second), 1, stage.bias(1, run), 2);
                    } else if SIGNED {
                        let products = C::sum(C::dot_signed(C::zero(), codes, x, 1.0)) + moved;
                        add(products, 0, -128.0 * stage.scale(0, run), 3);
                    } else {
                        let products = C::sum(C::dot(C::zero(), codes, x, 1.0));
                        add(products, 0, stage.bias(0, run), 3);
                    }
                }
            }
        }
        for (r, sum) in sums.into_iter().enumerate() {
            *t.y.add(first + r) = sum;
        }
    }
}
