//! Opens files by path; not available in browsers.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{Access, Gguf, foreign, joined, split};
use warploom_core::error::{Error, Result};

impl Gguf {
    /// Opens a file. The first part of a split model, `name-00001-of-00003.gguf`, is opened with
    /// the other parts in its folder.
    ///
    /// # Errors
    /// Io if the file or another part cannot be opened or read; bad file, naming field and byte
    /// offset, if one is not a regular file or not valid GGUF; out of memory if a requested copy
    /// does not fit. Also the errors of [`Gguf::join`].
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Gguf> {
        let path = path.as_ref();
        let first = Gguf::open_one(path, access)?;
        joined::refuse_joined(&first)?;
        let others = split::others(path, &first, |path| Gguf::open_one(path, access))?;
        match others.is_empty() {
            true => Ok(first),
            false => Gguf::join(std::iter::once(first).chain(others).collect()),
        }
    }

    fn open_one(path: &Path, access: Access) -> Result<Gguf> {
        let name = path.display().to_string();
        let io = |action: &str, e| Error::io(format!("{name}: cannot {action} it"), e);

        // Checked before opening, because opening a pipe would block.
        let metadata = std::fs::metadata(path).map_err(|e| io("find", e))?;
        if !metadata.is_file() {
            return Err(Error::bad_file(format!("{name}: not a regular file")));
        }
        let file = File::open(path).map_err(|e| io("open", e))?;
        let opened = match access {
            Access::Mmap => {
                // SAFETY: the mapping is private to this value and only read. That the file does
                // not change under it is the condition that `Access::Mmap` states; everything
                // that is relied upon after the check is copied out first.
                let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| io("map", e))?;
                Gguf::from_bytes(map, &name)
            }
            Access::Copy => Gguf::from_bytes(read(file, metadata.len(), &name, io)?, &name),
        };
        opened.map_err(|error| foreign::with_hint(&name, error))
    }
}

/// Reads exactly `len` bytes of a file, even if it grows in the meantime.
fn read(
    file: File,
    len: u64,
    name: &str,
    io: impl Fn(&str, std::io::Error) -> Error,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let room = usize::try_from(len).ok().filter(|&len| bytes.try_reserve_exact(len).is_ok());
    if room.is_none() {
        return Err(Error::out_of_memory(format_args!("a copy of {name}"), len, 0));
    }
    file.take(len).read_to_end(&mut bytes).map_err(|e| io("read", e))?;
    if bytes.len() as u64 != len {
        let found = bytes.len();
        return Err(Error::bad_file(format!("{name}: had {len} bytes, reading gave only {found}")));
    }
    Ok(bytes)
}
