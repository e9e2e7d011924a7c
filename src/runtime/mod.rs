//! Runtime: device selection, device memory and submission.
//!
//! `builder` opens a runtime; `select` lists providers and selects a device; `device_tensors` keeps
//! weights and states in device memory; `instance` is a plan prepared on one device, `partitioned`
//! a plan over several; `batcher` gathers work into submits; `tensor` is the deferred tensor front
//! end; `tune` measures engines. `select` is the only place in the crate that names the providers.
//!
//! Invariant: only reads wait ([`Instance::read`], [`tensor`]), except under `WARPLOOM_SYNC=eager`.

mod analyze;
mod bandwidth;
mod batcher;
mod builder;
mod cache_file;
mod device_findings;
mod device_tensors;
mod instance;
#[cfg(not(target_arch = "wasm32"))]
mod keep_alive;
mod partitioned;
mod run;
mod select;
pub mod tensor;
mod tune;

use std::path::PathBuf;
use std::sync::Arc;

pub use analyze::AnalyzeOptions;
pub use batcher::{Batcher, Pending, Receipt};
pub use builder::{RuntimeBuilder, deterministic_by_env, engines_by_env};
pub use device_findings::{Findings, Notebook, WrongEngine, known_wrong_on};
pub use device_tensors::{DeviceTensors, WeightSource};
pub use instance::{Begun, Instance, Outputs, Workspace};
#[cfg(not(target_arch = "wasm32"))]
pub use keep_alive::KeepAlive;
pub use partitioned::{PartitionedInstance, Transfers, run_partitioned};
pub use run::{RunOptions, run_graph, run_plan};
pub use select::{DetectedDevice, Detection};
pub use tune::{
    Dropped, Suspect, Timing, TuneCache, TuneMode, TuneOptions, TuneProgress, TuneRecord,
    TuneReport, TuneResult, TunedTask, UnmeasuredTask, tuned_on,
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
use crate::provider::{Device, DeviceProfile};

/// An open device and the state shared by everything that runs on it.
pub struct Runtime {
    device: Arc<dyn Device>,
    detection: Detection,
    registry: Registry,
    preferred: Vec<EngineId>,
    blocked: Vec<EngineId>,
    known_wrong: KnownWrong,
    pool: Pool,
    batcher: Arc<Batcher>,
    sync: Sync,
    deterministic: bool,
    f16_accumulate: bool,
    tensors: tensor::Cache,
    tuning: Tuning,
}

crate::base::debug_as!(Runtime, |this| device: this.device.profile().id(), sync: this.sync, deterministic: this.deterministic);

/// Engines known to give wrong results on a device.
#[derive(Default)]
struct KnownWrong {
    /// Engines that `doctor` runs found wrong.
    found: Vec<Block>,
    /// Why existing findings are ignored.
    ignored: Option<String>,
    /// Whether the errata apply.
    errata: bool,
}

impl KnownWrong {
    /// Stored findings and errata of a device; empty unless `doctor` is set.
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

/// When the host waits for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Only at reads.
    Lazy,
    /// After every dispatch, so that errors name the dispatch.
    Eager,
}

impl Runtime {
    /// Opens the best device of this machine, or the one named by `WARPLOOM_DEVICE`.
    ///
    /// # Errors
    /// As [`RuntimeBuilder::build`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn auto() -> Result<Arc<Runtime>> {
        Runtime::builder().build().map(Arc::new)
    }

    /// Returns a builder with default settings.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// A runtime on a device that is already open, such as an embedder's.
    /// [`RuntimeBuilder::build_on`] has more settings.
    ///
    /// # Errors
    /// Invalid for an unreadable environment variable or an unknown engine.
    pub fn on(device: Arc<dyn Device>, sync: Sync, budget: Option<u64>) -> Result<Runtime> {
        Runtime::builder().sync(sync).memory_budget(budget).build_on(device)
    }

    fn decided(device: Arc<dyn Device>, decided: Decided) -> Result<Runtime> {
        let Decided { sync, budget, deterministic, f16_accumulate, dispatches, registry, .. } =
            decided;
        let (mode, cache, files) = decided.tune;
        let tuning = Tuning::chosen(device.profile(), mode, cache, files)?;
        let (preferred, blocked) = decided.preferences;
        Ok(Runtime {
            known_wrong: KnownWrong::on(device.profile(), decided.doctor),
            detection: Detection::given(device.profile()),
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
            tuning,
        })
    }

    /// The open device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The detected devices and the reason for the selection.
    pub fn detection(&self) -> &Detection {
        &self.detection
    }

    /// One line with the requested, detected and selected devices, and the engines known wrong
    /// here.
    pub fn startup_line(&self) -> String {
        let mut line = self.detection.startup_line();
        let blocks = self.known_wrong();
        if !blocks.is_empty() {
            let ids: Vec<&str> = blocks.iter().map(|block| block.engine.as_str()).collect();
            line += &format!(" known_wrong=[{}]", ids.join(", "));
        }
        if let Some(ignored) = &self.known_wrong.ignored {
            line += &format!(" ({ignored})");
        }
        if self.deterministic {
            line += " deterministic";
        }
        if self.f16_accumulate {
            line += " f16_accumulate";
        }
        match self.tuning.choices().choices.len() {
            0 => {}
            count => line += &format!(" tuned={count}"),
        }
        for ignored in &self.tuning.ignored {
            line += &format!(" ({ignored})");
        }
        line
    }

    /// The engines that plans choose from.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The engine registry, mutable. Clears the cached tensor plans.
    pub fn registry_mut(&mut self) -> &mut Registry {
        self.tensors.clear();
        &mut self.registry
    }

    /// Engines that plans use wherever they apply.
    pub fn preferred(&self) -> &[EngineId] {
        &self.preferred
    }

    /// Engines that plans never use.
    pub fn blocked(&self) -> &[EngineId] {
        &self.blocked
    }

    /// Engines that plans avoid on this device because errata or `doctor` findings list them as
    /// wrong.
    pub fn known_wrong(&self) -> Vec<Block> {
        let mut blocks = self.known_wrong.found.clone();
        if self.known_wrong.errata {
            blocks.extend(errata(ERRATA, self.device.profile(), &self.registry));
        }
        blocks
    }

    /// Replaces the findings of earlier `doctor` runs. Applies to plans made from now on.
    pub fn set_findings(&mut self, findings: &Findings) {
        self.known_wrong.found = findings.blocks();
        self.known_wrong.ignored = None;
        self.tensors.clear();
    }

    /// Replaces the tuning cache and loads its measurements as `mode` says.
    pub fn set_tuning(&mut self, mode: TuneMode, cache: TuneCache) {
        self.tuning = Tuning::of(self.device.profile(), mode, cache, &[]);
        self.tensors.clear();
    }

    /// The measured engine choices that plans use.
    pub fn tuned(&self) -> Arc<TunedChoices> {
        self.tuning.choices()
    }

    /// Replaces the measured choices. Applies to plans made from now on.
    pub fn set_tuned(&self, choices: TunedChoices) {
        self.tuning.set(choices);
        self.tensors.clear();
    }

    /// Default planning options for this device.
    pub fn plan_options(&self) -> Options<'_> {
        let mut options = Options::new(&self.registry);
        options.preferred = self.preferred.clone();
        options.block = self.blocked.clone();
        options.known_wrong = self.known_wrong();
        options.tuned = vec![self.tuning.choices()];
        options.deterministic = self.deterministic;
        options.f16_accumulate = self.f16_accumulate;
        options
    }

    /// The pool of device memory.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The batcher that gathers work into submits.
    pub fn batcher(&self) -> &Arc<Batcher> {
        &self.batcher
    }

    /// Whether every plan is deterministic: [`Options::deterministic`].
    pub fn deterministic(&self) -> bool {
        self.deterministic
    }

    /// Whether `f16` products may accumulate in `f16`: [`Options::f16_accumulate`].
    pub fn f16_accumulate(&self) -> bool {
        self.f16_accumulate
    }

    /// When the host waits for the device.
    pub fn sync(&self) -> Sync {
        self.sync
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Queued work keeps its resources alive, and through them the queue itself.
        if let Err(error) = self.batcher.flush_all() {
            tracing::error!("work recorded last was not submitted: {error}");
        }
    }
}

/// The built-in engines and those of the packs named by `WARPLOOM_PACKS`: the initial registry of a
/// runtime.
///
/// # Errors
/// The error of a pack that does not load, with the variable's name.
pub fn registry() -> Result<Registry> {
    registry_of(None)
}

/// As [`registry`], with packs from these folders instead of `WARPLOOM_PACKS`.
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
