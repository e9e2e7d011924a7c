//! Reads entries of the tensor table, with the help of a table of ggml's types.

use std::fmt;
use std::sync::Arc;

use super::cursor::{Cursor, Subject};
use warploom_core::base::{DType, Format};
use warploom_core::error::{Error, Result};
use warploom_core::quant::i2_s;

/// Maximum rank of a tensor, as in ggml.
const MAX_DIMS: usize = 4;

/// A tensor type of ggml: its size in files, and the storage format that it corresponds to.
struct Type {
    number: u32,
    name: &'static str,
    /// Elements of a block, along the innermost dimension.
    block_len: u64,
    /// Bytes of a block.
    block_bytes: u64,
    /// Bytes after the blocks of a tensor.
    tail: u64,
    /// The format, if this crate decodes it.
    format: Option<Format>,
}

const fn ours(number: u32, format: Format) -> Type {
    Type {
        number,
        name: format.name(),
        block_len: format.block_len(),
        block_bytes: format.block_bytes(),
        tail: 0,
        format: Some(format),
    }
}

/// Returns BitNet's type I2_S. Its layout in files differs from that in memory: the scale follows
/// the blocks.
const fn i2_s(number: u32) -> Type {
    let block_bytes = i2_s::FILE_BYTES as u64;
    Type { block_bytes, tail: i2_s::FILE_TAIL as u64, ..ours(number, Format::I2S) }
}

const fn known(number: u32, name: &'static str, block_len: u64, block_bytes: u64) -> Type {
    Type { number, name, block_len, block_bytes, tail: 0, format: None }
}

/// All known types, by number. 4, 5, 31 to 33 and 36 to 38 were removed from ggml. 36 is I2_S in
/// files of microsoft/BitNet, the only known files with that number: ggml's own iq4_nl_4_4 existed
/// only in memory. BitNet's tl2 shares the number of mxfp4 but has fewer bytes, so the checks of
/// the file's end and of overlaps refuse it.
static TYPES: [Type; 35] = [
    ours(0, Format::F32),
    ours(1, Format::Plain(DType::F16)),
    ours(2, Format::Q4_0),
    ours(3, Format::Q4_1),
    ours(6, Format::Q5_0),
    ours(7, Format::Q5_1),
    ours(8, Format::Q8_0),
    known(9, "q8_1", 32, 40),
    ours(10, Format::Q2K),
    ours(11, Format::Q3K),
    ours(12, Format::Q4K),
    ours(13, Format::Q5K),
    ours(14, Format::Q6K),
    known(15, "q8_k", 256, 292),
    known(16, "iq2_xxs", 256, 66),
    known(17, "iq2_xs", 256, 74),
    known(18, "iq3_xxs", 256, 98),
    known(19, "iq1_s", 256, 50),
    ours(20, Format::IQ4NL),
    known(21, "iq3_s", 256, 110),
    known(22, "iq2_s", 256, 82),
    ours(23, Format::IQ4XS),
    known(24, "i8", 1, 1),
    known(25, "i16", 1, 2),
    ours(26, Format::Plain(DType::I32)),
    known(27, "i64", 1, 8),
    known(28, "f64", 1, 8),
    known(29, "iq1_m", 256, 56),
    ours(30, Format::Plain(DType::BF16)),
    ours(34, Format::TQ1_0),
    ours(35, Format::TQ2_0),
    i2_s(36),
    ours(39, Format::MXFP4),
    known(40, "nvfp4", 64, 36),
    known(41, "q1_0", 128, 18),
];

/// Returns a hint about a type number that is not in [`TYPES`].
fn hint(number: u32) -> &'static str {
    match number {
        31..=33 => {
            " (q4_0 reordered for one processor, removed from ggml: convert the file again to q4_0)"
        }
        37 => " (i8_s of microsoft/BitNet)",
        38 => " (tl1 of microsoft/BitNet, made for one processor: convert the file again to i2_s)",
        _ => "",
    }
}

/// Returns the type number of a format, or `None` if files cannot store the format in its memory
/// layout.
pub(super) fn number_of(format: Format) -> Option<u32> {
    TYPES.iter().find(|t| t.format == Some(format) && t.tail == 0).map(|t| t.number)
}

fn type_of(number: u32) -> Option<&'static Type> {
    TYPES.iter().find(|t| t.number == number)
}

/// A validated entry of the tensor table.
pub(super) struct Entry<'a> {
    name: &'a str,
    /// Sizes, innermost first as in the file.
    dims: [u64; MAX_DIMS],
    rank: usize,
    elements: u64,
    type_number: u32,
    /// Size of the data in bytes, if the size of the type is known.
    pub(super) bytes: Option<u64>,
    /// Offset from the start of the data section.
    pub(super) offset: u64,
    /// File offset of the `offset` field.
    pub(super) offset_at: usize,
}

impl<'a> Entry<'a> {
    /// Reads entry `index` (used in errors) and validates all but the range of its data.
    pub(super) fn read(cursor: &mut Cursor<'a>, index: usize) -> Result<Entry<'a>> {
        cursor.subject = Subject::Tensor(index, None);
        let name = cursor.name("tensor name")?;
        cursor.subject = Subject::Tensor(index, Some(name));

        let at = cursor.at;
        let rank = cursor.u32("dimension count")?;
        let rank = usize::try_from(rank).ok().filter(|&r| r <= MAX_DIMS).ok_or_else(|| {
            cursor.bad(
                "dimension count",
                at,
                format_args!("{rank}, at most {MAX_DIMS} are allowed"),
            )
        })?;

        let (mut dims, mut elements) = ([1; MAX_DIMS], 1u64);
        for dim in &mut dims[..rank] {
            let at = cursor.at;
            *dim = cursor.u64("dimension")?;
            if *dim == 0 {
                return Err(cursor.bad("dimension", at, "0 elements"));
            }
            // Up to i64::MAX elements, as in ggml, so that signed arithmetic is safe as well.
            elements = elements
                .checked_mul(*dim)
                .filter(|n| i64::try_from(*n).is_ok())
                .ok_or_else(|| {
                    cursor.bad("dimension", at, format_args!("{dim} gives 2^63 elements or more"))
                })?;
        }

        let at = cursor.at;
        let type_number = cursor.u32("tensor type")?;
        let bytes = match type_of(type_number) {
            None => None,
            Some(t) if !dims[0].is_multiple_of(t.block_len) => {
                let problem = format_args!(
                    "{} needs rows of whole blocks of {}, a row has {} elements",
                    t.name, t.block_len, dims[0]
                );
                return Err(cursor.bad("tensor type", at, problem));
            }
            Some(t) => {
                let blocks = (elements / t.block_len).checked_mul(t.block_bytes);
                Some(blocks.and_then(|n| n.checked_add(t.tail)).ok_or_else(|| {
                    let problem = format_args!("{elements} elements of {} overflow", t.name);
                    cursor.bad("tensor type", at, problem)
                })?)
            }
        };

        let offset_at = cursor.at;
        let offset = cursor.u64("data offset")?;
        Ok(Entry { name, dims, rank, elements, type_number, bytes, offset, offset_at })
    }
}

/// A tensor of a [`Gguf`](super::Gguf): name, shape, type, and location of its bytes.
#[derive(Clone)]
pub struct TensorInfo {
    pub(super) file: Arc<str>,
    name: String,
    dims: [u64; MAX_DIMS],
    rank: usize,
    elements: u64,
    type_number: u32,
    bytes: Option<u64>,
    file_offset: u64,
}

impl TensorInfo {
    pub(super) fn new(entry: &Entry<'_>, file: &Arc<str>, data_start: u64) -> TensorInfo {
        let mut dims = entry.dims;
        dims[..entry.rank].reverse();
        TensorInfo {
            file: file.clone(),
            name: entry.name.to_owned(),
            dims,
            rank: entry.rank,
            elements: entry.elements,
            type_number: entry.type_number,
            bytes: entry.bytes,
            file_offset: data_start.saturating_add(entry.offset),
        }
    }

    /// Returns the name of the tensor.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the shape, outermost dimension first (files store the innermost first); empty for a
    /// scalar.
    ///
    /// A matrix `[rows, columns]` is row-major; blocks of a quantised format run along a row.
    pub fn shape(&self) -> &[u64] {
        &self.dims[..self.rank]
    }

    /// Returns the number of elements, less than 2^63.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Returns the storage format.
    ///
    /// # Errors
    /// Unsupported, naming tensor and type, if this crate does not decode the type.
    pub fn format(&self) -> Result<Format> {
        type_of(self.type_number).and_then(|t| t.format).ok_or_else(|| self.unsupported())
    }

    /// Returns ggml's number for the type.
    pub fn type_number(&self) -> u32 {
        self.type_number
    }

    /// Returns ggml's lowercase name for the type, such as `q4_k` or `iq2_xxs`, if it is known.
    pub fn type_name(&self) -> Option<&'static str> {
        type_of(self.type_number).map(|t| t.name)
    }

    /// Returns the size of the data in bytes, if the size of the type is known.
    pub fn byte_len(&self) -> Option<u64> {
        self.bytes
    }

    /// Returns the file offset of the data in bytes.
    pub fn file_offset(&self) -> u64 {
        self.file_offset
    }

    pub(super) fn unsupported(&self) -> Error {
        Error::unsupported(format!(
            "{}: tensor `{}` has ggml type {} ({}), which is not supported{}",
            self.file,
            self.name,
            self.type_number,
            self.type_name().unwrap_or("unknown"),
            hint(self.type_number)
        ))
    }
}

impl fmt::Debug for TensorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.type_name().unwrap_or("unknown type");
        write!(f, "`{}` {kind} {:?} at byte {}", self.name, self.shape(), self.file_offset)
    }
}
