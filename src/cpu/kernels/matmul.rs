//! `matmul_*`: packed weights times many rows; `matmul_batched`: floats with free strides.

use std::cell::RefCell;

use super::matvec::linear;
use crate::cpu::arch::{Product, WIDTHS};
use crate::cpu::call::{Call, extent, volume};
use crate::cpu::sgemm::{Matrix, sgemm};
use crate::error::Result;

thread_local! {
    /// Decoded rows of weights of this thread.
    static PANEL: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Bytes of decoded weights that a thread works on: they stay in its second-level cache.
const PANEL_BYTES: usize = 256 << 10;

/// The product of `matvec`, decoding each row of w once for all rows of x.
pub(super) fn matmul(call: &Call<'_>) -> Result<()> {
    let Some(t) = linear(call)? else { return Ok(()) };
    let arch = call.context.arch;
    if t.m < 8 || t.k == 0 {
        t.by_rows(call);
        return Ok(());
    }
    let height = (PANEL_BYTES / 4 / t.k).clamp(8, 64).next_multiple_of(4);
    call.context.pool.split(t.n, height, height, |rows| {
        PANEL.with_borrow_mut(|panel| {
            if panel.len() < height * t.k {
                panel.resize(height * t.k, 0.0);
            }
            for start in rows.clone().step_by(height) {
                let count = height.min(rows.end - start);
                for r in 0..count {
                    let w = t.w[(start + r) * t.row_bytes..].as_ptr();
                    // SAFETY: w holds the row, the panel room for `height` of them.
                    unsafe { arch.decode[t.format](w, panel.as_mut_ptr().add(r * t.k), t.k) };
                }
                let mut i = 0;
                while i < t.m {
                    let width = WIDTHS.iter().rposition(|w| *w <= t.m - i).unwrap_or(0);
                    let task = Product {
                        w: panel.as_ptr().cast(),
                        row_bytes: t.k * size_of::<f32>(),
                        rows: count,
                        k: t.k,
                        x: t.x[i * t.x_stride..].as_ptr(),
                        x_stride: t.x_stride,
                        // SAFETY: element (i, start) lies inside y.
                        y: unsafe { t.out.at(i * t.y_stride + start) },
                        y_stride: t.y_stride,
                    };
                    // SAFETY: the panel holds `count` rows of floats, x the rows i .. i + width;
                    // the columns start .. start + count of y belong to this chunk alone.
                    unsafe { arch.products[0][width](&task) };
                    i += WIDTHS[width];
                }
            }
        });
    });
    Ok(())
}

/// `y[b, i, j] = sum over c of a[b, i, c] * b[b, c, j]`.
pub(super) fn matmul_batched(call: &Call<'_>) -> Result<()> {
    let [batch, m, n, k, ao, ab, ar, ac, bo, bb, br, bc, yo] = call.words()?;
    let out = call.output(yo, volume(&[batch, m, n]))?;
    if out.len() == 0 {
        return Ok(());
    }
    let a = call.input::<f32>(0, ao, extent(&[(batch, ab), (m, ar), (k, ac)]), &out)?;
    let b = call.input::<f32>(1, bo, extent(&[(batch, bb), (k, br), (n, bc)]), &out)?;
    if k == 0 {
        // SAFETY: the whole output, and nothing else refers to it.
        unsafe { out.slice(0, out.len()) }.fill(0.0);
        return Ok(());
    }
    let pool = &call.context.pool;
    // Batches are shared out; where they are too few, so are rows.
    let parts = (4 * pool.threads()).div_ceil(batch).min(m.div_ceil(32)).max(1);
    let rows = m.div_ceil(parts);
    let work = |task: usize| {
        let (index, start) = (task / parts, task % parts * rows);
        let Some(count) = m.checked_sub(start).filter(|c| *c > 0) else { return };
        let count = count.min(rows);
        let a = Matrix { data: &a[index * ab + start * ar..], row_stride: ar, col_stride: ac };
        let b = Matrix { data: &b[index * bb..], row_stride: br, col_stride: bc };
        // SAFETY: these rows of y belong to this task alone.
        let y = unsafe { out.slice((index * m + start) * n, count * n) };
        sgemm(count, n, k, &a, &b, y);
    };
    if out.len().saturating_mul(k) < 64 << 10 {
        (0..batch * parts).for_each(work);
    } else {
        pool.run(batch * parts, &work);
    }
    Ok(())
}
