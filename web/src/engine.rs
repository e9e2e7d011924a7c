//! Opens a device, and loads models onto it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use js_sys::{Function, Reflect};
use serde_json::json;
use warploom::plan::{Plan, SlotRole};
use warploom::provider::{DeviceKind, Provider};
use warploom::runtime::SyncMode;
use warploom::{DType, Error, Result, Runtime};
use warploom_llm::{CacheShape, DecoderInput, DecoderOutput, Session, classes};
use warploom_models::gguf::Gguf;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::error::to_js;
use crate::model::Model;
use crate::options::{self, Choice, Load, Open};
use crate::pace::paced;
use crate::source::{Reader, Source};

/// The runtime of an engine, which its models replace when they open a lost device again.
pub(crate) type Shared = Rc<RefCell<Runtime>>;

/// An open device.
#[wasm_bindgen]
pub struct Engine {
    runtime: Shared,
    /// Why the device is not the one that was preferred.
    fallback: Option<String>,
}

#[wasm_bindgen]
impl Engine {
    /// Opens a device. `options` is JSON: `{device?: "auto" | "webgpu" | "cpu", floor?: boolean}`.
    /// "auto" is WebGPU if the browser has a GPU for it, else the CPU; `info` has the reason.
    ///
    /// # Errors
    /// Unsupported if WebGPU is requested and the browser has no adapter; errors of the device.
    pub async fn open(options: String) -> Result<Engine, JsValue> {
        let open = async {
            let options: Open = options::parse("options of the engine", &options)?;
            let (runtime, fallback) = runtime(options).await?;
            Ok(Engine { runtime: Rc::new(RefCell::new(runtime)), fallback })
        };
        open.await.map_err(to_js)
    }

    /// Returns JSON: `{provider, device, version, fallback}`. `device` is the device's profile,
    /// `fallback` the reason why it is not the preferred one, or null.
    pub fn info(&self) -> String {
        let runtime = self.runtime.borrow();
        let profile = runtime.device().profile();
        json!({
            "provider": profile.provider,
            "device": profile,
            "version": env!("CARGO_PKG_VERSION"),
            "fallback": self.fallback,
        })
        .to_string()
    }

    /// Loads a GGUF file. `options` is JSON: `{context?: number, compute?: "f32" | "int8",
    /// cache?: "f32" | "f16", first?: {..}}`. `first` has the options of the first text, as for
    /// [`Model::generate`]: its kernels are compiled while the weights are uploaded. `progress`
    /// receives the bytes uploaded so far and their total. The source must stay readable until the
    /// model is freed.
    ///
    /// # Errors
    /// Io if the source cannot be read; bad file or unsupported, naming file, field and offset, for
    /// its contents; out of memory if it does not fit; errors of the device.
    pub async fn load(
        &self,
        source: Source,
        options: String,
        progress: Function,
    ) -> Result<Model, JsValue> {
        let mut thrown = None;
        let open = async {
            let options: Load = options::parse("options of the model", &options)?;
            let model = open_model(source)?;
            let mut report = |done: u64, total: u64| {
                let called =
                    progress.call2(&JsValue::NULL, &(done as f64).into(), &(total as f64).into());
                thrown = thrown.take().or(called.err());
            };
            Model::load(self.runtime.clone(), model, options, &mut report).await
        };
        let loaded = paced(open).await.map_err(to_js)?;
        match thrown {
            Some(thrown) => Err(thrown),
            None => Ok(loaded),
        }
    }

    /// Returns JSON: `{allocated, used, idle}`, the bytes of the device's buffers, of those in use
    /// and of those that are kept for later.
    pub fn memory(&self) -> String {
        let runtime = self.runtime.borrow();
        let (used, idle) = runtime.pool().usage();
        let allocated = runtime.device().counters().allocated_bytes;
        json!({ "allocated": allocated, "used": used, "idle": idle }).to_string()
    }

    /// Estimates the memory of a model on this device from the head of its file, before it is
    /// loaded. Returns JSON: `{weights, cache, arena, available, fits}` in bytes; `available` and
    /// `fits` are null if the device does not report its memory. `options` as for
    /// [`Engine::load`].
    ///
    /// # Errors
    /// Same as [`Engine::load`].
    pub fn estimate(&self, source: Source, options: &str) -> Result<String, JsValue> {
        self.estimated(source, options).map_err(to_js)
    }
}

impl Engine {
    #[cfg(feature = "compute")]
    pub(crate) fn shared(&self) -> Shared {
        self.runtime.clone()
    }

    fn estimated(&self, source: Source, options: &str) -> Result<String> {
        let options: Load = options::parse("options of the model", options)?;
        let model = open_model(source)?;
        let runtime = self.runtime.borrow().clone();
        let profile = runtime.device().profile();
        let mode = options.compute.map_or_else(|| Session::default_mode(profile), Into::into);
        let dtype: DType = options.cache.map_or(Session::default_cache(mode), Into::into);
        let context = options.context_of(&model);
        let (weights, cache) =
            (model.weight_bytes(), model.cache_bytes_per_token(dtype) * context as u64);
        let shape = CacheShape::new(1, context, dtype);
        let (input, output) = (DecoderInput::Tokens, DecoderOutput::Sample);
        let graph = model.graph_on(profile.kind, shape, input, output)?;
        let graph = warploom::graph::computing_in(&graph, mode)?;
        let class = classes(context).into_iter().next_back();
        let class = class.ok_or_else(|| Error::invalid("no class of sizes"))?;
        let plan = Plan::new(&graph, &class, profile, &runtime.plan_options())?;
        let resident = |role: &SlotRole| {
            !matches!(role, SlotRole::Weight(_) | SlotRole::Merged(_) | SlotRole::State(_))
        };
        let slots = plan.slots.iter().zip(&plan.recording.slots);
        let arena: u64 = slots.filter(|(role, _)| resident(role)).map(|(_, slot)| slot.bytes).sum();
        let available = match runtime.pool().budget() {
            Some(budget) => Some(budget),
            None => Some(profile.memory_bytes).filter(|bytes| *bytes > 0),
        };
        let fits = available.map(|available| weights + cache + arena <= available);
        let report = json!({
            "weights": weights,
            "cache": cache,
            "arena": arena,
            "available": available,
            "fits": fits,
        });
        Ok(report.to_string())
    }
}

/// Reads the head of a GGUF file, and checks the model in it.
pub(crate) fn open_model(source: Source) -> Result<Arc<warploom_llm::Model>> {
    let (reader, name) = Reader::new(source)?;
    warploom_llm::Model::from_gguf(Gguf::from_reader(reader, &name)?)
}

/// Opens a runtime, and returns why it is not on the preferred device. The runtime opens the device
/// itself, so that it can open it again after a loss.
pub(crate) async fn runtime(options: Open) -> Result<(Runtime, Option<String>)> {
    let open = |device: &str| {
        let builder = Runtime::builder().device(device).floor(options.floor);
        builder.sync(SyncMode::Lazy).memory_budget(None).build_async()
    };
    let reason = match options.device {
        Choice::Cpu => None,
        Choice::WebGpu => {
            check_webgpu(true).await?;
            return Ok((open("webgpu").await?, None));
        }
        Choice::Auto => {
            let opened = match check_webgpu(false).await {
                Ok(()) => open("webgpu").await,
                Err(error) => Err(error),
            };
            match opened {
                Ok(runtime) => return Ok((runtime, None)),
                Err(error) => Some(error.to_string()),
            }
        }
    };
    Ok((open("cpu").await?, reason))
}

/// Checks that the browser has a GPU. One that is computed on the CPU counts only if `any` is set,
/// because the CPU provider is faster.
///
/// # Errors
/// Unsupported if there is none; errors of the browser.
async fn check_webgpu(any: bool) -> Result<()> {
    let found = warploom::webgpu::Provider::new().list().await?;
    let Some(profile) = found.first() else {
        return Err(Error::unsupported(match has_webgpu() {
            true => "WebGPU found no adapter: the browser has no GPU that it accepts",
            false => "this browser has no WebGPU (navigator.gpu), or this page is not secure",
        }));
    };
    if profile.kind == DeviceKind::Software && !any {
        // Browsers do not have to say what the adapter is called.
        let name = match profile.name.as_str() {
            "" => String::new(),
            name => format!(" ({name})"),
        };
        return Err(Error::unsupported(format!(
            "the browser's only GPU{name} is emulated on the CPU, slower than the CPU itself"
        )));
    }
    Ok(())
}

fn has_webgpu() -> bool {
    let navigator = Reflect::get(&js_sys::global(), &"navigator".into());
    let gpu = navigator.and_then(|navigator| Reflect::get(&navigator, &"gpu".into()));
    gpu.is_ok_and(|gpu| gpu.is_object())
}
