//! `matvec_*`: packed weights times a few rows.

use std::cell::Cell;

use smallvec::SmallVec;

use super::segments::{Cut, segments};
use crate::cpu::arch::{Product, WIDTHS, format_index};
use crate::cpu::attached::{Part, Read, parts, rows};
use crate::cpu::call::{Call, Input, Out, extent};
use crate::error::{Error, Result};

/// Weights below which a product stays on one thread: some 5 us of work.
const GRAIN: usize = 64 << 10;

/// Rows of weights whose products wait for a body together.
const WAITING: usize = 256;

thread_local! {
    /// Rows of x as an attachment changes them.
    static ROOM: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Operands of `y[i, r] = w[r] . x[i]`, checked.
pub(super) struct Linear<'a> {
    /// Rows of x and of y.
    pub(super) m: usize,
    /// Rows of w, columns of y.
    pub(super) n: usize,
    /// Columns of w and of x.
    pub(super) k: usize,
    /// Bytes of a row of w.
    pub(super) row_bytes: usize,
    /// Place of the format in the tables.
    pub(super) format: usize,
    pub(super) w: Input<'a, u8>,
    x: Input<'a, f32>,
    x_stride: usize,
    target: Target<'a>,
}

/// Where the products go.
#[expect(clippy::large_enum_variant, reason = "one on the stack of a launch; a box would allocate")]
enum Target<'a> {
    Store(Store<'a>),
    Parts(SmallVec<[Part<'a>; 2]>),
}

/// To rows of y, `y_stride` apart.
#[derive(Clone, Copy)]
pub(super) struct Store<'a> {
    pub(super) out: Out<'a>,
    pub(super) y_stride: usize,
}

/// Rows of x, so far apart.
pub(super) type Rows<'x> = (&'x [f32], usize);

/// Reads and checks the operands; `None` where there is nothing to compute.
fn linear<'a>(call: &Call<'a>) -> Result<Option<Linear<'a>>> {
    let [m, n, k, x_offset, x_stride, y_offset, y_stride] = call.words()?;
    let bytes = call.format.bytes(k as u64).ok_or_else(|| {
        let block = call.format.block_len();
        Error::invalid(format!("k = {k} is not a multiple of the block of {block} weights"))
    })?;
    let format = format_index(call.format)
        .ok_or_else(|| Error::unsupported(format!("weights of {}", call.format)))?;
    if m == 0 || n == 0 {
        return Ok(None);
    }
    let (target, outs) = match parts(call, m, n)? {
        Some((parts, outs)) => (Target::Parts(parts), outs),
        None if m > 1 && y_stride < n => {
            return Err(Error::invalid(format!("rows of y overlap: y_stride {y_stride}, n {n}")));
        }
        None => {
            let out = call.output(y_offset, extent(&[(m, y_stride), (n, 1)]))?;
            (Target::Store(Store { out, y_stride }), SmallVec::from_slice(&[out]))
        }
    };
    let w = call.input_apart::<u8>(0, 0, bytes.saturating_mul(n as u64), &outs)?;
    let x = extent(&[(m, x_stride), (k, 1)]);
    let x = call.input_apart::<f32>(1, x_offset, x, &outs)?;
    Ok(Some(Linear { m, n, k, row_bytes: bytes as usize, format, w, x, x_stride, target }))
}

/// Reads the operands and multiplies: `store` for a plain product, segments as `cut` says.
///
/// # Errors
/// Invalid, where a parameter passes a binding.
pub(super) fn multiply(
    call: &Call<'_>,
    cut: impl FnOnce(&Linear<'_>) -> Cut,
    store: impl FnOnce(&Linear<'_>, Rows<'_>, Store<'_>),
) -> Result<()> {
    let Some(t) = linear(call)? else { return Ok(()) };
    let first = |row: usize| row * t.x_stride;
    let read = Read { x: &t.x, rows: t.m, cols: t.k, first, col_stride: 1 };
    let mut room = ROOM.take();
    let changed = rows(call, &read, &mut room)?;
    let x = changed.map_or((&t.x[..], t.x_stride), |x| (x, t.k));
    match &t.target {
        Target::Store(to) => store(&t, x, *to),
        Target::Parts(parts) => segments(call, &t, x, parts, cut(&t)),
    }
    ROOM.set(room);
    Ok(())
}

/// `y[i, r] = sum over c of w[r, c] * x[i, c]`, in f32 on the weights as they decode.
pub(super) fn matvec(call: &Call<'_>) -> Result<()> {
    multiply(call, |t| t.cut(), |t, x, to| t.by_rows(call, x, to))
}

impl Linear<'_> {
    /// Each row of w is read from memory once for every 8 rows of x, and decoded in registers.
    pub(super) fn by_rows(&self, call: &Call<'_>, x: Rows<'_>, to: Store<'_>) {
        let cut = self.cut();
        call.context.pool.split(self.n, cut.grain, 4, |rows| {
            for start in rows.clone().step_by(self.step()) {
                self.tile(call, x, to, start, self.step().min(rows.end - start));
            }
        });
    }

    /// The same for segments: where rows of w are read once only, more products wait together.
    pub(super) fn cut(&self) -> Cut {
        let rows = if WIDTHS.contains(&self.m) { WAITING } else { self.step() };
        Cut { grain: (GRAIN / self.k.max(1)).max(1), rows, decode: false }
    }

    /// Rows of w, few enough that they stay in cache for the next rows of x.
    fn step(&self) -> usize {
        ((128 << 10) / self.row_bytes.max(1)).clamp(4, 64).next_multiple_of(4)
    }

    /// Rows `start .. start + rows` of w with every row of x.
    fn tile(
        &self,
        call: &Call<'_>,
        (x, x_stride): Rows<'_>,
        to: Store<'_>,
        start: usize,
        rows: usize,
    ) {
        let products = &call.context.arch.products[self.format];
        let mut i = 0;
        while i < self.m {
            let width = WIDTHS.iter().rposition(|w| *w <= self.m - i).unwrap_or(0);
            let task = Product {
                w: self.w[start * self.row_bytes..].as_ptr(),
                row_bytes: self.row_bytes,
                rows,
                k: self.k,
                // With no columns there is nothing to point into.
                x: x.as_ptr().wrapping_add(i * x_stride),
                x_stride,
                // SAFETY: element (i, start) lies inside y.
                y: unsafe { to.out.at(i * to.y_stride + start) },
                y_stride: to.y_stride,
            };
            // SAFETY: w holds the rows, x the rows i .. i + width, and y the products; the
            // columns start .. start + rows of y belong to this tile alone.
            unsafe { products[width](&task) };
            i += WIDTHS[width];
        }
    }
}
