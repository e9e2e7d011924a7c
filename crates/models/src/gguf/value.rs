//! Typed metadata values, read in place.

use std::fmt;

use super::cursor::Cursor;
use warploom_core::error::{Result, broken_invariant};

/// Maximum nesting of arrays. No known file has more than one level.
const MAX_DEPTH: u32 = 4;

/// The type of a metadata value. The variants are in the order of the type numbers in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 8-bit unsigned integer.
    U8,
    /// 8-bit signed integer.
    I8,
    /// 16-bit unsigned integer.
    U16,
    /// 16-bit signed integer.
    I16,
    /// 32-bit unsigned integer.
    U32,
    /// 32-bit signed integer.
    I32,
    /// 32-bit floating-point number.
    F32,
    /// A boolean.
    Bool,
    /// UTF-8 text.
    String,
    /// An array of values of one type.
    Array,
    /// 64-bit unsigned integer.
    U64,
    /// 64-bit signed integer.
    I64,
    /// 64-bit floating-point number.
    F64,
}

impl Kind {
    /// All types, in the order of their numbers in files.
    const ALL: [Kind; 13] = [
        Kind::U8,
        Kind::I8,
        Kind::U16,
        Kind::I16,
        Kind::U32,
        Kind::I32,
        Kind::F32,
        Kind::Bool,
        Kind::String,
        Kind::Array,
        Kind::U64,
        Kind::I64,
        Kind::F64,
    ];

    /// Returns the lowercase name, such as `u32` or `string`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::U8 => "u8",
            Kind::I8 => "i8",
            Kind::U16 => "u16",
            Kind::I16 => "i16",
            Kind::U32 => "u32",
            Kind::I32 => "i32",
            Kind::F32 => "f32",
            Kind::Bool => "bool",
            Kind::String => "string",
            Kind::Array => "array",
            Kind::U64 => "u64",
            Kind::I64 => "i64",
            Kind::F64 => "f64",
        }
    }

    /// Returns the number of the type in files.
    pub(super) fn number(self) -> u32 {
        self as u32
    }

    /// Returns the size of a value in a file in bytes, or the minimum if it varies.
    const fn least_bytes(self) -> usize {
        match self {
            Kind::U8 | Kind::I8 | Kind::Bool => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::U64 | Kind::I64 | Kind::F64 => 8,
            Kind::String => 8,
            Kind::Array => 12,
        }
    }

    fn read(cursor: &mut Cursor<'_>, field: &str) -> Result<Kind> {
        let at = cursor.at;
        let number = cursor.u32(field)?;
        let kind = usize::try_from(number).ok().and_then(|n| Kind::ALL.get(n));
        kind.copied().ok_or_else(|| {
            cursor.bad(field, at, format_args!("{number} is not a value type (0 to 12 are)"))
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A metadata value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// 8-bit unsigned integer.
    U8(u8),
    /// 8-bit signed integer.
    I8(i8),
    /// 16-bit unsigned integer.
    U16(u16),
    /// 16-bit signed integer.
    I16(i16),
    /// 32-bit unsigned integer.
    U32(u32),
    /// 32-bit signed integer.
    I32(i32),
    /// 32-bit floating-point number.
    F32(f32),
    /// A boolean.
    Bool(bool),
    /// UTF-8 text.
    String(&'a str),
    /// An array of values of one type.
    Array(Array<'a>),
    /// 64-bit unsigned integer.
    U64(u64),
    /// 64-bit signed integer.
    I64(i64),
    /// 64-bit floating-point number.
    F64(f64),
}

impl<'a> Value<'a> {
    /// Returns the type of the value.
    pub const fn kind(&self) -> Kind {
        match self {
            Value::U8(_) => Kind::U8,
            Value::I8(_) => Kind::I8,
            Value::U16(_) => Kind::U16,
            Value::I16(_) => Kind::I16,
            Value::U32(_) => Kind::U32,
            Value::I32(_) => Kind::I32,
            Value::F32(_) => Kind::F32,
            Value::Bool(_) => Kind::Bool,
            Value::String(_) => Kind::String,
            Value::Array(_) => Kind::Array,
            Value::U64(_) => Kind::U64,
            Value::I64(_) => Kind::I64,
            Value::F64(_) => Kind::F64,
        }
    }

    /// Returns the value of an integer of any width, or `None` for other types.
    pub fn integer(&self) -> Option<i128> {
        match *self {
            Value::U8(v) => Some(v.into()),
            Value::I8(v) => Some(v.into()),
            Value::U16(v) => Some(v.into()),
            Value::I16(v) => Some(v.into()),
            Value::U32(v) => Some(v.into()),
            Value::I32(v) => Some(v.into()),
            Value::U64(v) => Some(v.into()),
            Value::I64(v) => Some(v.into()),
            _ => None,
        }
    }

    /// Returns the value of an f32, or of an f64 rounded to an f32. Returns `None` for other types.
    pub fn float(&self) -> Option<f32> {
        match *self {
            Value::F32(v) => Some(v),
            Value::F64(v) => Some(v as f32),
            _ => None,
        }
    }

    /// Reads a type and then a value of this type, and validates all of its bytes.
    pub(super) fn read(cursor: &mut Cursor<'a>) -> Result<Value<'a>> {
        let kind = Kind::read(cursor, "value type")?;
        Value::read_as(cursor, kind, 0)
    }

    /// Reads a value of this type, nested in `depth` arrays.
    fn read_as(cursor: &mut Cursor<'a>, kind: Kind, depth: u32) -> Result<Value<'a>> {
        const FIELD: &str = "value";
        Ok(match kind {
            Kind::U8 => Value::U8(cursor.u8(FIELD)?),
            Kind::I8 => Value::I8(cursor.u8(FIELD)?.cast_signed()),
            Kind::U16 => Value::U16(cursor.u16(FIELD)?),
            Kind::I16 => Value::I16(cursor.u16(FIELD)?.cast_signed()),
            Kind::U32 => Value::U32(cursor.u32(FIELD)?),
            Kind::I32 => Value::I32(cursor.u32(FIELD)?.cast_signed()),
            Kind::F32 => Value::F32(f32::from_bits(cursor.u32(FIELD)?)),
            Kind::Bool => {
                let at = cursor.at;
                match cursor.u8(FIELD)? {
                    0 => Value::Bool(false),
                    1 => Value::Bool(true),
                    other => {
                        return Err(cursor.bad(
                            FIELD,
                            at,
                            format_args!("{other} is not a bool (0 and 1 are)"),
                        ));
                    }
                }
            }
            Kind::String => Value::String(cursor.string(FIELD)?),
            Kind::Array => Value::Array(Array::read(cursor, depth)?),
            Kind::U64 => Value::U64(cursor.u64(FIELD)?),
            Kind::I64 => Value::I64(cursor.u64(FIELD)?.cast_signed()),
            Kind::F64 => Value::F64(f64::from_bits(cursor.u64(FIELD)?)),
        })
    }
}

/// An array of metadata values of one type, decoded on access.
#[derive(Clone, Copy, PartialEq)]
pub struct Array<'a> {
    kind: Kind,
    len: usize,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// Returns the type of the items.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the number of items.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no items.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns an iterator over the items, in order.
    pub fn items(&self) -> Items<'a> {
        Items {
            cursor: Cursor::new("checked metadata", self.bytes),
            kind: self.kind,
            left: self.len,
        }
    }

    /// Returns the items as raw bytes of the file.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn read(cursor: &mut Cursor<'a>, depth: u32) -> Result<Array<'a>> {
        if depth == MAX_DEPTH {
            let problem = format_args!("arrays are nested more than {MAX_DEPTH} deep");
            return Err(cursor.bad("array", cursor.at, problem));
        }
        let kind = Kind::read(cursor, "array item type")?;
        let len = cursor.count("array length", kind.least_bytes())?;
        let start = cursor.at;
        match kind {
            Kind::String | Kind::Array | Kind::Bool => {
                for _ in 0..len {
                    Value::read_as(cursor, kind, depth + 1)?;
                }
            }
            // Any bytes form a valid number, and `count` checked that there are enough.
            _ => drop(cursor.take((len * kind.least_bytes()) as u64, "array")?),
        }
        Ok(Array { kind, len, bytes: &cursor.bytes[start..cursor.at] })
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}; {}]", self.kind, self.len)
    }
}

/// Iterator over the items of an [`Array`].
#[derive(Clone)]
pub struct Items<'a> {
    cursor: Cursor<'a>,
    kind: Kind,
    left: usize,
}

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        // Depth 0 again: the nesting limit was already checked.
        match Value::read_as(&mut self.cursor, self.kind, 0) {
            Ok(value) => Some(value),
            Err(error) => broken_invariant(format!("a checked array: {error}")),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Items<'_> {}

impl fmt::Debug for Items<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}; {} left]", self.kind, self.left)
    }
}
