//! Reads GGUF files, versions 2 and 3, little-endian: metadata and tensor locations. [`Writer`]
//! writes them.
//!
//! Files are untrusted. Opening a file validates everything once: every count and length against
//! the bytes left (before any allocation), every sum and product for overflow, and every tensor's
//! range against the file and the other tensors. The validated head (metadata and tensor table) is
//! copied, and later reads use the copy, so that a change to a mapped file cannot invalidate the
//! checks. No allocation is larger than the file. Every error names file, field and byte offset
//! ([`Error::is_bad_file`]).
//!
//! The head is parsed in place: the index holds only offsets, in file order and by name, and values
//! are read on access, so a vocabulary of 150,000 strings needs no allocation.
//!
//! Files with tensors of any type can be opened: a type that this crate does not decode is an error
//! only in [`TensorInfo::format`]. A split model is opened through its first file ([`Gguf::join`]). A
//! file that should not be in memory as a whole is opened through a reader ([`Gguf::from_reader`]).

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use warploom_core::base::Format;
use warploom_core::error::{Error, Result, broken_invariant};
use warploom_core::quant;

mod cursor;
pub mod foreign;
mod index;
mod joined;
mod metadata;
#[cfg(not(target_arch = "wasm32"))]
mod open;
mod reader;
mod split;
mod tensor;
mod value;
mod write;

pub use metadata::{Floats, Integers, Strings};
pub use reader::ReadAt;
pub use tensor::TensorInfo;
pub use value::{Array, Items, Kind, Value};
pub use write::{TensorWriter, Writer};

use cursor::Cursor;
use index::Index;
use reader::Data;

/// How `Gguf::open` accesses the bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Maps the file into memory: only the metadata is copied, and pages are loaded on access.
    ///
    /// Use this only for files that do not change while they are open. If the file is truncated,
    /// the next access to a missing page ends the process with a bus error; if it is overwritten,
    /// the weights change. No reader of a mapped file can prevent either. The metadata is a copy
    /// and stays as validated.
    Mmap,
    /// Reads the whole file into memory; later changes to the file have no effect.
    Copy,
}

/// An open GGUF file.
pub struct Gguf {
    name: Arc<str>,
    data: Data,
    /// Validated copy of the bytes before the tensors' data: header, metadata, tensor table.
    head: Vec<u8>,
    index: Index,
    /// The other parts of a split model.
    rest: Vec<Gguf>,
}

impl Gguf {
    /// Reads a file from memory, such as a `Vec<u8>`, an `Arc<[u8]>` or a `&'static [u8]`.
    ///
    /// `name` is the file name in errors. `data.as_ref()` must return the same bytes every time.
    ///
    /// # Errors
    /// Bad file, naming field and byte offset, if the file is not valid GGUF.
    pub fn from_bytes(data: impl AsRef<[u8]> + Send + Sync + 'static, name: &str) -> Result<Gguf> {
        let bytes = data.as_ref();
        let file_len = bytes.len() as u64;
        let first = Index::parse(name, bytes, file_len)?;
        // Validated again on a copy, which cannot change.
        let head = bytes[..first.head_len].to_vec();
        drop(first);
        let index = Index::parse(name, &head, file_len)?;
        let data = Data::Bytes(Box::new(data));
        Ok(Gguf { name: name.into(), data, head, index, rest: Vec::new() })
    }

    /// Returns the file name used in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the version of the GGUF format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.index.version
    }

    /// Returns the alignment of tensors in the file, in bytes.
    pub fn alignment(&self) -> u64 {
        self.index.alignment
    }

    /// Returns the size of the file in bytes; for a joined model, the total of its parts.
    pub fn file_bytes(&self) -> u64 {
        self.parts().map(|part| part.data.len()).sum()
    }

    /// Returns the total size in bytes, without padding, of all tensors of a type with a known
    /// size.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors().filter_map(|info| info.byte_len()).sum()
    }

    /// Returns the number of tensors.
    pub fn tensor_count(&self) -> usize {
        self.parts().map(|part| part.index.tensors.in_order.len()).sum()
    }

    /// Returns an iterator over the tensors in file order, first part first.
    pub fn tensors(&self) -> impl Iterator<Item = TensorInfo> + '_ {
        self.parts()
            .flat_map(|part| part.index.tensors.in_order.iter().map(|&at| part.tensor_at(at)))
    }

    /// Returns the tensor with this name, if it exists.
    pub fn find_tensor(&self, name: &str) -> Option<TensorInfo> {
        self.parts()
            .find_map(|part| part.index.tensors.find(&part.head, name).map(|at| part.tensor_at(at)))
    }

    /// Returns the tensor with this name.
    ///
    /// # Errors
    /// Bad file if it does not exist.
    pub fn tensor(&self, name: &str) -> Result<TensorInfo> {
        self.find_tensor(name)
            .ok_or_else(|| Error::bad_file(format!("{}: no tensor `{name}`", self.name)))
    }

    /// Returns the raw bytes of a tensor of a file in memory.
    ///
    /// # Errors
    /// Unsupported if the size of its type is unknown, or if the file was opened with
    /// [`Gguf::from_reader`] (use [`Gguf::part`] instead); invalid if the tensor belongs to a
    /// different file; bad file if the file has become too short.
    pub fn bytes(&self, info: &TensorInfo) -> Result<&[u8]> {
        let (part, len) = self.place_of(info)?;
        match &part.data {
            Data::Bytes(bytes) => reader::slice((**bytes).as_ref(), info.file_offset(), len)
                .ok_or_else(|| part.too_short(info, info.file_offset(), len)),
            Data::Reader(_) => Err(Error::unsupported(format!(
                "{}: tensor `{}` at byte {} is not in memory: the file is read in parts",
                part.name,
                info.name(),
                info.file_offset()
            ))),
        }
    }

    /// Returns `range` of the raw bytes of a tensor: borrowed if the file is in memory, otherwise
    /// read.
    ///
    /// # Errors
    /// Unsupported if the size of its type is unknown; invalid if the tensor belongs to a different
    /// file or is shorter; bad file if the file has become too short; io, naming file and byte
    /// offset, if a reader fails; out of memory if the bytes do not fit.
    pub fn part(&self, info: &TensorInfo, range: Range<u64>) -> Result<Cow<'_, [u8]>> {
        let (part, len) = self.place_of(info)?;
        if range.start > range.end || range.end > len {
            return Err(Error::invalid(format!(
                "{}: bytes {range:?} of tensor `{}`, which has {len}",
                part.name,
                info.name()
            )));
        }
        let (at, len) = (info.file_offset() + range.start, range.end - range.start);
        let bytes = part.data.part(&part.name, at, len);
        let bytes = bytes.map_err(|e| e.context(format_args!("tensor `{}`", info.name())))?;
        bytes.ok_or_else(|| part.too_short(info, at, len))
    }

    /// Returns the part of the model that contains a tensor, and the size of the tensor in bytes.
    fn place_of(&self, info: &TensorInfo) -> Result<(&Gguf, u64)> {
        let Some(part) = self.part_of(info) else {
            return Err(Error::invalid(format!(
                "tensor `{}` of {} was asked of {}",
                info.name(),
                info.file,
                self.name
            )));
        };
        Ok((part, info.byte_len().ok_or_else(|| info.unsupported())?))
    }

    /// Returns the error for a file that has shrunk since it was opened, which validated the range.
    fn too_short(&self, info: &TensorInfo, at: u64, len: u64) -> Error {
        Error::bad_file(format!(
            "{}: tensor `{}` at byte {at}: the file became shorter than {len} bytes from there",
            self.name,
            info.name()
        ))
    }

    /// Returns the blocks of a tensor in its [`TensorInfo::format`]. They are the bytes of the
    /// file, except for BitNet's I2_S: its single scale is repeated in every block.
    ///
    /// # Errors
    /// Same as [`Gguf::part`], and also unsupported if this crate does not decode the type, and
    /// bad file if I2_S data is not valid.
    pub fn weights(&self, info: &TensorInfo) -> Result<Cow<'_, [u8]>> {
        let (format, len) = (info.format()?, info.byte_len().unwrap_or(0));
        let bytes = self.part(info, 0..len)?;
        if format != Format::I2S {
            return Ok(bytes);
        }
        let blocks = quant::i2_s::from_file(&bytes).map_err(|e| {
            let (name, at) = (info.name(), info.file_offset());
            e.context(format_args!("{}: tensor `{name}` at byte {at}", info.file))
        })?;
        Ok(Cow::Owned(blocks))
    }

    fn tensor_at(&self, at: usize) -> TensorInfo {
        let mut cursor = Cursor::new(&self.name, &self.head);
        cursor.at = at;
        match tensor::Entry::read(&mut cursor, 0) {
            Ok(entry) => TensorInfo::new(&entry, &self.name, self.index.data_start),
            Err(error) => broken_invariant(format!("a checked tensor entry: {error}")),
        }
    }
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gguf")
            .field("name", &self.name)
            .field("version", &self.index.version)
            .field("keys", &self.index.keys.in_order.len())
            .field("tensors", &self.tensor_count())
            .field("parts", &(1 + self.rest.len()))
            .field("file_bytes", &self.file_bytes())
            .finish()
    }
}
