//! `matvec_*`: packed weights times a few rows.

use crate::cpu::arch::{Product, WIDTHS, format_index};
use crate::cpu::call::{Call, Input, Out, extent};
use crate::error::{Error, Result};

/// Weights below which a product stays on one thread: some 5 us of work.
const GRAIN: usize = 64 << 10;

/// Operands of `y[i, r] = w[r] . x[i]`, checked.
pub(super) struct Linear<'a> {
    /// Rows of x and of y.
    pub(super) m: usize,
    /// Rows of w, columns of y.
    pub(super) n: usize,
    /// Columns of w and of x.
    pub(super) k: usize,
    pub(super) x_stride: usize,
    pub(super) y_stride: usize,
    /// Bytes of a row of w.
    pub(super) row_bytes: usize,
    /// Place of the format in the tables.
    pub(super) format: usize,
    pub(super) w: Input<'a, u8>,
    pub(super) x: Input<'a, f32>,
    pub(super) out: Out<'a>,
}

/// Reads and checks the operands; `None` where there is nothing to compute.
pub(super) fn linear<'a>(call: &Call<'a>) -> Result<Option<Linear<'a>>> {
    let [m, n, k, x_offset, x_stride, y_offset, y_stride] = call.words()?;
    let bytes = call.format.bytes(k as u64).ok_or_else(|| {
        let block = call.format.block_len();
        Error::invalid(format!("k = {k} is not a multiple of the block of {block} weights"))
    })?;
    let format = format_index(call.format)
        .ok_or_else(|| Error::unsupported(format!("weights of {}", call.format)))?;
    if m > 1 && y_stride < n {
        return Err(Error::invalid(format!("rows of y overlap: y_stride {y_stride}, n {n}")));
    }
    if m == 0 || n == 0 {
        return Ok(None);
    }
    let out = call.output(y_offset, extent(&[(m, y_stride), (n, 1)]))?;
    let w = call.input::<u8>(0, 0, bytes.saturating_mul(n as u64), &out)?;
    let x = call.input::<f32>(1, x_offset, extent(&[(m, x_stride), (k, 1)]), &out)?;
    Ok(Some(Linear { m, n, k, x_stride, y_stride, row_bytes: bytes as usize, format, w, x, out }))
}

/// `y[i, r] = sum over c of w[r, c] * x[i, c]`, in f32 on the weights as they decode.
pub(super) fn matvec(call: &Call<'_>) -> Result<()> {
    if let Some(linear) = linear(call)? {
        linear.by_rows(call);
    }
    Ok(())
}

impl Linear<'_> {
    /// Each row of w is read from memory once for every 8 rows of x, and decoded in registers.
    pub(super) fn by_rows(&self, call: &Call<'_>) {
        let grain = (GRAIN / self.k.max(1)).max(1);
        call.context.pool.split(self.n, grain, 4, |rows| {
            // Few enough rows of w that they stay in cache for the next rows of x.
            let step = ((128 << 10) / self.row_bytes.max(1)).clamp(4, 64).next_multiple_of(4);
            for start in rows.clone().step_by(step) {
                self.tile(call, start, step.min(rows.end - start));
            }
        });
    }

    /// Rows `start .. start + rows` of w with every row of x.
    fn tile(&self, call: &Call<'_>, start: usize, rows: usize) {
        let products = &call.context.arch.products[self.format];
        let mut i = 0;
        while i < self.m {
            let width = WIDTHS.iter().rposition(|w| *w <= self.m - i).unwrap_or(0);
            let task = Product {
                w: self.w[start * self.row_bytes..].as_ptr(),
                row_bytes: self.row_bytes,
                rows,
                k: self.k,
                x: self.x[i * self.x_stride..].as_ptr(),
                x_stride: self.x_stride,
                // SAFETY: element (i, start) lies inside y.
                y: unsafe { self.out.at(i * self.y_stride + start) },
                y_stride: self.y_stride,
            };
            // SAFETY: w holds the rows, x the rows i .. i + width, and y the products; the
            // columns start .. start + rows of y belong to this tile alone.
            unsafe { products[width](&task) };
            i += WIDTHS[width];
        }
    }
}
