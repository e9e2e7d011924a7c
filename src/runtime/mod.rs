//! Everything that meets a device: which one, what lives on it, and when work is handed over.
//!
//! `builder` opens a runtime; `select` finds providers and picks a device; `resident` keeps weights and states there;
//! `instance` is a plan made ready on it, `partitioned` one over several devices; `batcher` gathers work into submits; `tensor` is the front
//! end in which operations record and only a read runs; `tune` measures which engines are the fastest. The list of
//! providers in `select` is the only place in the crate that names them.
//!
//! Invariant: nothing here waits but reads ([`Instance::read`], [`tensor`]), except under
//! `WARPLOOM_SYNC=eager`.

mod analyze;
#[cfg(not(target_arch = "wasm32"))]
mod awake;
mod bandwidth;
mod batcher;
mod builder;
mod findings;
mod instance;
mod kept;
mod partitioned;
mod resident;
mod run;
mod select;
pub mod tensor;
mod tune;

use std::path::PathBuf;
use std::sync::Arc;

pub use analyze::AnalyzeOptions;
#[cfg(not(target_arch = "wasm32"))]
pub use awake::Awake;
pub use batcher::{Batcher, Pending, Receipt};
pub use builder::{RuntimeBuilder, deterministic_by_env, engines_by_env};
pub use findings::{Findings, Notebook, WrongEngine, known_wrong_on};
pub use instance::{Begun, Instance, Outputs, Workspace};
pub use partitioned::{PartitionedInstance, Transfers, run_partitioned};
pub use resident::{Resident, WeightSource};
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

/// An open device with what is shared by all that runs on it.
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
    half_sums: bool,
    tensors: tensor::Cache,
    tuning: Tuning,
}

crate::base::debug_as!(Runtime, |this| device: this.device.profile().id(), sync: this.sync, deterministic: this.deterministic);

/// What a device is known to get wrong.
#[derive(Default)]
struct KnownWrong {
    /// What examinations of it found.
    found: Vec<Block>,
    /// Why findings are ignored that are there.
    ignored: Option<String>,
    /// Whether the errata hold.
    errata: bool,
}

impl KnownWrong {
    /// What is kept about a device and what the errata say of it, or nothing.
    fn on(profile: &DeviceProfile, doctor: bool) -> KnownWrong {
        match doctor {
            true => {
                let (found, ignored) = findings::remembered(profile);
                KnownWrong { found, ignored, errata: true }
            }
            false => KnownWrong::default(),
        }
    }
}

/// When the host waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// At reads only.
    Lazy,
    /// After every dispatch, which errors then name.
    Eager,
}

impl Runtime {
    /// The best device of this machine, or the one that `WARPLOOM_DEVICE` names.
    ///
    /// # Errors
    /// As [`RuntimeBuilder::build`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn auto() -> Result<Arc<Runtime>> {
        Runtime::builder().build().map(Arc::new)
    }

    /// How to open one.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// A runtime on a device that is open already, such as an embedder's; [`RuntimeBuilder::build_on`] has more settings.
    ///
    /// # Errors
    /// Invalid, for an environment variable that cannot be read or an engine that is not there.
    pub fn on(device: Arc<dyn Device>, sync: Sync, budget: Option<u64>) -> Result<Runtime> {
        Runtime::builder().sync(sync).memory_budget(budget).build_on(device)
    }

    fn decided(device: Arc<dyn Device>, decided: Decided) -> Result<Runtime> {
        let Decided { sync, budget, deterministic, half_sums, dispatches, registry, .. } = decided;
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
            half_sums,
            tensors: tensor::Cache::default(),
            tuning,
        })
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// What was found, and why this device was selected.
    pub fn detection(&self) -> &Detection {
        &self.detection
    }

    /// What was asked for, found and selected, in one line, with what is known to be wrong here.
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
        if self.half_sums {
            line += " half_sums";
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

    /// The same, to add to.
    pub fn registry_mut(&mut self) -> &mut Registry {
        self.tensors.clear();
        &mut self.registry
    }

    /// Engines that plans take wherever they apply.
    pub fn preferred(&self) -> &[EngineId] {
        &self.preferred
    }

    /// Engines that plans never take.
    pub fn blocked(&self) -> &[EngineId] {
        &self.blocked
    }

    /// Engines that plans leave out on this device because they are known to be wrong: by the
    /// errata, and by examinations.
    pub fn known_wrong(&self) -> Vec<Block> {
        let mut blocks = self.known_wrong.found.clone();
        if self.known_wrong.errata {
            blocks.extend(errata(ERRATA, self.device.profile(), &self.registry));
        }
        blocks
    }

    /// Takes what an examination found in the place of what was found before; plans made from now
    /// on keep to it.
    pub fn set_findings(&mut self, findings: &Findings) {
        self.known_wrong.found = findings.blocks();
        self.known_wrong.ignored = None;
        self.tensors.clear();
    }

    /// Keeps measurements elsewhere from now on, and takes what is kept there, as the mode says.
    pub fn set_tuning(&mut self, mode: TuneMode, cache: TuneCache) {
        self.tuning = Tuning::of(self.device.profile(), mode, cache, &[]);
        self.tensors.clear();
    }

    /// The measured choices that plans take.
    pub fn tuned(&self) -> Arc<TunedChoices> {
        self.tuning.choices()
    }

    /// Takes these in their place; plans made from now on keep to them.
    pub fn set_tuned(&self, choices: TunedChoices) {
        self.tuning.set(choices);
        self.tensors.clear();
    }

    /// What plans for this device are made with, unless more is asked for.
    pub fn plan_options(&self) -> Options<'_> {
        let mut options = Options::new(&self.registry);
        options.preferred = self.preferred.clone();
        options.block = self.blocked.clone();
        options.known_wrong = self.known_wrong();
        options.tuned = vec![self.tuning.choices()];
        options.deterministic = self.deterministic;
        options.half_sums = self.half_sums;
        options
    }

    /// Device memory.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Where work is gathered.
    pub fn batcher(&self) -> &Arc<Batcher> {
        &self.batcher
    }

    /// Whether every plan is a deterministic one: [`Options::deterministic`].
    pub fn deterministic(&self) -> bool {
        self.deterministic
    }

    /// Whether products of `f16` may be summed in `f16`: [`Options::half_sums`].
    pub fn half_sums(&self) -> bool {
        self.half_sums
    }

    /// When the host waits.
    pub fn sync(&self) -> Sync {
        self.sync
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Work that waits in a queue holds on to what it needs, and so on to the queue itself.
        if let Err(error) = self.batcher.flush_all() {
            tracing::error!("work recorded last was not submitted: {error}");
        }
    }
}

/// The engines of the crate, and those of the packs that `WARPLOOM_PACKS` names: what a runtime begins with.
///
/// # Errors
/// That of a pack that cannot be loaded, with the variable's name.
pub fn registry() -> Result<Registry> {
    registry_of(None)
}

/// As [`registry`], with the packs of these folders in the place of those that the variable names.
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
