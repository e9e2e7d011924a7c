//! Products with a weight matrix that has segments, each with a body that processes its results.
//!
//! A task computes some evaluations of one segment: it writes the products of their weight rows and
//! a few rows of x to thread-local memory, where the body reads them.

use std::cell::RefCell;
use std::ops::Range;

use super::matvec::{GROUP, Linear, Rows, Weights};
use crate::arch::WIDTHS;
use crate::arch::int8::MOST_LANES;
use crate::call::Call;
use crate::epilogue::Part;

/// Maximum number of rows of x that are multiplied at a time.
const ROWS: usize = WIDTHS[3];

/// Number of weight rows whose products are buffered at a time if x has many rows.
const SIDE_BY_SIDE: usize = 4 * MOST_LANES;

thread_local! {
    /// Products of this thread, and decoded weight rows.
    static ROOM: RefCell<(Vec<f32>, Vec<f32>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// Tiling of a product.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    /// Number of weight rows below which the product uses one thread.
    pub(super) grain: usize,
    /// Number of weight rows whose products are buffered at a time.
    pub(super) rows: usize,
    /// Whether weight rows are decoded first, for many rows of x.
    pub(super) decode: bool,
}

/// Computes the products of all segments and evaluates their bodies.
pub(super) fn segments(call: &Call<'_>, t: &Linear<'_>, x: Rows<'_>, parts: &[Part<'_>], cut: Cut) {
    let pool = &call.context.pool;
    let rows: usize = parts.iter().map(|part| part.count * part.anchors).sum();
    let task = Task { call, t, x, cut };
    if pool.threads() == 1 || rows <= cut.grain {
        parts.iter().for_each(|part| task.evaluate(part, 0..part.count));
        return;
    }
    // As in `Pool::split`: a few chunks for each thread.
    let size = rows.div_ceil(pool.threads() * 4).max(cut.grain).next_multiple_of(cut.rows.min(8));
    let each = |part: &Part<'_>| (size / part.anchors).max(1);
    let chunks = parts.iter().map(|part| part.count.div_ceil(each(part))).sum();
    pool.run(chunks, &|mut chunk| {
        for part in parts {
            let (each, count) = (each(part), part.count);
            let own = count.div_ceil(each);
            if chunk < own {
                return task.evaluate(part, chunk * each..count.min((chunk + 1) * each));
            }
            chunk -= own;
        }
    });
}

struct Task<'t, 'c, 'a> {
    call: &'t Call<'c>,
    t: &'t Linear<'a>,
    x: Rows<'t>,
    cut: Cut,
}

impl Task<'_, '_, '_> {
    /// Computes a range of a segment's evaluations for every row of x.
    fn evaluate(&self, part: &Part<'_>, range: Range<usize>) {
        if !self.cut.decode && self.x.are_many(self.call, self.t.m, self.t.format) {
            return self.evaluate_many(part, range);
        }
        let step = (self.cut.rows / part.anchors).max(1);
        ROOM.with_borrow_mut(|(products, panel)| {
            let need = part.anchors * ROWS * step;
            if products.len() < need {
                products.resize(need, 0.0);
            }
            for start in range.clone().step_by(step) {
                let here = start..range.end.min(start + step);
                if self.cut.decode {
                    self.decode(part, here.clone(), panel);
                }
                let mut i = 0;
                while i < self.t.m {
                    let rest = self.t.m - i;
                    let width = WIDTHS.iter().rposition(|w| *w <= rest).unwrap_or(0);
                    for anchor in 0..part.anchors {
                        let y = products[anchor * ROWS * step..].as_mut_ptr();
                        self.multiply(part, here.clone(), anchor, (i, width), panel, (y, step));
                    }
                    let rows = i..i + WIDTHS[width];
                    self.finish(part, here.clone(), rows, products, (ROWS, step));
                    i += WIDTHS[width];
                }
            }
        });
    }

    /// Same as [`Task::evaluate`], with panels of weight rows, for many rows of x.
    fn evaluate_many(&self, part: &Part<'_>, range: Range<usize>) {
        let (t, step) = (self.t, SIDE_BY_SIDE);
        ROOM.with_borrow_mut(|(products, _)| {
            let group = GROUP.min(t.m);
            let need = part.anchors * group * step;
            if products.len() < need {
                products.resize(need, 0.0);
            }
            for start in range.clone().step_by(step) {
                let here = start..range.end.min(start + step);
                for i in (0..t.m).step_by(group) {
                    let count = group.min(t.m - i);
                    for anchor in 0..part.anchors {
                        let y = products[anchor * group * step..].as_mut_ptr();
                        part.runs(here.clone(), anchor, |done, row, stride, rows| {
                            let w = t.w[row * t.row_bytes..].as_ptr();
                            let task = Weights {
                                format: t.format,
                                w,
                                row_bytes: t.row_bytes * stride,
                                rows,
                                k: t.k,
                                y: y.wrapping_add(done),
                                y_stride: step,
                            };
                            // SAFETY: w holds the rows, which `parts` checked, x holds the rows
                            // from i on, and y has room for `step` products of each.
                            unsafe { self.x.multiply_many(self.call, i, count, &task) };
                        });
                    }
                    self.finish(part, here.clone(), i..i + count, products, (group, step));
                }
            }
        });
    }

    /// Decodes the weight rows of every anchor to contiguous rows of `panel`.
    fn decode(&self, part: &Part<'_>, here: Range<usize>, panel: &mut Vec<f32>) {
        let (t, k, count) = (self.t, self.t.k, here.len());
        if panel.len() < part.anchors * count * k {
            panel.resize(part.anchors * count * k, 0.0);
        }
        let decode = self.call.context.arch.decode[t.format];
        for anchor in 0..part.anchors {
            part.runs(here.clone(), anchor, |done, row, stride, rows| {
                for r in 0..rows {
                    let w = t.w[(row + r * stride) * t.row_bytes..][..t.row_bytes].as_ptr();
                    let to = panel[(anchor * count + done + r) * k..][..k].as_mut_ptr();
                    // SAFETY: w holds a row of k weights, and the panel has room for k floats.
                    unsafe { decode(w, to, k) };
                }
            });
        }
    }

    /// Multiplies `WIDTHS[width]` rows of x, from row `i` on, by the weight rows of one anchor.
    fn multiply(
        &self,
        part: &Part<'_>,
        here: Range<usize>,
        anchor: usize,
        (i, width): (usize, usize),
        panel: &[f32],
        (y, y_stride): (*mut f32, usize),
    ) {
        let t = self.t;
        let multiply = |format: usize, w: *const u8, row_bytes, rows, y| {
            let task = Weights { format, w, row_bytes, rows, k: t.k, y, y_stride };
            // SAFETY: w holds the rows, by `parts` and `decode`, x holds the rows from i on, and y
            // has room for `y_stride` products of each.
            unsafe { self.x.multiply(self.call, (i, width), &task) };
        };
        if self.cut.decode {
            let w = panel[anchor * here.len() * t.k..].as_ptr().cast();
            return multiply(0, w, t.k * size_of::<f32>(), here.len(), y);
        }
        part.runs(here, anchor, |done, row, stride, rows| {
            let w = t.w[row * t.row_bytes..].as_ptr();
            multiply(t.format, w, t.row_bytes * stride, rows, y.wrapping_add(done));
        });
    }

    /// Evaluates the body for some rows of x. `products` has `group` rows of `step` values per
    /// anchor.
    fn finish(
        &self,
        part: &Part<'_>,
        here: Range<usize>,
        rows: Range<usize>,
        products: &[f32],
        (group, step): (usize, usize),
    ) {
        for (r, i) in rows.enumerate() {
            let of = |anchor: usize| products[(anchor * group + r) * step..].as_ptr();
            let anchors = [of(0), of(part.anchors - 1)];
            let range = i * part.count + here.start..i * part.count + here.end;
            // SAFETY: evaluations below count and rows below m lie inside the index space; they
            // belong to this task alone, and each anchor has a product for every one.
            unsafe { part.launch.elements(self.call.context.arch, range, anchors) };
        }
    }
}
