//! Names of sizes that a run binds, and their values in one run.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The name of a size that a run binds, such as `seq` or `past`. At most 15 ASCII bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol {
    // Inline, so that a symbol is `Copy` and a comparison covers 16 bytes.
    bytes: [u8; 15],
    len: u8,
}

impl Symbol {
    /// Creates a symbol from a literal name. Names from files go through [`Symbol::parse`].
    ///
    /// # Panics
    /// Panics if the name is empty, longer than 15 bytes or not ASCII.
    pub const fn new(name: &str) -> Symbol {
        match Symbol::checked(name) {
            Some(symbol) => symbol,
            None => panic!("a symbol is 1 to 15 ASCII bytes"),
        }
    }

    const fn checked(name: &str) -> Option<Symbol> {
        let source = name.as_bytes();
        if source.is_empty() || source.len() > 15 || !name.is_ascii() {
            return None;
        }
        let mut bytes = [0; 15];
        let mut i = 0;
        while i < source.len() {
            bytes[i] = source[i];
            i += 1;
        }
        Some(Symbol { bytes, len: source.len() as u8 })
    }

    /// Creates a symbol from an untrusted name.
    ///
    /// # Errors
    /// Invalid if the name is empty, longer than 15 bytes or not ASCII.
    pub fn parse(name: &str) -> Result<Symbol> {
        Symbol::checked(name)
            .ok_or_else(|| Error::invalid(format!("symbol {name:?} is not 1 to 15 ASCII bytes")))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len as usize]).unwrap_or_default()
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Symbol {
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Symbol {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        let name = String::deserialize(d)?;
        Symbol::checked(&name).ok_or_else(|| serde::de::Error::custom("bad symbol name"))
    }
}

/// Values of symbols for one run. There are few, so a list is faster than a map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymbolValues(smallvec::SmallVec<[(Symbol, u64); 4]>);

impl SymbolValues {
    /// Creates a list without bindings.
    pub fn new() -> SymbolValues {
        SymbolValues::default()
    }

    /// Binds or rebinds one symbol.
    pub fn set(&mut self, symbol: Symbol, value: u64) {
        match self.0.iter_mut().find(|(s, _)| *s == symbol) {
            Some(slot) => slot.1 = value,
            None => self.0.push((symbol, value)),
        }
    }

    /// Builder form of [`SymbolValues::set`].
    pub fn with(mut self, symbol: Symbol, value: u64) -> SymbolValues {
        self.set(symbol, value);
        self
    }

    /// Returns the value of a symbol, or `None` if it is not bound.
    pub fn get(&self, symbol: Symbol) -> Option<u64> {
        self.0.iter().find(|(s, _)| *s == symbol).map(|(_, v)| *v)
    }

    /// Iterates over all bindings in insertion order.
    pub fn iter(&self) -> impl Iterator<Item = (Symbol, u64)> + '_ {
        self.0.iter().copied()
    }
}
