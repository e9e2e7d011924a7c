//! What examinations of devices found, kept on disk: one file for each driver and version of this
//! crate, in the folder `doctor` of the cache.
//!
//! A file is a hint, never needed: one that is missing blocks nothing, one that is cut, altered or
//! of another device is told and blocks nothing. It is written under a name of its own and renamed,
//! so no reader sees half of one.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::kept::{self, VERSION};
use crate::base::platform;
use crate::config;
use crate::engine::{Block, DriverKey, ERRATA, EngineId, Registry, errata};
use crate::error::{Error, Result};
use crate::provider::DeviceProfile;

/// Layout of a file.
const SCHEMA: u32 = 1;
/// Bytes of a file, at most: many times what all engines of this crate need.
const MAX_BYTES: u64 = 1 << 20;

/// The findings about one driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    schema: u32,
    /// Version of this crate that made the examination.
    pub version: String,
    /// The device.
    pub device: DriverKey,
    /// When the examination ended, as `YYYY-MM-DD` in UTC.
    pub date: String,
    /// Engines that are wrong, and how.
    pub wrong: Vec<WrongEngine>,
}

/// An engine that an examination found wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongEngine {
    /// The engine.
    pub engine: EngineId,
    /// What was wrong, in words, with case, index and both values.
    pub what: String,
}

impl Findings {
    /// Those of an examination that ends now.
    pub fn new(device: DriverKey, wrong: Vec<WrongEngine>) -> Findings {
        let (version, date) = (VERSION.to_string(), platform::date());
        Findings { schema: SCHEMA, version, device, date, wrong }
    }

    /// As what plans leave out.
    pub fn blocks(&self) -> Vec<Block> {
        let block = |wrong: &WrongEngine| Block {
            device: self.device.clone(),
            engine: wrong.engine.clone(),
            reason: format!("blocked by doctor on {}: {}", self.date, wrong.what),
        };
        self.wrong.iter().map(block).collect()
    }
}

/// The folder of findings.
#[derive(Clone, Debug)]
pub struct Notebook {
    folder: Option<PathBuf>,
}

impl Notebook {
    /// That of the user, in the folder that `WARPLOOM_CACHE` or the system names; without one
    /// nothing is kept.
    pub fn of_user() -> Notebook {
        Notebook { folder: platform::cache_folder().map(|folder| folder.join("doctor")) }
    }

    /// One in this folder, which is made when something is kept.
    pub fn at(folder: impl Into<PathBuf>) -> Notebook {
        Notebook { folder: Some(folder.into()) }
    }

    /// Where findings about a device are kept; `None` where nothing is.
    pub fn path(&self, device: &DriverKey) -> Option<PathBuf> {
        let name = format!("{}.json", kept::stem(device));
        self.folder.as_ref().map(|folder| folder.join(name))
    }

    /// What was found about a device; `None` where it was not examined.
    ///
    /// # Errors
    /// Bad file, with its name, for one that is cut, altered, too large, or of another device,
    /// layout or version of this crate.
    pub fn read(&self, device: &DriverKey) -> Result<Option<Findings>> {
        let Some(path) = self.path(device) else { return Ok(None) };
        let bad = |what: String| kept::bad(&path, what);
        let Some(bytes) = kept::read(&path, MAX_BYTES)? else { return Ok(None) };
        let found: Findings = serde_json::from_slice(&bytes).map_err(|e| bad(e.to_string()))?;
        if found.schema != SCHEMA || found.version != VERSION {
            return Err(bad(format!(
                "layout {} of version {}, not {SCHEMA} of {VERSION}",
                found.schema, found.version
            )));
        }
        if found.device != *device {
            let (name, driver) = (&found.device.name, &found.device.driver);
            return Err(bad(format!("of another device: {name:?} with {driver:?}")));
        }
        Ok(Some(found))
    }

    /// Keeps findings, in the place of those there are about the same device; yields the file.
    ///
    /// # Errors
    /// Invalid, where nothing is kept or there is more to keep than is read back; what the system
    /// says.
    pub fn write(&self, findings: &Findings) -> Result<PathBuf> {
        let path = self.path(&findings.device).ok_or_else(|| {
            Error::invalid(format!("nothing is kept: {} is off or not known", config::CACHE.name))
        })?;
        let text = serde_json::to_vec_pretty(findings)
            .map_err(|e| Error::invalid(format!("findings as JSON: {e}")))?;
        if text.len() as u64 > MAX_BYTES {
            let (path, have) = (path.display(), text.len());
            let what = format!("{path}: {have} bytes to write, at most {MAX_BYTES}");
            return Err(Error::invalid(what));
        }
        kept::write(&path, &format!("{}.draft", std::process::id()), &text)?;
        Ok(path)
    }

    /// Forgets a device; whether there was something to forget, readable or not.
    ///
    /// # Errors
    /// What the system says.
    pub fn forget(&self, device: &DriverKey) -> Result<bool> {
        let Some(path) = self.path(device) else { return Ok(false) };
        kept::remove(&path)
    }
}

/// What plans for a device leave out: what the errata say of engines of a registry, and what the
/// user's notebook says, with why it says nothing where its file is bad. Nothing with
/// `WARPLOOM_DOCTOR=off`.
///
/// # Errors
/// Invalid, for another value of that variable.
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

/// Whether plans leave out what is known to be wrong, by `WARPLOOM_DOCTOR`.
///
/// # Errors
/// Invalid, for a value that it does not have.
pub(super) fn doctor_by_env() -> Result<bool> {
    match config::var(&config::DOCTOR).as_deref() {
        None | Some("on") => Ok(true),
        Some("off") => Ok(false),
        Some(other) => Err(super::bad_var(&config::DOCTOR, other)),
    }
}

/// What the user's notebook says; see [`known_wrong_on`].
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
    fn findings_come_back_and_bad_ones_are_told() {
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
        let told = |device: &DriverKey| {
            let error = notebook.read(device).unwrap_err();
            assert!(error.is_bad_file(), "{error}");
            error.to_string()
        };
        assert!(told(&other).contains("of another device: \"llvmpipe\""));
        for cut in [0, 1, good.len() / 2, good.len() - 2] {
            fs::write(&path, &good[..cut]).unwrap();
            assert!(told(&found.device).contains(path.to_str().unwrap()));
        }
        for (from, to, words) in [
            ("\"schema\": 1", "\"schema\": 2", "layout 2 of version"),
            (VERSION, "0.0.0", "of version 0.0.0"),
            ("\"wrong\"", "\"right\"", "missing field `wrong`"),
        ] {
            fs::write(&path, good.replace(from, to)).unwrap();
            assert!(told(&found.device).contains(words), "{}", told(&found.device));
        }
        fs::write(&path, " ".repeat(MAX_BYTES as usize) + &good).unwrap();
        assert!(told(&found.device).contains("more than 1048576 bytes"));
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
