//! Validates the head of a file, from magic to tensor table, and indexes its entries.

use std::cell::Cell;

use super::cursor::{BROKEN_OFF, Cursor, Quoted, Subject};
use super::foreign;
use super::tensor::Entry;
use super::value::Value;
use warploom_core::error::{Error, Result, broken_invariant};

/// Bytes of the smallest metadata entry: length, one byte of key, type, one byte of value.
const LEAST_KEY: usize = 8 + 1 + 4 + 1;
/// Bytes of the smallest tensor entry: length, one byte of name, no dimensions, type, offset.
const LEAST_TENSOR: usize = 8 + 1 + 4 + 4 + 8;
const ALIGNMENT_KEY: &str = "general.alignment";
const DEFAULT_ALIGNMENT: u64 = 32;

/// Index of a validated head: the offsets of its entries.
pub(super) struct Index {
    pub(super) version: u32,
    /// Alignment of tensor offsets in bytes: a power of two, 8 to 65,536.
    pub(super) alignment: u64,
    /// Bytes from the file's start to the end of the tensor table.
    pub(super) head_len: usize,
    /// File offset of the data section, to which tensor offsets are relative.
    pub(super) data_start: u64,
    pub(super) keys: Names,
    pub(super) tensors: Names,
}

/// Byte offsets of entries, each of which begins with its name: in file order, and sorted by name.
/// An offset takes 8 bytes and an entry at least 14, so neither list is larger than the file.
#[derive(Default)]
pub(super) struct Names {
    pub(super) in_order: Vec<usize>,
    by_name: Vec<usize>,
}

impl Names {
    /// Sorts the entries by name. If two have the same name, the error is the offset of the later
    /// one.
    fn new(head: &[u8], in_order: Vec<usize>) -> std::result::Result<Names, usize> {
        let mut by_name = in_order.clone();
        by_name.sort_unstable_by(|&a, &b| name_at(head, a).cmp(name_at(head, b)).then(a.cmp(&b)));
        match by_name.windows(2).find(|w| name_at(head, w[0]) == name_at(head, w[1])) {
            Some(pair) => Err(pair[1]),
            None => Ok(Names { in_order, by_name }),
        }
    }

    /// Returns the offset of the entry with this name, if there is one.
    pub(super) fn find(&self, head: &[u8], name: &str) -> Option<usize> {
        let found = self.by_name.binary_search_by(|&at| name_at(head, at).cmp(name.as_bytes()));
        found.ok().map(|i| self.by_name[i])
    }
}

/// Returns the name at the start of the entry at byte `at` of a validated head.
pub(super) fn name_at(head: &[u8], at: usize) -> &[u8] {
    let read = || {
        let (len, rest) = head.get(at..)?.split_first_chunk::<8>()?;
        rest.get(..usize::try_from(u64::from_le_bytes(*len)).ok()?)
    };
    read().unwrap_or_else(|| broken_invariant("a checked entry has lost its name"))
}

impl Index {
    /// Validates the head in `bytes`, a file of `file_len` bytes or its whole head.
    pub(super) fn parse(file: &str, bytes: &[u8], file_len: u64) -> Result<Index> {
        Index::parse_at(Cursor::new(file, bytes), file_len)
    }

    /// Validates the head of a file of `file_len` bytes, of which `bytes` are the first. On an
    /// error, `short` is the number of bytes to read before the next attempt, or 0 if the file
    /// itself is bad.
    pub(super) fn parse_start(
        file: &str,
        bytes: &[u8],
        file_len: u64,
        short: &Cell<u64>,
    ) -> Result<Index> {
        Index::parse_at(Cursor::of_start(file, bytes, file_len, short), file_len)
    }

    fn parse_at(mut cursor: Cursor<'_>, file_len: u64) -> Result<Index> {
        magic(&mut cursor)?;
        let version = version(&mut cursor)?;
        let tensors_at = cursor.at;
        let tensor_count = cursor.count("tensor count", LEAST_TENSOR)?;
        let key_count = cursor.count("metadata count", LEAST_KEY)?;
        // The sum may still exceed the bytes left.
        let need =
            key_count as u128 * LEAST_KEY as u128 + tensor_count as u128 * LEAST_TENSOR as u128;
        if need > u128::from(cursor.left()) {
            return Err(cursor.bad(
                "tensor and metadata count",
                tensors_at,
                format_args!("need at least {need} bytes, the file has {} left", cursor.left()),
            ));
        }

        let keys = keys(&mut cursor, key_count)?;
        let alignment = alignment(&cursor, &keys)?;
        let tensors = tensors(&mut cursor, tensor_count)?;
        let head_len = cursor.at;
        let data_start = (head_len as u64).next_multiple_of(alignment);
        let index = Index { version, alignment, head_len, data_start, keys, tensors };
        index.check_ranges(cursor, file_len)?;
        Ok(index)
    }

    /// Checks every tensor's range against the alignment, the file size, and the other tensors.
    fn check_ranges(&self, mut cursor: Cursor<'_>, file_len: u64) -> Result<()> {
        let mut ranges = Vec::with_capacity(self.tensors.in_order.len());
        for (i, &at) in self.tensors.in_order.iter().enumerate() {
            cursor.at = at;
            let entry = Entry::read(&mut cursor, i)?;
            let bad = |problem: std::fmt::Arguments<'_>| {
                Err(cursor.bad("data offset", entry.offset_at, problem))
            };
            let (offset, alignment) = (entry.offset, self.alignment);
            if offset % alignment != 0 {
                return bad(format_args!(
                    "{offset} is not a multiple of the alignment {alignment}"
                ));
            }
            // If the type's size is unknown, at least the first byte must exist.
            let len = entry.bytes.unwrap_or(1);
            let range = self
                .data_start
                .checked_add(offset)
                .and_then(|start| Some((start, start.checked_add(len)?)));
            match range {
                Some((start, end)) if end <= file_len => ranges.push((start, end)),
                _ => {
                    return bad(format_args!(
                        "{len} bytes from byte {} + {offset} on reach past the end of the file at \
                         byte {file_len}{BROKEN_OFF}",
                        self.data_start
                    ));
                }
            }
        }
        ranges.sort_unstable();
        match ranges.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            Some(pair) => Err(self.overlap(cursor, pair[1].0)),
            None => Ok(()),
        }
    }

    /// Returns the error for tensors that overlap at byte `start` of the file. It names the last
    /// tensor that begins there.
    fn overlap(&self, mut cursor: Cursor<'_>, start: u64) -> Error {
        for (i, &at) in self.tensors.in_order.iter().enumerate().rev() {
            cursor.at = at;
            match Entry::read(&mut cursor, i) {
                Ok(entry) if self.data_start + entry.offset == start => {
                    let problem = format_args!("byte {start} of the file is another tensor's too");
                    return cursor.bad("data offset", entry.offset_at, problem);
                }
                Ok(_) => {}
                Err(error) => return error,
            }
        }
        broken_invariant("a tensor that overlaps has lost its entry")
    }
}

fn magic(cursor: &mut Cursor<'_>) -> Result<()> {
    let start = cursor.bytes.get(..4).unwrap_or(cursor.bytes);
    if !b"GGUF".starts_with(start) || start.is_empty() {
        return Err(match foreign::recognise(cursor.bytes, cursor.file) {
            Some(found) => cursor.bad("magic", 0, found),
            None => {
                let start = start.escape_ascii();
                cursor.bad("magic", 0, format_args!("\"{start}\" is not \"GGUF\""))
            }
        });
    }
    cursor.take(4, "magic").map(drop)
}

fn version(cursor: &mut Cursor<'_>) -> Result<u32> {
    let at = cursor.at;
    let version = cursor.u32("version")?;
    let problem = match version {
        2 | 3 => return Ok(version),
        1 => "1 (with counts of 32 bits) is not read: 2 and 3 are; convert the model again"
            .to_owned(),
        v if (1..=3).contains(&v.swap_bytes()) => {
            format!(
                "{v:#010x} is a version {} in a big-endian file, which is not read: take the \
                 little-endian file, or convert this one with gguf-py's gguf_convert_endian.py",
                v.swap_bytes()
            )
        }
        v => format!("{v} is not read: 2 and 3 are"),
    };
    Err(cursor.bad("version", at, problem))
}

/// Validates `count` metadata entries, and returns their offsets.
fn keys(cursor: &mut Cursor<'_>, count: usize) -> Result<Names> {
    let mut offsets = Vec::with_capacity(cursor.capacity(count, LEAST_KEY));
    for i in 0..count {
        cursor.subject = Subject::Key(i, None);
        offsets.push(cursor.at);
        let key = cursor.name("key")?;
        cursor.subject = Subject::Key(i, Some(key));
        Value::read(cursor)?;
    }
    Names::new(cursor.bytes, offsets).map_err(|at| duplicate(cursor, "key", at))
}

/// Validates `count` tensor entries, except for their ranges, and returns their offsets.
fn tensors(cursor: &mut Cursor<'_>, count: usize) -> Result<Names> {
    let mut offsets = Vec::with_capacity(cursor.capacity(count, LEAST_TENSOR));
    for i in 0..count {
        offsets.push(cursor.at);
        Entry::read(cursor, i)?;
    }
    Names::new(cursor.bytes, offsets).map_err(|at| duplicate(cursor, "tensor name", at))
}

fn duplicate(cursor: &Cursor<'_>, field: &str, at: usize) -> Error {
    let name = String::from_utf8_lossy(name_at(cursor.bytes, at));
    let mut cursor = cursor.clone();
    cursor.subject = Subject::Header;
    cursor.bad(field, at, format_args!("{} is there twice", Quoted(&name)))
}

/// Returns the alignment of tensors: the value in the file, or 32.
fn alignment(cursor: &Cursor<'_>, keys: &Names) -> Result<u64> {
    let Some(at) = keys.find(cursor.bytes, ALIGNMENT_KEY) else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    let mut cursor = cursor.clone();
    cursor.subject = Subject::Key(0, Some(ALIGNMENT_KEY));
    cursor.at = at;
    cursor.name("key")?;
    let at = cursor.at;
    match Value::read(&mut cursor)? {
        Value::U32(n) if n.is_power_of_two() && (8..=65_536).contains(&n) => Ok(n.into()),
        Value::U32(n) => {
            let problem = format_args!("{n} is not a power of two from 8 to 65536");
            Err(cursor.bad("value", at + 4, problem))
        }
        other => Err(cursor.bad("value type", at, format_args!("{}, should be u32", other.kind()))),
    }
}
