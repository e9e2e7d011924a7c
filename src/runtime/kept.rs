//! Small files about devices that are kept from run to run: never half written, never trusted.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use crate::engine::DriverKey;
use crate::error::{Error, Result};

/// This crate's: another version may have mended an engine, or broken it.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A name for a file about a driver and this version of the crate.
pub(super) fn stem(device: &DriverKey) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in [VERSION, &device.provider, &device.vendor, &device.name, &device.driver] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    format!("{}-{}", device.provider, &hasher.finalize().to_hex()[..16])
}

/// Bad file, with its name and what is wrong.
pub(super) fn bad(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::bad_file(format!("{}: {what}", path.display()))
}

/// An error of the system about a file.
pub(super) fn io(action: &str, path: &Path, error: std::io::Error) -> Error {
    Error::io(format!("cannot {action} {}", path.display()), error)
}

/// The bytes of a file; `None` where there is none.
///
/// # Errors
/// Bad file, where it is larger than `most` bytes or cannot be read.
pub(super) fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>> {
    match File::open(path) {
        Ok(file) => read_open(&file, path, most).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(bad(path, error)),
    }
}

/// What follows in a file that is open: where it is locked, some systems let only who holds the
/// lock read it, and by the handle that holds it.
///
/// # Errors
/// As [`read`].
pub(super) fn read_open(file: &File, path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| bad(path, e))?;
    match bytes.len() as u64 > most {
        true => Err(bad(path, format!("more than {most} bytes"))),
        false => Ok(bytes),
    }
}

/// Writes a file beside its place, down to the disk, and renames it there: a reader sees the old
/// file or the new one. Two that write at once take different names for `draft`, or a lock.
///
/// # Errors
/// What the system says.
pub(super) fn write(path: &Path, draft: &str, bytes: &[u8]) -> Result<()> {
    let failed = |e| io("write", path, e);
    fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(failed)?;
    let draft: PathBuf = path.with_extension(draft);
    let whole = File::create(&draft).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let written = whole.and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written.map_err(failed)
}

/// Removes a file; whether there was one.
///
/// # Errors
/// What the system says.
pub(super) fn remove(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io("remove", path, error)),
    }
}
