//! `rope_interleaved`, `rope_half`: rotary position embedding.

use std::cell::RefCell;

use crate::call::{Call, extent, volume};
use warploom_core::error::{Error, Result};

thread_local! {
    /// Sines and cosines of one token's angles.
    static ANGLES: RefCell<Vec<(f32, f32)>> = const { RefCell::new(Vec::new()) };
}

/// Rotates the pairs `(2j, 2j + 1)`.
pub(super) fn rope_interleaved(call: &Call<'_>) -> Result<()> {
    rope(call, |j, _| (2 * j, 2 * j + 1))
}

/// Rotates the pairs `(j, j + rot_dim / 2)`.
pub(super) fn rope_half(call: &Call<'_>) -> Result<()> {
    rope(call, |j, half| (j, j + half))
}

fn rope(call: &Call<'_>, pair: impl Fn(usize, usize) -> (usize, usize) + Sync) -> Result<()> {
    let [tokens, heads, head_dim, rot_dim, x_offset, ts, hs, pos_offset, freq_offset, y_offset] =
        call.words()?;
    if rot_dim > head_dim || !rot_dim.is_multiple_of(2) {
        return Err(Error::invalid(format!("rot_dim {rot_dim} of head_dim {head_dim}")));
    }
    let out = call.output(y_offset, volume(&[tokens, heads, head_dim]))?;
    let x = extent(&[(tokens, ts), (heads, hs), (head_dim, 1)]);
    let x = call.input::<f32>(0, x_offset, x, &out)?;
    let half = rot_dim / 2;
    let positions = call.input::<i32>(1, pos_offset, tokens as u64, &out)?;
    let freqs = call.input::<f32>(2, freq_offset, half as u64, &out)?;
    if out.len() == 0 {
        return Ok(());
    }
    call.context.pool.split(tokens, (8 << 10) / (heads * head_dim) + 1, 1, |range| {
        ANGLES.with_borrow_mut(|angles| {
            for t in range {
                // The angle in f64: at position 8,000 an f32 angle would be off by 2e-4.
                let position = f64::from(positions[t]);
                angles.clear();
                angles.extend(freqs.iter().map(|f| {
                    let (sin, cos) = (position * f64::from(*f)).sin_cos();
                    (sin as f32, cos as f32)
                }));
                for h in 0..heads {
                    let x = &x[t * ts + h * hs..][..head_dim];
                    // SAFETY: this head of y belongs to this chunk alone.
                    let y = unsafe { out.slice((t * heads + h) * head_dim, head_dim) };
                    for (j, (sin, cos)) in angles.iter().enumerate() {
                        let (a, b) = pair(j, half);
                        y[a] = x[a] * cos - x[b] * sin;
                        y[b] = x[a] * sin + x[b] * cos;
                    }
                    y[rot_dim..].copy_from_slice(&x[rot_dim..]);
                }
            }
        });
    });
    Ok(())
}
