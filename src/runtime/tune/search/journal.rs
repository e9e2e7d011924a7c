//! Journal of the candidate under test, so that a candidate that crashes the process is not tried
//! again.
//!
//! Each search has its own file next to the record, which is locked while its process lives. An
//! unlocked file is left over from a process that crashed.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::Checksummed;
use crate::error::Result;
use crate::runtime::cache_file;
use crate::runtime::tune::cache::Suspect;

const MAX_BYTES: usize = 1 << 16;
const FILE: Checksummed =
    Checksummed { magic: "warploom-trying", version: 1, what: "journal", max_bytes: MAX_BYTES };
const ENDING: &str = "running";

/// The journal file of one search.
pub(super) struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Creates a journal in the folder of the record.
    ///
    /// # Errors
    /// Any I/O error.
    pub(super) fn beside(record: &Path) -> Result<Journal> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = record.with_extension(format!("{}-{count}.{ENDING}", std::process::id()));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|e| cache_file::io("make", folder, e))?;
        }
        let file = File::create(&path).map_err(|e| cache_file::io("make", &path, e))?;
        file.lock().map_err(|e| cache_file::io("lock", &path, e))?;
        Ok(Journal { file, path })
    }

    /// Writes the next candidate in place of the previous one.
    ///
    /// # Errors
    /// Any I/O error.
    pub(super) fn note(&mut self, next: &Suspect) -> Result<()> {
        let bytes = FILE.write(next)?;
        let written = self
            .file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)))
            .and_then(|_| self.file.write_all(&bytes));
        written.map_err(|e| cache_file::io("write", &self.path, e))
    }

    /// Clears the entry after its candidate is done, so a later crash is not attributed to it.
    pub(super) fn clear(&mut self) {
        // At worst a stale entry blames the wrong candidate if the process crashes later.
        if let Err(error) = self.file.set_len(0) {
            tracing::warn!("{}: {error}", self.path.display());
        }
    }

    /// Returns the candidates of crashed searches whose journals are next to this record, and
    /// removes the journals.
    ///
    /// # Errors
    /// Currently none: unreadable journals are skipped, and failed removals are logged.
    pub(super) fn casualties(record: &Path) -> Result<Vec<Suspect>> {
        let (Some(folder), Some(stem)) = (record.parent(), record.file_stem()) else {
            return Ok(Vec::new());
        };
        let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let ours = name.starts_with(&*stem.to_string_lossy());
            if !ours || path.extension().is_none_or(|ending| ending != ENDING) {
                continue;
            }
            let Ok(file) = File::options().read(true).write(true).open(&path) else { continue };
            if file.try_lock().is_err() {
                continue;
            }
            // An unreadable file does not affect the others.
            match cache_file::read_open(&file, &path, MAX_BYTES as u64) {
                // Truncated if the process crashed while writing, before the candidate started.
                Ok(bytes) => found.extend(FILE.read::<Suspect>(&bytes).ok()),
                Err(error) => tracing::warn!("{error}"),
            }
            if let Err(error) = cache_file::remove(&path) {
                tracing::warn!("{error}");
            }
        }
        Ok(found)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Err(error) = cache_file::remove(&self.path) {
            tracing::warn!("{error}");
        }
    }
}
