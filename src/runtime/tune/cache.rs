//! Tuning results on disk: one file per driver and crate version, in the subfolder `tune` of the
//! cache folder.
//!
//! Files are optional hints. A file that is truncated, altered, or for a different device or
//! version is reported and ignored as a whole; its checksum covers every byte. Planning validates
//! each choice again. A writer holds a lock, reads the file and merges into it, so concurrent
//! writers lose nothing. Files are replaced by renaming, so a crash leaves the old file.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::base::{Checksummed, platform};
use crate::config;
use crate::engine::{DriverKey, EngineId, KnobValues, TaskKey, Tuned, TunedChoices};
use crate::error::{Error, Result};
use crate::runtime::cache_file::{self, VERSION};

/// Size limit of a file in bytes: about ten thousand tasks.
const MAX_BYTES: usize = 8 << 20;
const FILE: Checksummed =
    Checksummed { magic: "warploom-tune", version: 1, what: "tuned choices", max_bytes: MAX_BYTES };

/// Measurements of one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneRecord {
    /// Version of this crate that made the measurements.
    pub version: String,
    /// The measured device.
    pub device: DriverKey,
    /// The best candidate of each task.
    pub tasks: BTreeMap<TaskKey, TunedTask>,
    /// Tasks that could not be measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unmeasured: BTreeMap<TaskKey, UnmeasuredTask>,
    /// Candidates that ended the process or never returned.
    pub avoid: Vec<Suspect>,
}

/// A task and its best engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunedTask {
    /// Label of the task's first occurrence.
    pub label: String,
    /// Shapes of its operands and result.
    pub shapes: String,
    /// Date of the measurement, as `YYYY-MM-DD` in UTC.
    pub date: String,
    /// The best engine.
    pub tuned: Tuned,
}

/// A task that could not be measured. It is not tried again until its engines change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnmeasuredTask {
    /// Label of the task's first occurrence.
    pub label: String,
    /// Shapes of its operands and result.
    pub shapes: String,
    /// Date of the attempt, as `YYYY-MM-DD` in UTC.
    pub date: String,
    /// Why it could not be measured.
    pub why: String,
    /// The engines that execute it, with their [`Engine::version`](crate::engine::Engine::version).
    pub engines: BTreeMap<EngineId, u32>,
}

/// A candidate that is not tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspect {
    /// Key of the task that it was tried for.
    pub task: TaskKey,
    /// Id of the engine.
    pub engine: EngineId,
    /// Knob values of the engine.
    pub knobs: KnobValues,
    /// Why it is not tried again.
    pub why: String,
}

impl TuneRecord {
    /// Creates an empty record of a device.
    pub fn new(device: DriverKey) -> TuneRecord {
        let version = VERSION.to_string();
        let (tasks, unmeasured) = (BTreeMap::new(), BTreeMap::new());
        TuneRecord { version, device, tasks, unmeasured, avoid: Vec::new() }
    }

    /// Returns the choices that plans use.
    pub fn choices(&self) -> TunedChoices {
        let choices = self.tasks.iter().map(|(key, task)| (key.clone(), task.tuned.clone()));
        TunedChoices { device: self.device.clone(), choices: choices.collect() }
    }

    /// Merges a newer record of the device; its entries replace those of the same tasks.
    pub fn merge(&mut self, newer: TuneRecord) {
        self.unmeasured.retain(|key, _| !newer.tasks.contains_key(key));
        self.tasks.extend(newer.tasks);
        self.unmeasured.extend(newer.unmeasured);
        for suspect in newer.avoid {
            if !self.avoids(&suspect.task, &suspect.engine, &suspect.knobs) {
                self.avoid.push(suspect);
            }
        }
    }

    /// Returns whether this candidate must not be tried.
    pub fn avoids(&self, task: &TaskKey, engine: &EngineId, knobs: &KnobValues) -> bool {
        self.avoid.iter().any(|s| s.task == *task && s.engine == *engine && s.knobs == *knobs)
    }

    /// Reads the record in a file, such as one shipped with an application; `None` if there is no
    /// file.
    ///
    /// # Errors
    /// Bad file, with its path, if the file is truncated, altered, too large or from a different
    /// version of this crate.
    pub fn load(path: &Path) -> Result<Option<TuneRecord>> {
        let Some(bytes) = cache_file::read(path, MAX_BYTES as u64)? else { return Ok(None) };
        let record: TuneRecord = FILE.read(&bytes).map_err(|e| e.context(path.display()))?;
        if record.version != VERSION {
            let what = format!("of version {}, this is {VERSION}", record.version);
            return Err(cache_file::bad(path, what));
        }
        let positive = |seconds: f64| seconds.is_finite() && seconds > 0.0;
        let wrong = record
            .tasks
            .values()
            .find(|task| !positive(task.tuned.seconds) || !positive(task.tuned.against_seconds));
        match wrong {
            Some(task) => Err(cache_file::bad(path, format!("{:?} took no time", task.label))),
            None => Ok(Some(record)),
        }
    }

    /// Writes the record to a file and replaces an existing one.
    ///
    /// # Errors
    /// Invalid if the record exceeds the size limit; any I/O error.
    pub fn save(&self, path: &Path) -> Result<()> {
        let bytes = FILE.write(self).map_err(|e| e.context(path.display()))?;
        cache_file::write(path, &format!("{}.draft", std::process::id()), &bytes)
    }
}

/// A folder that stores tuning records, or none.
#[derive(Clone, Debug)]
pub struct TuneCache {
    folder: Option<PathBuf>,
}

impl TuneCache {
    /// Creates a cache in the folder `tune` of warploom's cache folder: the one that
    /// `WARPLOOM_CACHE` names, otherwise `warploom` in the user's cache folder. Without a cache
    /// folder nothing is stored.
    pub fn of_user() -> TuneCache {
        TuneCache { folder: platform::cache_folder().map(|folder| folder.join("tune")) }
    }

    /// Creates a cache in the folder at this path, which is created on the first write.
    pub fn at(folder: impl Into<PathBuf>) -> TuneCache {
        TuneCache { folder: Some(folder.into()) }
    }

    /// Creates a cache that stores nothing.
    pub fn nowhere() -> TuneCache {
        TuneCache { folder: None }
    }

    /// Returns the path of a device's record, or `None` if there is no folder.
    pub fn path(&self, device: &DriverKey) -> Option<PathBuf> {
        let name = format!("{}.tune", cache_file::stem(device));
        self.folder.as_ref().map(|folder| folder.join(name))
    }

    /// Reads the measurements of a device; `None` if there are none.
    ///
    /// # Errors
    /// Same as [`TuneRecord::load`], and bad file if the record is of a different device.
    pub fn read(&self, device: &DriverKey) -> Result<Option<TuneRecord>> {
        let Some(path) = self.path(device) else { return Ok(None) };
        let Some(record) = TuneRecord::load(&path)? else { return Ok(None) };
        if record.device != *device {
            let (name, driver) = (&record.device.name, &record.device.driver);
            return Err(cache_file::bad(
                &path,
                format!("for another device: {name:?} with {driver:?}"),
            ));
        }
        Ok(Some(record))
    }

    /// Merges a record into the stored one of its device and returns the path of the file. An
    /// invalid stored file is replaced.
    ///
    /// # Errors
    /// Invalid if there is no folder, or if the merged record exceeds the size limit (the stored
    /// file is then unchanged); any I/O error.
    pub fn add(&self, record: TuneRecord) -> Result<PathBuf> {
        let path = self.path(&record.device).ok_or_else(|| {
            Error::invalid(format!("nothing is stored: {} is off or unknown", config::CACHE.name))
        })?;
        let _lock = lock(&path)?;
        let mut all = match self.read(&record.device) {
            Ok(found) => found.unwrap_or_else(|| TuneRecord::new(record.device.clone())),
            Err(error) => {
                tracing::warn!("tuned choices are replaced: {error}");
                TuneRecord::new(record.device.clone())
            }
        };
        all.merge(record);
        // Only the lock holder writes this draft, so a leftover is overwritten.
        let bytes = FILE.write(&all).map_err(|e| e.context(path.display()))?;
        cache_file::write(&path, "draft", &bytes)?;
        Ok(path)
    }

    /// Deletes the record of a device, readable or not; returns whether there was one.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn forget(&self, device: &DriverKey) -> Result<bool> {
        let Some(path) = self.path(device) else { return Ok(false) };
        match path.exists() {
            true => {
                let _lock = lock(&path)?;
                cache_file::remove(&path)
            }
            false => Ok(false),
        }
    }
}

/// Locks a file against other writers, waiting for the current one. The lock is released when the
/// returned value is dropped or the process ends.
fn lock(path: &Path) -> Result<File> {
    let lock = path.with_extension("lock");
    if let Some(folder) = lock.parent() {
        std::fs::create_dir_all(folder).map_err(|e| cache_file::io("make", folder, e))?;
    }
    let file = File::options().create(true).append(true).open(&lock);
    let file = file.map_err(|e| cache_file::io("open", &lock, e))?;
    file.lock().map_err(|e| cache_file::io("lock", &lock, e))?;
    Ok(file)
}
