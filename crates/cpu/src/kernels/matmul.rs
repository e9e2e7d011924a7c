//! `matmul_*`: packed weights times many rows; `matmul_batched`: strided f32 operands.

use std::cell::{Cell, RefCell};

use super::matvec::{Linear, Rows, Store, Weights, multiply};
use super::segments::Cut;
use crate::arch::{Arch, Product, WIDTHS};
use crate::call::{Call, assert_holds, extent};
use crate::epilogue::{Read, Sink, rows};
use crate::sgemm::{Matrix, sgemm};
use warploom_core::base::ComputeMode;
use warploom_core::error::Result;

thread_local! {
    /// Decoded weight rows of this thread.
    static PANEL: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    /// Columns of b and rows of a, made contiguous.
    static DENSE: RefCell<[Vec<f32>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
    /// `a` as changed by a prologue.
    static ROOM: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Size of a panel of decoded weights, in bytes: small enough to stay in the L2 cache of its
/// thread.
const PANEL_BYTES: usize = 256 << 10;

/// Same as [`matvec`](super::matvec::matvec), but decodes each row of w only once if x has 8 or
/// more rows.
pub(super) fn matmul(call: &Call<'_>) -> Result<()> {
    let few = |t: &Linear<'_>| t.m < 8 || t.k == 0;
    let cut = |t: &Linear<'_>| match few(t) {
        true => t.cut(),
        false => Cut { grain: height(t), rows: height(t), decode: true },
    };
    multiply(call, ComputeMode::F32, cut, |t, x, to| match few(t) {
        true => t.by_rows(call, x, to),
        false => by_panels(call, t, x, to),
    })
}

/// Returns the number of weight rows of a panel.
fn height(t: &Linear<'_>) -> usize {
    (PANEL_BYTES / 4 / t.k).clamp(8, 64).next_multiple_of(4)
}

fn by_panels(call: &Call<'_>, t: &Linear<'_>, x: Rows<'_>, to: Store<'_>) {
    let (arch, height) = (call.context.arch, height(t));
    call.context.pool.split(t.n, height, height, |rows| {
        PANEL.with_borrow_mut(|panel| {
            if panel.len() < height * t.k {
                panel.resize(height * t.k, 0.0);
            }
            for start in rows.clone().step_by(height) {
                let count = height.min(rows.end - start);
                for r in 0..count {
                    let w = t.w[(start + r) * t.row_bytes..].as_ptr();
                    // SAFETY: w holds the row, and the panel has room for `height` rows.
                    unsafe { arch.decode[t.format](w, panel.as_mut_ptr().add(r * t.k), t.k) };
                }
                let mut i = 0;
                while i < t.m {
                    let width = WIDTHS.iter().rposition(|w| *w <= t.m - i).unwrap_or(0);
                    let task = Weights {
                        format: 0,
                        w: panel.as_ptr().cast(),
                        row_bytes: t.k * size_of::<f32>(),
                        rows: count,
                        k: t.k,
                        // SAFETY: element (i, start) lies inside y.
                        y: unsafe { to.out.at(i * to.y_stride + start) },
                        y_stride: to.y_stride,
                    };
                    // SAFETY: the panel holds `count` rows of floats, x the rows i .. i + width;
                    // the columns start .. start + count of y belong to this chunk alone.
                    unsafe { x.multiply(call, (i, width), &task) };
                    i += WIDTHS[width];
                }
            }
        });
    });
}

/// Computes `y[b, i, j] = sum over c of a[b, i, c] * b[b, c, j]`.
pub(super) fn matmul_batched(call: &Call<'_>) -> Result<()> {
    let [batch, m, n, k, ao, ab, ar, ac, bo, bb, br, bc, yo] = call.words()?;
    let out = Sink::new(call, yo, [batch, m, n])?;
    if out.len() == 0 {
        return Ok(());
    }
    let a = extent(&[(batch, ab), (m, ar), (k, ac)]);
    let a = call.input_apart::<f32>(0, ao, a, out.outs())?;
    let b = extent(&[(batch, bb), (k, br), (n, bc)]);
    let b = call.input_apart::<f32>(1, bo, b, out.outs())?;
    let (arch, pool) = (call.context.arch, &call.context.pool);
    if k == 0 {
        // SAFETY: everything, by this thread.
        unsafe { out.fill(arch, 0, out.len(), |y| y.fill(0.0)) };
        return Ok(());
    }
    let first = |row: usize| row / m * ab + row % m * ar;
    let read = Read { x: &a, rows: batch * m, cols: k, first, col_stride: ac };
    let mut room = ROOM.take();
    let changed = rows(call, &read, &mut room)?;
    let (a, ab, ar, ac) = changed.map_or((&a[..], ab, ar, ac), |a| (a, m * k, k, 1));
    // Batches are distributed over threads; if there are too few of them, so are rows.
    let parts = (4 * pool.threads()).div_ceil(batch).min(m.div_ceil(32)).max(1);
    let height = m.div_ceil(parts);
    let work = |task: usize| {
        let (index, start) = (task / parts, task % parts * height);
        let Some(count) = m.checked_sub(start).filter(|c| *c > 0) else { return };
        let count = count.min(height);
        let a = Matrix { data: &a[index * ab + start * ar..], row_stride: ar, col_stride: ac };
        let b = Matrix { data: &b[index * bb..], row_stride: br, col_stride: bc };
        // SAFETY: these rows of y belong to this task alone.
        unsafe {
            out.fill(arch, (index * m + start) * n, count * n, |y| match call.in_order {
                true => in_order(arch, [count, n, k], &a, &b, y),
                false => sgemm(count, n, k, &a, &b, y),
            });
        }
    };
    if out.len().saturating_mul(k) < 64 << 10 {
        (0..batch * parts).for_each(work);
    } else {
        pool.run(batch * parts, &work);
    }
    ROOM.set(room);
    Ok(())
}

/// Number of columns of b that are packed at a time.
const COLUMNS: usize = 64;

/// Computes the same product as [`sgemm`], but in a reduction order that does not depend on `m` and
/// `n`: each element depends only on its row of a and its column of b. `k` must not be 0.
fn in_order(arch: &Arch, [m, n, k]: [usize; 3], a: &Matrix<'_>, b: &Matrix<'_>, y: &mut [f32]) {
    assert_holds(a.data.len(), &[(m, a.row_stride), (k, a.col_stride)]);
    assert_holds(b.data.len(), &[(k, b.row_stride), (n, b.col_stride)]);
    assert_holds(y.len(), &[(m, n), (n, 1)]);
    DENSE.with_borrow_mut(|[columns, rows]| {
        let room = |memory: &mut Vec<f32>, need| {
            if memory.len() < need {
                memory.resize(need, 0.0);
            }
        };
        room(columns, COLUMNS * k);
        let (x, x_stride) = match a.col_stride {
            1 => (a.data, a.row_stride),
            _ => {
                room(rows, m * k);
                for (i, row) in rows.chunks_exact_mut(k).take(m).enumerate() {
                    for (c, to) in row.iter_mut().enumerate() {
                        *to = a.data[i * a.row_stride + c * a.col_stride];
                    }
                }
                (&rows[..], k)
            }
        };
        for j in (0..n).step_by(COLUMNS) {
            let count = COLUMNS.min(n - j);
            for c in 0..k {
                for column in 0..count {
                    let at = c * b.row_stride + (j + column) * b.col_stride;
                    columns[column * k + c] = b.data[at];
                }
            }
            let mut i = 0;
            while i < m {
                let width = WIDTHS.iter().rposition(|w| *w <= m - i).unwrap_or(0);
                let task = Product {
                    w: columns.as_ptr().cast(),
                    row_bytes: k * size_of::<f32>(),
                    rows: count,
                    k,
                    x: x[i * x_stride..].as_ptr(),
                    x_stride,
                    y: y[i * n + j..].as_mut_ptr(),
                    y_stride: n,
                    far: false,
                };
                // SAFETY: the columns hold `count` rows of k floats, x those from i on, by the
                // asserts, and y the products, which are this call's.
                unsafe { arch.products[0][width](&task) };
                i += WIDTHS[width];
            }
        }
    });
}
