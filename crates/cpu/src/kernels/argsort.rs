//! `argsort`: the columns of each row in the order of their elements; `argsort_merge` joins runs.

use super::top_k::ordered;
use crate::call::{Call, extent, volume};
use warploom_core::error::{Error, Result};

/// Maps the bits of an element to the integer by which it is sorted. `order` is that of the kernel:
/// 1 for descending, plus 2 for `i32` or 4 for `u32`.
fn sort_key(bits: u32, order: usize) -> u32 {
    let key = match order & 6 {
        2 => bits ^ (1 << 31),
        4 => bits,
        _ => ordered(f32::from_bits(bits)),
    };
    if order & 1 == 1 { !key } else { key }
}

/// Sorts each run of `run` columns of each row, equal elements by their column.
pub(super) fn argsort(call: &Call<'_>) -> Result<()> {
    let [rows, cols, run, order, x_offset, x_stride, y_offset] = call.words()?;
    let out = call.output(y_offset, volume(&[rows, cols]))?;
    let x = call.input::<u32>(0, x_offset, extent(&[(rows, x_stride), (cols, 1)]), &out)?;
    if out.len() == 0 {
        return Ok(());
    }
    if run == 0 {
        return Err(Error::invalid("runs of 0 columns"));
    }
    call.context.pool.split(rows, (2 << 10) / cols + 1, 1, |range| {
        let mut entries: Vec<u64> = Vec::with_capacity(run.min(cols));
        for row in range {
            let x = &x[row * x_stride..][..cols];
            // SAFETY: this row of y belongs to this chunk alone.
            let y = unsafe { out.slice(row * cols, cols) };
            for (index, (x, y)) in x.chunks(run).zip(y.chunks_mut(run)).enumerate() {
                let first = (index * run) as u32;
                entries.clear();
                // The key above the column: equal keys rank by their column.
                entries.extend((first..).zip(x).map(|(column, bits)| {
                    u64::from(sort_key(*bits, order)) << 32 | u64::from(column)
                }));
                entries.sort_unstable();
                for (y, entry) in y.iter_mut().zip(&entries) {
                    *y = f32::from_bits(*entry as u32);
                }
            }
        }
    });
    Ok(())
}

/// Merges each pair of neighbouring runs of `run` columns, which are in the order of `argsort`.
pub(super) fn argsort_merge(call: &Call<'_>) -> Result<()> {
    let [rows, cols, run, order, x_offset, x_stride, ids_offset, y_offset] = call.words()?;
    let out = call.output(y_offset, volume(&[rows, cols]))?;
    let x = call.input::<u32>(0, x_offset, extent(&[(rows, x_stride), (cols, 1)]), &out)?;
    let ids = call.input::<u32>(1, ids_offset, volume(&[rows, cols]), &out)?;
    if out.len() == 0 {
        return Ok(());
    }
    if run == 0 {
        return Err(Error::invalid("runs of 0 columns"));
    }
    call.context.pool.split(rows, (2 << 10) / cols + 1, 1, |range| {
        for row in range {
            let x = &x[row * x_stride..][..cols];
            let ids = &ids[row * cols..][..cols];
            // SAFETY: this row of y belongs to this chunk alone.
            let y = unsafe { out.slice(row * cols, cols) };
            // A column outside of the row, which no run has, counts as the largest.
            let key = |id: u32| x.get(id as usize).map_or(u32::MAX, |bits| sort_key(*bits, order));
            let pair = run.saturating_mul(2);
            for (ids, y) in ids.chunks(pair).zip(y.chunks_mut(pair)) {
                let (mut a, mut b) = ids.split_at(run.min(ids.len()));
                for y in y {
                    // Of equals those of the first run come first.
                    let first = match (a.first(), b.first()) {
                        (Some(a), Some(b)) => key(*a) <= key(*b),
                        (a, _) => a.is_some(),
                    };
                    let from = if first { &mut a } else { &mut b };
                    if let Some((id, rest)) = from.split_first() {
                        *y = f32::from_bits(*id);
                        *from = rest;
                    }
                }
            }
        }
    });
    Ok(())
}
