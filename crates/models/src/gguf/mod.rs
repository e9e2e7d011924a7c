//! Reads GGUF containers, versions 2 and 3, little endian: metadata and where the tensors lie; and
//! writes them ([`Writer`]).
//!
//! A file is hostile until proven otherwise. Opening checks everything once: every count and
//! length against the bytes that are left before anything is allocated, every sum and product for
//! overflow, every tensor's bytes against the file and against each other. What was checked (the
//! head: metadata and tensor table) is then copied and read again from the copy, so that a mapped
//! file which changes later cannot make a checked number lie. No allocation is larger than the
//! file. Every refusal says file, field and byte offset ([`Error::is_bad_file`]).
//!
//! The head is parsed in place: an index holds only offsets, in file order and by name, and
//! values are read when asked for, so a vocabulary of 150,000 strings costs no allocation.
//!
//! Opening asks nothing of the tensors' types. A type that this crate does not decode is an error
//! only where [`TensorInfo::format`] is asked for it. A model that is cut into several files is
//! opened by its first ([`Gguf::join`]). Knows no model and no device.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use warploom_core::base::Format;
use warploom_core::error::{Error, Result, broken_invariant};
use warploom_core::quant;

mod cursor;
pub mod foreign;
mod index;
#[cfg(not(target_arch = "wasm32"))]
mod joined;
mod metadata;
#[cfg(not(target_arch = "wasm32"))]
mod open;
mod split;
mod tensor;
mod value;
mod write;

pub use metadata::{Floats, Integers, Strings};
pub use tensor::TensorInfo;
pub use value::{Array, Items, Kind, Value};
pub use write::{TensorWriter, Writer};

use cursor::Cursor;
use index::Index;

/// How `Gguf::open` gets at the bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Maps the file into memory: opening costs nothing, the system loads what is touched.
    ///
    /// For files that are trusted not to change while they are open. A file that is shortened
    /// then ends the process with a bus error at the next touch of a missing page, and one that is
    /// overwritten changes the weights; no reader of a mapped file can prevent either. The
    /// metadata is copied and stays as it was checked.
    Mmap,
    /// Reads the whole file into memory; what happens to the file afterwards does not matter.
    Copy,
}

/// An open GGUF file.
pub struct Gguf {
    name: Arc<str>,
    data: Box<dyn AsRef<[u8]> + Send + Sync>,
    /// The checked bytes before the tensors' data: header, metadata, tensor table.
    head: Vec<u8>,
    index: Index,
    /// The other parts, where the model is cut into several files.
    rest: Vec<Gguf>,
}

impl Gguf {
    /// Reads a file that is in memory already: a `Vec<u8>`, an `Arc<[u8]>`, a `&'static [u8]`.
    ///
    /// `name` stands for the file in errors. `data` must give the same bytes each time.
    ///
    /// # Errors
    /// Bad file, naming field and byte offset, if it is not valid GGUF.
    pub fn from_bytes(data: impl AsRef<[u8]> + Send + Sync + 'static, name: &str) -> Result<Gguf> {
        let bytes = data.as_ref();
        let file_len = bytes.len() as u64;
        let first = Index::parse(name, bytes, file_len)?;
        // Checked once more from a copy, which nobody else can change.
        let head = bytes[..first.head_len].to_vec();
        drop(first);
        let index = Index::parse(name, &head, file_len)?;
        Ok(Gguf { name: name.into(), data: Box::new(data), head, index, rest: Vec::new() })
    }

    /// The file's name, as errors give it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The container's version: 2 or 3.
    pub fn version(&self) -> u32 {
        self.index.version
    }

    /// The alignment of tensors in the file, bytes.
    pub fn alignment(&self) -> u64 {
        self.index.alignment
    }

    /// Bytes of the whole file; of all parts, where they were joined.
    pub fn file_bytes(&self) -> u64 {
        self.parts().map(|part| (*part.data).as_ref().len() as u64).sum()
    }

    /// Bytes of all tensors whose type's size is known, without padding.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors().filter_map(|info| info.byte_len()).sum()
    }

    /// Number of tensors.
    pub fn tensor_count(&self) -> usize {
        self.parts().map(|part| part.index.tensors.in_order.len()).sum()
    }

    /// The tensors, in the file's order; those of the first part first.
    pub fn tensors(&self) -> impl Iterator<Item = TensorInfo> + '_ {
        self.parts()
            .flat_map(|part| part.index.tensors.in_order.iter().map(|&at| part.tensor_at(at)))
    }

    /// The tensor of this name, if the file has it.
    pub fn find_tensor(&self, name: &str) -> Option<TensorInfo> {
        self.parts()
            .find_map(|part| part.index.tensors.find(&part.head, name).map(|at| part.tensor_at(at)))
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// Bad file if it is not there.
    pub fn tensor(&self, name: &str) -> Result<TensorInfo> {
        self.find_tensor(name)
            .ok_or_else(|| Error::bad_file(format!("{}: no tensor `{name}`", self.name)))
    }

    /// The bytes of a tensor as they are in this file.
    ///
    /// # Errors
    /// Unsupported if the size of its type is unknown, invalid if the tensor is another file's.
    pub fn bytes(&self, info: &TensorInfo) -> Result<&[u8]> {
        let Some(part) = self.part_of(info) else {
            return Err(Error::invalid(format!(
                "tensor `{}` of {} was asked of {}",
                info.name(),
                info.file,
                self.name
            )));
        };
        let len = info.byte_len().ok_or_else(|| info.unsupported())?;
        let data = (*part.data).as_ref();
        // Opening checked the range; only bytes that changed under us can fail here.
        let range = usize::try_from(info.file_offset())
            .ok()
            .zip(usize::try_from(len).ok())
            .and_then(|(start, len)| data.get(start..start.checked_add(len)?));
        range.ok_or_else(|| {
            Error::bad_file(format!(
                "{}: tensor `{}` at byte {}: the file became shorter than {len} bytes from there",
                part.name,
                info.name(),
                info.file_offset()
            ))
        })
    }

    /// The blocks of a tensor of this file in its [`TensorInfo::format`]: the file's own bytes,
    /// but for BitNet's I2_S, whose one scale is repeated in each block.
    ///
    /// # Errors
    /// Unsupported if this crate does not decode its type, bad file if I2_S holds what is none,
    /// invalid if the tensor is another file's.
    pub fn weights(&self, info: &TensorInfo) -> Result<Cow<'_, [u8]>> {
        let (format, bytes) = (info.format()?, self.bytes(info)?);
        if format != Format::I2S {
            return Ok(Cow::Borrowed(bytes));
        }
        let blocks = quant::i2_s::from_file(bytes).map_err(|e| {
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
