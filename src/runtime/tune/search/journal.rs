//! What a process is about to try, written down before it does: what it died of is not tried again.
//!
//! Each search has a file of its own beside the record, locked as long as its process lives. A file
//! that nobody holds was left by one that died.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::Sealed;
use crate::error::Result;
use crate::runtime::kept;
use crate::runtime::tune::cache::Suspect;

const MAX_BYTES: usize = 1 << 16;
const FILE: Sealed =
    Sealed { magic: "warploom-trying", version: 1, what: "journal", max_bytes: MAX_BYTES };
const ENDING: &str = "running";

/// The file of one search.
pub(super) struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// One beside a record.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn beside(record: &Path) -> Result<Journal> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = record.with_extension(format!("{}-{count}.{ENDING}", std::process::id()));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|e| kept::io("make", folder, e))?;
        }
        let file = File::create(&path).map_err(|e| kept::io("make", &path, e))?;
        file.lock().map_err(|e| kept::io("lock", &path, e))?;
        Ok(Journal { file, path })
    }

    /// Writes down what comes next, in the place of what came before.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn note(&mut self, next: &Suspect) -> Result<()> {
        let bytes = FILE.write(next)?;
        let written = self
            .file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)))
            .and_then(|_| self.file.write_all(&bytes));
        written.map_err(|e| kept::io("write", &self.path, e))
    }

    /// What was written down is done: whatever ends the process now is no fault of it.
    pub(super) fn clear(&mut self) {
        // A note that stays costs a candidate one search.
        if let Err(error) = self.file.set_len(0) {
            tracing::warn!("{}: {error}", self.path.display());
        }
    }

    /// What searches that died beside this record were about to do. Their files are removed.
    ///
    /// # Errors
    /// What the system says.
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
            // One that cannot be read or removed leaves the others as they are.
            match kept::read_open(&file, &path, MAX_BYTES as u64) {
                // Cut where the process died as it wrote: then it had not begun yet.
                Ok(bytes) => found.extend(FILE.read::<Suspect>(&bytes).ok()),
                Err(error) => tracing::warn!("{error}"),
            }
            if let Err(error) = kept::remove(&path) {
                tracing::warn!("{error}");
            }
        }
        Ok(found)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Err(error) = kept::remove(&self.path) {
            tracing::warn!("{error}");
        }
    }
}
