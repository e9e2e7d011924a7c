//! Runtime: device selection, device memory and submission.
//!
//! `builder` opens a runtime; `select` lists providers and selects a device; `reopen`
//! opens a lost one again; `device_tensors` keeps
//! weights and states in device memory; `instance` is a plan prepared on one device, `partitioned`
//! a plan over several; `batcher` gathers work into submits; `tensor` is the deferred tensor front
//! end; `tune` measures engines. `select` is the only place in the crate that names the providers.
//!
//! Methods with plain names block and exist on native builds only; their `_async` versions exist
//! everywhere. The futures never block the thread that polls them, unless it polls inside
//! [`block_on`](crate::base::platform::block_on): then they wait in place, without another thread.
//! Otherwise one thread per device waits (`batcher`) and one plans and compiles (`offload`).
//!
//! Invariant: only reads wait ([`Instance::read_async`], [`tensor`]), except under
//! `WARPLOOM_SYNC=eager`.

mod analyze;
mod bandwidth;
mod batcher;
mod builder;
mod cache_file;
mod device_copies;
mod device_findings;
mod device_tensors;
mod instance;
#[cfg(not(target_arch = "wasm32"))]
mod instance_blocking;
#[cfg(not(target_arch = "wasm32"))]
mod keep_alive;
mod offload;
mod partitioned;
mod reopen;
mod run;
mod select;
#[cfg(not(target_arch = "wasm32"))]
mod start;
pub mod tensor;
mod tune;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

pub use analyze::AnalyzeOptions;
#[doc(hidden)] // Internals, which the crates for models and tests use too.
pub use batcher::{Batcher, Pending, Receipt};
pub use builder::RuntimeBuilder;
#[doc(hidden)]
pub use builder::{deterministic_by_env, engines_by_env};
pub use device_copies::TensorPart;
#[doc(hidden)]
pub use device_findings::{Findings, Notebook, WrongEngine, known_wrong_on};
pub use device_tensors::{DeviceTensors, WeightSource};
#[doc(hidden)]
pub use instance::Begun;
pub use instance::{Instance, Outputs, Workspace};
#[cfg(not(target_arch = "wasm32"))]
pub use keep_alive::KeepAlive;
#[doc(hidden)]
pub use partitioned::Transfers;
#[cfg(not(target_arch = "wasm32"))]
pub use partitioned::run_partitioned;
pub use partitioned::{PartitionedInstance, run_partitioned_async};
pub use reopen::Reopen;
pub use run::{RunOptions, run_graph_async, run_plan_async};
#[cfg(not(target_arch = "wasm32"))]
pub use run::{run_graph, run_plan};
pub use select::{DetectedDevice, Detection};
#[doc(hidden)]
pub use tune::tuned_on;
pub use tune::{
    Dropped, Suspect, Timing, TuneCache, TuneMode, TuneOptions, TuneProgress, TuneRecord,
    TuneReport, TuneResult, TunedTask, UnmeasuredTask,
};

use builder::Decided;
use tune::Tuning;

use crate::config;
#[cfg(feature = "packs")]
use crate::engine::PackEngine;
use crate::engine::{Block, ERRATA, EngineId, Registry, TunedChoices, errata};
use crate::error::{Error, Result};
#[cfg(feature = "packs")]
use crate::kernel::pack::Pack;
use crate::memory::Pool;
use crate::plan::Options;
#[cfg(not(target_arch = "wasm32"))]
use crate::provider::worker::Worker;
use crate::provider::{Device, DeviceProfile};

/// An open device and the state shared by everything that runs on it. Cloning is cheap; clones are
/// handles to the same runtime.
#[derive(Clone)]
pub struct Runtime(Arc<Inner>);

// Locks are taken over after a panic, and what they guard is always complete.
impl std::panic::UnwindSafe for Runtime {}
impl std::panic::RefUnwindSafe for Runtime {}

struct Inner {
    /// Opened the device; `None` if the device was given.
    builder: Option<RuntimeBuilder>,
    device: Arc<dyn Device>,
    detection: Detection,
    registry: Registry,
    preferred: Vec<EngineId>,
    blocked: Vec<EngineId>,
    known_wrong: RwLock<KnownWrong>,
    pool: Pool,
    batcher: Arc<Batcher>,
    sync: SyncMode,
    deterministic: bool,
    f16_accumulate: bool,
    tensors: tensor::Cache,
    tuning: RwLock<Arc<Tuning>>,
    /// Thread that plans and compiles for async callers.
    #[cfg(not(target_arch = "wasm32"))]
    planner: Worker,
}

crate::base::debug_as!(Runtime, |this| device: this.0.device.profile().id(), sync: this.0.sync, deterministic: this.0.deterministic);

/// Engines known to compute wrong results on a device.
#[derive(Default)]
struct KnownWrong {
    /// Engines that `doctor` runs found wrong.
    found: Vec<Block>,
    /// Why existing findings are ignored, if they are.
    ignored: Option<String>,
    /// Whether the errata apply.
    errata: bool,
}

impl KnownWrong {
    /// Loads the stored findings and the errata of a device; empty unless `doctor` is set.
    fn on(profile: &DeviceProfile, doctor: bool) -> KnownWrong {
        match doctor {
            true => {
                let (found, ignored) = device_findings::remembered(profile);
                KnownWrong { found, ignored, errata: true }
            }
            false => KnownWrong::default(),
        }
    }
}

/// When recorded work is submitted, and when the host waits for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncMode {
    /// Submits tensors that are realized as soon as the device has nothing else to do, and other
    /// work at reads. Waits only at reads. The default; in a browser it is the same as `Lazy`.
    Adaptive,
    /// Submits work at reads, and when much has been recorded. Waits only at reads.
    Lazy,
    /// Waits after every dispatch, so that errors name the dispatch.
    Eager,
}

impl Runtime {
    /// Opens the best device of this machine, or the one named by `WARPLOOM_DEVICE`.
    ///
    /// # Errors
    /// Same as [`RuntimeBuilder::build`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn auto() -> Result<Runtime> {
        Runtime::builder().build()
    }

    /// Async version of [`Runtime::auto`].
    ///
    /// # Errors
    /// Same as [`Runtime::auto`].
    pub async fn auto_async() -> Result<Runtime> {
        Runtime::builder().build_async().await
    }

    /// Returns a builder with default settings.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// Creates a runtime on a device that is already open, such as an embedder's. `budget` limits
    /// device memory in bytes. [`RuntimeBuilder::build_on`] has more settings.
    ///
    /// # Errors
    /// Same as [`RuntimeBuilder::build_on`].
    pub fn on(device: Arc<dyn Device>, sync: SyncMode, budget: Option<u64>) -> Result<Runtime> {
        Runtime::builder().sync(sync).memory_budget(budget).build_on(device)
    }

    fn decided(
        builder: Option<RuntimeBuilder>,
        device: Arc<dyn Device>,
        decided: Decided,
        detection: Detection,
    ) -> Result<Runtime> {
        let Decided { sync, budget, deterministic, f16_accumulate, dispatches, registry, .. } =
            decided;
        let (mode, cache, files) = decided.tune;
        let tuning = Tuning::chosen(device.profile(), mode, cache, files)?;
        let (preferred, blocked) = decided.preferences;
        Ok(Runtime(Arc::new(Inner {
            builder,
            known_wrong: RwLock::new(KnownWrong::on(device.profile(), decided.doctor)),
            detection,
            pool: Pool::new(device.clone(), budget),
            batcher: Arc::new(Batcher::new(device.clone(), dispatches)),
            device,
            registry,
            preferred,
            blocked,
            sync,
            deterministic,
            f16_accumulate,
            tensors: tensor::Cache::default(),
            tuning: RwLock::new(Arc::new(tuning)),
            #[cfg(not(target_arch = "wasm32"))]
            planner: Worker::new("warploom plan"),
        })))
    }

    /// Returns whether this is a clone of `other`.
    pub(crate) fn is(&self, other: &Runtime) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn tensors(&self) -> &tensor::Cache {
        &self.0.tensors
    }

    fn tuning(&self) -> Arc<Tuning> {
        self.0.tuning.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the open device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.0.device
    }

    /// Returns the detected devices and the reason for the selection.
    pub fn detection(&self) -> &Detection {
        &self.0.detection
    }

    /// Returns one line that reports the requested, detected and selected devices, the engines
    /// known to be wrong on the device, and the modes that are on.
    pub fn startup_line(&self) -> String {
        let mut line = self.0.detection.startup_line();
        let blocks = self.known_wrong();
        if !blocks.is_empty() {
            let ids: Vec<&str> = blocks.iter().map(|block| block.engine.as_str()).collect();
            line += &format!(" known_wrong=[{}]", ids.join(", "));
        }
        let known_wrong = self.0.known_wrong.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(ignored) = &known_wrong.ignored {
            line += &format!(" ({ignored})");
        }
        if self.0.deterministic {
            line += " deterministic";
        }
        if self.0.f16_accumulate {
            line += " f16_accumulate";
        }
        let tuning = self.tuning();
        match tuning.choices().choices.len() {
            0 => {}
            count => line += &format!(" tuned={count}"),
        }
        for ignored in &tuning.ignored {
            line += &format!(" ({ignored})");
        }
        line
    }

    /// Returns the engines that plans choose from.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Returns the engine registry for changes, before the runtime is shared, and clears the cached
    /// tensor plans. [`RuntimeBuilder::engine`] adds engines too.
    ///
    /// # Errors
    /// Invalid if clones of this runtime exist, such as those that tensors hold.
    pub fn registry_mut(&mut self) -> Result<&mut Registry> {
        self.tensors().clear();
        let clones = Arc::strong_count(&self.0) - 1;
        let inner = Arc::get_mut(&mut self.0).ok_or_else(|| {
            Error::invalid(format!("the engines of a runtime with {clones} clones cannot change"))
        })?;
        Ok(&mut inner.registry)
    }

    /// Returns the engines that plans use wherever they apply.
    pub fn preferred(&self) -> &[EngineId] {
        &self.0.preferred
    }

    /// Returns the engines that plans never use.
    pub fn blocked(&self) -> &[EngineId] {
        &self.0.blocked
    }

    /// Returns the engines that plans avoid on this device because errata or `doctor` findings list
    /// them as wrong.
    pub fn known_wrong(&self) -> Vec<Block> {
        let known_wrong = self.0.known_wrong.read().unwrap_or_else(PoisonError::into_inner);
        let mut blocks = known_wrong.found.clone();
        if known_wrong.errata {
            blocks.extend(errata(ERRATA, self.0.device.profile(), &self.0.registry));
        }
        blocks
    }

    /// Replaces the findings of earlier `doctor` runs, for plans made from now on.
    pub fn set_findings(&self, findings: &Findings) {
        let mut known_wrong = self.0.known_wrong.write().unwrap_or_else(PoisonError::into_inner);
        known_wrong.found = findings.blocks();
        known_wrong.ignored = None;
        drop(known_wrong);
        self.tensors().clear();
    }

    /// Replaces the tuning cache and, unless `mode` is [`TuneMode::Off`], loads its measurements.
    pub fn set_tuning(&self, mode: TuneMode, cache: TuneCache) {
        let tuning = Tuning::of(self.0.device.profile(), mode, cache, &[]);
        *self.0.tuning.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tuning);
        self.tensors().clear();
    }

    /// Returns the measured engine choices that plans use.
    pub fn tuned(&self) -> Arc<TunedChoices> {
        self.tuning().choices()
    }

    /// Replaces the measured engine choices, for plans made from now on.
    pub fn set_tuned(&self, choices: TunedChoices) {
        self.tuning().set(choices);
        self.tensors().clear();
    }

    /// Returns the default planning options for this device.
    pub fn plan_options(&self) -> Options<'_> {
        let mut options = Options::new(&self.0.registry);
        options.preferred = self.0.preferred.clone();
        options.block = self.0.blocked.clone();
        options.known_wrong = self.known_wrong();
        options.tuned = vec![self.tuning().choices()];
        options.deterministic = self.0.deterministic;
        options.f16_accumulate = self.0.f16_accumulate;
        options
    }

    /// Returns the pool of device memory.
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// Returns the batcher that gathers work into submits.
    pub fn batcher(&self) -> &Arc<Batcher> {
        &self.0.batcher
    }

    /// Returns whether every plan is deterministic: [`Options::deterministic`].
    pub fn deterministic(&self) -> bool {
        self.0.deterministic
    }

    /// Returns whether matrix products of `f16` may accumulate in `f16`:
    /// [`Options::f16_accumulate`].
    pub fn f16_accumulate(&self) -> bool {
        self.0.f16_accumulate
    }

    /// Returns the sync mode, which determines when work is submitted and when the host waits.
    pub fn sync(&self) -> SyncMode {
        self.0.sync
    }

    /// Submits what this thread has realized or run, and does not wait. An application that shares its
    /// device calls it before a submit of its own that reads a result. On the CPU it computes in this
    /// call, if the thread may block.
    ///
    /// # Errors
    /// The device's error if the submit fails.
    pub fn flush(&self) -> Result<()> {
        self.0.batcher.flush()
    }

    /// Submits what this thread has realized or run, and waits until the device has finished all work
    /// that was submitted. Operations on tensors that are only recorded stay so.
    ///
    /// # Errors
    /// Any failure of the device since the last wait.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn synchronize(&self) -> Result<()> {
        crate::base::platform::block_on(self.synchronize_async())
    }

    /// Async version of [`Runtime::synchronize`].
    ///
    /// # Errors
    /// Same as [`Runtime::synchronize`].
    pub async fn synchronize_async(&self) -> Result<()> {
        self.batcher().synchronize().await
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Queued work keeps its resources alive, and through them the queue itself.
        if let Err(error) = self.batcher.flush_all() {
            tracing::error!("work recorded last was not submitted: {error}");
        }
    }
}

/// Returns the initial registry of a runtime: the built-in engines and those of the packs named by
/// `WARPLOOM_PACKS`.
///
/// # Errors
/// The error of a pack that does not load, with the name of the variable.
pub fn registry() -> Result<Registry> {
    registry_of(None)
}

/// Same as [`registry`], with packs from these folders instead of `WARPLOOM_PACKS`.
fn registry_of(given: Option<Vec<PathBuf>>) -> Result<Registry> {
    let mut registry = Registry::builtin();
    if let Some(folders) = given {
        folders.iter().try_for_each(|folder| register(&mut registry, folder))?;
    } else if let Some(folders) = config::var(&config::PACKS) {
        for folder in std::env::split_paths(&folders).filter(|path| !path.as_os_str().is_empty()) {
            register(&mut registry, &folder)
                .map_err(|e| e.context(format_args!("{}", config::PACKS.name)))?;
        }
    }
    Ok(registry)
}

#[cfg(feature = "packs")]
fn register(registry: &mut Registry, folder: &std::path::Path) -> Result<()> {
    registry.add(PackEngine::new(Pack::load(folder)?)?)
}

#[cfg(not(feature = "packs"))]
fn register(_: &mut Registry, folder: &std::path::Path) -> Result<()> {
    Err(Error::unsupported(format!("{}: this build has no packs", folder.display())))
}

fn bad_var(var: &config::Var, value: &str) -> Error {
    Error::invalid(format!("{}={value:?} is not valid: {}", var.name, var.help))
}
