//! The measured engine choices of a runtime.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use super::cache::{TuneCache, TuneRecord, UnmeasuredTask};
use super::options::TuneMode;
use crate::config;
use crate::engine::{DriverKey, EngineId, TaskKey, TunedChoices};
use crate::error::Result;
use crate::provider::DeviceProfile;

/// The measurements that a runtime uses, and their cache.
#[cfg_attr(target_arch = "wasm32", expect(dead_code, reason = "browsers have no tuner"))]
pub(in crate::runtime) struct Tuning {
    pub(in crate::runtime) mode: TuneMode,
    pub(in crate::runtime) cache: TuneCache,
    /// Files that are ignored, for example because they are missing or invalid, each with the
    /// reason.
    pub(in crate::runtime) ignored: Vec<String>,
    choices: RwLock<Arc<TunedChoices>>,
    /// Tasks that could not be measured.
    unmeasured: RwLock<BTreeMap<TaskKey, UnmeasuredTask>>,
}

impl Tuning {
    /// Loads the measurements cached for a device and those in `files`; none if `mode` is off.
    pub(in crate::runtime) fn of(
        profile: &DeviceProfile,
        mode: TuneMode,
        cache: TuneCache,
        files: &[PathBuf],
    ) -> Tuning {
        let device = DriverKey::of(profile);
        let (record, ignored) = match mode {
            TuneMode::Off => (TuneRecord::new(device), Vec::new()),
            TuneMode::Cached | TuneMode::Search => gather(&device, &cache, files),
        };
        let choices = RwLock::new(Arc::new(record.choices()));
        let unmeasured = RwLock::new(record.unmeasured);
        Tuning { mode, cache, ignored, choices, unmeasured }
    }

    /// Loads measurements by the caller's settings, or else by the environment. The files named by
    /// `WARPLOOM_TUNE_CACHE` are always added.
    ///
    /// # Errors
    /// Same as [`TuneMode::from_env`].
    pub(in crate::runtime) fn chosen(
        profile: &DeviceProfile,
        mode: Option<TuneMode>,
        cache: Option<TuneCache>,
        mut files: Vec<PathBuf>,
    ) -> Result<Tuning> {
        let mode = mode.map_or_else(TuneMode::from_env, Ok)?;
        files.extend(files_from_env());
        Ok(Tuning::of(profile, mode, cache.unwrap_or_else(TuneCache::of_user), &files))
    }

    /// Returns the choices that plans use.
    pub(in crate::runtime) fn choices(&self) -> Arc<TunedChoices> {
        self.choices.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(in crate::runtime) fn set(&self, choices: TunedChoices) {
        *self.choices.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(choices);
    }
}

#[cfg_attr(target_arch = "wasm32", expect(dead_code, reason = "browsers have no tuner"))]
impl Tuning {
    /// Returns whether a measurement of the task with these engine versions was tried and failed.
    pub(in crate::runtime) fn is_unmeasured(
        &self,
        task: &TaskKey,
        engines: &BTreeMap<EngineId, u32>,
    ) -> bool {
        let known = self.unmeasured.read().unwrap_or_else(PoisonError::into_inner);
        known.get(task).is_some_and(|known| known.engines == *engines)
    }

    /// Records a task that could not be measured.
    pub(in crate::runtime) fn set_unmeasured(&self, task: TaskKey, what: UnmeasuredTask) {
        let mut known = self.unmeasured.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(task, what);
    }
}

/// Returns the files named by `WARPLOOM_TUNE_CACHE`.
fn files_from_env() -> Vec<PathBuf> {
    let list = config::var(&config::TUNE_CACHE);
    list.map(|list| std::env::split_paths(&list).collect()).unwrap_or_default()
}

/// Merges the records in `files`, then the user's own record; also returns which files were
/// ignored, with the reason.
fn gather(device: &DriverKey, cache: &TuneCache, files: &[PathBuf]) -> (TuneRecord, Vec<String>) {
    let (mut all, mut ignored) = (TuneRecord::new(device.clone()), Vec::new());
    let mut ignore = |what: String| {
        let text = format!("tuned choices are ignored: {what}");
        tracing::warn!("{text}");
        ignored.push(text);
    };
    for path in files {
        match TuneRecord::load(path) {
            Ok(Some(record)) if record.device == *device => all.merge(record),
            // An application may ship one record per device that it knows.
            Ok(Some(record)) => tracing::debug!(
                "{} is of {:?} with {:?}",
                path.display(),
                record.device.name,
                record.device.driver
            ),
            Ok(None) => ignore(format!("{} is not there", path.display())),
            Err(error) => ignore(error.to_string()),
        }
    }
    match cache.read(device) {
        Ok(record) => record.into_iter().for_each(|record| all.merge(record)),
        Err(error) => ignore(error.to_string()),
    }
    (all, ignored)
}

/// Returns the measured choices that plans for a device use, according to `WARPLOOM_TUNE` and
/// `WARPLOOM_TUNE_CACHE`, as a runtime on the device would. Also returns which files were ignored,
/// with the reason.
///
/// # Errors
/// Invalid if `WARPLOOM_TUNE` has an unknown value.
pub fn tuned_on(profile: &DeviceProfile) -> Result<(Arc<TunedChoices>, Vec<String>)> {
    let tuning = Tuning::chosen(profile, None, None, Vec::new())?;
    Ok((tuning.choices(), tuning.ignored))
}
