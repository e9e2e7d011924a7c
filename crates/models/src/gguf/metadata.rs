//! Typed access to metadata. Errors name the file, the key, the value found and its offset.

use std::fmt;

use super::Gguf;
use super::cursor::{Cursor, Quoted, Subject};
use super::index::name_at;
use super::value::{Array, Items, Kind, Value};
use warploom_core::error::{Error, Result, broken_invariant};

impl Gguf {
    /// Returns the architecture of the model, such as `llama` or `qwen2`.
    ///
    /// # Errors
    /// Bad file if the key `general.architecture` is missing, or if its value is not a string.
    pub fn architecture(&self) -> Result<&str> {
        self.get_str("general.architecture")
    }

    /// Returns an iterator over all keys and their values, in file order.
    pub fn metadata(&self) -> impl ExactSizeIterator<Item = (&str, Value<'_>)> {
        self.index.keys.in_order.iter().map(|&at| {
            let (key, _, value) = self.entry_at(at);
            (key, value)
        })
    }

    /// Returns the value of a key, if the file has it.
    pub fn value(&self, key: &str) -> Option<Value<'_>> {
        self.find(key).map(|(_, value)| value)
    }

    /// Returns the value of `key`, an integer of any width, as u32.
    ///
    /// # Errors
    /// Bad file if the key is missing, or if its value is not an integer or does not fit in u32.
    pub fn get_u32(&self, key: &str) -> Result<u32> {
        self.find_u32(key)?.ok_or_else(|| self.missing(key))
    }

    /// Like [`Gguf::get_u32`], but returns `None` if the key is missing.
    ///
    /// # Errors
    /// Bad file if the value is not an integer or does not fit in u32.
    pub fn find_u32(&self, key: &str) -> Result<Option<u32>> {
        self.find_integer(key, "an integer of 0 to 4294967295")
    }

    /// Returns the value of `key`, an integer of any width, as u64.
    ///
    /// # Errors
    /// Bad file if the key is missing, or if its value is not an integer or is negative.
    pub fn get_u64(&self, key: &str) -> Result<u64> {
        self.find_u64(key)?.ok_or_else(|| self.missing(key))
    }

    /// Like [`Gguf::get_u64`], but returns `None` if the key is missing.
    ///
    /// # Errors
    /// Bad file if the value is not an integer or is negative.
    pub fn find_u64(&self, key: &str) -> Result<Option<u64>> {
        self.find_integer(key, "an integer of at least 0")
    }

    /// Returns the value of `key`: an f32, or an f64 rounded to the nearest f32. May be infinite or
    /// NaN.
    ///
    /// # Errors
    /// Bad file if the key is missing, or if its value is not a floating-point number.
    pub fn get_f32(&self, key: &str) -> Result<f32> {
        self.find_f32(key)?.ok_or_else(|| self.missing(key))
    }

    /// Like [`Gguf::get_f32`], but returns `None` if the key is missing.
    ///
    /// # Errors
    /// Bad file if the value is not a floating-point number.
    pub fn find_f32(&self, key: &str) -> Result<Option<f32>> {
        let Some((at, value)) = self.find(key) else { return Ok(None) };
        value.float().map(Some).ok_or_else(|| self.mismatch(key, at, "f32 or f64", value))
    }

    /// Returns the value of `key`, a boolean.
    ///
    /// # Errors
    /// Bad file if the key is missing, or if its value is not a bool.
    pub fn get_bool(&self, key: &str) -> Result<bool> {
        self.find_bool(key)?.ok_or_else(|| self.missing(key))
    }

    /// Like [`Gguf::get_bool`], but returns `None` if the key is missing.
    ///
    /// # Errors
    /// Bad file if the value is not a bool.
    pub fn find_bool(&self, key: &str) -> Result<Option<bool>> {
        match self.find(key) {
            None => Ok(None),
            Some((_, Value::Bool(value))) => Ok(Some(value)),
            Some((at, value)) => Err(self.mismatch(key, at, "a bool", value)),
        }
    }

    /// Returns the value of `key`, a string.
    ///
    /// # Errors
    /// Bad file if the key is missing, or if its value is not a string.
    pub fn get_str(&self, key: &str) -> Result<&str> {
        self.find_str(key)?.ok_or_else(|| self.missing(key))
    }

    /// Like [`Gguf::get_str`], but returns `None` if the key is missing.
    ///
    /// # Errors
    /// Bad file if the value is not a string.
    pub fn find_str(&self, key: &str) -> Result<Option<&str>> {
        match self.find(key) {
            None => Ok(None),
            Some((_, Value::String(value))) => Ok(Some(value)),
            Some((at, value)) => Err(self.mismatch(key, at, "a string", value)),
        }
    }

    /// Returns an iterator over the strings of the array at `key`, in order.
    ///
    /// # Errors
    /// Bad file if the key is missing, or if its value is not an array of strings.
    pub fn strings(&self, key: &str) -> Result<Strings<'_>> {
        self.find_strings(key)?.ok_or_else(|| self.missing(key))
    }

    /// Like [`Gguf::strings`], but returns `None` if the key is missing.
    ///
    /// # Errors
    /// Bad file if the value is not an array of strings.
    pub fn find_strings(&self, key: &str) -> Result<Option<Strings<'_>>> {
        let found = self.find_array(key, "an array of strings", |a| a.kind() == Kind::String)?;
        Ok(found.map(|(_, array)| Strings(array.items())))
    }

    /// Returns an iterator over the integers of the array at `key`, which may have any width.
    ///
    /// # Errors
    /// Bad file if the key is missing, or if its value is not an array of integers that fit in i64.
    pub fn integers(&self, key: &str) -> Result<Integers<'_>> {
        self.find_integers(key)?.ok_or_else(|| self.missing(key))
    }

    /// Like [`Gguf::integers`], but returns `None` if the key is missing.
    ///
    /// # Errors
    /// Bad file if the value is not an array of integers that fit in i64.
    pub fn find_integers(&self, key: &str) -> Result<Option<Integers<'_>>> {
        // All items have one type, so the first one suffices.
        let fits = |array: &Array<'_>| {
            let is_integer = |v: Value<'_>| v.integer().is_some_and(|n| i64::try_from(n).is_ok());
            match array.kind() {
                Kind::U64 => array.items().all(is_integer),
                kind => kind.is_integer(),
            }
        };
        let found = self.find_array(key, "an array of integers below 2^63", fits)?;
        Ok(found.map(|(_, array)| Integers(array.items())))
    }

    /// Returns an iterator over the floating-point numbers of the array at `key`. An f64 is rounded
    /// to the nearest f32.
    ///
    /// # Errors
    /// Bad file if the key is missing, or if its value is not an array of f32 or f64.
    pub fn floats(&self, key: &str) -> Result<Floats<'_>> {
        self.find_floats(key)?.ok_or_else(|| self.missing(key))
    }

    /// Like [`Gguf::floats`], but returns `None` if the key is missing.
    ///
    /// # Errors
    /// Bad file if the value is not an array of f32 or f64.
    pub fn find_floats(&self, key: &str) -> Result<Option<Floats<'_>>> {
        let is_float = |a: &Array<'_>| matches!(a.kind(), Kind::F32 | Kind::F64);
        let found = self.find_array(key, "an array of f32 or f64", is_float)?;
        Ok(found.map(|(_, array)| Floats(array.items())))
    }

    fn find_integer<T: TryFrom<i128>>(&self, key: &str, wanted: &str) -> Result<Option<T>> {
        let Some((at, value)) = self.find(key) else { return Ok(None) };
        match value.integer().and_then(|n| T::try_from(n).ok()) {
            Some(n) => Ok(Some(n)),
            None => Err(self.mismatch(key, at, wanted, value)),
        }
    }

    fn find_array(
        &self,
        key: &str,
        wanted: &str,
        fits: impl Fn(&Array<'_>) -> bool,
    ) -> Result<Option<(usize, Array<'_>)>> {
        match self.find(key) {
            None => Ok(None),
            Some((at, Value::Array(array))) if fits(&array) => Ok(Some((at, array))),
            Some((at, value)) => Err(self.mismatch(key, at, wanted, value)),
        }
    }

    /// Returns the byte offset in the file at which the value of a key begins (with its type), for
    /// errors.
    pub fn value_at(&self, key: &str) -> Option<usize> {
        self.find(key).map(|(at, _)| at)
    }

    /// Finds a key. Returns the file offset at which its value begins (with its type), and the
    /// value.
    fn find(&self, key: &str) -> Option<(usize, Value<'_>)> {
        let at = self.index.keys.find(&self.head, key)?;
        let (_, at, value) = self.entry_at(at);
        Some((at, value))
    }

    /// Returns the entry at byte `at`: the key, the file offset at which the value begins (with its
    /// type), and the value.
    fn entry_at(&self, at: usize) -> (&str, usize, Value<'_>) {
        let mut cursor = Cursor::new(&self.name, &self.head);
        let key = std::str::from_utf8(name_at(&self.head, at));
        cursor.at = at + 8 + key.map_or(0, str::len);
        let at = cursor.at;
        match (key, Value::read(&mut cursor)) {
            (Ok(key), Ok(value)) => (key, at, value),
            _ => broken_invariant("a checked metadata entry cannot be read"),
        }
    }

    fn missing(&self, key: &str) -> Error {
        Error::bad_file(format!("{}: no metadata key {}", self.name, Quoted(key)))
    }

    fn mismatch(&self, key: &str, at: usize, wanted: &str, found: Value<'_>) -> Error {
        let mut cursor = Cursor::new(&self.name, &self.head);
        cursor.subject = Subject::Key(0, Some(key));
        cursor.bad("value", at, format_args!("should be {wanted}, found {}", Found(found)))
    }
}

impl Kind {
    /// Returns whether values of this type are integers.
    pub const fn is_integer(self) -> bool {
        !matches!(self, Kind::F32 | Kind::F64 | Kind::Bool | Kind::String | Kind::Array)
    }
}

/// Shows a value in errors: its type, and also its number if it is an integer.
struct Found<'a>(Value<'a>);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.0.integer()) {
            (value, Some(number)) => write!(f, "{} {number}", value.kind()),
            (Value::Array(array), _) => write!(f, "an array of {} {}", array.len(), array.kind()),
            (value, _) => f.write_str(value.kind().name()),
        }
    }
}

/// Defines an iterator over the items of an array whose type was checked.
macro_rules! items_as {
    ($(#[$doc:meta])* $name:ident, $item:ty, $convert:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name<'a>(Items<'a>);

        impl<'a> Iterator for $name<'a> {
            type Item = $item;

            fn next(&mut self) -> Option<$item> {
                let value: Value<'a> = self.0.next()?;
                let convert: fn(Value<'a>) -> Option<$item> = $convert;
                let item = convert(value);
                Some(item.unwrap_or_else(|| broken_invariant("a checked array has a stray item")))
            }

            fn size_hint(&self) -> (usize, Option<usize>) {
                self.0.size_hint()
            }
        }

        impl ExactSizeIterator for $name<'_> {}
    };
}

items_as!(
    /// Iterator over the strings of an array.
    Strings,
    &'a str,
    |value| match value {
        Value::String(text) => Some(text),
        _ => None,
    }
);
items_as!(
    /// Iterator over the integers of an array.
    Integers,
    i64,
    |value| value.integer().and_then(|n| i64::try_from(n).ok())
);
items_as!(
    /// Iterator over the floating-point numbers of an array.
    Floats,
    f32,
    |value| value.float()
);
