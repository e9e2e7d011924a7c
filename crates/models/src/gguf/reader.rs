//! Bytes of a file, in memory or read on demand.

use std::borrow::Cow;
use std::cell::Cell;

use super::index::Index;
use super::{Gguf, foreign, joined};
use warploom_core::error::{Error, Result};

/// Bytes of the first read of a file; enough for [`foreign`](super::foreign) to recognise other
/// formats.
const FIRST_READ: u64 = 256 << 10;

/// A file that is read on demand, such as a file in a browser. Implementations must return the same
/// bytes for the same offset every time.
pub trait ReadAt {
    /// Returns the size of the file in bytes.
    fn size(&self) -> u64;

    /// Reads exactly `into.len()` bytes from byte `offset` on.
    ///
    /// # Errors
    /// Io if the bytes cannot be read.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()>;
}

/// Where the bytes of a file are.
pub(super) enum Data {
    /// In memory.
    Bytes(Box<dyn AsRef<[u8]> + Send + Sync>),
    /// Behind a reader.
    Reader(Box<dyn ReadAt + Send + Sync>),
}

impl Data {
    /// Returns the size of the file in bytes.
    pub(super) fn len(&self) -> u64 {
        match self {
            Data::Bytes(bytes) => (**bytes).as_ref().len() as u64,
            Data::Reader(reader) => reader.size(),
        }
    }

    /// Returns `len` bytes from byte `offset` on, or `None` if the file is shorter. `name` is the
    /// file name in errors.
    ///
    /// # Errors
    /// Io, naming file and offset, if the reader fails; out of memory if the bytes do not fit.
    pub(super) fn part(&self, name: &str, offset: u64, len: u64) -> Result<Option<Cow<'_, [u8]>>> {
        if offset.checked_add(len).is_none_or(|end| end > self.len()) {
            return Ok(None);
        }
        match self {
            Data::Bytes(bytes) => Ok(slice((**bytes).as_ref(), offset, len).map(Cow::Borrowed)),
            Data::Reader(reader) => {
                let mut bytes = Vec::new();
                grow(&**reader, name, offset, len, &mut bytes)?;
                Ok(Some(Cow::Owned(bytes)))
            }
        }
    }
}

/// Returns a range of bytes, or `None` if it is not inside.
pub(super) fn slice(bytes: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let (start, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
    bytes.get(start..start.checked_add(len)?)
}

/// Appends bytes of a file, from byte `offset` on, until `bytes` holds `len` of them.
fn grow(reader: &dyn ReadAt, name: &str, offset: u64, len: u64, bytes: &mut Vec<u8>) -> Result<()> {
    let have = bytes.len();
    let wanted = usize::try_from(len).ok();
    let room = wanted.filter(|&len| bytes.try_reserve_exact(len - have).is_ok());
    let Some(wanted) = room else {
        let what = format_args!("bytes of {name} from byte {offset} on");
        return Err(Error::out_of_memory(what, len, 0));
    };
    bytes.resize(wanted, 0);
    let at = offset + have as u64;
    let count = wanted - have;
    reader
        .read_at(at, &mut bytes[have..])
        .map_err(|e| e.context(format_args!("{name}: reading {count} bytes at byte {at}")))
}

impl Gguf {
    /// Opens a file through a reader. Metadata and tensor table are read at once, the bytes of a
    /// tensor when they are requested ([`Gguf::part`]), so that memory stays small whatever the
    /// size of the file.
    ///
    /// `name` is the file name in errors.
    ///
    /// # Errors
    /// Io, naming file and byte offset, if the reader fails; out of memory if the metadata does not
    /// fit; bad file, naming field and byte offset, if the file is not valid GGUF, or if another
    /// GGUF file is appended to it.
    pub fn from_reader(reader: impl ReadAt + Send + Sync + 'static, name: &str) -> Result<Gguf> {
        let size = reader.size();
        let mut head = Vec::new();
        let mut want = FIRST_READ.min(size);
        let index = loop {
            grow(&reader, name, 0, want, &mut head)?;
            let short = Cell::new(0);
            match Index::parse_start(name, &head, size, &short) {
                Ok(index) => break index,
                Err(error) if short.get() == 0 => return Err(foreign::with_hint(name, error)),
                // The head is longer than what was read. Doubling keeps the number of reads small.
                Err(_) => want = short.get().max(want.saturating_mul(2)).min(size),
            }
        };
        head.truncate(index.head_len);
        head.shrink_to_fit();
        let data = Data::Reader(Box::new(reader));
        let file = Gguf { name: name.into(), data, head, index, rest: Vec::new() };
        joined::refuse_joined(&file)?;
        Ok(file)
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
