//! `attn_decode`, `attn_prefill`: grouped-query attention with an online softmax; `attn_split_kv`
//! and `attn_split_kv_reduce`: flash decoding in two passes (split-KV), over slices of the keys.
//!
//! A task handles up to 8 query rows that share their keys (in decode heads of a group, in prefill
//! neighbouring tokens of a head) and iterates over the keys in blocks. It computes the scores as
//! f32 products, applies `exp` relative to the running maximum, and adds the values with these
//! weights.

use std::cell::RefCell;
use std::ops::Range;

use super::visible_keys::Keys;
use crate::arch::{Arch, Product, WIDTHS, Weighted, format_index, prefetch};
use crate::call::{Call, Input, Out, extent, volume};
use crate::epilogue::Sink;
use warploom_core::base::{DType, Format};
use warploom_core::error::{Error, Result};

/// Maximum number of query rows of a task.
const ROWS: usize = 8;
/// Number of keys in a block.
const KEYS: usize = 128;

thread_local! {
    /// `ROWS` rows of `KEYS` scores, then `ROWS` rows of `head_dim` sums.
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Computes attention for decode, with few tokens; the same function as [`attn_prefill`].
pub(super) fn attn_decode(call: &Call<'_>) -> Result<()> {
    attention(call)
}

/// Computes attention for prefill, with many tokens; the same function as [`attn_decode`].
pub(super) fn attn_prefill(call: &Call<'_>) -> Result<()> {
    attention(call)
}

/// Computes the partial result of each slice of the keys that is not empty; see the catalogue.
pub(super) fn attn_split_kv(call: &Call<'_>) -> Result<()> {
    let words = call.words::<20>()?;
    let sizes: [usize; 8] = std::array::from_fn(|i| words[i]);
    let ([tokens, heads, _, head_dim, ..], [splits, granule]) = (sizes, [words[8], words[9]]);
    let out = call.output(0, volume(&[tokens, heads, splits, head_dim.saturating_add(2)]))?;
    if out.len() == 0 {
        return Ok(());
    }
    let places = std::array::from_fn(|i| words[10 + i]);
    let a = Attention::new(call, sizes, places, call.float(19), std::slice::from_ref(&out))?;
    call.context.pool.run(tokens * heads * splits, &|row| {
        let (token, head, slice) = (row / splits / heads, row / splits % heads, row % splits);
        let seen = a.keys.seen(token);
        let len = slice_len(seen.len(), splits, granule);
        let start = seen.end.min(seen.start.saturating_add(slice.saturating_mul(len)));
        let keys = start..seen.end.min(start.saturating_add(len));
        if keys.is_empty() {
            return;
        }
        let tile = Tile { token, head, rows: 1, along_tokens: false };
        let ranges = std::array::from_fn(|_| keys.clone());
        a.tile(call.context.arch, tile, &ranges, |_, sums, largest, total| {
            // SAFETY: the sums and the pair of this row belong to this task alone.
            let (part, pair) = unsafe {
                let pairs = tokens * heads * splits * head_dim;
                (out.slice(row * head_dim, head_dim), out.slice(pairs + 2 * row, 2))
            };
            part.copy_from_slice(sums);
            pair.copy_from_slice(&[largest.max(f32::MIN), total]);
        });
    });
    Ok(())
}

/// Combines the partial results of [`attn_split_kv`].
pub(super) fn attn_split_kv_reduce(call: &Call<'_>) -> Result<()> {
    let [tokens, heads, head_dim, kv_len, place, window, causal, splits, granule, yo] =
        call.words::<10>()?;
    let out = Sink::new(call, yo, [tokens, heads, head_dim])?;
    let keys = Keys::new(call, tokens, [kv_len, place, window, causal], out.outs())?;
    let words = volume(&[tokens, heads, splits, head_dim.saturating_add(2)]);
    let part = call.input_apart::<f32>(0, 0, words, out.outs())?;
    if out.len() == 0 {
        return Ok(());
    }
    for row in 0..tokens * heads {
        let seen = keys.seen(row / heads).len();
        let used = seen.div_ceil(slice_len(seen, splits, granule)).min(splits);
        let first = row * splits;
        let pairs = &part[tokens * heads * splits * head_dim..][2 * first..][..2 * used];
        let largest = pairs.iter().step_by(2).copied().fold(f32::MIN, f32::max);
        let weights = pairs.chunks_exact(2).map(|pair| (pair[0] - largest).exp());
        let total: f32 = pairs.chunks_exact(2).zip(weights.clone()).map(|(p, w)| p[1] * w).sum();
        let factor = if total == 0.0 { 0.0 } else { 1.0 / total };
        let make = |y: &mut [f32]| {
            y.fill(0.0);
            for (s, weight) in weights.enumerate() {
                let sums = &part[(first + s) * head_dim..][..head_dim];
                y.iter_mut().zip(sums).for_each(|(y, sum)| *y += sum * weight * factor);
            }
        };
        // SAFETY: no other thread writes meanwhile.
        unsafe { out.fill(call.context.arch, row * head_dim, head_dim, make) };
    }
    Ok(())
}

/// Returns the number of keys in a slice, split as in `shaders/shared/key_slices.wgsl`.
fn slice_len(count: usize, splits: usize, granule: usize) -> usize {
    let least = count.div_ceil(splits.max(1)).max(1);
    least.checked_next_multiple_of(granule.max(1)).unwrap_or(usize::MAX)
}

struct Attention<'a> {
    heads: usize,
    /// Number of heads that share keys and values.
    group: usize,
    head_dim: usize,
    keys: Keys<'a>,
    scale: f32,
    /// Bound of the scores; 0 for none.
    soft_cap: f32,
    /// Score of a key without a value, for each head.
    sinks: Option<Input<'a, f32>>,
    /// Whether a row's bits must not depend on the other rows of its tile.
    in_order: bool,
    /// Strides of tokens and heads, in elements.
    q_strides: (usize, usize),
    k_strides: (usize, usize),
    v_strides: (usize, usize),
    q: Input<'a, f32>,
    k: Kept<'a>,
    v: Kept<'a>,
}

/// The keys or the values.
enum Kept<'a> {
    F32(Input<'a, f32>),
    F16(Input<'a, u16>),
}

impl<'a> Kept<'a> {
    fn new(
        call: &Call<'a>,
        binding: usize,
        offset: usize,
        len: u64,
        outs: &[Out<'a>],
    ) -> Result<Kept<'a>> {
        Ok(match call.format {
            Format::Plain(DType::F16) => Kept::F16(call.input_apart(binding, offset, len, outs)?),
            _ => Kept::F32(call.input_apart(binding, offset, len, outs)?),
        })
    }

    /// Returns the size of an element in bytes.
    fn element(&self) -> usize {
        match self {
            Kept::F32(_) => size_of::<f32>(),
            Kept::F16(_) => size_of::<u16>(),
        }
    }

    /// Returns the address of an element, which must exist.
    fn at(&self, element: usize) -> *const u8 {
        match self {
            Kept::F32(all) => all[element..].as_ptr().cast(),
            Kept::F16(all) => all[element..].as_ptr().cast(),
        }
    }
}

/// Up to [`ROWS`] query rows from (`token`, `head`) on, along tokens or along heads.
#[derive(Clone, Copy)]
struct Tile {
    token: usize,
    head: usize,
    rows: usize,
    along_tokens: bool,
}

fn attention(call: &Call<'_>) -> Result<()> {
    let has_sinks = call.names.iter().any(|(name, _)| *name == "sinks");
    let (words, sinks_offset): ([usize; 20], usize) = match has_sinks {
        true => {
            let words = call.words::<21>()?;
            (std::array::from_fn(|i| words[i]), words[20])
        }
        false => (call.words::<20>()?, 0),
    };
    let sizes: [usize; 8] = std::array::from_fn(|i| words[i]);
    let [tokens, heads, kv_heads, head_dim, kv_len, ..] = sizes;
    let out = Sink::new(call, words[17], [tokens, heads, head_dim])?;
    if out.len() == 0 {
        return Ok(());
    }
    let places = std::array::from_fn(|i| words[8 + i]);
    let mut a = Attention::new(call, sizes, places, call.float(18), out.outs())?;
    a.soft_cap = call.float(19);
    if let Some(binding) = call.names.iter().position(|(name, _)| *name == "sinks") {
        a.sinks = Some(call.input_apart(binding, sinks_offset, heads as u64, out.outs())?);
    }
    let (arch, pool) = (call.context.arch, &call.context.pool);
    let small = (tokens * heads).saturating_mul(kv_len).saturating_mul(head_dim) < 64 << 10;
    let run = |tasks: usize, work: &(dyn Fn(usize) + Sync)| match small {
        true => (0..tasks).for_each(work),
        false => pool.run(tasks, work),
    };
    if tokens >= 4 && a.keys.spans.is_none() {
        let tiles = tokens.div_ceil(ROWS);
        // The last tokens see the most keys: they go first, to balance the threads.
        run(heads * tiles, &|task| {
            let token = (tiles - 1 - task / heads) * ROWS;
            let rows = ROWS.min(tokens - token);
            let tile = Tile { token, head: task % heads, rows, along_tokens: true };
            a.whole(arch, tile, &out);
        });
    } else {
        let mut rows = a.group.min(ROWS);
        while rows > 1 && tokens * kv_heads * a.group.div_ceil(rows) < 4 * pool.threads() {
            rows /= 2;
        }
        let tiles = a.group.div_ceil(rows);
        run(tokens * kv_heads * tiles, &|task| {
            let (token, rest) = (task / (kv_heads * tiles), task % (kv_heads * tiles));
            let first = rest % tiles * rows;
            let head = rest / tiles * a.group + first;
            let rows = rows.min(a.group - first);
            a.whole(arch, Tile { token, head, rows, along_tokens: false }, &out);
        });
    }
    Ok(())
}

impl<'a> Attention<'a> {
    /// Checks the operands. `sizes` are tokens, heads, KV heads, head_dim, keys, past, window and
    /// causal; `places` are an offset and the strides of tokens and heads, for each of q, k and v.
    fn new(
        call: &Call<'a>,
        sizes: [usize; 8],
        places: [usize; 9],
        scale: f32,
        outs: &[Out<'a>],
    ) -> Result<Attention<'a>> {
        let [tokens, heads, kv_heads, head_dim, kv_len, place, window, causal] = sizes;
        let [qo, qt, qh, ko, kt, kh, vo, vt, vh] = places;
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(Error::invalid(format!("{heads} heads over {kv_heads} heads of keys")));
        }
        let kv = |t, h| extent(&[(kv_len, t), (kv_heads, h), (head_dim, 1)]);
        let q = extent(&[(tokens, qt), (heads, qh), (head_dim, 1)]);
        Ok(Attention {
            heads,
            group: heads / kv_heads,
            head_dim,
            keys: Keys::new(call, tokens, [kv_len, place, window, causal], outs)?,
            scale,
            soft_cap: 0.0,
            sinks: None,
            in_order: call.in_order,
            q_strides: (qt, qh),
            k_strides: (kt, kh),
            v_strides: (vt, vh),
            q: call.input_apart(0, qo, q, outs)?,
            k: Kept::new(call, 1, ko, kv(kt, kh), outs)?,
            v: Kept::new(call, 2, vo, kv(vt, vh), outs)?,
        })
    }

    /// Computes attention for a tile over all keys that are visible to it.
    fn whole(&self, arch: &Arch, tile: Tile, out: &Sink) {
        let seen: [_; ROWS] = std::array::from_fn(|i| {
            let row = i.min(tile.rows - 1);
            self.keys.seen(if tile.along_tokens { tile.token + row } else { tile.token })
        });
        self.tile(arch, tile, &seen, |row, sums, largest, total| {
            let (token, head) = tile.place(row);
            // Infinite where the other keys vanish beside the sink.
            let sink = self.sinks.as_ref().map_or(0.0, |sinks| (sinks[head] - largest).exp());
            let total = total + sink;
            let at = (token * self.heads + head) * self.head_dim;
            let factor = if total == 0.0 { 0.0 } else { 1.0 / total };
            let make = |y: &mut [f32]| {
                y.iter_mut().zip(sums).for_each(|(y, sum)| *y = sum * factor);
            };
            // SAFETY: this row of y belongs to this task alone.
            unsafe { out.fill(arch, at, self.head_dim, make) };
        });
    }

    /// Computes the weighted sums of a tile, over the keys `seen` by each row. `done` receives the
    /// index of each row, its sums, its largest score and the sum of its weights.
    fn tile(
        &self,
        arch: &Arch,
        tile: Tile,
        seen: &[Range<usize>; ROWS],
        mut done: impl FnMut(usize, &[f32], f32, f32),
    ) {
        SCRATCH.with_borrow_mut(|scratch| {
            let need = ROWS * (KEYS + self.head_dim);
            if scratch.len() < need {
                scratch.resize(need, 0.0);
            }
            let (scores, sums) = scratch[..need].split_at_mut(ROWS * KEYS);
            sums.fill(0.0);
            let start = seen.iter().filter(|s| !s.is_empty()).map(|s| s.start).min().unwrap_or(0);
            let end = seen.iter().filter(|s| !s.is_empty()).map(|s| s.end).max().unwrap_or(0);
            // Block boundaries do not depend on the keys that the other rows see.
            let origin = self.keys.first(tile.token);
            let start = match self.in_order {
                true => start - start.saturating_sub(origin) % KEYS,
                false => start,
            };
            let (mut largest, mut total) = ([f32::NEG_INFINITY; ROWS], [0f32; ROWS]);
            self.ask(&self.k, self.k_strides, tile, start..end.min(start + KEYS));
            for first in (start..end).step_by(KEYS) {
                let keys = KEYS.min(end - first);
                self.ask(&self.v, self.v_strides, tile, first..first + keys);
                self.scores(arch, tile, first, keys, scores);
                for i in 0..tile.rows {
                    let row = &mut scores[i * KEYS..][..keys];
                    let a = seen[i].start.clamp(first, first + keys) - first;
                    let b = seen[i].end.clamp(first, first + keys) - first;
                    row[..a].fill(0.0);
                    row[b.max(a)..].fill(0.0);
                    let row = &mut row[a..b.max(a)];
                    let sums = &mut sums[i * self.head_dim..][..self.head_dim];
                    soften(
                        arch,
                        row,
                        [self.scale, self.soft_cap],
                        &mut largest[i],
                        &mut total[i],
                        sums,
                    );
                }
                let next = first + keys;
                self.ask(&self.k, self.k_strides, tile, next..end.min(next + KEYS));
                let block = first..next;
                let whole = |s: &Range<usize>| s.start <= block.start && block.end <= s.end;
                if !self.in_order || seen[..tile.rows].iter().all(whole) {
                    self.weigh(arch, tile, (0..tile.rows, block), scores, sums);
                    continue;
                }
                // A weight of 0 could still turn -0 to 0, or spread NaN from a masked key.
                for (row, seen) in seen[..tile.rows].iter().enumerate() {
                    let start = seen.start.max(block.start);
                    let keys = start..seen.end.min(block.end).max(start);
                    let scores = &scores[keys.start - first..];
                    self.weigh(arch, tile, (row..row + 1, keys), scores, sums);
                }
            }
            for i in 0..tile.rows {
                done(i, &sums[i * self.head_dim..][..self.head_dim], largest[i], total[i]);
            }
        });
    }

    /// Prefetches the next keys or values, whose short segments the hardware prefetcher does not
    /// follow.
    fn ask(&self, kept: &Kept, strides: (usize, usize), tile: Tile, keys: Range<usize>) {
        let head = tile.head / self.group * strides.1;
        for key in keys {
            prefetch(kept.at(key * strides.0 + head), self.head_dim * kept.element());
        }
    }

    /// Computes `scores[i][s] = q[i] . k[first + s]`.
    fn scores(&self, arch: &Arch, tile: Tile, first: usize, keys: usize, scores: &mut [f32]) {
        let kv_head = tile.head / self.group;
        let k = self.k.at(first * self.k_strides.0 + kv_head * self.k_strides.1);
        let format = match self.k {
            Kept::F32(_) => Format::F32,
            Kept::F16(_) => Format::Plain(DType::F16),
        };
        let products = &arch.products[format_index(format).unwrap_or(0)];
        let x_stride = if tile.along_tokens { self.q_strides.0 } else { self.q_strides.1 };
        let mut i = 0;
        while i < tile.rows {
            let width = WIDTHS.iter().rposition(|w| *w <= tile.rows - i).unwrap_or(0);
            let (token, head) = tile.place(i);
            let task = Product {
                w: k,
                row_bytes: self.k_strides.0 * self.k.element(),
                rows: keys,
                k: self.head_dim,
                x: self.q[token * self.q_strides.0 + head * self.q_strides.1..].as_ptr(),
                x_stride,
                y: scores[i * KEYS..].as_mut_ptr(),
                y_stride: KEYS,
                far: false, // prefetched by `ask`
            };
            // SAFETY: k holds the rows of the block, q the rows of the tile, and scores have a
            // row of KEYS for each.
            unsafe { products[width](&task) };
            i += WIDTHS[width];
        }
    }

    /// Computes `sums[i] += sum over s of scores[i][s] * v[keys.start + s]`, for these rows and
    /// keys.
    fn weigh(
        &self,
        arch: &Arch,
        tile: Tile,
        (rows, keys): (Range<usize>, Range<usize>),
        scores: &[f32],
        sums: &mut [f32],
    ) {
        let kv_head = tile.head / self.group;
        if keys.is_empty() {
            return;
        }
        let v = self.v.at(keys.start * self.v_strides.0 + kv_head * self.v_strides.1);
        let functions = match self.v {
            Kept::F32(_) => &arch.weighted,
            Kept::F16(_) => &arch.weighted_f16,
        };
        let mut i = rows.start;
        while i < rows.end {
            let (function, count) = if rows.end - i >= 4 { (1, 4) } else { (0, 1) };
            let task = Weighted {
                p: scores[i * KEYS..].as_ptr(),
                p_stride: KEYS,
                v,
                v_bytes: self.v_strides.0 * self.v.element(),
                len: keys.len(),
                cols: self.head_dim,
                out: sums[i * self.head_dim..].as_mut_ptr(),
                out_stride: self.head_dim,
            };
            // SAFETY: v holds the keys, scores and sums the rows i .. i + count.
            unsafe { functions[function](&task) };
            i += count;
        }
    }
}

impl Tile {
    /// Returns the token and the head of a row.
    fn place(&self, row: usize) -> (usize, usize) {
        match self.along_tokens {
            true => (self.token + row, self.head),
            false => (self.token, self.head + row),
        }
    }
}

/// Turns scores into weights, `exp(score * scale - largest)`, and rescales the previous sums to the
/// new maximum. With a soft cap, scaled scores are bounded first.
fn soften(
    arch: &Arch,
    row: &mut [f32],
    [scale, soft_cap]: [f32; 2],
    largest: &mut f32,
    total: &mut f32,
    sums: &mut [f32],
) {
    // SAFETY: the pointers and lengths are those of the slices.
    unsafe {
        (arch.scale)(row.as_mut_ptr(), row.len(), scale);
        if soft_cap != 0.0 {
            row.iter_mut().for_each(|score| *score = soft_cap * (*score / soft_cap).tanh());
        }
        let max = largest.max((arch.largest)(row.as_ptr(), row.len()));
        if max == f32::NEG_INFINITY && !row.iter().any(|v| v.is_nan()) {
            row.fill(0.0);
            return;
        }
        let factor = (*largest - max).exp();
        if factor != 1.0 {
            (arch.scale)(sums.as_mut_ptr(), sums.len(), factor);
        }
        *total = *total * factor + (arch.exp_sum)(row.as_ptr(), row.as_mut_ptr(), row.len(), max);
        *largest = max;
    }
}
