//! Activation quantisation (`fake_quantize`): quantises to 8 bits and dequantises.

use crate::arch::int8::{BLOCK, Factors, TABLES};
use crate::call::{Call, extent, volume};
use warploom_core::error::{Error, Result};

/// Number of blocks below which the rows use one thread.
const GRAIN: usize = 1 << 10;

/// Computes `y = d * round(x / d)`, with one `d` for each block of 32.
pub(super) fn fake_quantize(call: &Call<'_>) -> Result<()> {
    let [rows, cols, x_offset, x_stride, y_offset] = call.words()?;
    let out = call.output(y_offset, volume(&[rows, cols]))?;
    if out.len() == 0 {
        return Ok(());
    }
    if !cols.is_multiple_of(BLOCK) {
        return Err(Error::invalid(format!("rows of {cols} are not whole blocks of {BLOCK}")));
    }
    let x = call.input::<f32>(0, x_offset, extent(&[(rows, x_stride), (cols, 1)]), &out)?;
    let (round, blocks) = (call.context.int8.round, cols / BLOCK);
    call.context.pool.split(rows * blocks, GRAIN, 1, |range| {
        for at in range {
            let x = &x[at / blocks * x_stride + at % blocks * BLOCK..][..BLOCK];
            let (mut codes, mut factors) = ([0i8; BLOCK], [Factors::default(); TABLES]);
            // SAFETY: one block of each; block `at` of y belongs to this chunk alone.
            let y = unsafe {
                round(x.as_ptr(), BLOCK, codes.as_mut_ptr(), factors.as_mut_ptr(), 1);
                out.slice(at * BLOCK, BLOCK)
            };
            y.iter_mut().zip(codes).for_each(|(y, code)| *y = factors[0] * f32::from(code));
        }
    });
    Ok(())
}
