//! `conv2d`: direct convolution.

use std::cell::Cell;

use crate::call::{Call, volume};
use crate::epilogue::{Read, Sink, rows};
use warploom_core::error::{Error, Result};

thread_local! {
    /// `x` as changed by a prologue.
    static ROOM: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Returns the range, as (first, end), of the output positions `i` whose tap lies inside the input:
/// `0 <= i * stride - pad + tap < len`.
pub(super) fn inside(
    out: usize,
    len: usize,
    stride: usize,
    pad: usize,
    tap: usize,
) -> (usize, usize) {
    // tap = kernel index * dilation. First i with i * stride + tap >= pad, and the end.
    let first = pad.saturating_sub(tap).div_ceil(stride);
    let end = len.saturating_add(pad).saturating_sub(tap).div_ceil(stride).min(out);
    (first.min(end), end)
}

/// Computes the convolution one plane of y at a time: every tap adds a shifted, scaled plane of x.
pub(super) fn conv2d(call: &Call<'_>) -> Result<()> {
    let [
        batch,
        in_c,
        in_h,
        in_w,
        out_c,
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
        groups,
        xo,
        wo,
        yo,
    ] = call.words()?;
    if sh == 0 || sw == 0 {
        return Err(Error::invalid(format!("strides {sh}, {sw}")));
    }
    if groups == 0 || in_c % groups != 0 || out_c % groups != 0 {
        return Err(Error::invalid(format!(
            "{in_c} and {out_c} channels do not divide into {groups} groups"
        )));
    }
    let planes = usize::try_from(volume(&[batch, out_c])).unwrap_or(usize::MAX);
    let out = Sink::new(call, yo, [planes, out_h, out_w])?;
    let x = volume(&[batch, in_c, in_h, in_w]);
    let x = call.input_apart::<f32>(0, xo, x, out.outs())?;
    let group_c = in_c / groups;
    let w = volume(&[out_c, group_c, kh, kw]);
    let w = call.input_apart::<f32>(1, wo, w, out.outs())?;
    if out.len() == 0 {
        return Ok(());
    }
    let (plane, x_plane) = (out_h * out_w, in_h * in_w);
    let first = |row: usize| row * x_plane;
    let read = Read { x: &x, rows: batch * in_c, cols: x_plane, first, col_stride: 1 };
    let mut room = ROOM.take();
    let changed = rows(call, &read, &mut room)?;
    let x = changed.unwrap_or(&x);
    let convolve = |task: usize, y: &mut [f32]| {
        let (b, o) = (task / out_c, task % out_c);
        y.fill(0.0);
        let first = o / (out_c / groups) * group_c;
        for c in 0..group_c {
            let x = &x[(b * in_c + first + c) * x_plane..][..x_plane];
            for u in 0..kh {
                let (i0, i1) = inside(out_h, in_h, sh, pt, u.saturating_mul(dh));
                for v in 0..kw {
                    let (j0, j1) = inside(out_w, in_w, sw, pl, v.saturating_mul(dw));
                    let factor = w[((o * group_c + c) * kh + u) * kw + v];
                    if j0 >= j1 {
                        continue;
                    }
                    for i in i0..i1 {
                        let row = &x[(i * sh + u * dh - pt) * in_w..][..in_w];
                        let from = &row[j0 * sw + v * dw - pl..];
                        let y = &mut y[i * out_w + j0..i * out_w + j1];
                        if sw == 1 {
                            y.iter_mut().zip(from).for_each(|(y, x)| *y += factor * x);
                        } else {
                            let from = from.iter().step_by(sw);
                            y.iter_mut().zip(from).for_each(|(y, x)| *y += factor * x);
                        }
                    }
                }
            }
        }
    };
    call.context.pool.run(planes, &|task| {
        // SAFETY: this plane of y belongs to this task alone.
        unsafe { out.fill(call.context.arch, task * plane, plane, |y| convolve(task, y)) };
    });
    ROOM.set(room);
    Ok(())
}
