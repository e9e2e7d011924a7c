//! Element indices in row-major tensors.

use crate::error::{Error, Result};

/// Maximum number of elements of a tensor of the reference: 2^31, which is 8 GiB of `f32`.
const MAX_ELEMENTS: u64 = 1 << 31;

/// Returns the number of elements of a shape.
///
/// # Errors
/// Out of memory if it exceeds `MAX_ELEMENTS`.
pub(super) fn elements(shape: &[u64]) -> Result<usize> {
    if shape.contains(&0) {
        return Ok(0);
    }
    let product = shape.iter().try_fold(1u64, |a, b| a.checked_mul(*b)).unwrap_or(u64::MAX);
    if product > MAX_ELEMENTS {
        let need = product.saturating_mul(4);
        return Err(Error::out_of_memory(format!("a tensor {shape:?}"), need, MAX_ELEMENTS * 4));
    }
    Ok(product as usize)
}

/// Returns the stride of each dimension of a contiguous tensor, in elements.
pub(super) fn strides(dims: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; dims.len()];
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i] * dims[i];
    }
    strides
}

/// Returns for every index of `dims`, in row-major order, `offset` plus the dot product of index
/// and strides.
pub(super) fn walk(dims: &[usize], strides: &[usize], offset: usize) -> Vec<usize> {
    let count = dims.iter().product();
    let mut places = Vec::with_capacity(count);
    let mut at = vec![0; dims.len()];
    let mut place = offset;
    for _ in 0..count {
        places.push(place);
        // Increments the index like an odometer.
        for axis in (0..dims.len()).rev() {
            at[axis] += 1;
            place += strides[axis];
            if at[axis] < dims[axis] {
                break;
            }
            place -= strides[axis] * dims[axis];
            at[axis] = 0;
        }
    }
    places
}

/// Returns for every element of `to` the index of the element of `from` that it is broadcast from
/// (NumPy rules).
pub(super) fn broadcast(from: &[usize], to: &[usize]) -> Vec<usize> {
    let lead = to.len() - from.len();
    let own = strides(from);
    let repeated: Vec<usize> = (0..to.len())
        .map(|i| match i.checked_sub(lead) {
            Some(j) if from[j] == to[i] => own[j],
            _ => 0,
        })
        .collect();
    walk(to, &repeated, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_in_row_major_order() {
        assert_eq!(walk(&[2, 3], &[1, 10], 5), [5, 15, 25, 6, 16, 26]);
        assert_eq!(walk(&[], &[], 0), [0]);
        assert_eq!(walk(&[2, 0], &[0, 1], 0), [0usize; 0]);
        assert_eq!(broadcast(&[2, 1], &[3, 2, 2]), [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1]);
    }

    #[test]
    fn refuses_what_it_cannot_hold() {
        assert!(elements(&[1 << 20, 1 << 20]).unwrap_err().is_out_of_memory());
        assert!(elements(&[u64::MAX, u64::MAX]).unwrap_err().is_out_of_memory());
        assert_eq!(elements(&[u64::MAX, 0]).unwrap(), 0);
    }
}
