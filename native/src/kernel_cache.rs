//! On-disk cache of compiled kernels, keyed by the compiler's inputs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use warploom_core::base::platform;

/// File magic; a new layout needs a new magic.
const MARK: &[u8; 8] = b"wlblob1\n";
/// Size of a checksum in bytes.
const SUM: usize = 32;

/// A folder of compiled kernels, best effort: a blob that is missing, truncated or altered is a
/// miss, and a blob that cannot be written is compiled again the next time.
pub(crate) struct BlobCache {
    folder: Option<PathBuf>,
}

impl BlobCache {
    /// Opens the cache of a provider, in the folder that `WARPLOOM_CACHE` or the system specifies.
    pub(crate) fn open(provider: &str) -> BlobCache {
        BlobCache { folder: platform::cache_folder().map(|folder| folder.join(provider)) }
    }

    /// Opens the cache in this folder.
    #[cfg(test)]
    fn at(folder: PathBuf) -> BlobCache {
        BlobCache { folder: Some(folder) }
    }

    /// Returns the cache key of these inputs: text, options, device, driver, compiler.
    pub(crate) fn key(parts: &[&str]) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Reads a blob; `None` on a miss.
    pub(crate) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let bytes = fs::read(self.folder.as_ref()?.join(key)).ok()?;
        let rest = bytes.strip_prefix(MARK)?;
        let (sum, blob) = rest.split_at_checked(SUM)?;
        (blake3::hash(blob).as_bytes() == sum).then(|| blob.to_vec())
    }

    /// Stores a blob; a failure is only logged.
    pub(crate) fn put(&self, key: &str, blob: &[u8]) {
        let Some(folder) = &self.folder else { return };
        if let Err(error) = write(folder, key, blob) {
            tracing::debug!("{} is not kept in {}: {error}", key, folder.display());
        }
    }

    /// Removes a blob that a driver rejected.
    pub(crate) fn remove(&self, key: &str) {
        if let Some(folder) = &self.folder {
            // A missing file is fine.
            let _ = fs::remove_file(folder.join(key));
        }
    }
}

/// Writes a blob through a temporary file, so that no reader sees a partial one.
fn write(folder: &Path, key: &str, blob: &[u8]) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    fs::create_dir_all(folder)?;
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let draft = folder.join(format!("{key}.{}.{count}", std::process::id()));
    let whole = [MARK, blake3::hash(blob).as_bytes().as_slice(), blob].concat();
    let written = fs::write(&draft, whole).and_then(|()| fs::rename(&draft, folder.join(key)));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("warploom-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn a_blob_comes_back_and_an_altered_one_does_not() {
        let folder = folder("blobs");
        let cache = BlobCache::at(folder.clone());
        let key = BlobCache::key(&["text", "sm_90"]);
        assert_ne!(key, BlobCache::key(&["textsm", "_90"]));
        assert_eq!(cache.get(&key), None);
        for blob in [&b"cubin"[..], &[]] {
            cache.put(&key, blob);
            assert_eq!(cache.get(&key).as_deref(), Some(blob));
        }
        cache.put(&key, b"cubin");
        let file = folder.join(&key);
        let good = fs::read(&file).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no draft is left");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&file, bad).unwrap();
            assert_eq!(cache.get(&key), None, "byte {at}");
            fs::write(&file, &good[..at]).unwrap();
            assert_eq!(cache.get(&key), None, "{at} bytes");
        }
        fs::write(&file, good).unwrap();
        cache.remove(&key);
        cache.remove(&key);
        assert_eq!(cache.get(&key), None);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_error() {
        let file = folder("blobs-file");
        fs::write(&file, b"a file in the folder's place").unwrap();
        let cache = BlobCache::at(file.join("cuda"));
        cache.put("key", b"cubin");
        assert_eq!(cache.get("key"), None);
        fs::remove_file(file).unwrap();
        let off = BlobCache { folder: None };
        off.put("key", b"cubin");
        assert_eq!(off.get("key"), None);
    }
}
