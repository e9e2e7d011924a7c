//! Stores the findings of `doctor` runs on disk: one file per driver and crate version, in the
//! subfolder `doctor` of the cache folder.
//!
//! Files are optional hints. A missing file blocks no engine. A file that is truncated, altered or
//! for a different device is reported and blocks no engine. Writes are atomic.

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
/// Size limit of a file in bytes, far above the size of findings on all engines of this crate.
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
    /// Engines that computed wrong results.
    pub wrong: Vec<WrongEngine>,
}

/// An engine that computed wrong results in a test run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongEngine {
    /// Id of the engine.
    pub engine: EngineId,
    /// Description of the error: test case, element index, and both values.
    pub what: String,
}

impl Findings {
    /// Creates the findings of a test run that ends now.
    pub fn new(device: DriverKey, wrong: Vec<WrongEngine>) -> Findings {
        let (version, date) = (VERSION.to_string(), platform::date());
        Findings { schema: SCHEMA, version, device, date, wrong }
    }

    /// Returns the engines that plans must avoid, with the reason.
    pub fn blocks(&self) -> Vec<Block> {
        let block = |wrong: &WrongEngine| Block {
            device: self.device.clone(),
            engine: wrong.engine.clone(),
            reason: format!("blocked by doctor on {}: {}", self.date, wrong.what),
        };
        self.wrong.iter().map(block).collect()
    }
}

/// A folder that stores findings.
#[derive(Clone, Debug)]
pub struct Notebook {
    folder: Option<PathBuf>,
}

impl Notebook {
    /// Creates a notebook in the folder `doctor` of warploom's cache folder: the one that
    /// `WARPLOOM_CACHE` names, otherwise `warploom` in the user's cache folder. Without a cache
    /// folder nothing is stored.
    pub fn of_user() -> Notebook {
        Notebook { folder: platform::cache_folder().map(|folder| folder.join("doctor")) }
    }

    /// Creates a notebook in the folder at this path, which is created on the first write.
    pub fn at(folder: impl Into<PathBuf>) -> Notebook {
        Notebook { folder: Some(folder.into()) }
    }

    /// Returns the path of the file with the findings on a device, or `None` if there is no folder.
    pub fn path(&self, device: &DriverKey) -> Option<PathBuf> {
        let name = format!("{}.json", cache_file::stem(device));
        self.folder.as_ref().map(|folder| folder.join(name))
    }

    /// Reads the findings on a device; `None` if there is no file for it.
    ///
    /// # Errors
    /// Bad file, with its path, if the file is truncated, altered, too large, or for a different
    /// device, schema or crate version.
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

    /// Writes findings, replacing those on the same device, and returns the path of the file.
    ///
    /// # Errors
    /// Invalid if there is no folder or the findings exceed the size limit; any I/O error.
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
    /// Any I/O error.
    pub fn forget(&self, device: &DriverKey) -> Result<bool> {
        let Some(path) = self.path(device) else { return Ok(false) };
        cache_file::remove(&path)
    }
}

/// Returns the engines that plans for a device avoid: those in the errata and those in the user's
/// findings. If the file of findings is invalid, also returns the reason. Nothing is avoided with
/// `WARPLOOM_DOCTOR=off`.
///
/// # Errors
/// Invalid if the variable is set to anything but `on` or `off`.
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

/// Returns whether plans avoid engines known to be wrong, according to `WARPLOOM_DOCTOR`.
///
/// # Errors
/// Invalid if the variable is set to anything but `on` or `off`.
pub(super) fn doctor_by_env() -> Result<bool> {
    match config::var(&config::DOCTOR).as_deref() {
        None | Some("on") => Ok(true),
        Some("off") => Ok(false),
        Some(other) => Err(super::bad_var(&config::DOCTOR, other)),
    }
}

/// Reads the user's findings; returns the engines to avoid, or the reason if the file is ignored.
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
