//! `reduce_*`: reductions over the middle dimension of `[outer, len, inner]`.

use crate::call::{Call, volume};
#[cfg(any(not(target_arch = "wasm32"), feature = "interpret"))]
use warploom_core::error::Error;
use warploom_core::error::Result;

/// Number of elements below which a reduction uses one thread.
const GRAIN: usize = 16 << 10;
/// Maximum number of columns that are reduced together if the reduced dimension is not the last: 4 KiB
/// of each row, since rows are often pages apart, and accumulators of 8 KiB.
const TILE: usize = 1024;

/// Computes the sum; 0 if `len` is 0.
pub(super) fn reduce_sum(call: &Call<'_>) -> Result<()> {
    reduce(call, 0.0, |sum, v| sum + v, |sum, _| sum)
}

/// Computes the mean; NaN if `len` is 0.
pub(super) fn reduce_mean(call: &Call<'_>) -> Result<()> {
    reduce(call, 0.0, |sum, v| sum + v, |sum, len| sum / len as f64)
}

/// Computes the product; 1 if `len` is 0.
pub(super) fn reduce_prod(call: &Call<'_>) -> Result<()> {
    reduce(call, 1.0, |product, v| product * v, |product, _| product)
}

/// Computes the maximum, NaN if one is NaN; -inf if `len` is 0.
pub(super) fn reduce_max(call: &Call<'_>) -> Result<()> {
    reduce(
        call,
        f64::NEG_INFINITY,
        |max, v| if v > max || v.is_nan() { v } else { max },
        |max, _| max,
    )
}

/// Computes the minimum, NaN if one is NaN; inf if `len` is 0.
pub(super) fn reduce_min(call: &Call<'_>) -> Result<()> {
    reduce(call, f64::INFINITY, |min, v| if v < min || v.is_nan() { v } else { min }, |min, _| min)
}

/// Reduces words of 32 bits, which wrap; see the catalogue for `kind`.
#[cfg(any(not(target_arch = "wasm32"), feature = "interpret"))]
pub(super) fn integer_reduce(call: &Call<'_>) -> Result<()> {
    let [outer, len, inner, kind, x_offset, y_offset] = call.words()?;
    let out = call.output(y_offset, volume(&[outer, inner]))?;
    let x = call.input::<u32>(0, x_offset, volume(&[outer, len, inner]), &out)?;
    let flip = if matches!(kind, 2 | 3) { 1 << 31 } else { 0 };
    let (first, step): (u32, fn(u32, u32) -> u32) = match kind {
        0 => (0, u32::wrapping_add),
        1 => (1, u32::wrapping_mul),
        2 | 4 => (0, Ord::max),
        3 | 5 => (u32::MAX, Ord::min),
        _ => return Err(Error::invalid(format!("no reduction of kind {kind}"))),
    };
    call.context.pool.split(outer * inner, GRAIN / len.max(1) + 1, 1, |range| {
        let (start, count) = (range.start, range.len());
        // SAFETY: these elements of y belong to this chunk alone.
        let y = unsafe { out.slice(start, count) };
        for (at, y) in (start..).zip(y) {
            let from = at / inner * len * inner + at % inner;
            let all = (0..len).map(|j| x[from + j * inner] ^ flip);
            *y = f32::from_bits(all.fold(first, step) ^ flip);
        }
    });
    Ok(())
}

/// Reduces in f64, so that the accuracy of sums does not depend on the length.
fn reduce(
    call: &Call<'_>,
    first: f64,
    step: impl Fn(f64, f64) -> f64 + Sync,
    finish: impl Fn(f64, usize) -> f64 + Sync,
) -> Result<()> {
    let [outer, len, inner, x_offset, y_offset] = call.words()?;
    let out = call.output(y_offset, volume(&[outer, inner]))?;
    let x = call.input::<f32>(0, x_offset, volume(&[outer, len, inner]), &out)?;
    if out.len() == 0 {
        return Ok(());
    }
    call.context.pool.split(outer * inner, GRAIN / len.max(1) + 1, 1, |range| {
        let mut at = range.start;
        while at < range.end {
            let (o, i) = (at / inner, at % inner);
            let x = &x[o * len * inner..];
            let columns = (inner - i).min(TILE).min(range.end - at);
            // SAFETY: these elements of y belong to this chunk alone.
            let y = unsafe { out.slice(at, columns) };
            if inner == 1 {
                y[0] = finish(row(&x[..len], first, &step), len) as f32;
            } else if call.in_order {
                // In the reduction order of a single row.
                for (j, y) in y.iter_mut().enumerate() {
                    *y = finish(column(&x[i + j..], inner, len, first, &step), len) as f32;
                }
            } else {
                let mut sums = [first; TILE];
                for j in 0..len {
                    for (sum, v) in sums.iter_mut().zip(&x[j * inner + i..][..columns]) {
                        *sum = step(*sum, f64::from(*v));
                    }
                }
                for (y, sum) in y.iter_mut().zip(sums) {
                    *y = finish(sum, len) as f32;
                }
            }
            at += columns;
        }
    });
    Ok(())
}

/// Reduces one row in eight interleaved parts, for instruction-level parallelism.
fn row(x: &[f32], first: f64, step: &impl Fn(f64, f64) -> f64) -> f64 {
    let mut parts = [first; 8];
    let chunks = x.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (part, v) in parts.iter_mut().zip(chunk) {
            *part = step(*part, f64::from(*v));
        }
    }
    let sum = parts.into_iter().fold(first, step);
    rest.iter().fold(sum, |sum, v| step(sum, f64::from(*v)))
}

/// Reduces `len` values that are `apart` elements apart, in the reduction order of [`row`].
fn column(x: &[f32], apart: usize, len: usize, first: f64, step: &impl Fn(f64, f64) -> f64) -> f64 {
    let mut parts = [first; 8];
    let body = len - len % 8;
    for j in 0..body {
        parts[j % 8] = step(parts[j % 8], f64::from(x[j * apart]));
    }
    let sum = parts.into_iter().fold(first, step);
    (body..len).fold(sum, |sum, j| step(sum, f64::from(x[j * apart])))
}
