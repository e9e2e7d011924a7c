//! `matvec_*` and `matvec_int8_*`: packed weights times a few rows.

use std::cell::Cell;

use smallvec::SmallVec;

use super::segments::{Cut, segments};
use crate::arch::int8::{BLOCK, Factors, IntProduct, MOST_LANES, TABLES};
use crate::arch::{Product, WIDTHS, format_index};
use crate::call::{Call, Input, Out, extent};
use crate::epilogue::{Part, Read, parts, rows};
use warploom_core::base::ComputeMode;
use warploom_core::error::{Error, Result};

/// Number of weights below which a product uses one thread: about 5 us of work.
pub(super) const GRAIN: usize = 64 << 10;

/// Number of weight rows whose products are buffered for one evaluation of a body.
const WAITING: usize = 256;

/// Minimum number of rows of x for the panel GEMM.
const MANY: usize = 5;

/// Maximum number of rows of x per panel: these rows and their sums stay in the L2 cache.
pub(super) const GROUP: usize = 512;

thread_local! {
    /// Accumulators of the panel GEMM.
    static SUMS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
    /// Rows of x as changed by a prologue.
    static ROOM: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
    /// Quantised rows of x (8 bits).
    static ROUNDED: Cell<Rounded> = const { Cell::new(Rounded::new()) };
}

/// Storage of quantised rows.
#[derive(Default)]
pub(super) struct Rounded {
    pub(super) codes: Vec<i8>,
    pub(super) factors: Vec<Factors>,
}

impl Rounded {
    pub(super) const fn new() -> Rounded {
        Rounded { codes: Vec::new(), factors: Vec::new() }
    }

    /// Quantises `m` rows of `k` values, `stride` elements apart; `k` is a multiple of the block.
    pub(super) fn round(&mut self, call: &Call<'_>, x: &[f32], stride: usize, m: usize, k: usize) {
        let blocks = k / BLOCK;
        if self.codes.len() < m * k {
            self.codes.resize(m * k, 0);
            self.factors.resize(m * blocks * TABLES, Factors::default());
        }
        // Each chunk has its own blocks; addresses are integers so that threads may share them.
        let codes = self.codes.as_mut_ptr() as usize;
        let factors = self.factors.as_mut_ptr() as usize;
        let round = call.context.int8.round;
        call.context.pool.split(m * blocks, GRAIN / BLOCK, 1, |range| {
            let mut at = range.start;
            while at < range.end {
                let (row, first) = (at / blocks, at % blocks);
                let count = (blocks - first).min(range.end - at);
                let x = &x[row * stride + first * BLOCK..][..count * BLOCK];
                // SAFETY: blocks at .. at + count lie inside the room and belong to this chunk.
                unsafe {
                    let codes = (codes as *mut i8).add(at * BLOCK);
                    let factors = (factors as *mut Factors).add(row * TABLES * blocks + first);
                    round(x.as_ptr(), x.len(), codes, factors, blocks);
                }
                at += count;
            }
        });
    }
}

/// Checked operands of `y[i, r] = w[r] . x[i]`.
pub(super) struct Linear<'a> {
    /// Number of rows of x and of y.
    pub(super) m: usize,
    /// Number of rows of w, and of columns of y.
    pub(super) n: usize,
    /// Number of columns of w and of x.
    pub(super) k: usize,
    /// Size of a row of w in bytes.
    pub(super) row_bytes: usize,
    /// Index of the format in the function tables.
    pub(super) format: usize,
    pub(super) w: Input<'a, u8>,
    x: Input<'a, f32>,
    x_stride: usize,
    target: Target<'a>,
}

/// Destination of the products.
#[expect(clippy::large_enum_variant, reason = "one on the stack of a launch; a box would allocate")]
enum Target<'a> {
    Store(Store<'a>),
    Parts(SmallVec<[Part<'a>; 2]>),
}

/// An output whose rows are `y_stride` elements apart.
#[derive(Clone, Copy)]
pub(super) struct Store<'a> {
    pub(super) out: Out<'a>,
    pub(super) y_stride: usize,
}

/// Rows of x in the form that a product consumes.
#[derive(Clone, Copy)]
pub(super) enum Rows<'x> {
    /// Floats, with this row stride in elements.
    Floats(&'x [f32], usize),
    /// Quantised values and their factors, contiguous.
    Rounded(&'x [i8], &'x [Factors]),
}

/// Rows of packed weights, and the destination of their products.
#[derive(Clone, Copy)]
pub(super) struct Weights {
    pub(super) format: usize,
    pub(super) w: *const u8,
    pub(super) row_bytes: usize,
    pub(super) rows: usize,
    pub(super) k: usize,
    pub(super) y: *mut f32,
    pub(super) y_stride: usize,
}

impl Rows<'_> {
    /// Returns whether [`Rows::multiply_many`] applies to `m` rows and weights of a format.
    pub(super) fn are_many(&self, call: &Call<'_>, m: usize, format: usize) -> bool {
        let int8 = call.context.int8;
        let fits = int8.tiles.is_some() && int8.packings[format].is_some();
        // One reduction order for any number of rows: that of the panel GEMM, if there is one.
        matches!(self, Rows::Rounded(..)) && (m >= MANY || call.in_order) && fits
    }

    /// Multiplies rows `i .. i + m` by the weights, in the panel GEMM; see [`Rows::are_many`].
    ///
    /// # Safety
    /// Same as [`Rows::multiply`].
    pub(super) unsafe fn multiply_many(&self, call: &Call<'_>, i: usize, m: usize, to: &Weights) {
        let Weights { format, w, row_bytes, rows, k, y, y_stride } = *to;
        let (int8, Rows::Rounded(x, factors)) = (call.context.int8, *self) else {
            warploom_core::error::broken_invariant("many rows that were not rounded")
        };
        let (Some(tiles), Some(packing)) = (int8.tiles, &int8.packings[format]) else {
            warploom_core::error::broken_invariant("a format without integer products")
        };
        let x = x.as_ptr().wrapping_add(i * k);
        let factors = factors.as_ptr().wrapping_add(i * TABLES * (k / BLOCK));
        let one = IntProduct { w, row_bytes, rows, k, x, factors, y, y_stride };
        if let (1, Some(single)) = (m, int8.single) {
            // SAFETY: the caller's contract.
            return unsafe { single(&one, packing) };
        }
        let mut sums = SUMS.take();
        if sums.len() < m * MOST_LANES {
            sums.resize(m * MOST_LANES, 0.0);
        }
        // SAFETY: the caller's contract; the sums are this thread's.
        unsafe { tiles(&one, m, sums.as_mut_ptr(), packing) };
        SUMS.set(sums);
    }

    /// Multiplies `WIDTHS[width]` rows, from row `i` on, by the weights.
    ///
    /// # Safety
    /// The rows of `k` values exist, the weights match their description, and `y` has room for the
    /// products and is not shared.
    pub(super) unsafe fn multiply(
        &self,
        call: &Call<'_>,
        (i, width): (usize, usize),
        to: &Weights,
    ) {
        let Weights { format, w, row_bytes, rows, k, y, y_stride } = *to;
        // With no columns there is no memory to point to.
        match *self {
            Rows::Floats(x, x_stride) => {
                let x = x.as_ptr().wrapping_add(i * x_stride);
                let task = Product { w, row_bytes, rows, k, x, x_stride, y, y_stride, far: true };
                let arch = call.context.arch;
                let product = match call.in_order && WIDTHS[width] == 1 {
                    true => arch.alike[format],
                    false => arch.products[format][width],
                };
                // SAFETY: the caller's contract.
                unsafe { product(&task) }
            }
            Rows::Rounded(x, factors) => {
                let Some(products) = call.context.int8.products[format] else {
                    warploom_core::error::broken_invariant("a format without integer products")
                };
                let x = x.as_ptr().wrapping_add(i * k);
                let factors = factors.as_ptr().wrapping_add(i * TABLES * (k / BLOCK));
                let task = IntProduct { w, row_bytes, rows, k, x, factors, y, y_stride };
                // SAFETY: the caller's contract.
                unsafe { products[width](&task) }
            }
        }
    }
}

/// Reads and checks the operands; `None` if the result is empty.
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

/// Reads the operands and multiplies. `store` computes a product without segments; `cut` chooses
/// the tiling of a product with segments.
///
/// # Errors
/// Invalid if an operand exceeds its binding or `k` is not a multiple of the block; unsupported if
/// the weights are not floats.
pub(super) fn multiply(
    call: &Call<'_>,
    mode: ComputeMode,
    cut: impl FnOnce(&Linear<'_>) -> Cut,
    store: impl FnOnce(&Linear<'_>, Rows<'_>, Store<'_>),
) -> Result<()> {
    let Some(t) = linear(call)? else { return Ok(()) };
    let first = |row: usize| row * t.x_stride;
    let read = Read { x: &t.x, rows: t.m, cols: t.k, first, col_stride: 1 };
    let mut room = ROOM.take();
    let changed = rows(call, &read, &mut room)?;
    let (x, stride) = changed.map_or((&t.x[..], t.x_stride), |x| (x, t.k));
    let mut rounded = Rounded::new();
    let x = match mode {
        // f16 operands gain nothing on a CPU.
        ComputeMode::F32 | ComputeMode::F16 => Rows::Floats(x, stride),
        ComputeMode::Int8 => {
            rounded = ROUNDED.take();
            rounded.round(call, x, stride, t.m, t.k);
            Rows::Rounded(&rounded.codes, &rounded.factors)
        }
    };
    match &t.target {
        Target::Store(to) => store(&t, x, *to),
        Target::Parts(parts) => segments(call, &t, x, parts, cut(&t)),
    }
    ROOM.set(room);
    if mode == ComputeMode::Int8 {
        ROUNDED.set(rounded);
    }
    Ok(())
}

/// Computes `y[i, r] = sum over c of w[r, c] * x[i, c]`, in f32 on decoded weights.
pub(super) fn matvec(call: &Call<'_>) -> Result<()> {
    multiply(call, ComputeMode::F32, |t| t.cut(), |t, x, to| t.by_rows(call, x, to))
}

/// Same as [`matvec`], on rows of x that are quantised to 8 bits, with integer sums in each block.
pub(super) fn matvec_int8(call: &Call<'_>) -> Result<()> {
    if !call.format.is_quantised() {
        return Err(Error::unsupported(format!("8-bit products with weights of {}", call.format)));
    }
    multiply(call, ComputeMode::Int8, |t| t.cut(), |t, x, to| t.by_rows(call, x, to))
}

impl Linear<'_> {
    /// Multiplies all rows of w by x: in tiles, with up to 8 rows of x at a time, or in panels if x
    /// has many rows.
    pub(super) fn by_rows(&self, call: &Call<'_>, x: Rows<'_>, to: Store<'_>) {
        if x.are_many(call, self.m, self.format) {
            return self.by_lanes(call, x, to);
        }
        let cut = self.cut();
        call.context.pool.split(self.n, cut.grain, 4, |rows| {
            for start in rows.clone().step_by(self.step()) {
                self.tile(call, x, to, start, self.step().min(rows.end - start));
            }
        });
    }

    /// Returns the tiling for segments: if each row of w is read only once, more products are
    /// buffered.
    pub(super) fn cut(&self) -> Cut {
        let rows = if WIDTHS.contains(&self.m) { WAITING } else { self.step() };
        Cut { grain: (GRAIN / self.k.max(1)).max(1), rows, decode: false }
    }

    /// Multiplies panels of weight rows, each unpacked once for up to [`GROUP`] rows of x.
    fn by_lanes(&self, call: &Call<'_>, x: Rows<'_>, to: Store<'_>) {
        call.context.pool.split(self.n, MOST_LANES, MOST_LANES, |rows| {
            for i in (0..self.m).step_by(GROUP) {
                let task = Weights {
                    format: self.format,
                    w: self.w[rows.start * self.row_bytes..].as_ptr(),
                    row_bytes: self.row_bytes,
                    rows: rows.len(),
                    k: self.k,
                    // SAFETY: element (i, start) lies inside y.
                    y: unsafe { to.out.at(i * to.y_stride + rows.start) },
                    y_stride: to.y_stride,
                };
                // SAFETY: w holds the rows, x those from i on, and y the products; these columns
                // of y belong to this chunk alone.
                unsafe { x.multiply_many(call, i, GROUP.min(self.m - i), &task) };
            }
        });
    }

    /// Returns the number of weight rows of a tile: few enough that they stay in cache for the next
    /// rows of x.
    fn step(&self) -> usize {
        ((128 << 10) / self.row_bytes.max(1)).clamp(4, 64).next_multiple_of(4)
    }

    /// Multiplies rows `start .. start + rows` of w by every row of x.
    fn tile(&self, call: &Call<'_>, x: Rows<'_>, to: Store<'_>, start: usize, rows: usize) {
        let mut i = 0;
        while i < self.m {
            let width = WIDTHS.iter().rposition(|w| *w <= self.m - i).unwrap_or(0);
            let task = Weights {
                format: self.format,
                w: self.w[start * self.row_bytes..].as_ptr(),
                row_bytes: self.row_bytes,
                rows,
                k: self.k,
                // SAFETY: element (i, start) lies inside y.
                y: unsafe { to.out.at(i * to.y_stride + start) },
                y_stride: to.y_stride,
            };
            // SAFETY: w holds the rows, x the rows i .. i + width, and y the products; the
            // columns start .. start + rows of y belong to this tile alone.
            unsafe { x.multiply(call, (i, width), &task) };
            i += WIDTHS[width];
        }
    }
}
