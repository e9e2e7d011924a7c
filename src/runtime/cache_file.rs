//! Small per-device files kept between runs. Writes are atomic and reads are validated.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use crate::engine::DriverKey;
use crate::error::{Error, Result};

/// The crate version. A different version may have fixed or broken an engine.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the file stem for a driver and this version of the crate.
pub(super) fn stem(device: &DriverKey) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in [VERSION, &device.provider, &device.vendor, &device.name, &device.driver] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    format!("{}-{}", device.provider, &hasher.finalize().to_hex()[..16])
}

/// Returns a bad-file error with the file's path and the problem.
pub(super) fn bad(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::bad_file(format!("{}: {what}", path.display()))
}

/// Returns an I/O error with the attempted action and the file's path.
pub(super) fn io(action: &str, path: &Path, error: std::io::Error) -> Error {
    Error::io(format!("cannot {action} {}", path.display()), error)
}

/// Reads a file; `None` if it does not exist.
///
/// # Errors
/// Bad file if it is larger than `most` bytes or unreadable.
pub(super) fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>> {
    match File::open(path) {
        Ok(file) => read_open(&file, path, most).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(bad(path, error)),
    }
}

/// Reads the rest of an open file. On some systems a locked file is readable only through the
/// handle that holds the lock.
///
/// # Errors
/// Same as [`read`].
pub(super) fn read_open(file: &File, path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| bad(path, e))?;
    match bytes.len() as u64 > most {
        true => Err(bad(path, format!("more than {most} bytes"))),
        false => Ok(bytes),
    }
}

/// Writes a file atomically: first with the extension `draft` in the same folder, synced to disk,
/// then renamed. A reader sees the old file or the new one. Concurrent writers need different
/// `draft` extensions, or a lock.
///
/// # Errors
/// Any I/O error.
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

/// Removes a file; returns whether it existed.
///
/// # Errors
/// Any I/O error.
pub(super) fn remove(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io("remove", path, error)),
    }
}
