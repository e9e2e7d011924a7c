//! `softmax`, `argmax`, `argmax_of`: over the last dimension.

use crate::call::{Call, extent, volume};
use warploom_core::error::Result;

/// Elements below which rows stay on one thread.
const GRAIN: usize = 8 << 10;

/// `y = exp(x - max) / sum`; zeros for a row that is -inf throughout.
pub(super) fn softmax(call: &Call<'_>) -> Result<()> {
    let [rows, cols, x_offset, x_stride, y_offset] = call.words()?;
    let out = call.output(y_offset, volume(&[rows, cols]))?;
    if out.len() == 0 {
        return Ok(());
    }
    let x = call.input::<f32>(0, x_offset, extent(&[(rows, x_stride), (cols, 1)]), &out)?;
    let arch = call.context.arch;
    call.context.pool.split(rows, GRAIN / cols + 1, 1, |range| {
        for r in range {
            let x = &x[r * x_stride..][..cols];
            // SAFETY: x and row r of y hold cols floats; the row belongs to this chunk alone.
            unsafe {
                let y = out.at(r * cols);
                let max = (arch.largest)(x.as_ptr(), cols);
                if max == f32::NEG_INFINITY && !x.iter().any(|v| v.is_nan()) {
                    out.slice(r * cols, cols).fill(0.0);
                } else {
                    let sum = (arch.exp_sum)(x.as_ptr(), y, cols, max);
                    (arch.scale)(y, cols, 1.0 / sum);
                }
            }
        }
    });
    Ok(())
}

/// Index of the largest, the lowest of equals, 0 where all are NaN.
pub(super) fn argmax(call: &Call<'_>) -> Result<()> {
    let [rows, cols, x_offset, x_stride, y_offset] = call.words()?;
    let out = call.output(y_offset, rows as u64)?;
    let x = call.input::<f32>(0, x_offset, extent(&[(rows, x_stride), (cols, 1)]), &out)?;
    let arch = call.context.arch;
    call.context.pool.split(rows, GRAIN / cols.max(1) + 1, 1, |range| {
        for r in range {
            let x = if cols == 0 { &[] } else { &x[r * x_stride..][..cols] };
            // SAFETY: x holds cols floats.
            let max = unsafe { (arch.largest)(x.as_ptr(), cols) };
            let index = x.iter().position(|v| *v == max).unwrap_or(0);
            // SAFETY: element r of y belongs to this chunk alone.
            unsafe { out.slice(r, 1)[0] = f32::from_bits(index as u32) };
        }
    });
    Ok(())
}

/// Index of the largest of the candidates of slices, the lowest of equals, 0 where all are NaN.
pub(super) fn argmax_of(call: &Call<'_>) -> Result<()> {
    let [rows, slices, len, x_offset, x_stride, y_offset] = call.words()?;
    let out = call.output(y_offset, rows as u64)?;
    let columns = volume(&[slices, len]) as usize;
    let x = call.input::<f32>(0, x_offset, extent(&[(rows, x_stride), (columns, 1)]), &out)?;
    let candidates = call.input::<u32>(1, 0, volume(&[rows, slices]), &out)?;
    if len == 0 {
        return Ok(());
    }
    for r in 0..rows {
        let (mut best, mut index) = (f32::NEG_INFINITY, None);
        for (s, candidate) in candidates[r * slices..][..slices].iter().enumerate() {
            let c = s * len + (*candidate as usize).min(len - 1);
            let value = x[r * x_stride + c];
            if value > best || (index.is_none() && !value.is_nan()) {
                (best, index) = (value, Some(c));
            }
        }
        // SAFETY: element r of y, which no thread but this one has.
        unsafe { out.slice(r, 1)[0] = f32::from_bits(index.unwrap_or(0) as u32) };
    }
    Ok(())
}
