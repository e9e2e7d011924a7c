//! `top_k`: the columns of the largest elements of each row.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::call::{Call, extent, volume};
use warploom_core::error::{Error, Result};

/// Maps a float to an integer of the same order: NaN to the largest, -0 and 0 to one value.
pub(super) fn ordered(value: f32) -> u32 {
    if value.is_nan() {
        return u32::MAX;
    }
    // -0 becomes 0.
    let bits = (value + 0.0).to_bits();
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

/// Finds the indices of the `k` largest elements of each row, the largest first, the lowest index
/// first among equals.
pub(super) fn top_k(call: &Call<'_>) -> Result<()> {
    let [rows, cols, k, x_offset, x_stride, y_offset] = call.words()?;
    if k > cols {
        return Err(Error::invalid(format!("the {k} largest of {cols} columns")));
    }
    let out = call.output(y_offset, volume(&[rows, k]))?;
    let x = call.input::<f32>(0, x_offset, extent(&[(rows, x_stride), (cols, 1)]), &out)?;
    if out.len() == 0 {
        return Ok(());
    }
    call.context.pool.split(rows, (16 << 10) / cols + 1, 1, |range| {
        let mut largest = BinaryHeap::with_capacity(k);
        for row in range {
            // The key above the complement of the column: equal keys rank by their column.
            let keys = x[row * x_stride..][..cols].iter().map(|v| u64::from(ordered(*v)));
            let mut entries =
                keys.zip(0u32..).map(|(key, column)| Reverse(key << 32 | u64::from(!column)));
            largest.extend(entries.by_ref().take(k));
            for entry in entries {
                // The smallest of those kept is on top.
                if let Some(mut least) = largest.peek_mut()
                    && entry < *least
                {
                    *least = entry;
                }
            }
            let mut order = largest.into_sorted_vec();
            // SAFETY: this row of y belongs to this chunk alone.
            let y = unsafe { out.slice(row * k, k) };
            for (y, entry) in y.iter_mut().zip(&order) {
                *y = f32::from_bits(!(entry.0 as u32));
            }
            order.clear();
            largest = BinaryHeap::from(order);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_floats() {
        let values = [f32::NEG_INFINITY, -2.0, -1e-40, 0.0, 1e-40, 3.0, f32::INFINITY, f32::NAN];
        assert!(values.windows(2).all(|pair| ordered(pair[0]) < ordered(pair[1])));
        assert_eq!(ordered(-0.0), ordered(0.0));
    }
}
