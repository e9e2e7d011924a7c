//! Argument types for shapes and axes, and checks of their values.

use crate::base::Shape;
use crate::error::{Error, Result};

/// A shape argument: `[2, 3]`, `[2, -1]` in a reshape, `vec![2, 3]`, `x.shape()`, or `()` for a
/// scalar.
pub trait Sizes {
    /// Returns the sizes as given, outermost first.
    fn sizes(&self) -> Vec<i64>;
}

/// An axes argument: `1`, `-1`, `[0, 2]`, or `..` for all axes. Negative axes count from the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes(Option<Vec<i64>>);

impl Sizes for () {
    fn sizes(&self) -> Vec<i64> {
        Vec::new()
    }
}

impl From<std::ops::RangeFull> for Axes {
    fn from(_: std::ops::RangeFull) -> Axes {
        Axes(None)
    }
}

/// Converts a size or axis of any integer type to `i64`; a value that does not fit becomes
/// `i64::MAX`, which is always out of range.
fn wide<T: TryInto<i64>>(value: T) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

macro_rules! integers {
    ($($ty:ty)*) => {$(
        impl<const N: usize> Sizes for [$ty; N] {
            fn sizes(&self) -> Vec<i64> {
                self.iter().map(|size| wide(*size)).collect()
            }
        }
        impl Sizes for &[$ty] {
            fn sizes(&self) -> Vec<i64> {
                self.iter().map(|size| wide(*size)).collect()
            }
        }
        impl Sizes for Vec<$ty> {
            fn sizes(&self) -> Vec<i64> {
                self.iter().map(|size| wide(*size)).collect()
            }
        }
        impl From<$ty> for Axes {
            fn from(axis: $ty) -> Axes {
                Axes(Some(vec![wide(axis)]))
            }
        }
        impl<const N: usize> From<[$ty; N]> for Axes {
            fn from(axes: [$ty; N]) -> Axes {
                Axes(Some(axes.into_iter().map(wide).collect()))
            }
        }
        impl From<Vec<$ty>> for Axes {
            fn from(axes: Vec<$ty>) -> Axes {
                Axes(Some(axes.into_iter().map(wide).collect()))
            }
        }
        impl From<&[$ty]> for Axes {
            fn from(axes: &[$ty]) -> Axes {
                Axes(Some(axes.iter().map(|axis| wide(*axis)).collect()))
            }
        }
    )*};
}

integers!(i32 i64 isize usize u32 u64);

impl Axes {
    /// Returns the indices of the axes in a tensor of this rank, ascending.
    pub(super) fn resolve(&self, rank: usize) -> Result<Vec<usize>> {
        let Some(given) = &self.0 else { return Ok((0..rank).collect()) };
        let mut axes = Vec::with_capacity(given.len());
        for value in given {
            let place = isize::try_from(*value).ok().and_then(|value| axis(value, rank));
            let place = place
                .ok_or_else(|| Error::invalid(format!("no axis {value} in a rank of {rank}")))?;
            if axes.contains(&place) {
                return Err(Error::invalid(format!("axis {value} occurs twice in {given:?}")));
            }
            axes.push(place);
        }
        axes.sort_unstable();
        Ok(axes)
    }
}

/// Returns the index of an axis in a tensor of this rank; negative axes count from the last. `None`
/// if there is no such axis.
pub(super) fn axis(axis: isize, rank: usize) -> Option<usize> {
    let place = if axis < 0 { axis.checked_add_unsigned(rank)? } else { axis };
    usize::try_from(place).ok().filter(|place| *place < rank)
}

/// Checks and returns the shape of a new tensor.
pub(super) fn shape(sizes: &impl Sizes) -> Result<Shape> {
    let sizes = sizes.sizes();
    if let Some(size) = sizes.iter().find(|size| **size < 0) {
        return Err(Error::invalid(format!("the shape {sizes:?} has the size {size}")));
    }
    let shape = Shape::new(sizes);
    addressable(&shape)?;
    Ok(shape)
}

/// Checks that the byte size of a tensor fits the host's address space.
pub(super) fn addressable(shape: &Shape) -> Result<()> {
    let sizes = shape.dims().iter().map(|dim| dim.as_const().unwrap_or(0).max(1));
    let bytes = sizes.into_iter().try_fold(4_i64, |all, size| all.checked_mul(size));
    match bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok()) {
        true => Ok(()),
        false => Err(Error::invalid(format!("the shape {shape} does not fit memory"))),
    }
}

/// Returns the shape that a tensor of shape `from` with `elements` elements has after a reshape to
/// these sizes; one size may be -1 and is inferred.
pub(super) fn reshaped(sizes: &impl Sizes, from: &Shape, elements: usize) -> Result<Shape> {
    let mut sizes = sizes.sizes();
    let open: Vec<usize> =
        sizes.iter().enumerate().filter(|(_, size)| **size == -1).map(|(i, _)| i).collect();
    let fail = |why: String| Error::invalid(format!("{from} cannot become {why}"));
    if let [open, second, ..] = open[..] {
        return Err(fail(format!("{sizes:?}: sizes {open} and {second} are both open")));
    }
    if let [open] = open[..] {
        let mut known = sizes.iter().filter(|size| **size != -1);
        let known = known.try_fold(1_i64, |all, size| all.checked_mul(*size));
        let known = known.filter(|known| *known > 0 && elements as i64 % known == 0);
        let known = known.ok_or_else(|| {
            fail(format!("{sizes:?}: {elements} elements do not fill whole rows of the others"))
        })?;
        sizes[open] = elements as i64 / known;
    }
    let to = shape(&sizes)?;
    match to.elements() == from.elements() {
        true => Ok(to),
        false => Err(fail(format!("{to}: {elements} elements, not {}", to.elements()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_count_from_both_ends() {
        assert_eq!(Axes::from([-1, 0]).resolve(3).unwrap(), [0, 2]);
        assert_eq!(Axes::from(..).resolve(2).unwrap(), [0, 1]);
        for (axes, rank) in [(Axes::from(3), 3), (Axes::from(-4), 3), (Axes::from([1, -2]), 3)] {
            assert!(axes.resolve(rank).is_err(), "{axes:?}");
        }
        assert_eq!((axis(-1, 0), axis(isize::MIN, 2), axis(-2, 2)), (None, None, Some(0)));
    }

    #[test]
    fn one_size_may_be_open() {
        let from = Shape::new([2, 6]);
        let to = |sizes: [i32; 2]| reshaped(&sizes, &from, 12).map_err(|e| e.to_string());
        assert_eq!(to([3, -1]).unwrap(), Shape::new([3, 4]));
        assert_eq!(
            to([-1, -1]).unwrap_err(),
            "[2, 6] cannot become [-1, -1]: sizes 0 and 1 are both open"
        );
        assert!(to([5, -1]).unwrap_err().contains("12 elements do not fill"));
        assert_eq!(to([5, 2]).unwrap_err(), "[2, 6] cannot become [5, 2]: 12 elements, not 10");
        assert!(to([0, -1]).is_err() && to([-3, -4]).is_err());
        assert!(shape(&[u64::MAX, 2]).is_err() && shape(&[1_i64 << 40, 1 << 40]).is_err());
    }
}
