//! The sizes of a tensor, outermost first.

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::dim::Dim;
use super::symbol::SymbolValues;
use crate::error::{Error, Result};

/// Sizes of a tensor, outermost first; rank 0 is a scalar.
#[derive(Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Shape(SmallVec<[Dim; 4]>);

impl Shape {
    /// Creates a shape with these sizes.
    pub fn new<D: Into<Dim>>(dims: impl IntoIterator<Item = D>) -> Shape {
        Shape(dims.into_iter().map(Into::into).collect())
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Returns the sizes, outermost first.
    pub fn dims(&self) -> &[Dim] {
        &self.0
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> Dim {
        self.0.iter().cloned().fold(Dim::new(1), |a, b| a * b)
    }

    /// Evaluates every size under these bindings.
    ///
    /// # Errors
    /// Same as [`Dim::eval_size`].
    pub fn eval(&self, values: &SymbolValues) -> Result<Vec<u64>> {
        self.0.iter().map(|d| d.eval_size(values)).collect()
    }

    /// Broadcasts two shapes as NumPy does: they are aligned at the innermost dimension, and the
    /// sizes in each dimension must be equal, or one of them 1.
    ///
    /// # Errors
    /// Invalid if two sizes do not match. Unequal symbolic sizes never match, since a plan must
    /// hold for every run.
    pub fn broadcast(&self, other: &Shape) -> Result<Shape> {
        let rank = self.rank().max(other.rank());
        let mut dims = SmallVec::new();
        for i in 0..rank {
            let one = Dim::new(1);
            let a = (i + self.rank()).checked_sub(rank).map_or(&one, |j| &self.0[j]);
            let b = (i + other.rank()).checked_sub(rank).map_or(&one, |j| &other.0[j]);
            dims.push(match () {
                _ if a == b || b.is(1) => a.clone(),
                _ if a.is(1) => b.clone(),
                _ => {
                    return Err(Error::invalid(format!(
                        "shapes {self} and {other} do not broadcast: {a} against {b}"
                    )));
                }
            });
        }
        Ok(Shape(dims))
    }
}

impl std::ops::Index<usize> for Shape {
    type Output = Dim;
    fn index(&self, index: usize) -> &Dim {
        &self.0[index]
    }
}

impl<D: Into<Dim>> FromIterator<D> for Shape {
    fn from_iter<I: IntoIterator<Item = D>>(dims: I) -> Shape {
        Shape::new(dims)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{dim}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Symbol;

    #[test]
    fn broadcasts_like_numpy() {
        let s = Dim::symbol(Symbol::new("s"));
        let a = Shape::new([s.clone(), Dim::new(1), Dim::new(3)]);
        let b = Shape::new([4, 3]);
        assert_eq!(a.broadcast(&b).unwrap(), Shape::new([s, Dim::new(4), Dim::new(3)]));
        let error = Shape::new([2]).broadcast(&Shape::new([3])).unwrap_err().to_string();
        assert!(error.contains("2 against 3"), "{error}");
    }
}
