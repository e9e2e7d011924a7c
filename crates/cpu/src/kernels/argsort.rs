//! `argsort`: the columns of each row in the order of their elements.

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
