//! Writes files atomically: a file is either complete or absent.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use warploom::{Error, Result};

/// Calls `write` with a temporary file next to `path`, and moves the file to `path` once it is
/// completely on disk. If that fails, or if `write` returns `None`, the previous file at `path` is
/// intact and no temporary file is left. Returns the result of `write`. `need` is the size of the
/// file in bytes, which the error for a full disk states.
///
/// # Errors
/// The errors of `write`; io, naming the file, if the file system fails, such as on a full disk.
pub(super) fn write<T>(
    path: &Path,
    need: u64,
    write: impl FnOnce(&mut File) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let (beside, mut file) = create(path)?;
    let cleanup = Cleanup(&beside);
    let written = write(&mut file).and_then(|written| match written {
        None => Ok(None),
        Some(value) => {
            let sync = file.flush().and_then(|()| file.sync_all());
            sync.map_err(|e| Error::io("cannot write the file", e))?;
            Ok(Some(value))
        }
    });
    drop(file);
    let written = written.map_err(|e| explain(e, path, need))?;
    if written.is_some() {
        let moved = fs::rename(&beside, path);
        moved.map_err(|e| Error::io(format!("{}: cannot put it in place", path.display()), e))?;
        std::mem::forget(cleanup);
    }
    Ok(written)
}

/// Removes an incomplete file on drop.
struct Cleanup<'a>(&'a Path);

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(self.0) {
            tracing::warn!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// Creates a temporary file in the folder of `path`, since a move is atomic only within one file
/// system.
fn create(path: &Path) -> Result<(PathBuf, File)> {
    let name = path.file_name().ok_or_else(|| {
        Error::invalid(format!("{}: not the name of a file to write", path.display()))
    })?;
    let mut number = 0;
    loop {
        let mut beside = std::ffi::OsString::from(".");
        beside.push(name);
        beside.push(format!(".part-{}-{number}", std::process::id()));
        let beside = path.with_file_name(beside);
        match OpenOptions::new().write(true).create_new(true).open(&beside) {
            Ok(file) => return Ok((beside, file)),
            // Another thread of this process is writing a file with this name.
            Err(e) if e.kind() == ErrorKind::AlreadyExists && number < 1000 => number += 1,
            Err(e) => {
                let beside = beside.display();
                return Err(Error::io(format!("{beside}: cannot create it"), e));
            }
        }
    }
}

/// Adds the name of the file to an error, and a plain message if the disk is full.
fn explain(error: Error, path: &Path, need: u64) -> Error {
    let source = std::error::Error::source(&error);
    let kind = source.and_then(|e| e.downcast_ref::<std::io::Error>()).map(|e| e.kind());
    match kind {
        Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge) => error
            .context(format_args!(
                "{}: the disk is full: the file needs {need} bytes; the partial file was removed",
                path.display()
            )),
        _ => error.context(path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_folder as folder;
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_is_there_whole_or_as_it_was() {
        let folder = folder("atomic");
        let path = folder.join("out");
        let full = || Error::io("cannot write", ErrorKind::StorageFull.into());
        let half = |file: &mut File| -> Result<Option<()>> {
            file.write_all(b"half").unwrap();
            Err(full())
        };
        let error = write(&path, 1234, half).unwrap_err().to_string();
        assert!(error.contains("disk is full") && error.contains("1234 bytes"), "{error}");
        assert!(error.contains("out: "), "{error}");
        assert!(names(&folder).is_empty());

        let whole = |text: &'static [u8]| {
            move |file: &mut File| {
                file.write_all(text).unwrap();
                Ok(Some(7))
            }
        };
        assert_eq!(write(&path, 5, whole(b"first")).unwrap(), Some(7));
        assert!(write(&path, 1, half).is_err());
        assert_eq!(write::<()>(&path, 1, |_| Ok(None)).unwrap(), None);
        assert_eq!(fs::read(&path).unwrap(), b"first");
        write(&path, 6, whole(b"second")).unwrap();
        assert_eq!((fs::read(&path).unwrap(), names(&folder).len()), (b"second".to_vec(), 1));

        // A panic leaves no file either.
        let panics = || write(&path, 1, |_| -> Result<Option<()>> { panic!("planned") });
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(names(&folder), ["out"]);
        let nowhere = write(&folder.join("no/such/out"), 1, whole(b"")).unwrap_err();
        assert!(nowhere.to_string().contains("no/such"), "{nowhere}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
