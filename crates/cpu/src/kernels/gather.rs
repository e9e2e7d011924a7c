//! `gather_rows_*`: rows of a packed table; `gather`: elements along an axis; `scatter_rows`: rows
//! written at given indices; `index_add`: rows added at given indices.

use crate::arch::format_index;
use crate::call::{Call, extent, volume};
use warploom_core::error::{Error, Result};

/// Computes `y[i, c] = table[ids[i], c]`, or zeros if the id is out of range.
pub(super) fn gather_rows(call: &Call<'_>) -> Result<()> {
    let [count, rows, cols, ids_offset, y_offset] = call.words()?;
    let bytes = call.format.bytes(cols as u64).ok_or_else(|| {
        let block = call.format.block_len();
        Error::invalid(format!("cols = {cols} is not a multiple of the block of {block} weights"))
    })?;
    let format = format_index(call.format)
        .ok_or_else(|| Error::unsupported(format!("a table of {}", call.format)))?;
    let out = call.output(y_offset, volume(&[count, cols]))?;
    let table = call.input::<u8>(0, 0, bytes.saturating_mul(rows as u64), &out)?;
    let ids = call.input::<u32>(1, ids_offset, count as u64, &out)?;
    let decode = call.context.arch.decode[format];
    call.context.pool.split(count, (16 << 10) / cols.max(1) + 1, 1, |range| {
        for i in range {
            // SAFETY: row i of y belongs to this chunk alone.
            let y = unsafe { out.slice(i * cols, cols) };
            // A negative id is a large unsigned one, and so out of range too.
            if (ids[i] as usize) < rows {
                let w = table[ids[i] as usize * bytes as usize..].as_ptr();
                // SAFETY: the table holds the row, and y has room for it.
                unsafe { decode(w, y.as_mut_ptr(), cols) };
            } else {
                y.fill(0.0);
            }
        }
    });
    Ok(())
}

/// Computes `y[o, j, i] = x[o, ids[j], i]`, or zeros if the id is out of range.
pub(super) fn gather(call: &Call<'_>) -> Result<()> {
    let [outer, axis_len, inner, count, x_offset, ids_offset, y_offset] = call.words()?;
    let out = call.output(y_offset, volume(&[outer, count, inner]))?;
    let x = call.input::<f32>(0, x_offset, volume(&[outer, axis_len, inner]), &out)?;
    let ids = call.input::<u32>(1, ids_offset, count as u64, &out)?;
    if out.len() == 0 {
        return Ok(());
    }
    call.context.pool.split(outer * count, (16 << 10) / inner + 1, 1, |range| {
        for row in range {
            let (o, id) = (row / count, ids[row % count] as usize);
            // SAFETY: this row of y belongs to this chunk alone.
            let y = unsafe { out.slice(row * inner, inner) };
            if id < axis_len {
                y.copy_from_slice(&x[(o * axis_len + id) * inner..][..inner]);
            } else {
                y.fill(0.0);
            }
        }
    });
    Ok(())
}

/// Writes `y[rows[i], c] = x[i, c]`; a row out of range is dropped. If a row is given several
/// times, the last one wins.
pub(super) fn scatter_rows(call: &Call<'_>) -> Result<()> {
    let [count, size, cols, x_offset, x_stride, rows_offset, y_offset] = call.words()?;
    let out = call.output(y_offset, volume(&[size, cols]))?;
    let x = call.input::<f32>(0, x_offset, extent(&[(count, x_stride), (cols, 1)]), &out)?;
    let rows = call.input::<u32>(1, rows_offset, count as u64, &out)?;
    for (i, row) in rows.iter().map(|row| *row as usize).enumerate().filter(|(_, r)| *r < size) {
        // SAFETY: the row lies in y, and one thread writes it.
        let y = unsafe { out.slice(row * cols, cols) };
        y.copy_from_slice(&x[i * x_stride..][..cols]);
    }
    Ok(())
}

/// Computes `y[r, j] = x[r, ids[r, j]]`, or zero if the id is out of range.
pub(super) fn take_along(call: &Call<'_>) -> Result<()> {
    let [rows, cols, count, x_offset, ids_offset, y_offset] = call.words()?;
    let out = call.output(y_offset, volume(&[rows, count]))?;
    let x = call.input::<f32>(0, x_offset, volume(&[rows, cols]), &out)?;
    let ids = call.input::<u32>(1, ids_offset, volume(&[rows, count]), &out)?;
    if out.len() == 0 {
        return Ok(());
    }
    call.context.pool.split(rows, (16 << 10) / count + 1, 1, |range| {
        for row in range {
            // SAFETY: this row of y belongs to this chunk alone.
            let y = unsafe { out.slice(row * count, count) };
            for (y, id) in y.iter_mut().zip(&ids[row * count..]) {
                let id = *id as usize;
                *y = if id < cols { x[row * cols + id] } else { 0.0 };
            }
        }
    });
    Ok(())
}

/// Computes `y = x`, then `y[ids[i], c] += source[i, c]` in the order of `i`; a row out of range is
/// dropped.
pub(super) fn index_add(call: &Call<'_>) -> Result<()> {
    let [rows, cols, count, x_offset, source_offset, ids_offset, y_offset] = call.words()?;
    let out = call.output(y_offset, volume(&[rows, cols]))?;
    let x = call.input::<f32>(0, x_offset, volume(&[rows, cols]), &out)?;
    let source = call.input::<f32>(1, source_offset, volume(&[count, cols]), &out)?;
    let ids = call.input::<u32>(2, ids_offset, count as u64, &out)?;
    // Threads share the columns, so that the sums of a column have one order.
    let least = (64 << 10) / (rows + count).max(1) + 1;
    call.context.pool.split(cols, least, 16, |range| {
        for row in 0..rows {
            // SAFETY: these columns of y belong to this chunk alone.
            let y = unsafe { out.slice(row * cols + range.start, range.len()) };
            y.copy_from_slice(&x[row * cols..][range.clone()]);
        }
        for (i, row) in ids.iter().map(|id| *id as usize).enumerate() {
            if row >= rows {
                continue;
            }
            // SAFETY: as above.
            let y = unsafe { out.slice(row * cols + range.start, range.len()) };
            for (y, x) in y.iter_mut().zip(&source[i * cols..][range.clone()]) {
                *y += x;
            }
        }
    });
    Ok(())
}
