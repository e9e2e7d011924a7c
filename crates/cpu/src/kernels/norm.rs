//! `norm_rms`, `norm_layer`: normalisation over the last dimension.

use crate::arch::Normalise;
use crate::call::{Call, extent, volume};
use warploom_core::error::Result;

/// Number of elements below which the rows use one thread.
const GRAIN: usize = 16 << 10;

/// Computes `y = x / sqrt(mean of x^2 + eps) * weight`.
pub(super) fn norm_rms(call: &Call<'_>) -> Result<()> {
    let [rows, cols, x_offset, x_stride, w_offset, y_offset, _] = call.words()?;
    let eps = call.float(6);
    let out = call.output(y_offset, volume(&[rows, cols]))?;
    if out.len() == 0 {
        return Ok(());
    }
    let x = call.input::<f32>(0, x_offset, extent(&[(rows, x_stride), (cols, 1)]), &out)?;
    let w = call.input::<f32>(1, w_offset, cols as u64, &out)?;
    let arch = call.context.arch;
    call.context.pool.split(rows, GRAIN / cols + 1, 1, |range| {
        for r in range {
            let x = &x[r * x_stride..][..cols];
            // SAFETY: x holds cols floats.
            let square = unsafe { (arch.sum_squares)(x.as_ptr(), cols, 0.0) } / cols as f32;
            let task = Normalise {
                x: x.as_ptr(),
                w: w.as_ptr(),
                b: std::ptr::null(),
                // SAFETY: row r lies inside y.
                y: unsafe { out.at(r * cols) },
                n: cols,
                shift: 0.0,
                scale: 1.0 / (square + eps).sqrt(),
            };
            // SAFETY: x, w and y hold cols floats; row r of y belongs to this chunk alone.
            unsafe { (arch.normalise)(&task) };
        }
    });
    Ok(())
}

/// Computes `y = (x - mean) / sqrt(variance + eps) * weight + bias`.
pub(super) fn norm_layer(call: &Call<'_>) -> Result<()> {
    let [rows, cols, x_offset, x_stride, w_offset, b_offset, y_offset, _] = call.words()?;
    let eps = call.float(7);
    let out = call.output(y_offset, volume(&[rows, cols]))?;
    if out.len() == 0 {
        return Ok(());
    }
    let x = call.input::<f32>(0, x_offset, extent(&[(rows, x_stride), (cols, 1)]), &out)?;
    let w = call.input::<f32>(1, w_offset, cols as u64, &out)?;
    let b = call.input::<f32>(2, b_offset, cols as u64, &out)?;
    let arch = call.context.arch;
    call.context.pool.split(rows, GRAIN / cols + 1, 1, |range| {
        for r in range {
            let x = &x[r * x_stride..][..cols];
            // SAFETY: x holds cols floats.
            let (mean, variance) = unsafe {
                let mean = (arch.sum)(x.as_ptr(), cols) / cols as f32;
                (mean, (arch.sum_squares)(x.as_ptr(), cols, mean) / cols as f32)
            };
            let task = Normalise {
                x: x.as_ptr(),
                w: w.as_ptr(),
                b: b.as_ptr(),
                // SAFETY: row r lies inside y.
                y: unsafe { out.at(r * cols) },
                n: cols,
                shift: mean,
                scale: 1.0 / (variance + eps).sqrt(),
            };
            // SAFETY: x, w, b and y hold cols floats; row r of y belongs to this chunk alone.
            unsafe { (arch.normalise)(&task) };
        }
    });
    Ok(())
}
