//! `expert_matvec_*`: rows of x times the matrices of chosen experts.
//!
//! Pairs of a token and an expert are sorted by expert, so that each weight is read once for all
//! rows of x that it multiplies.

use std::cell::Cell;
use std::ops::Range;

use super::matvec::{GRAIN, GROUP, Rounded, Rows, Weights};
use crate::arch::int8::{BLOCK, MOST_LANES, TABLES};
use crate::arch::{WIDTHS, format_index};
use crate::call::{Call, Input, Out, extent, volume};
use warploom_core::error::{Error, Result};

thread_local! {
    /// Rows of x, sorted by expert.
    static SORTED: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
    /// Quantised rows of x, in the order of x and sorted by expert.
    static ROUNDED: Cell<[Rounded; 2]> = const { Cell::new([Rounded::new(), Rounded::new()]) };
    /// Products of this thread that are not yet in their rows of y.
    static PRODUCTS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// The pairs of some experts, sorted by expert.
struct Routing {
    /// Pairs, by expert.
    order: Vec<usize>,
    /// An expert that has pairs, and its pairs in `order`.
    groups: Vec<(usize, Range<usize>)>,
}

impl Routing {
    /// Sorts the pairs whose expert is one of `experts`, by counting.
    fn new(ids: &[u32], experts: &Range<usize>) -> Routing {
        // An expert without pairs has an empty group until all are placed.
        let mut groups: Vec<(usize, Range<usize>)> =
            (0..experts.len()).map(|e| (e, 0..0)).collect();
        let group_of = |pair: usize| {
            (ids[pair] as usize).checked_sub(experts.start).filter(|e| *e < experts.len())
        };
        for expert in (0..ids.len()).filter_map(group_of) {
            groups[expert].1.end += 1;
        }
        let mut start = 0;
        for (_, pairs) in &mut groups {
            (start, *pairs) = (start + pairs.end, start..start);
        }
        let mut order = vec![0; start];
        for pair in 0..ids.len() {
            if let Some(expert) = group_of(pair) {
                let pairs = &mut groups[expert].1;
                order[pairs.end] = pair;
                pairs.end += 1;
            }
        }
        groups.retain(|(_, pairs)| !pairs.is_empty());
        Routing { order, groups }
    }
}

/// Checked operands of a product with experts.
struct Experts<'a> {
    n: usize,
    k: usize,
    row_bytes: usize,
    format: usize,
    w: Input<'a, u8>,
    y: Out<'a>,
    routing: Routing,
}

/// Computes `y[p, r] = sum over c of w[ids[p], r, c] * x[p / share, c]`, in f32 on decoded weights
/// or, if the call says so, on rows of x that are quantised to 8 bits.
pub(super) fn expert_matvec(call: &Call<'_>) -> Result<()> {
    let [pairs, share, first, count, total, n, k, x_offset, x_stride, ids_offset, y_offset] =
        call.words()?;
    let bytes = call.format.bytes(k as u64).ok_or_else(|| {
        let block = call.format.block_len();
        Error::invalid(format!("k = {k} is not a multiple of the block of {block} weights"))
    })?;
    let format = format_index(call.format)
        .ok_or_else(|| Error::unsupported(format!("weights of {}", call.format)))?;
    if call.rounded && !call.format.is_quantised() {
        return Err(Error::unsupported(format!("8-bit products with weights of {}", call.format)));
    }
    if share == 0 {
        return Err(Error::invalid("share is 0: no pair has a row of x"));
    }
    let rows = pairs.div_ceil(share);
    let y = call.output(y_offset, volume(&[pairs, n]))?;
    let w = bytes.saturating_mul(volume(&[count, n]));
    let w = call.input::<u8>(0, 0, w, &y)?;
    let x = call.input::<f32>(1, x_offset, extent(&[(rows, x_stride), (k, 1)]), &y)?;
    let ids = call.input::<u32>(2, ids_offset, pairs as u64, &y)?;
    for (pair, id) in ids.iter().enumerate() {
        if first == 0 && *id as usize >= total {
            // SAFETY: the row lies in y, and no other reference to it is alive.
            unsafe { y.slice(pair * n, n) }.fill(0.0);
        }
    }
    if n == 0 {
        return Ok(());
    }
    let routing = Routing::new(&ids, &(first..first.saturating_add(count)));
    if routing.order.is_empty() {
        return Ok(());
    }
    let t = Experts { n, k, row_bytes: bytes as usize, format, w, y, routing };
    let source = |i: usize| t.routing.order[i] / share;
    if !call.rounded {
        let mut sorted = SORTED.take();
        sorted.clear();
        (0..t.routing.order.len())
            .for_each(|i| sorted.extend_from_slice(&x[source(i) * x_stride..][..k]));
        t.multiply(call, Rows::Floats(&sorted, k));
        SORTED.set(sorted);
        return Ok(());
    }
    let [mut all, mut sorted] = ROUNDED.take();
    all.round(call, &x, x_stride, rows, k);
    let factors = k / BLOCK * TABLES;
    sorted.codes.clear();
    sorted.factors.clear();
    for i in 0..t.routing.order.len() {
        sorted.codes.extend_from_slice(&all.codes[source(i) * k..][..k]);
        sorted.factors.extend_from_slice(&all.factors[source(i) * factors..][..factors]);
    }
    t.multiply(call, Rows::Rounded(&sorted.codes, &sorted.factors));
    ROUNDED.set([all, sorted]);
    Ok(())
}

impl Experts<'_> {
    /// Multiplies rows of x, sorted as the pairs are.
    fn multiply(&self, call: &Call<'_>, x: Rows<'_>) {
        // Whole panels, and enough work to be worth a claim.
        let step = (GRAIN / self.k.max(1)).max(1).next_multiple_of(MOST_LANES);
        let chunks = self.n.div_ceil(step);
        call.context.pool.run(self.routing.groups.len() * chunks, &|task| {
            let (expert, pairs) = &self.routing.groups[task / chunks];
            let start = task % chunks * step;
            let rows = start..self.n.min(start + step);
            for from in pairs.clone().step_by(GROUP) {
                self.tile(call, x, *expert, from..pairs.end.min(from + GROUP), rows.clone());
            }
        });
    }

    /// Multiplies some rows of an expert by the rows of x of some of its pairs.
    fn tile(
        &self,
        call: &Call<'_>,
        x: Rows<'_>,
        expert: usize,
        pairs: Range<usize>,
        rows: Range<usize>,
    ) {
        let (m, len) = (pairs.len(), rows.len());
        let row_of = |i: usize| self.routing.order[i] * self.n + rows.start;
        let mut room = PRODUCTS.take();
        if m > 1 && room.len() < m * len {
            room.resize(m * len, 0.0);
        }
        let y = match m {
            // SAFETY: the row of this pair lies in y; its elements at `rows` are this task's alone.
            1 => unsafe { self.y.at(row_of(pairs.start)) },
            _ => room.as_mut_ptr(),
        };
        let to = Weights {
            format: self.format,
            w: self.w[(expert * self.n + rows.start) * self.row_bytes..].as_ptr(),
            row_bytes: self.row_bytes,
            rows: len,
            k: self.k,
            y,
            y_stride: len,
        };
        if x.are_many(call, m, self.format) {
            // SAFETY: w holds the rows, x those of the pairs, and y has room for their products,
            // which no other task writes.
            unsafe { x.multiply_many(call, pairs.start, m, &to) };
        } else {
            let mut i = 0;
            while i < m {
                let width = WIDTHS.iter().rposition(|w| *w <= m - i).unwrap_or(0);
                let to = Weights { y: to.y.wrapping_add(i * len), ..to };
                // SAFETY: as above.
                unsafe { x.multiply(call, (pairs.start + i, width), &to) };
                i += WIDTHS[width];
            }
        }
        if m > 1 {
            for (i, products) in pairs.zip(room.chunks_exact(len)) {
                // SAFETY: as for one pair.
                unsafe { self.y.slice(row_of(i), len) }.copy_from_slice(products);
            }
        }
        PRODUCTS.set(room);
    }
}
