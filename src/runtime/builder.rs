//! How a runtime is opened: what the caller says, else the environment, else what is found.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::findings::doctor_by_env;
use super::select::{Providers, providers};
use super::{Detection, Runtime, Sync, TuneCache, TuneMode, bad_var, batcher, registry_of};
use crate::config;
#[cfg(feature = "packs")]
use crate::engine::PackEngine;
use crate::engine::{Engine, EngineId, Registry};
use crate::error::Result;
#[cfg(feature = "packs")]
use crate::kernel::pack::Pack;
use crate::provider::{Device, OpenOptions, Provider};

/// How to open a [`Runtime`]. What is not set comes from the environment, then from defaults. A setting
/// made here overrides its variable, which is then not read, even if it is invalid.
#[derive(Clone, Debug, Default)]
pub struct RuntimeBuilder {
    device: Option<String>,
    memory_budget: Option<Option<u64>>,
    threads: Option<Option<usize>>,
    floor: bool,
    sync: Option<Sync>,
    deterministic: Option<bool>,
    half_sums: Option<bool>,
    trusting: Option<bool>,
    tune: Option<TuneMode>,
    tune_cache: Option<TuneCache>,
    tune_files: Vec<PathBuf>,
    dispatches: Option<usize>,
    preferences: Option<(Vec<EngineId>, Vec<EngineId>)>,
    pack_folders: Option<Vec<PathBuf>>,
    engines: Engines,
    providers: Providers,
}

/// Engines of the caller.
#[derive(Clone, Default)]
struct Engines(Vec<Arc<dyn Engine>>);

impl fmt::Debug for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|engine| engine.id())).finish()
    }
}

impl RuntimeBuilder {
    /// The device to use: `auto`, a provider such as `cpu`, or one device such as `webgpu:1`, for which no other provider is asked.
    /// Providers of [`RuntimeBuilder::provider`] are named like those of the crate.
    pub fn device(mut self, device: impl Into<String>) -> RuntimeBuilder {
        self.device = Some(device.into());
        self
    }

    /// Bytes of device memory that may be used; `None` for what there is, whatever
    /// `WARPLOOM_MEMORY_BUDGET` says.
    pub fn memory_budget(mut self, bytes: Option<u64>) -> RuntimeBuilder {
        self.memory_budget = Some(bytes);
        self
    }

    /// Threads of the CPU provider; `None` for one a core, whatever `WARPLOOM_THREADS` says.
    pub fn threads(mut self, threads: Option<usize>) -> RuntimeBuilder {
        self.threads = Some(threads);
        self
    }

    /// Opens the device with WebGPU's guaranteed limits and no optional feature.
    pub fn floor(mut self, floor: bool) -> RuntimeBuilder {
        self.floor = floor;
        self
    }

    /// When the host waits.
    pub fn sync(mut self, sync: Sync) -> RuntimeBuilder {
        self.sync = Some(sync);
        self
    }

    /// Whether every plan is a deterministic one: [`Options::deterministic`](crate::plan::Options::deterministic).
    pub fn deterministic(mut self, deterministic: bool) -> RuntimeBuilder {
        self.deterministic = Some(deterministic);
        self
    }

    /// Whether products of `f16` may be summed in `f16`: [`Options::half_sums`](crate::plan::Options::half_sums).
    pub fn half_sums(mut self, half_sums: bool) -> RuntimeBuilder {
        self.half_sums = Some(half_sums);
        self
    }

    /// Whether plans take every engine, also those that errata or examinations say are wrong on
    /// this device: for examining them. `WARPLOOM_DOCTOR=off` is `true`.
    pub fn trusting(mut self, trusting: bool) -> RuntimeBuilder {
        self.trusting = Some(trusting);
        self
    }

    /// What plans do with measurements, whatever `WARPLOOM_TUNE` says.
    pub fn tune(mut self, mode: TuneMode) -> RuntimeBuilder {
        self.tune = Some(mode);
        self
    }

    /// Where measurements are kept, in the place of the user's cache.
    pub fn tune_cache(mut self, cache: TuneCache) -> RuntimeBuilder {
        self.tune_cache = Some(cache);
        self
    }

    /// A file of measurements to read besides those: one that an application brings. May be called
    /// for several.
    pub fn tune_file(mut self, path: impl Into<PathBuf>) -> RuntimeBuilder {
        self.tune_files.push(path.into());
        self
    }

    /// Dispatches gathered before a submit, at least one, whatever `WARPLOOM_DISPATCHES_PER_SUBMIT` says.
    pub fn dispatches_per_submit(mut self, dispatches: usize) -> RuntimeBuilder {
        self.dispatches = Some(dispatches.max(1));
        self
    }

    /// Engines that plans prefer where they apply, and engines that they never take, whatever `WARPLOOM_ENGINE` says.
    pub fn preferences(
        mut self,
        preferred: Vec<EngineId>,
        blocked: Vec<EngineId>,
    ) -> RuntimeBuilder {
        self.preferences = Some((preferred, blocked));
        self
    }

    /// Folders of packs that implement an operation, to register as engines, whatever `WARPLOOM_PACKS` says.
    pub fn pack_folders(mut self, folders: Vec<PathBuf>) -> RuntimeBuilder {
        self.pack_folders = Some(folders);
        self
    }

    /// A provider of the caller's beside those of the crate; [`Arc`]s of providers are providers, for
    /// who keeps one. May be called for several.
    ///
    /// With `auto` its devices come before all others, whatever they are: who brings a provider means
    /// it to be used. Among several the one that was given first comes first, and among the devices
    /// of one the order in which it lists them. One of the kind [`DeviceKind::Null`] is taken only by
    /// name, and any other than the first is asked for by name as well: `.device("mine:1")`, or
    /// `WARPLOOM_DEVICE=mine:1`, which also asks for `cpu` in spite of this provider.
    ///
    /// A provider that cannot list its devices, and with `auto` a device that does not open, is told
    /// in [`Runtime::startup_line`] and in [`Detection::failures`], and the next one is taken. A device
    /// that was asked for by name is an error then.
    ///
    /// Its name is letters, digits, `-` and `_`, that of no other provider (also of those of this crate that
    /// a build is without) and not `auto`, and its
    /// profiles say that name and their place in its list. What plans take for a device follows from
    /// its profile: Rust functions of `cpu` for [`DeviceKind::Cpu`] and WGSL for all others. Calls of
    /// cuBLASLt, twins of a pack and errata go by the names `cuda`, `opencl` and `webgpu`, so a provider
    /// around one of those has none of them.
    ///
    /// [`DeviceKind::Null`]: crate::provider::DeviceKind::Null
    /// [`DeviceKind::Cpu`]: crate::provider::DeviceKind::Cpu
    pub fn provider(mut self, provider: impl Provider + 'static) -> RuntimeBuilder {
        self.providers.0.push(Arc::new(provider));
        self
    }

    /// An engine to register beside those of the crate. May be called for several.
    pub fn engine(mut self, engine: Arc<dyn Engine>) -> RuntimeBuilder {
        self.engines.0.push(engine);
        self
    }

    /// A pack to register as an engine, `pack.` and its name.
    ///
    /// # Errors
    /// Invalid, where its manifest implements no operation.
    #[cfg(feature = "packs")]
    pub fn pack(self, pack: Pack) -> Result<RuntimeBuilder> {
        Ok(self.engine(PackEngine::new(pack)?))
    }

    /// What there is and what would be opened, without opening it.
    ///
    /// # Errors
    /// Invalid, with what there is, when the device asked for does not exist, and for a provider
    /// whose name is taken or none.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn detect(&self) -> Result<Detection> {
        crate::base::platform::block_on(self.detect_async())
    }

    /// As `detect`, as a future. On native builds it blocks the thread that polls it.
    ///
    /// # Errors
    /// As `detect`.
    pub async fn detect_async(&self) -> Result<Detection> {
        Detection::among(&providers(&self.providers)?, &self.requested()).await
    }

    /// The device that the caller asks for, or `WARPLOOM_DEVICE`.
    fn requested(&self) -> String {
        let requested = self.device.clone().or_else(|| config::var(&config::DEVICE));
        requested.unwrap_or_else(|| "auto".into())
    }

    /// Opens the device.
    ///
    /// # Errors
    /// As [`RuntimeBuilder::detect`]; what the provider said, when the device does not open. A
    /// device that was asked for is never replaced by another.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn build(self) -> Result<Runtime> {
        crate::base::platform::block_on(self.build_async())
    }

    /// As `build`, as a future. On native builds it blocks the thread that polls it.
    ///
    /// # Errors
    /// As `build`.
    pub async fn build_async(self) -> Result<Runtime> {
        // Before a driver wakes.
        let decided = self.clone().decide()?;
        let options = OpenOptions {
            floor: self.floor,
            memory_budget: decided.budget,
            threads: self.threads.map_or_else(threads_by_env, Ok)?,
        };
        let providers = providers(&self.providers)?;
        let mut detection = Detection::to_open(&providers, &self.requested()).await?;
        let device = detection.open(&providers, options).await?;
        tracing::info!("{}", detection.startup_line());
        let mut runtime = Runtime::decided(device, decided)?;
        runtime.detection = detection;
        Ok(runtime)
    }

    /// On a device that is open already, such as an embedder's. What only opening needs is not looked at: the device's name,
    /// threads, limits and providers.
    ///
    /// # Errors
    /// Invalid, for an environment variable that is needed and cannot be read, or an engine that is there already.
    pub fn build_on(self, device: Arc<dyn Device>) -> Result<Runtime> {
        Runtime::decided(device, self.decide()?)
    }

    fn decide(self) -> Result<Decided> {
        let mut registry = registry_of(self.pack_folders)?;
        for engine in self.engines.0 {
            registry.add(engine)?;
        }
        Ok(Decided {
            budget: self.memory_budget.map_or_else(memory_budget_by_env, Ok)?,
            sync: self.sync.map_or_else(sync_by_env, Ok)?,
            deterministic: self.deterministic.map_or_else(deterministic_by_env, Ok)?,
            half_sums: self.half_sums.map_or_else(half_sums_by_env, Ok)?,
            doctor: self.trusting.map_or_else(doctor_by_env, |trusting| Ok(!trusting))?,
            dispatches: self.dispatches.map_or_else(dispatches_by_env, Ok)?,
            preferences: self.preferences.map_or_else(engines_by_env, Ok)?,
            tune: (self.tune, self.tune_cache, self.tune_files),
            registry,
        })
    }
}

/// What a runtime is made with besides its device.
pub(super) struct Decided {
    pub(super) sync: Sync,
    pub(super) budget: Option<u64>,
    pub(super) deterministic: bool,
    pub(super) half_sums: bool,
    /// Whether what the device is known to get wrong is left out.
    pub(super) doctor: bool,
    pub(super) dispatches: usize,
    /// Engines that are preferred, and those that are blocked.
    pub(super) preferences: (Vec<EngineId>, Vec<EngineId>),
    pub(super) tune: (Option<TuneMode>, Option<TuneCache>, Vec<PathBuf>),
    pub(super) registry: Registry,
}

/// Whether `WARPLOOM_DETERMINISTIC` asks for plans that are deterministic ones.
///
/// # Errors
/// Invalid, where it is neither 0 nor 1.
pub fn deterministic_by_env() -> Result<bool> {
    switch(&config::DETERMINISTIC)
}

/// Whether `WARPLOOM_HALF_SUMS` allows sums in `f16`.
pub(super) fn half_sums_by_env() -> Result<bool> {
    switch(&config::HALF_SUMS)
}

/// A variable that is 0 or 1; 0 where it is not set.
fn switch(var: &'static config::Var) -> Result<bool> {
    match config::var(var).as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(bad_var(var, other)),
    }
}

/// The engines that `WARPLOOM_ENGINE` names: to prefer where they apply, and never to take. Whether they exist is asked when a
/// plan is made, since engines can be added until then.
///
/// # Errors
/// Invalid, for an empty name and for a beginning that no engine of this crate has.
pub fn engines_by_env() -> Result<(Vec<EngineId>, Vec<EngineId>)> {
    let (mut preferred, mut blocked) = (Vec::new(), Vec::new());
    for name in config::var(&config::ENGINE).iter().flat_map(|list| list.split(',')) {
        let name = name.trim();
        let (id, list) = match name.strip_prefix('-') {
            Some(id) => (id, &mut blocked),
            None => (name, &mut preferred),
        };
        match id.strip_suffix('*') {
            _ if id.is_empty() => return Err(bad_var(&config::ENGINE, name)),
            None => list.push(EngineId::new(id.to_string())),
            // All of this crate that begin so.
            Some(begin) => {
                let registry = Registry::builtin();
                let ids = registry.engines().iter().map(|engine| engine.id().clone());
                let before = list.len();
                list.extend(ids.filter(|id| id.as_str().starts_with(begin)));
                if list.len() == before {
                    return Err(bad_var(&config::ENGINE, name));
                }
            }
        }
    }
    Ok((preferred, blocked))
}

fn dispatches_by_env() -> Result<usize> {
    let Some(text) = config::var(&config::DISPATCHES_PER_SUBMIT) else {
        return Ok(batcher::DEFAULT_DISPATCHES);
    };
    let dispatches = text.parse().ok().filter(|dispatches| *dispatches > 0);
    dispatches.ok_or_else(|| bad_var(&config::DISPATCHES_PER_SUBMIT, &text))
}

fn memory_budget_by_env() -> Result<Option<u64>> {
    let Some(text) = config::var(&config::MEMORY_BUDGET) else { return Ok(None) };
    let bytes = config::parse_bytes(&text);
    bytes.map(Some).ok_or_else(|| bad_var(&config::MEMORY_BUDGET, &text))
}

fn threads_by_env() -> Result<Option<usize>> {
    let Some(text) = config::var(&config::THREADS) else { return Ok(None) };
    let threads = text.parse().ok().filter(|threads| *threads > 0);
    threads.map(Some).ok_or_else(|| bad_var(&config::THREADS, &text))
}

fn sync_by_env() -> Result<Sync> {
    match config::var(&config::SYNC).as_deref() {
        None | Some("lazy") => Ok(Sync::Lazy),
        Some("eager") => Ok(Sync::Eager),
        Some(other) => Err(bad_var(&config::SYNC, other)),
    }
}
