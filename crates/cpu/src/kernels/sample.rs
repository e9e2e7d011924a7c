//! `sample`: one index sampled from each row.

use crate::call::{Call, extent, volume};
use warploom_core::error::Result;
use warploom_core::sampling::{Choice, SampleParams, choose};

/// Samples one index from each row of logits; the second operand holds the sampling parameters of
/// each row.
pub(super) fn sample(call: &Call<'_>) -> Result<()> {
    let [rows, cols, x_offset, x_stride, draws_offset, y_offset] = call.words()?;
    let out = call.output(y_offset, rows as u64)?;
    let x = call.input::<f32>(0, x_offset, extent(&[(rows, x_stride), (cols, 1)]), &out)?;
    let words = call.input::<u32>(1, draws_offset, volume(&[rows, SampleParams::WORDS]), &out)?;
    let (draws, _) = words.as_chunks::<{ SampleParams::WORDS }>();
    call.context.pool.split(rows, 1, 1, |range| {
        let mut choice = Choice::default();
        for r in range {
            let x = if cols == 0 { &[] } else { &x[r * x_stride..][..cols] };
            let token = choose(x, &SampleParams::from_words(draws[r]), &mut choice);
            // SAFETY: element r of y belongs to this chunk alone.
            unsafe { out.slice(r, 1)[0] = f32::from_bits(token) };
        }
    });
    Ok(())
}
