//! What the tuner found, kept on disk: one file for each driver and version of this crate, in the
//! folder `tune` of the cache.
//!
//! A file is a hint, never needed. One that is cut, altered or of another device or version is told
//! and ignored as a whole, since its checksum covers every byte; what it says is asked again when
//! plans take it. Who writes holds a lock, reads what is there and adds to it, so that two at once
//! lose nothing; a file is replaced by renaming, so that one who dies leaves the old one.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::base::{Sealed, platform};
use crate::config;
use crate::engine::{DriverKey, EngineId, KnobValues, TaskKey, Tuned, TunedChoices};
use crate::error::{Error, Result};
use crate::runtime::kept::{self, VERSION};

/// Bytes of a file, at most: some ten thousand tasks.
const MAX_BYTES: usize = 8 << 20;
const FILE: Sealed =
    Sealed { magic: "warploom-tune", version: 1, what: "tuned choices", max_bytes: MAX_BYTES };

/// What was measured on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneRecord {
    /// Version of this crate that measured.
    pub version: String,
    /// The device.
    pub device: DriverKey,
    /// For each task the best.
    pub tasks: BTreeMap<TaskKey, TunedTask>,
    /// Tasks that could not be measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unmeasured: BTreeMap<TaskKey, UnmeasuredTask>,
    /// Ways of executing a task that ended the process or never came back.
    pub avoid: Vec<Suspect>,
}

/// A task and its best engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunedTask {
    /// What it was called where it was met.
    pub label: String,
    /// Its operands and result.
    pub shapes: String,
    /// When it was measured, as `YYYY-MM-DD` in UTC.
    pub date: String,
    /// The best engine.
    pub tuned: Tuned,
}

/// A task that could not be measured: it is not tried again until its engines are others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnmeasuredTask {
    /// What it was called where it was met.
    pub label: String,
    /// Its operands and result.
    pub shapes: String,
    /// When it was tried, as `YYYY-MM-DD` in UTC.
    pub date: String,
    /// Why it could not be.
    pub why: String,
    /// The engines that execute it, with their [`Engine::version`](crate::engine::Engine::version).
    pub engines: BTreeMap<EngineId, u32>,
}

/// A way of executing a task that is not tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspect {
    /// The task.
    pub task: TaskKey,
    /// The engine.
    pub engine: EngineId,
    /// Its knobs.
    pub knobs: KnobValues,
    /// What became of it.
    pub why: String,
}

impl TuneRecord {
    /// Nothing about a device yet.
    pub fn new(device: DriverKey) -> TuneRecord {
        let version = VERSION.to_string();
        let (tasks, unmeasured) = (BTreeMap::new(), BTreeMap::new());
        TuneRecord { version, device, tasks, unmeasured, avoid: Vec::new() }
    }

    /// What plans take.
    pub fn choices(&self) -> TunedChoices {
        let choices = self.tasks.iter().map(|(key, task)| (key.clone(), task.tuned.clone()));
        TunedChoices { device: self.device.clone(), choices: choices.collect() }
    }

    /// Takes what another record of the device says, in the place of what this one says of the same
    /// tasks.
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

    /// Whether this way of executing a task is not to be tried.
    pub fn avoids(&self, task: &TaskKey, engine: &EngineId, knobs: &KnobValues) -> bool {
        self.avoid.iter().any(|s| s.task == *task && s.engine == *engine && s.knobs == *knobs)
    }

    /// The record in a file, such as one that an application brings; `None` where there is no file.
    ///
    /// # Errors
    /// Bad file, with its name, for one that is cut, altered, too large or of another version of
    /// this crate.
    pub fn load(path: &Path) -> Result<Option<TuneRecord>> {
        let Some(bytes) = kept::read(path, MAX_BYTES as u64)? else { return Ok(None) };
        let record: TuneRecord = FILE.read(&bytes).map_err(|e| e.context(path.display()))?;
        if record.version != VERSION {
            let what = format!("of version {}, this is {VERSION}", record.version);
            return Err(kept::bad(path, what));
        }
        let positive = |seconds: f64| seconds.is_finite() && seconds > 0.0;
        let wrong = record
            .tasks
            .values()
            .find(|task| !positive(task.tuned.seconds) || !positive(task.tuned.against_seconds));
        match wrong {
            Some(task) => Err(kept::bad(path, format!("{:?} took no time", task.label))),
            None => Ok(Some(record)),
        }
    }

    /// Writes it to a file, in the place of what is there.
    ///
    /// # Errors
    /// Invalid, where it is more than is read back; what the system says.
    pub fn save(&self, path: &Path) -> Result<()> {
        let bytes = FILE.write(self).map_err(|e| e.context(path.display()))?;
        kept::write(path, &format!("{}.draft", std::process::id()), &bytes)
    }
}

/// The folder of records.
#[derive(Clone, Debug)]
pub struct TuneCache {
    folder: Option<PathBuf>,
}

impl TuneCache {
    /// That of the user, in the folder that `WARPLOOM_CACHE` or the system names; without one
    /// nothing is kept.
    pub fn of_user() -> TuneCache {
        TuneCache { folder: platform::cache_folder().map(|folder| folder.join("tune")) }
    }

    /// One in this folder, which is made when something is kept.
    pub fn at(folder: impl Into<PathBuf>) -> TuneCache {
        TuneCache { folder: Some(folder.into()) }
    }

    /// One that keeps nothing.
    pub fn nowhere() -> TuneCache {
        TuneCache { folder: None }
    }

    /// Where the record of a device is kept; `None` where nothing is.
    pub fn path(&self, device: &DriverKey) -> Option<PathBuf> {
        let name = format!("{}.tune", kept::stem(device));
        self.folder.as_ref().map(|folder| folder.join(name))
    }

    /// What was measured on a device; `None` where nothing was.
    ///
    /// # Errors
    /// As [`TuneRecord::load`]; bad file too, for a record of another device.
    pub fn read(&self, device: &DriverKey) -> Result<Option<TuneRecord>> {
        let Some(path) = self.path(device) else { return Ok(None) };
        let Some(record) = TuneRecord::load(&path)? else { return Ok(None) };
        if record.device != *device {
            let (name, driver) = (&record.device.name, &record.device.driver);
            return Err(kept::bad(&path, format!("of another device: {name:?} with {driver:?}")));
        }
        Ok(Some(record))
    }

    /// Adds a record to what is kept of its device, and yields the file. What is kept and bad is
    /// replaced.
    ///
    /// # Errors
    /// Invalid, where nothing is kept, or where it is more than is read back: then what is kept stays
    /// as it was. What the system says.
    pub fn add(&self, record: TuneRecord) -> Result<PathBuf> {
        let path = self.path(&record.device).ok_or_else(|| {
            Error::invalid(format!("nothing is kept: {} is off or not known", config::CACHE.name))
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
        // Only who holds the lock writes this draft, so one that is left over is overwritten.
        let bytes = FILE.write(&all).map_err(|e| e.context(path.display()))?;
        kept::write(&path, "draft", &bytes)?;
        Ok(path)
    }

    /// Forgets a device; whether there was something to forget, readable or not.
    ///
    /// # Errors
    /// What the system says.
    pub fn forget(&self, device: &DriverKey) -> Result<bool> {
        let Some(path) = self.path(device) else { return Ok(false) };
        match path.exists() {
            true => {
                let _lock = lock(&path)?;
                kept::remove(&path)
            }
            false => Ok(false),
        }
    }
}

/// Waits until no other process writes this file. The lock ends with the value, or the process.
fn lock(path: &Path) -> Result<File> {
    let lock = path.with_extension("lock");
    if let Some(folder) = lock.parent() {
        std::fs::create_dir_all(folder).map_err(|e| kept::io("make", folder, e))?;
    }
    let file = File::options().create(true).append(true).open(&lock);
    let file = file.map_err(|e| kept::io("open", &lock, e))?;
    file.lock().map_err(|e| kept::io("lock", &lock, e))?;
    Ok(file)
}
