//! `softmax`, `argmax` and `argmax_of` over the last dimension.

use crate::call::{Call, extent, volume};
use warploom_core::error::Result;
use warploom_core::sampling::NoToken;

/// Number of elements below which the rows use one thread.
const GRAIN: usize = 8 << 10;
/// Number of values per branchless search.
const PIECE: usize = 256;

/// Computes `y = exp(x - max) / sum`; zeros for a row that is -inf throughout.
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

/// Returns the index of the first match. Blocks are searched without branches, so that the loop
/// vectorises.
fn first(x: &[f32], is: impl Fn(f32) -> bool) -> Option<usize> {
    let any = |piece: &[f32]| piece.iter().fold(false, |any, v| any | is(*v));
    let piece = x.chunks(PIECE).position(any)?;
    let start = piece * PIECE;
    x[start..].iter().position(|v| is(*v)).map(|at| start + at)
}

/// Returns the output word for the largest element of a row: its index, or 0 if the row is empty.
/// For a token, returns the word of a [`NoToken`] instead if the row is empty or its largest
/// element is not finite.
fn word_of(best: Option<(usize, f32)>, token: bool) -> u32 {
    match best {
        Some((_, value)) if token && value == f32::NEG_INFINITY => NoToken::Forbidden.word(),
        Some((index, value)) if token && !value.is_finite() => {
            NoToken::NotFinite(index as u32).word()
        }
        Some((index, _)) => index as u32,
        None if token => NoToken::Forbidden.word(),
        None => 0,
    }
}

/// Computes the index of the largest element of each row, the lowest index if several are equal.
/// NaN is larger than any other value.
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
            let nan = first(x, f32::is_nan);
            let best = nan.or_else(|| first(x, |v| v == max));
            let word = word_of(best.map(|index| (index, x[index])), call.token);
            // SAFETY: element r of y belongs to this chunk alone.
            unsafe { out.slice(r, 1)[0] = f32::from_bits(word) };
        }
    });
    Ok(())
}

/// Same as [`argmax`], but compares only one candidate of each slice of a row.
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
        let mut best: Option<(usize, f32)> = None;
        for (s, candidate) in candidates[r * slices..][..slices].iter().enumerate() {
            let c = s * len + (*candidate as usize).min(len - 1);
            let value = x[r * x_stride + c];
            // No later candidate replaces a NaN: slices are in order.
            let better =
                |(_, best): (usize, f32)| !best.is_nan() && (value > best || value.is_nan());
            if best.is_none_or(better) {
                best = Some((c, value));
            }
        }
        let word = word_of(best, call.token);
        // SAFETY: element r of y, which no thread but this one has.
        unsafe { out.slice(r, 1)[0] = f32::from_bits(word) };
    }
    Ok(())
}
