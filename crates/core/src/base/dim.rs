//! Sizes as integer expressions over symbols that are bound at run time.
//!
//! A [`Dim`] is kept in a normal form, a sum of products of atoms with integer coefficients, so
//! that `past + seq` equals `seq + past` and `2*n - n` equals `n` by plain comparison. Division,
//! remainder, minimum and maximum are opaque atoms over normal forms. They fold if both operands
//! are constants, and a division also if the divisor divides the constant and every coefficient.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Mul, Sub};

use serde::{Deserialize, Serialize};

use super::symbol::{Symbol, SymbolValues};
use crate::error::{Error, Result};

/// A factor of a term, which the normal form does not expand.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
enum Atom {
    Symbol(Symbol),
    FloorDiv(Dim, Dim),
    Mod(Dim, Dim),
    Min(Dim, Dim),
    Max(Dim, Dim),
}

type Product = Vec<Atom>;

/// An integer expression over symbols, in the normal form that the module documentation describes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Dim {
    /// The constant term.
    constant: i64,
    /// The other terms: products of sorted atoms, each with its non-zero coefficient.
    terms: BTreeMap<ProductKey, i64>,
}

// JSON allows only string keys in maps, so this wrapper serialises products as lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct ProductKey(Product);

impl Serialize for ProductKey {
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        let text = serde_json::to_string(&self.0).map_err(serde::ser::Error::custom)?;
        s.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for ProductKey {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        serde_json::from_str(&text).map(ProductKey).map_err(serde::de::Error::custom)
    }
}

impl Dim {
    /// Creates a constant.
    pub const fn new(value: i64) -> Dim {
        Dim { constant: value, terms: BTreeMap::new() }
    }

    /// Creates the expression that consists of one symbol.
    pub fn symbol(symbol: Symbol) -> Dim {
        Dim::atom(Atom::Symbol(symbol))
    }

    fn atom(atom: Atom) -> Dim {
        Dim { constant: 0, terms: BTreeMap::from([(ProductKey(vec![atom]), 1)]) }
    }

    /// Returns the constant value, or `None` if the expression is not constant.
    pub fn as_const(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// Returns whether the constant and every coefficient are multiples of `n`, so that every value
    /// of the size is a multiple of `n`.
    pub fn is_multiple_of(&self, n: i64) -> bool {
        n != 0 && self.constant % n == 0 && self.terms.values().all(|factor| factor % n == 0)
    }

    /// Returns whether the expression is the constant `value`.
    pub fn is(&self, value: i64) -> bool {
        self.as_const() == Some(value)
    }

    /// Returns `floor(self / other)`, for a positive `other`.
    pub fn floor_div(&self, other: &Dim) -> Dim {
        // Checked: `i64::MIN / -1`, which a file may contain, stays an expression.
        if let (Some(a), Some(b)) = (self.as_const(), other.as_const())
            && let Some(quotient) = a.checked_div_euclid(b)
        {
            return Dim::new(quotient);
        }
        if let Some(b) = other.as_const()
            && b > 0
            && self.constant % b == 0
            && self.terms.values().all(|factor| factor % b == 0)
        {
            let terms = self.terms.iter().map(|(k, v)| (k.clone(), v / b)).collect();
            return Dim { constant: self.constant / b, terms };
        }
        if self == other {
            return Dim::new(1);
        }
        Dim::atom(Atom::FloorDiv(self.clone(), other.clone()))
    }

    /// Returns `ceil(self / other)`, for a positive `other`.
    pub fn ceil_div(&self, other: &Dim) -> Dim {
        (self.clone() + other.clone() - Dim::new(1)).floor_div(other)
    }

    /// Returns the non-negative remainder of `self / other`.
    pub fn modulo(&self, other: &Dim) -> Dim {
        if let (Some(a), Some(b)) = (self.as_const(), other.as_const())
            && let Some(remainder) = a.checked_rem_euclid(b)
        {
            return Dim::new(remainder);
        }
        Dim::atom(Atom::Mod(self.clone(), other.clone()))
    }

    /// Returns the minimum of two sizes.
    pub fn minimum(&self, other: &Dim) -> Dim {
        match (self.as_const(), other.as_const()) {
            (Some(a), Some(b)) => Dim::new(a.min(b)),
            _ if self == other => self.clone(),
            _ => Dim::atom(Atom::Min(self.clone(), other.clone())),
        }
    }

    /// Returns the maximum of two sizes.
    pub fn maximum(&self, other: &Dim) -> Dim {
        match (self.as_const(), other.as_const()) {
            (Some(a), Some(b)) => Dim::new(a.max(b)),
            _ if self == other => self.clone(),
            _ => Dim::atom(Atom::Max(self.clone(), other.clone())),
        }
    }

    /// Evaluates the expression under these bindings.
    ///
    /// # Errors
    /// Invalid if a symbol is not bound, if a divisor is zero, or if a value does not fit in 64
    /// bits.
    pub fn eval(&self, values: &SymbolValues) -> Result<i64> {
        let overflow = || Error::invalid(format!("size {self} does not fit 64 bits"));
        let mut sum = self.constant;
        for (product, factor) in &self.terms {
            let mut value = *factor;
            for atom in &product.0 {
                value = value.checked_mul(atom.eval(values)?).ok_or_else(overflow)?;
            }
            sum = sum.checked_add(value).ok_or_else(overflow)?;
        }
        Ok(sum)
    }

    /// Evaluates the expression as a size.
    ///
    /// # Errors
    /// Same as [`Dim::eval`], and invalid if the value is negative.
    pub fn eval_size(&self, values: &SymbolValues) -> Result<u64> {
        let value = self.eval(values)?;
        u64::try_from(value)
            .map_err(|_| Error::invalid(format!("size {self} is {value}, negative")))
    }

    /// Computes the inclusive lower and upper bound of the expression by interval arithmetic;
    /// `range` returns those of a symbol.
    pub(super) fn bounds(
        &self,
        range: &dyn Fn(Symbol) -> Result<(i64, i64)>,
    ) -> Result<(i64, i64)> {
        let overflow = || Error::invalid(format!("size {self} does not fit 64 bits"));
        let (mut low, mut high) = (self.constant, self.constant);
        for (product, factor) in &self.terms {
            let mut term = (*factor, *factor);
            for atom in &product.0 {
                let (a, b) = atom.bounds(range)?;
                let corners = [(term.0, a), (term.0, b), (term.1, a), (term.1, b)]
                    .map(|(x, y)| x.checked_mul(y));
                let mut ends = None::<(i64, i64)>;
                for corner in corners {
                    let c = corner.ok_or_else(overflow)?;
                    ends = Some(ends.map_or((c, c), |(l, h)| (l.min(c), h.max(c))));
                }
                term = ends.unwrap_or(term);
            }
            low = low.checked_add(term.0).ok_or_else(overflow)?;
            high = high.checked_add(term.1).ok_or_else(overflow)?;
        }
        Ok((low, high))
    }

    /// Returns this expression with every occurrence of `symbol` replaced with `by`.
    pub fn substitute(&self, symbol: Symbol, by: &Dim) -> Dim {
        let mut sum = Dim::new(self.constant);
        for (product, factor) in &self.terms {
            let mut value = Dim::new(*factor);
            for atom in &product.0 {
                value = value * atom.substitute(symbol, by);
            }
            sum = sum + value;
        }
        sum
    }

    /// Returns whether the expression is in normal form. All arithmetic preserves normal form, but
    /// a file may contain anything.
    pub fn is_normal(&self) -> bool {
        self.terms.iter().all(|(product, factor)| {
            let atoms = &product.0;
            *factor != 0
                && !atoms.is_empty()
                && atoms.is_sorted()
                && atoms.iter().all(Atom::is_normal)
        })
    }

    /// Returns every symbol that occurs, sorted and without duplicates.
    pub fn symbols(&self) -> Vec<Symbol> {
        let mut found = Vec::new();
        self.collect_symbols(&mut found);
        found.sort_unstable();
        found.dedup();
        found
    }

    fn collect_symbols(&self, found: &mut Vec<Symbol>) {
        for atom in self.terms.keys().flat_map(|product| &product.0) {
            match atom {
                Atom::Symbol(symbol) => found.push(*symbol),
                Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Min(a, b) | Atom::Max(a, b) => {
                    a.collect_symbols(found);
                    b.collect_symbols(found);
                }
            }
        }
    }

    fn insert(&mut self, product: Product, factor: i64) {
        if product.is_empty() {
            self.constant = self.constant.saturating_add(factor);
            return;
        }
        let key = ProductKey(product);
        let sum = self.terms.get(&key).copied().unwrap_or(0).saturating_add(factor);
        if sum == 0 {
            self.terms.remove(&key);
        } else {
            self.terms.insert(key, sum);
        }
    }
}

impl Atom {
    fn eval(&self, values: &SymbolValues) -> Result<i64> {
        let by_zero = |a: &Dim| Error::invalid(format!("size {a} is divided by zero"));
        match self {
            Atom::Symbol(symbol) => {
                let value = values
                    .get(*symbol)
                    .ok_or_else(|| Error::invalid(format!("symbol {symbol} is not bound")))?;
                i64::try_from(value)
                    .map_err(|_| Error::invalid(format!("symbol {symbol} = {value} is too large")))
            }
            Atom::FloorDiv(a, b) => {
                a.eval(values)?.checked_div_euclid(b.eval(values)?).ok_or_else(|| by_zero(a))
            }
            Atom::Mod(a, b) => {
                a.eval(values)?.checked_rem_euclid(b.eval(values)?).ok_or_else(|| by_zero(a))
            }
            Atom::Min(a, b) => Ok(a.eval(values)?.min(b.eval(values)?)),
            Atom::Max(a, b) => Ok(a.eval(values)?.max(b.eval(values)?)),
        }
    }

    fn bounds(&self, range: &dyn Fn(Symbol) -> Result<(i64, i64)>) -> Result<(i64, i64)> {
        Ok(match self {
            Atom::Symbol(symbol) => range(*symbol)?,
            Atom::Min(a, b) => {
                let (a, b) = (a.bounds(range)?, b.bounds(range)?);
                (a.0.min(b.0), a.1.min(b.1))
            }
            Atom::Max(a, b) => {
                let (a, b) = (a.bounds(range)?, b.bounds(range)?);
                (a.0.max(b.0), a.1.max(b.1))
            }
            Atom::Mod(_, b) => (0, b.bounds(range)?.1.saturating_sub(1).max(0)),
            Atom::FloorDiv(a, b) => {
                let ((al, ah), (bl, bh)) = (a.bounds(range)?, b.bounds(range)?);
                if bl <= 0 {
                    return Err(Error::invalid(format!("size {a} may be divided by zero")));
                }
                let low = al.div_euclid(if al < 0 { bl } else { bh });
                (low, ah.div_euclid(if ah < 0 { bh } else { bl }))
            }
        })
    }

    fn substitute(&self, symbol: Symbol, by: &Dim) -> Dim {
        match self {
            Atom::Symbol(s) if *s == symbol => by.clone(),
            _ => self.rebuilt(&|d| d.substitute(symbol, by)),
        }
    }

    fn is_normal(&self) -> bool {
        // Folding inspects both operands but never expands products, so this takes linear time.
        match self {
            Atom::Symbol(_) => true,
            Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Min(a, b) | Atom::Max(a, b) => {
                a.is_normal()
                    && b.is_normal()
                    && self.rebuilt(&Dim::clone) == Dim::atom(self.clone())
            }
        }
    }

    fn rebuilt(&self, sub: &dyn Fn(&Dim) -> Dim) -> Dim {
        match self {
            Atom::Symbol(s) => Dim::symbol(*s),
            Atom::FloorDiv(a, b) => sub(a).floor_div(&sub(b)),
            Atom::Mod(a, b) => sub(a).modulo(&sub(b)),
            Atom::Min(a, b) => sub(a).minimum(&sub(b)),
            Atom::Max(a, b) => sub(a).maximum(&sub(b)),
        }
    }
}

impl Add for Dim {
    type Output = Dim;
    fn add(mut self, other: Dim) -> Dim {
        self.constant = self.constant.saturating_add(other.constant);
        for (product, factor) in other.terms {
            self.insert(product.0, factor);
        }
        self
    }
}

impl Sub for Dim {
    type Output = Dim;
    fn sub(self, other: Dim) -> Dim {
        self + other * Dim::new(-1)
    }
}

impl Mul for Dim {
    type Output = Dim;
    fn mul(self, other: Dim) -> Dim {
        let mut result = Dim::new(self.constant.saturating_mul(other.constant));
        for (product, factor) in &self.terms {
            result.insert(product.0.clone(), factor.saturating_mul(other.constant));
        }
        for (product, factor) in &other.terms {
            result.insert(product.0.clone(), factor.saturating_mul(self.constant));
        }
        for (a, fa) in &self.terms {
            for (b, fb) in &other.terms {
                let mut product: Product = a.0.iter().chain(&b.0).cloned().collect();
                product.sort_unstable();
                result.insert(product, fa.saturating_mul(*fb));
            }
        }
        // Multiplying a term by a zero constant yields zero coefficients; `insert` removed them.
        result
    }
}

macro_rules! from_integer {
    ($($ty:ty),*) => {$(
        impl From<$ty> for Dim {
            /// Converts an integer; values above `i64::MAX` saturate, since no tensor is that
            /// large.
            fn from(value: $ty) -> Dim {
                Dim::new(i64::try_from(value).unwrap_or(i64::MAX))
            }
        }
    )*};
}
from_integer!(i32, u32, i64, u64, usize);

impl From<Symbol> for Dim {
    fn from(symbol: Symbol) -> Dim {
        Dim::symbol(symbol)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (product, factor) in &self.terms {
            if !first || *factor < 0 {
                f.write_str(if *factor < 0 { "-" } else { "+" })?;
            }
            first = false;
            if factor.unsigned_abs() != 1 {
                write!(f, "{}*", factor.unsigned_abs())?;
            }
            for (i, atom) in product.0.iter().enumerate() {
                if i > 0 {
                    f.write_str("*")?;
                }
                write!(f, "{atom}")?;
            }
        }
        match (first, self.constant) {
            (true, c) => write!(f, "{c}"),
            (false, 0) => Ok(()),
            (false, c) => write!(f, "{c:+}"),
        }
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Symbol(symbol) => write!(f, "{symbol}"),
            Atom::FloorDiv(a, b) => write!(f, "(({a})/({b}))"),
            Atom::Mod(a, b) => write!(f, "(({a})%({b}))"),
            Atom::Min(a, b) => write!(f, "min({a},{b})"),
            Atom::Max(a, b) => write!(f, "max({a},{b})"),
        }
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: Symbol = Symbol::new("n");
    const M: Symbol = Symbol::new("m");

    fn n() -> Dim {
        Dim::symbol(N)
    }

    #[test]
    fn equal_expressions_compare_equal() {
        let m = Dim::symbol(M);
        assert_eq!(n() + m.clone(), m.clone() + n());
        assert_eq!(n() * Dim::new(2) - n(), n());
        assert_eq!((n() + m.clone()) * Dim::new(0), Dim::new(0));
        assert_eq!((n() * Dim::new(64)).floor_div(&Dim::new(32)), n() * Dim::new(2));
        assert_ne!(n(), m);
    }

    #[test]
    fn evaluates_and_names_what_is_missing() {
        let conv = (n() - Dim::new(3)).floor_div(&Dim::new(2)) + Dim::new(1);
        assert_eq!(conv.eval(&SymbolValues::new().with(N, 224)).unwrap(), 111);
        let error = conv.eval(&SymbolValues::new()).unwrap_err().to_string();
        assert!(error.contains("symbol n"), "{error}");
        assert!((n() - Dim::new(5)).eval_size(&SymbolValues::new().with(N, 1)).is_err());
    }

    #[test]
    fn prints_and_survives_json() {
        let dim = (n() * n() - Dim::new(7)).minimum(&Dim::symbol(M)) + n() * Dim::new(3);
        let json = serde_json::to_string(&dim).unwrap();
        assert_eq!(serde_json::from_str::<Dim>(&json).unwrap(), dim);
        assert_eq!((n() * Dim::new(3) + Dim::new(-2)).to_string(), "3*n-2");
    }

    #[test]
    fn division_never_overflows_and_normal_form_is_known() {
        let least = Dim::new(i64::MIN);
        let minus = Dim::new(-1);
        assert!(least.floor_div(&minus).eval(&SymbolValues::new()).is_err());
        assert!(least.modulo(&minus).eval(&SymbolValues::new()).is_err());
        assert!(!least.floor_div(&Dim::new(0)).is(0));
        let dim = (n() * n() - Dim::new(7)).floor_div(&Dim::symbol(M)) + n() * Dim::new(3);
        assert!(dim.is_normal());
        let folds = Atom::Min(Dim::new(1), Dim::new(2));
        assert!(!Dim::atom(folds).is_normal());
    }

    #[test]
    fn substitution_folds() {
        let dim = (n() + Dim::symbol(M)).ceil_div(&Dim::new(64));
        let bound = dim.substitute(N, &Dim::new(1)).substitute(M, &Dim::new(127));
        assert_eq!(bound.as_const(), Some(2));
    }
}
