//! Positions of a tensor's elements in its buffer: an offset, and a stride for each dimension.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::dim::Dim;
use super::shape::Shape;

/// Offset and strides, in elements. A stride of 0 repeats one element (broadcast).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layout {
    /// Offset of the first element.
    pub offset: Dim,
    /// For each dimension, the distance between consecutive indices, in elements.
    pub strides: SmallVec<[Dim; 4]>,
}

impl Layout {
    /// Creates the row-major layout without gaps, at offset 0.
    pub fn contiguous(shape: &Shape) -> Layout {
        let mut strides: SmallVec<[Dim; 4]> = SmallVec::new();
        let mut step = Dim::new(1);
        for dim in shape.dims().iter().rev() {
            strides.push(step.clone());
            step = step * dim.clone();
        }
        strides.reverse();
        Layout { offset: Dim::new(0), strides }
    }

    /// Returns whether a tensor of `shape` is stored in row-major order without gaps, at any
    /// offset.
    ///
    /// The stride of a dimension of size 1 is ignored.
    pub fn is_contiguous(&self, shape: &Shape) -> bool {
        let plain = Layout::contiguous(shape);
        shape
            .dims()
            .iter()
            .zip(self.strides.iter().zip(&plain.strides))
            .all(|(dim, (a, b))| dim.is(1) || a == b)
    }

    /// Broadcasts the layout to the larger shape `to`: strides of repeated dimensions become 0.
    ///
    /// `from` is this tensor's own shape, which must broadcast to `to`.
    ///
    /// # Panics
    /// Panics if `to` has fewer dimensions than `from`.
    pub fn broadcast(&self, from: &Shape, to: &Shape) -> Layout {
        assert!(from.rank() <= to.rank(), "{from} does not broadcast to {to}");
        let lead = to.rank() - from.rank();
        let strides = (0..to.rank())
            .map(|i| match i.checked_sub(lead) {
                Some(j) if from[j] == to[i] => self.strides[j].clone(),
                _ => Dim::new(0),
            })
            .collect();
        Layout { offset: self.offset.clone(), strides }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcast_repeats_with_stride_zero() {
        let from = Shape::new([3, 1]);
        let layout = Layout::contiguous(&from).broadcast(&from, &Shape::new([2, 3, 4]));
        let strides: Vec<_> = layout.strides.iter().map(|s| s.as_const().unwrap()).collect();
        assert_eq!(strides, [0, 1, 0]);
        assert!(!layout.is_contiguous(&Shape::new([2, 3, 4])));
    }
}
