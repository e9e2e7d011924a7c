//! Reads values with bounds checks. Errors name the file, subject, field and byte offset.

use std::cell::Cell;
use std::fmt;

use warploom_core::error::{Error, Result};

/// Advice for a truncated file.
pub(super) const BROKEN_OFF: &str =
    ", as after a download that was broken off: fetch the file again";
/// Lengths up to this suggest a truncated file; larger ones suggest a corrupt length.
const PLAUSIBLE: u64 = 1 << 32;

fn if_plausible(length: u64) -> &'static str {
    if length <= PLAUSIBLE { BROKEN_OFF } else { "" }
}

/// The structure that is being read, for errors.
#[derive(Clone, Copy)]
pub(super) enum Subject<'a> {
    /// The header, the first 24 bytes.
    Header,
    /// Index of a metadata entry, and its key once known.
    Key(usize, Option<&'a str>),
    /// Index of a tensor entry, and its name once known.
    Tensor(usize, Option<&'a str>),
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Header => f.write_str("header"),
            Subject::Key(_, Some(key)) => write!(f, "metadata key {}", Quoted(key)),
            Subject::Key(index, None) => write!(f, "metadata entry {index}"),
            Subject::Tensor(_, Some(name)) => write!(f, "tensor {}", Quoted(name)),
            Subject::Tensor(index, None) => write!(f, "tensor entry {index}"),
        }
    }
}

/// A name from a file: escaped, and truncated if too long for a message.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 80;
        f.write_str("`")?;
        for c in self.0.chars().take(MOST).flat_map(char::escape_debug) {
            write!(f, "{c}")?;
        }
        f.write_str(if self.0.chars().nth(MOST).is_some() { "..`" } else { "`" })
    }
}

/// A position in the bytes of a file.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    pub(super) file: &'a str,
    pub(super) bytes: &'a [u8],
    /// Offset of the next byte; never beyond the end.
    pub(super) at: usize,
    pub(super) subject: Subject<'a>,
    /// Set if `bytes` are only the start of the file.
    start: Option<Start<'a>>,
}

/// Marks a cursor that reads only the start of a file.
#[derive(Clone, Copy)]
struct Start<'a> {
    /// Size of the file in bytes.
    file_len: u64,
    /// Set to the number of bytes needed if an error is due to missing bytes that the file has.
    short: &'a Cell<u64>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &'a str, bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { file, bytes, at: 0, subject: Subject::Header, start: None }
    }

    /// Creates a cursor over `bytes`, the start of a file of `file_len` bytes. If reading fails
    /// because the file has bytes that are not in `bytes`, `short` is set to the number needed.
    pub(super) fn of_start(
        file: &'a str,
        bytes: &'a [u8],
        file_len: u64,
        short: &'a Cell<u64>,
    ) -> Cursor<'a> {
        Cursor { start: Some(Start { file_len, short }), ..Cursor::new(file, bytes) }
    }

    /// Returns the number of bytes left in the file.
    pub(super) fn left(&self) -> u64 {
        let len = self.start.map_or(self.bytes.len() as u64, |start| start.file_len);
        len.saturating_sub(self.at as u64)
    }

    /// Returns a capacity for `count` items of at least `least` bytes each that is not larger than
    /// the bytes at hand.
    pub(super) fn capacity(&self, count: usize, least: usize) -> usize {
        count.min(self.bytes.len().saturating_sub(self.at) / least)
    }

    /// Returns an error about `field`, which begins at byte `at`.
    #[cold]
    pub(super) fn bad(&self, field: &str, at: usize, problem: impl fmt::Display) -> Error {
        let Cursor { file, subject, .. } = self;
        Error::bad_file(format!("{file}: {subject}: {field} at byte {at}: {problem}"))
    }

    /// Reads the next `len` bytes.
    pub(super) fn take(&mut self, len: u64, field: &str) -> Result<&'a [u8]> {
        let end = usize::try_from(len).ok().and_then(|len| self.at.checked_add(len));
        match end.and_then(|end| self.bytes.get(self.at..end)) {
            Some(taken) => {
                self.at += taken.len();
                Ok(taken)
            }
            None => {
                if let Some(start) = self.start.filter(|_| len <= self.left()) {
                    start.short.set(self.at as u64 + len);
                }
                Err(self.bad(
                    field,
                    self.at,
                    format_args!(
                        "needs {len} bytes, the file has {} left{}",
                        self.left(),
                        if_plausible(len)
                    ),
                ))
            }
        }
    }

    fn array<const N: usize>(&mut self, field: &str) -> Result<[u8; N]> {
        let taken = self.take(N as u64, field)?;
        let mut array = [0; N];
        array.copy_from_slice(taken);
        Ok(array)
    }

    /// Reads a byte.
    pub(super) fn u8(&mut self, field: &str) -> Result<u8> {
        self.array(field).map(u8::from_le_bytes)
    }

    /// Reads two bytes, little-endian.
    pub(super) fn u16(&mut self, field: &str) -> Result<u16> {
        self.array(field).map(u16::from_le_bytes)
    }

    /// Reads four bytes, little-endian.
    pub(super) fn u32(&mut self, field: &str) -> Result<u32> {
        self.array(field).map(u32::from_le_bytes)
    }

    /// Reads eight bytes, little-endian.
    pub(super) fn u64(&mut self, field: &str) -> Result<u64> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// Reads an 8-byte count of items that take at least `least` bytes each, and checks it against
    /// the bytes left.
    pub(super) fn count(&mut self, field: &str, least: usize) -> Result<usize> {
        let at = self.at;
        let count = self.u64(field)?;
        let room = usize::try_from(self.left() / least as u64).unwrap_or(usize::MAX);
        match usize::try_from(count) {
            Ok(count) if count <= room => Ok(count),
            _ => Err(self.bad(
                field,
                at,
                format_args!(
                    "{count} of at least {least} bytes each, the file has {} bytes left{}",
                    self.left(),
                    if_plausible(count)
                ),
            )),
        }
    }

    /// Reads a string: 8 bytes of length, then UTF-8.
    pub(super) fn string(&mut self, field: &str) -> Result<&'a str> {
        let len = self.u64(field)?;
        let at = self.at;
        let bytes = self.take(len, field)?;
        std::str::from_utf8(bytes).map_err(|e| {
            self.bad(field, at, format_args!("not UTF-8 from byte {} of it on", e.valid_up_to()))
        })
    }

    /// Reads a non-empty string.
    pub(super) fn name(&mut self, field: &str) -> Result<&'a str> {
        let at = self.at;
        match self.string(field)? {
            "" => Err(self.bad(field, at, "empty")),
            name => Ok(name),
        }
    }
}
