//! Reads and writes the hub's cache, in the layout `models--org--name/{blobs,refs,snapshots}`. A
//! snapshot's files are links to blobs, so that versions share common files.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use warploom_core::error::{Error, Result};

/// Maximum bytes of a file name with its folders.
const MAX_PATH: usize = 512;
/// Maximum depth of the nested folders in a snapshot that are searched.
const MAX_LEVELS: usize = 8;

/// Returns whether a name from the server stays inside the folder that it is joined to, on any
/// system.
pub(super) fn is_safe(name: &str) -> bool {
    let parts = || name.split('/');
    !name.is_empty()
        && name.len() <= MAX_PATH
        && !name.chars().any(|c| c.is_control() || matches!(c, '\\' | ':' | '?' | '#' | '%'))
        && parts()
            .all(|part| !part.is_empty() && part != "." && part != ".." && !part.ends_with(' '))
        && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Returns a temporary name for an incomplete file, which no other thread or process uses.
fn unfinished() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}.new", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Converts a system error to one that names the action and the path.
pub(super) fn io(action: &str, path: &Path, error: std::io::Error) -> Error {
    Error::io(format!("{}: cannot {action}", path.display()), error)
}

/// Returns the names of the repositories of models in a cache; none if it does not exist.
pub(super) fn repositories(cache: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(cache) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io("list", cache, error)),
    };
    let mut all = Vec::new();
    for entry in entries {
        let folder = entry.map_err(|e| io("list", cache, e))?.file_name();
        // Names have no `--`, so the first one is the slash.
        let name = folder.to_str().and_then(|folder| folder.strip_prefix("models--"));
        all.extend(name.map(|name| name.replacen("--", "/", 1)));
    }
    // Folders of others may have any name.
    all.retain(|name| super::Source::parse(name).is_ok());
    Ok(all)
}

/// Returns the size of a file in bytes.
pub(super) fn size(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path).map_err(|e| io("look at it", path, e))?.len())
}

/// A repository in the cache.
pub(super) struct Repo {
    name: String,
    folder: PathBuf,
    locks: PathBuf,
}

impl Repo {
    /// Returns the repository `org/name`; creates no folders.
    pub(super) fn new(cache: &Path, name: &str) -> Repo {
        let folder = format!("models--{}", name.replace('/', "--"));
        Repo {
            name: name.to_owned(),
            locks: cache.join(".locks").join(&folder),
            folder: cache.join(folder),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn create(&self) -> Result<()> {
        for folder in [self.folder.join("blobs"), self.folder.join("refs"), self.locks.clone()] {
            fs::create_dir_all(&folder).map_err(|e| io("make this folder", &folder, e))?;
        }
        Ok(())
    }

    pub(super) fn blob(&self, name: &str) -> PathBuf {
        self.folder.join("blobs").join(name)
    }

    pub(super) fn incomplete(&self, name: &str) -> PathBuf {
        self.folder.join("blobs").join(format!("{name}.incomplete"))
    }

    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// Locks a blob against other processes, blocking until it is free. Dropping the file unlocks
    /// it.
    pub(super) fn lock(&self, blob: &str) -> Result<File> {
        let path = self.locks.join(format!("{blob}.lock"));
        let file = File::options().create(true).append(true).open(&path);
        let file = file.map_err(|e| io("open this lock", &path, e))?;
        file.lock().map_err(|e| io("lock", &path, e))?;
        Ok(file)
    }

    /// Returns whether a blob exists with its full size.
    pub(super) fn is_whole(&self, blob: &Path, size: u64) -> Result<bool> {
        match fs::metadata(blob) {
            Ok(metadata) => Ok(metadata.is_file() && metadata.len() == size),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(io("look at it", blob, error)),
        }
    }

    /// Returns the commit of the main branch at the last download, if there was one.
    pub(super) fn commit(&self) -> Result<Option<String>> {
        let path = self.folder.join("refs").join("main");
        match fs::read_to_string(&path) {
            Ok(text) if super::is_hex(text.trim(), 40) => Ok(Some(text.trim().to_owned())),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io("read", &path, error)),
        }
    }

    pub(super) fn set_commit(&self, commit: &str) -> Result<()> {
        let path = self.folder.join("refs").join("main");
        let new = path.with_extension(unfinished());
        fs::write(&new, commit).map_err(|e| io("write", &new, e))?;
        fs::rename(&new, &path).map_err(|e| io("rename", &new, e))
    }

    /// Returns the sorted names of a snapshot's files, without those whose blob is missing.
    pub(super) fn files(&self, commit: &str) -> Result<Vec<String>> {
        fn walk(folder: &Path, before: &str, level: usize, names: &mut Vec<String>) -> Result<()> {
            let entries = match fs::read_dir(folder) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(io("list", folder, error)),
            };
            for entry in entries {
                let entry = entry.map_err(|e| io("list", folder, e))?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                let name = format!("{before}{name}");
                // Follows links; a dangling link is not a file.
                match fs::metadata(entry.path()) {
                    Ok(metadata) if metadata.is_file() => names.push(name),
                    Ok(metadata) if metadata.is_dir() && level < MAX_LEVELS => {
                        walk(&entry.path(), &format!("{name}/"), level + 1, names)?;
                    }
                    _ => {}
                }
            }
            Ok(())
        }
        let mut names = Vec::new();
        walk(&self.snapshot(commit), "", 0, &mut names)?;
        names.sort();
        Ok(names)
    }

    /// Puts a blob into a snapshot under its file name: as a link, or as a copy if the system has
    /// no links.
    pub(super) fn link(&self, commit: &str, name: &str, blob: &str) -> Result<()> {
        let path = self.snapshot(commit).join(name);
        let folder = path.parent().unwrap_or(&path);
        fs::create_dir_all(folder).map_err(|e| io("make this folder", folder, e))?;
        let mut target = PathBuf::from("../..");
        // A name with folders is that many levels deeper.
        target.extend(name.matches('/').map(|_| ".."));
        target.extend(["blobs", blob]);
        if fs::read_link(&path).is_ok_and(|old| old == target) {
            return Ok(());
        }
        let new = folder.join(format!(".{}", unfinished()));
        let made = match symlink(&target, &new) {
            Ok(()) => Ok(()),
            Err(_) => fs::copy(self.blob(blob), &new).map(drop),
        };
        made.and_then(|()| fs::rename(&new, &path)).map_err(|e| {
            let _ = fs::remove_file(&new);
            io("make this link", &path, e)
        })
    }
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn symlink(_: &Path, _: &Path) -> std::io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}
