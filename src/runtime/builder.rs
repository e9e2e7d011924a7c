//! Opens a runtime. The caller's settings take precedence over the environment, and the environment
//! over detection.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::device_findings::doctor_by_env;
use super::select::{Providers, providers};
use super::{Detection, Runtime, SyncMode, TuneCache, TuneMode, bad_var, batcher, registry_of};
#[cfg(not(target_arch = "wasm32"))]
use crate::base::platform::{block_on, runs_in_place};
use crate::config;
#[cfg(feature = "packs")]
use crate::engine::PackEngine;
use crate::engine::{Engine, EngineId, Registry};
use crate::error::Result;
#[cfg(feature = "packs")]
use crate::kernel::pack::Pack;
#[cfg(not(target_arch = "wasm32"))]
use crate::provider::worker::on_thread;
use crate::provider::{Device, OpenOptions, Provider};

/// Builder of a [`Runtime`]. A setting that is not given comes from the environment, or else has a
/// default. A setting given here overrides its environment variable, which is then not read and may
/// even be invalid.
#[derive(Clone, Debug, Default)]
pub struct RuntimeBuilder {
    device: Option<String>,
    memory_budget: Option<Option<u64>>,
    threads: Option<Option<usize>>,
    floor: bool,
    sync: Option<SyncMode>,
    deterministic: Option<bool>,
    f16_accumulate: Option<bool>,
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

/// Engines added by the caller.
#[derive(Clone, Default)]
struct Engines(Vec<Arc<dyn Engine>>);

impl fmt::Debug for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|engine| engine.id())).finish()
    }
}

impl RuntimeBuilder {
    /// Sets the device to use: `auto`, a provider such as `cpu`, or one device such as `webgpu:1`.
    /// If a provider or device is named, no other provider is queried. Providers added with
    /// [`RuntimeBuilder::provider`] are named the same way. Overrides `WARPLOOM_DEVICE`.
    pub fn device(mut self, device: impl Into<String>) -> RuntimeBuilder {
        self.device = Some(device.into());
        self
    }

    /// Sets the device memory limit in bytes; `None` for no limit. Overrides
    /// `WARPLOOM_MEMORY_BUDGET`.
    pub fn memory_budget(mut self, bytes: Option<u64>) -> RuntimeBuilder {
        self.memory_budget = Some(bytes);
        self
    }

    /// Sets the number of threads of the CPU provider; `None` for one per core. Overrides
    /// `WARPLOOM_THREADS`.
    pub fn threads(mut self, threads: Option<usize>) -> RuntimeBuilder {
        self.threads = Some(threads);
        self
    }

    /// Sets whether the device is opened with WebGPU's guaranteed limits and no optional features.
    pub fn floor(mut self, floor: bool) -> RuntimeBuilder {
        self.floor = floor;
        self
    }

    /// Sets when work is submitted and when the host waits for the device. Overrides `WARPLOOM_SYNC`.
    pub fn sync(mut self, sync: SyncMode) -> RuntimeBuilder {
        self.sync = Some(sync);
        self
    }

    /// Sets whether every plan is deterministic:
    /// [`Options::deterministic`](crate::plan::Options::deterministic). Overrides
    /// `WARPLOOM_DETERMINISTIC`.
    pub fn deterministic(mut self, deterministic: bool) -> RuntimeBuilder {
        self.deterministic = Some(deterministic);
        self
    }

    /// Sets whether matrix products of `f16` may accumulate in `f16`:
    /// [`Options::f16_accumulate`](crate::plan::Options::f16_accumulate). Overrides
    /// `WARPLOOM_F16_ACCUMULATE`.
    pub fn f16_accumulate(mut self, f16_accumulate: bool) -> RuntimeBuilder {
        self.f16_accumulate = Some(f16_accumulate);
        self
    }

    /// Sets whether plans may use every engine, including those that errata or `doctor` findings
    /// list as wrong on this device, for example to test them. Overrides `WARPLOOM_DOCTOR`; `true`
    /// is the same as `off`.
    pub fn trusting(mut self, trusting: bool) -> RuntimeBuilder {
        self.trusting = Some(trusting);
        self
    }

    /// Sets how plans use measurements. Overrides `WARPLOOM_TUNE`.
    pub fn tune(mut self, mode: TuneMode) -> RuntimeBuilder {
        self.tune = Some(mode);
        self
    }

    /// Sets the cache of measurements to use instead of the user's cache.
    pub fn tune_cache(mut self, cache: TuneCache) -> RuntimeBuilder {
        self.tune_cache = Some(cache);
        self
    }

    /// Adds a file of measurements to read, such as one shipped with an application. Can be called
    /// several times.
    pub fn tune_file(mut self, path: impl Into<PathBuf>) -> RuntimeBuilder {
        self.tune_files.push(path.into());
        self
    }

    /// Sets the number of dispatches gathered before a submit, at least one. Overrides
    /// `WARPLOOM_DISPATCHES_PER_SUBMIT`.
    pub fn dispatches_per_submit(mut self, dispatches: usize) -> RuntimeBuilder {
        self.dispatches = Some(dispatches.max(1));
        self
    }

    /// Sets the engines that plans use wherever they apply, and the engines that plans never use.
    /// Overrides `WARPLOOM_ENGINE`.
    pub fn preferences(
        mut self,
        preferred: Vec<EngineId>,
        blocked: Vec<EngineId>,
    ) -> RuntimeBuilder {
        self.preferences = Some((preferred, blocked));
        self
    }

    /// Sets the folders of packs to register as engines; each pack must implement an operation.
    /// Overrides `WARPLOOM_PACKS`.
    pub fn pack_folders(mut self, folders: Vec<PathBuf>) -> RuntimeBuilder {
        self.pack_folders = Some(folders);
        self
    }

    /// Adds a provider to the built-in ones. An [`Arc`] of a provider is a provider too, so the
    /// caller can keep a handle. Can be called several times.
    ///
    /// With `auto`, devices of added providers come before all others, ordered as the providers
    /// were added and as each lists its devices. A device of the kind [`DeviceKind::Null`] is
    /// selected only by name. Devices other than the first are also selected by name:
    /// `.device("mine:1")` or `WARPLOOM_DEVICE=mine:1`. `WARPLOOM_DEVICE=cpu` still selects the
    /// built-in CPU provider.
    ///
    /// If a provider cannot list its devices, or if with `auto` a device does not open,
    /// [`Runtime::startup_line`] and [`Detection::failures`] report it and the next device is
    /// tried. For a device requested by name this is an error.
    ///
    /// The provider's name consists of letters, digits, `-` and `_`. It must not be `auto` or the
    /// name of another provider, including built-in ones that this build lacks. Each profile must
    /// carry that name and its index in the list. Plans follow the profile: [`DeviceKind::Cpu`]
    /// runs the Rust functions of `cpu`, all other kinds run WGSL. Capabilities such as cuBLASLt
    /// calls or overlapping launches, and measured constants, are fields of the profile
    /// ([`DeviceProfile`]), so a provider that wraps `cuda` keeps them. Native kernels of packs and
    /// errata apply only to the providers named `cuda`, `opencl` and `webgpu`, so they do not apply
    /// to a wrapper.
    ///
    /// [`DeviceKind::Null`]: crate::provider::DeviceKind::Null
    /// [`DeviceProfile`]: crate::provider::DeviceProfile
    /// [`DeviceKind::Cpu`]: crate::provider::DeviceKind::Cpu
    pub fn provider(mut self, provider: impl Provider + 'static) -> RuntimeBuilder {
        self.providers.0.push(Arc::new(provider));
        self
    }

    /// Registers an additional engine. Can be called several times.
    pub fn engine(mut self, engine: Arc<dyn Engine>) -> RuntimeBuilder {
        self.engines.0.push(engine);
        self
    }

    /// Registers a pack as an engine with the id `pack.NAME`, where `NAME` is the pack's name.
    ///
    /// # Errors
    /// Invalid if the pack's manifest implements no operation.
    #[cfg(feature = "packs")]
    pub fn pack(self, pack: Pack) -> Result<RuntimeBuilder> {
        Ok(self.engine(PackEngine::new(pack)?))
    }

    /// Detects the devices and selects one without opening it.
    ///
    /// # Errors
    /// Invalid if the requested device does not exist (the error lists the available ones), or if a
    /// provider has an invalid or duplicate name.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn detect(&self) -> Result<Detection> {
        block_on(self.detect_async())
    }

    /// Async version of [`RuntimeBuilder::detect`].
    ///
    /// # Errors
    /// Same as [`RuntimeBuilder::detect`].
    pub async fn detect_async(&self) -> Result<Detection> {
        #[cfg(not(target_arch = "wasm32"))]
        if !runs_in_place() {
            let builder = self.clone();
            return on_thread("warploom open", move || builder.detect()).await;
        }
        Detection::among(&providers(&self.providers)?, &self.requested()).await
    }

    /// Returns the device requested by the caller, else by `WARPLOOM_DEVICE`, else `auto`.
    fn requested(&self) -> String {
        let requested = self.device.clone().or_else(|| config::var(&config::DEVICE));
        requested.unwrap_or_else(|| "auto".into())
    }

    /// Opens the device and returns the runtime.
    ///
    /// # Errors
    /// Same as [`RuntimeBuilder::detect`] and [`RuntimeBuilder::build_on`]; the provider's error if
    /// the device does not open. A device requested by name is never replaced by another.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn build(self) -> Result<Runtime> {
        block_on(self.build_async())
    }

    /// Async version of [`RuntimeBuilder::build`].
    ///
    /// # Errors
    /// Same as [`RuntimeBuilder::build`].
    pub async fn build_async(self) -> Result<Runtime> {
        #[cfg(not(target_arch = "wasm32"))]
        if !runs_in_place() {
            return on_thread("warploom open", move || self.build()).await;
        }
        // Settings are checked before a driver is initialised.
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
        Runtime::decided(Some(self), device, decided, detection)
    }

    /// Returns a runtime on a device that is already open, such as an embedder's. Settings that
    /// only apply to opening a device are ignored: device name, threads, limits and providers.
    ///
    /// # Errors
    /// Invalid if an environment variable that is read has an invalid value, or if an engine is
    /// registered twice; the error of a pack that does not load.
    pub fn build_on(self, device: Arc<dyn Device>) -> Result<Runtime> {
        let detection = Detection::given(device.profile());
        Runtime::decided(None, device, self.decide()?, detection)
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
            f16_accumulate: self.f16_accumulate.map_or_else(f16_accumulate_by_env, Ok)?,
            doctor: self.trusting.map_or_else(doctor_by_env, |trusting| Ok(!trusting))?,
            dispatches: self.dispatches.map_or_else(dispatches_by_env, Ok)?,
            preferences: self.preferences.map_or_else(engines_by_env, Ok)?,
            tune: (self.tune, self.tune_cache, self.tune_files),
            registry,
        })
    }
}

/// Resolved settings of a runtime, without the device.
pub(super) struct Decided {
    pub(super) sync: SyncMode,
    pub(super) budget: Option<u64>,
    pub(super) deterministic: bool,
    pub(super) f16_accumulate: bool,
    /// Whether plans avoid engines known to be wrong on the device.
    pub(super) doctor: bool,
    pub(super) dispatches: usize,
    /// Preferred engines and blocked engines.
    pub(super) preferences: (Vec<EngineId>, Vec<EngineId>),
    pub(super) tune: (Option<TuneMode>, Option<TuneCache>, Vec<PathBuf>),
    pub(super) registry: Registry,
}

/// Returns whether `WARPLOOM_DETERMINISTIC` requests deterministic plans.
///
/// # Errors
/// Invalid if the variable is set to anything but 0 or 1.
pub fn deterministic_by_env() -> Result<bool> {
    switch(&config::DETERMINISTIC)
}

/// Returns whether `WARPLOOM_F16_ACCUMULATE` allows `f16` accumulation.
pub(super) fn f16_accumulate_by_env() -> Result<bool> {
    switch(&config::F16_ACCUMULATE)
}

/// Reads a variable that is 0 or 1; 0 if unset.
fn switch(var: &'static config::Var) -> Result<bool> {
    match config::var(var).as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(bad_var(var, other)),
    }
}

/// Returns the preferred and the blocked engines in `WARPLOOM_ENGINE`. Planning checks that they
/// exist, since engines can be added until then.
///
/// # Errors
/// Invalid if a name is empty, or if no built-in engine has the prefix of a name that ends in `*`.
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
            // All built-in engines with this prefix.
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

fn sync_by_env() -> Result<SyncMode> {
    match config::var(&config::SYNC).as_deref() {
        None | Some("adaptive") => Ok(SyncMode::Adaptive),
        Some("lazy") => Ok(SyncMode::Lazy),
        Some("eager") => Ok(SyncMode::Eager),
        Some(other) => Err(bad_var(&config::SYNC, other)),
    }
}
