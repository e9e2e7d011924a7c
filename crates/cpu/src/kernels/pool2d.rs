//! `pool2d_max`, `pool2d_avg`: pooling over windows of the last two dimensions.

use crate::call::{Call, volume};
use warploom_core::error::{Error, Result};

/// Computes the maximum over each window, NaN if one is NaN; the lowest f32 if the window lies outside the input.
pub(super) fn pool2d_max(call: &Call<'_>) -> Result<()> {
    pool2d(call, f32::MIN, |max, v| if v > max || v.is_nan() { v } else { max }, |max, _, _| max)
}

/// Computes the mean over each window; padding counts if the parameter `count_pad` is not 0.
pub(super) fn pool2d_avg(call: &Call<'_>) -> Result<()> {
    pool2d(call, 0.0, |sum, v| sum + v, |sum, seen, all| sum / if all > 0.0 { all } else { seen })
}

/// Pools every window. `finish` receives the accumulated value, the number of window positions
/// inside the input, and the number of all window positions if padding counts (0 if it does not).
fn pool2d(
    call: &Call<'_>,
    first: f32,
    step: impl Fn(f32, f32) -> f32 + Sync,
    finish: impl Fn(f32, f32, f32) -> f32 + Sync,
) -> Result<()> {
    let [
        batch,
        channels,
        in_h,
        in_w,
        out_h,
        out_w,
        kh,
        kw,
        sh,
        sw,
        pt,
        pl,
        dh,
        dw,
        count_pad,
        xo,
        yo,
    ] = call.words()?;
    if dh == 0 || dw == 0 {
        return Err(Error::invalid(format!("dilations {dh}, {dw}")));
    }
    let out = call.output(yo, volume(&[batch, channels, out_h, out_w]))?;
    let x = call.input::<f32>(0, xo, volume(&[batch, channels, in_h, in_w]), &out)?;
    if out.len() == 0 {
        return Ok(());
    }
    let all = if count_pad != 0 { kh as f32 * kw as f32 } else { 0.0 };
    let plane = out_h * out_w;
    call.context.pool.split(batch * channels, (8 << 10) / plane + 1, 1, |range| {
        for task in range {
            let x = &x[task * in_h * in_w..][..in_h * in_w];
            // SAFETY: this plane of y belongs to this chunk alone.
            let y = unsafe { out.slice(task * plane, plane) };
            for (at, y) in y.iter_mut().enumerate() {
                let (i, j) = (at / out_w, at % out_w);
                let (mut value, mut seen) = (first, 0.0);
                for u in taps(i, kh, in_h, sh, pt, dh) {
                    let row = (i * sh + u * dh - pt) * in_w;
                    for v in taps(j, kw, in_w, sw, pl, dw) {
                        value = step(value, x[row + j * sw + v * dw - pl]);
                        seen += 1.0;
                    }
                }
                *y = finish(value, seen, all);
            }
        }
    });
    Ok(())
}

/// Returns the taps of the window at output position `i` that lie inside an input of length `len`.
fn taps(
    i: usize,
    kernel: usize,
    len: usize,
    stride: usize,
    pad: usize,
    dilation: usize,
) -> std::ops::Range<usize> {
    let at = i.saturating_mul(stride);
    let first = pad.saturating_sub(at).div_ceil(dilation);
    let end = len.saturating_add(pad).saturating_sub(at).div_ceil(dilation);
    first..end.min(kernel)
}
