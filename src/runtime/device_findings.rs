//! Findings of `doctor` runs on disk: one file per driver and crate version, in the cache folder
//! `doctor`.
//!
//! Files are optional hints. A missing file blocks no engine. A file that is truncated, altered or
//! of another device is reported and blocks no engine. Writes are atomic.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::cache_file::{self, VERSION};
use crate::base::platform;
use crate::config;
use crate::engine::{Block, DriverKey, ERRATA, EngineId, Registry, errata};
use crate::error::{Error, Result};
use crate::provider::DeviceProfile;

/// Schema version of a file.
const SCHEMA: u32 = 1;
/// Size limit of a file in bytes, far above the findings on all engines of this crate.
const MAX_BYTES: u64 = 1 << 20;

/// The findings on one driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    schema: u32,
    /// Version of this crate that ran the tests.
    pub version: String,
    /// The tested device.
    pub device: DriverKey,
    /// Date of the test run, as `YYYY-MM-DD` in UTC.
    pub date: String,
    /// Engines found wrong.
    pub wrong: Vec<WrongEngine>,
}

/// An engine found wrong by a test run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongEngine {
    /// Id of the engine.
    pub engine: EngineId,
    /// Description of the error with case, index and both values.
    pub what: String,
}

impl Findings {
    /// Findings of a test run that ends now.
    pub fn new(device: DriverKey, wrong: Vec<WrongEngine>) -> Findings {
        let (version, date) = (VERSION.to_string(), platform::date());
        Findings { schema: SCHEMA, version, device, date, wrong }
    }

    /// The engines that plans must avoid.
    pub fn blocks(&self) -> Vec<Block> {
        let block = |wrong: &WrongEngine| Block {
            device: self.device.clone(),
            engine: wrong.engine.clone(),
            reason: format!("blocked by doctor on {}: {}", self.date, wrong.what),
        };
        self.wrong.iter().map(block).collect()
    }
}

/// A folder of findings.
#[derive(Clone, Debug)]
pub struct Notebook {
    folder: Option<PathBuf>,
}

impl Notebook {
    /// The user's folder, in the cache named by `WARPLOOM_CACHE` or the system. Without a cache
    /// nothing is stored.
    pub fn of_user() -> Notebook {
        Notebook { folder: platform::cache_folder().map(|folder| folder.join("doctor")) }
    }

    /// A folder at this path, created on the first write.
    pub fn at(folder: impl Into<PathBuf>) -> Notebook {
        Notebook { folder: Some(folder.into()) }
    }

    /// File of the findings on a device; `None` without a folder.
    pub fn path(&self, device: &DriverKey) -> Option<PathBuf> {
        let name = format!("{}.json", cache_file::stem(device));
        self.folder.as_ref().map(|folder| folder.join(name))
    }

    /// The findings on a device; `None` if it was not tested.
    ///
    /// # Errors
    /// Bad file, with its name, if it is truncated, altered, too large, or of another device,
    /// schema or crate version.
    pub fn read(&self, device: &DriverKey) -> Result<Option<Findings>> {
        let Some(path) = self.path(device) else { return Ok(None) };
        let bad = |what: String| cache_file::bad(&path, what);
        let Some(bytes) = cache_file::read(&path, MAX_BYTES)? else { return Ok(None) };
        let found: Findings = serde_json::from_slice(&bytes).map_err(|e| bad(e.to_string()))?;
        if found.schema != SCHEMA || found.version != VERSION {
            return Err(bad(format!(
                "layout {} of version {}, not {SCHEMA} of {VERSION}",
                found.schema, found.version
            )));
        }
        if found.device != *device {
            let (name, driver) = (&found.device.name, &found.device.driver);
            return Err(bad(format!("for another device: {name:?} with {driver:?}")));
        }
        Ok(Some(found))
    }

    /// Writes findings and replaces those of the same device; returns the file.
    ///
    /// # Errors
    /// Invalid without a folder or above the size limit; the system's error.
    pub fn write(&self, findings: &Findings) -> Result<PathBuf> {
        let path = self.path(&findings.device).ok_or_else(|| {
            Error::invalid(format!("nothing is stored: {} is off or unknown", config::CACHE.name))
        })?;
        let text = serde_json::to_vec_pretty(findings)
            .map_err(|e| Error::invalid(format!("findings as JSON: {e}")))?;
        if text.len() as u64 > MAX_BYTES {
            let (path, have) = (path.display(), text.len());
            let what = format!("{path}: {have} bytes to write, at most {MAX_BYTES}");
            return Err(Error::invalid(what));
        }
        cache_file::write(&path, &format!("{}.draft", std::process::id()), &text)?;
        Ok(path)
    }

    /// Deletes the findings on a device, readable or not; returns whether there were any.
    ///
    /// # Errors
    /// The system's error.
    pub fn forget(&self, device: &DriverKey) -> Result<bool> {
        let Some(path) = self.path(device) else { return Ok(false) };
        cache_file::remove(&path)
    }
}

/// Engines that plans for a device avoid: those in the errata and those in the user's findings. If
/// that file is invalid, also the reason. Empty with `WARPLOOM_DOCTOR=off`.
///
/// # Errors
/// Invalid for another value of that variable.
pub fn known_wrong_on(
    profile: &DeviceProfile,
    registry: &Registry,
) -> Result<(Vec<Block>, Option<String>)> {
    if !doctor_by_env()? {
        return Ok((Vec::new(), None));
    }
    let (mut blocks, ignored) = remembered(profile);
    blocks.extend(errata(ERRATA, profile, registry));
    Ok((blocks, ignored))
}

/// Whether plans avoid engines known to be wrong, by `WARPLOOM_DOCTOR`.
///
/// # Errors
/// Invalid for an unknown value.
pub(super) fn doctor_by_env() -> Result<bool> {
    match config::var(&config::DOCTOR).as_deref() {
        None | Some("on") => Ok(true),
        Some("off") => Ok(false),
        Some(other) => Err(super::bad_var(&config::DOCTOR, other)),
    }
}

/// The user's findings; see [`known_wrong_on`].
pub(super) fn remembered(profile: &DeviceProfile) -> (Vec<Block>, Option<String>) {
    match Notebook::of_user().read(&DriverKey::of(profile)) {
        Ok(found) => (found.map(|found| found.blocks()).unwrap_or_default(), None),
        Err(error) => {
            let ignored = format!("findings of doctor are ignored: {error}");
            tracing::warn!("{ignored}");
            (Vec::new(), Some(ignored))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn findings() -> Findings {
        let device = DriverKey::of(&DeviceProfile::webgpu_floor("llvmpipe"));
        let what = "case: \"y\": element 3".to_string();
        Findings::new(device, vec![WrongEngine { engine: EngineId::new("wgsl.rope"), what }])
    }

    #[test]
    fn findings_are_restored_and_bad_ones_are_reported() {
        let folder = std::env::temp_dir().join(format!("warploom-notes-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let (notebook, found) = (Notebook::at(&folder), findings());
        assert_eq!(notebook.read(&found.device).unwrap(), None);
        let path = notebook.write(&found).unwrap();
        assert_eq!(notebook.read(&found.device).unwrap().as_ref(), Some(&found));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no draft is left");
        let reason = &found.blocks()[0].reason;
        assert!(reason.starts_with("blocked by doctor on 2") && reason.ends_with("element 3"));

        let other = DriverKey { driver: "another".into(), ..found.device.clone() };
        assert_eq!(notebook.read(&other).unwrap(), None, "a driver has a file of its own");
        fs::copy(&path, notebook.path(&other).unwrap()).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        let message = |device: &DriverKey| {
            let error = notebook.read(device).unwrap_err();
            assert!(error.is_bad_file(), "{error}");
            error.to_string()
        };
        assert!(message(&other).contains("for another device: \"llvmpipe\""));
        for cut in [0, 1, good.len() / 2, good.len() - 2] {
            fs::write(&path, &good[..cut]).unwrap();
            assert!(message(&found.device).contains(path.to_str().unwrap()));
        }
        for (from, to, words) in [
            ("\"schema\": 1", "\"schema\": 2", "layout 2 of version"),
            (VERSION, "0.0.0", "of version 0.0.0"),
            ("\"wrong\"", "\"right\"", "missing field `wrong`"),
        ] {
            fs::write(&path, good.replace(from, to)).unwrap();
            assert!(message(&found.device).contains(words), "{}", message(&found.device));
        }
        fs::write(&path, " ".repeat(MAX_BYTES as usize) + &good).unwrap();
        assert!(message(&found.device).contains("more than 1048576 bytes"));
        assert!(notebook.forget(&found.device).unwrap(), "what is bad can be forgotten");
        assert!(!notebook.forget(&found.device).unwrap());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn without_a_folder_nothing_is_kept() {
        let (none, found) = (Notebook { folder: None }, findings());
        assert!(none.write(&found).unwrap_err().to_string().contains("WARPLOOM_CACHE"));
        assert_eq!(none.read(&found.device).unwrap(), None);
        assert!(!none.forget(&found.device).unwrap());
    }
}
