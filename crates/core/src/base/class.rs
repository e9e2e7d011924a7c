//! Shape classes (buckets): the ranges of symbols for which one plan is valid.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::dim::Dim;
use super::symbol::{Symbol, SymbolValues};
use crate::error::{Error, Result};

/// Ranges of symbols, both ends inclusive. A plan is made for one class: its memory is sized for
/// the upper ends, and a symbol with equal ends is a constant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShapeClass {
    ranges: Vec<(Symbol, u64, u64)>,
}

impl ShapeClass {
    /// Creates a class without symbols.
    pub fn new() -> ShapeClass {
        ShapeClass::default()
    }

    /// Creates a class that fixes each symbol to its value.
    pub fn exact(values: &SymbolValues) -> ShapeClass {
        values.iter().fold(ShapeClass::new(), |class, (s, v)| class.with(s, v, v))
    }

    /// Sets the range of a symbol to `low..=high`.
    pub fn with(mut self, symbol: Symbol, low: u64, high: u64) -> ShapeClass {
        self.ranges.retain(|(s, ..)| *s != symbol);
        self.ranges.push((symbol, low, high));
        self.ranges.sort_unstable();
        self
    }

    /// Returns every symbol with its lower and upper bound, both inclusive.
    pub fn ranges(&self) -> &[(Symbol, u64, u64)] {
        &self.ranges
    }

    /// Returns whether these values bind every symbol of the class within its range.
    pub fn contains(&self, values: &SymbolValues) -> bool {
        self.ranges.iter().all(|(s, low, high)| {
            values.get(*s).is_some_and(|value| (*low..=*high).contains(&value))
        })
    }

    /// Computes the inclusive lower and upper bound of a size in this class by interval arithmetic.
    /// The bounds are conservative, and exact if each symbol occurs once.
    ///
    /// # Errors
    /// Invalid if the class does not bound a symbol, if a divisor may be zero, or if a value does
    /// not fit in 64 bits.
    pub fn bounds(&self, dim: &Dim) -> Result<(i64, i64)> {
        dim.bounds(&|symbol| {
            let found = self.ranges.iter().find(|(s, ..)| *s == symbol);
            let (_, low, high) =
                found.ok_or_else(|| Error::invalid(format!("symbol {symbol} has no range")))?;
            Ok((i64::try_from(*low).unwrap_or(i64::MAX), i64::try_from(*high).unwrap_or(i64::MAX)))
        })
    }

    /// Computes the upper bound of a size in this class.
    ///
    /// # Errors
    /// Same as [`ShapeClass::bounds`], and invalid if the bound is negative.
    pub fn upper(&self, dim: &Dim) -> Result<u64> {
        let (_, high) = self.bounds(dim)?;
        u64::try_from(high)
            .map_err(|_| Error::invalid(format!("size {dim} is negative in class {self}")))
    }
}

impl fmt::Display for ShapeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, (symbol, low, high)) in self.ranges.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            match low == high {
                true => write!(f, "{comma}{symbol}={low}")?,
                false => write!(f, "{comma}{symbol}={low}..{high}")?,
            }
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_expressions() {
        let (s, p) = (Symbol::new("seq"), Symbol::new("past"));
        let class = ShapeClass::new().with(s, 2, 8).with(p, 0, 100);
        let total = Dim::symbol(s) + Dim::symbol(p);
        assert_eq!(class.bounds(&total).unwrap(), (2, 108));
        assert_eq!(class.bounds(&(Dim::symbol(s) - Dim::new(1))).unwrap(), (1, 7));
        assert_eq!(class.upper(&total.ceil_div(&Dim::new(64))).unwrap(), 2);
        assert!(class.bounds(&Dim::symbol(Symbol::new("other"))).is_err());
        assert!(class.contains(&SymbolValues::new().with(s, 8).with(p, 0)));
        assert!(!class.contains(&SymbolValues::new().with(s, 9).with(p, 0)));
    }
}
