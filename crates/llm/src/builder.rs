//! Builds a session from a model, on a device and with the settings of [`SessionBuilder`].

use std::sync::Arc;

use super::decoder::CacheShape;
use super::model::Model;
use super::planner::{DeviceModel, Planner};
use super::prewarm::{Expected, Prewarm};
use super::recovery::{OnRecovery, Recovered, Recoveries, Recovery};
use super::sampler::Sampling;
use super::session::{MAX_SEQUENCES, Session};
use super::upload;
use warploom::runtime::Runtime;
use warploom::{Error, Result};
use warploom_core::base::platform::MaybeSendValue;
use warploom_core::base::{ComputeMode, DType};

/// Default limit of the context, in positions.
pub const DEFAULT_CONTEXT: usize = 4096;

/// Progress callback of an upload: receives the bytes uploaded so far and the total. `Send` on
/// native builds.
#[cfg(not(target_arch = "wasm32"))]
pub type OnUpload<'a> = dyn FnMut(u64, u64) + Send + 'a;
/// Progress callback of an upload: receives the bytes uploaded so far and the total.
#[cfg(target_arch = "wasm32")]
pub type OnUpload<'a> = dyn FnMut(u64, u64) + 'a;

/// Builds a [`Session`]; created by [`Session::builder`]. Every setting has a default, which `None`
/// selects in setters that accept it.
#[must_use = "it does nothing until it is built"]
pub struct SessionBuilder<'a> {
    model: Arc<Model>,
    runtime: Option<Runtime>,
    context: Option<usize>,
    sequences: Option<usize>,
    compute: Option<ComputeMode>,
    cache: Option<DType>,
    deterministic: bool,
    expected: Option<Expected>,
    recoveries: Recoveries,
    progress: Box<OnUpload<'a>>,
}

warploom_core::base::debug_as!(SessionBuilder<'a>, |this| model: this.model, context: this.context, sequences: this.sequences);

impl<'a> SessionBuilder<'a> {
    pub(super) fn new(model: Arc<Model>) -> SessionBuilder<'a> {
        SessionBuilder {
            model,
            runtime: None,
            context: None,
            sequences: None,
            compute: None,
            cache: None,
            deterministic: false,
            expected: None,
            recoveries: Recoveries::default(),
            progress: Box::new(|_, _| {}),
        }
    }

    /// Sets the runtime, and with it the device. Default: a new runtime on the best device of the
    /// machine.
    pub fn runtime(mut self, runtime: Runtime) -> SessionBuilder<'a> {
        self.runtime = Some(runtime);
        self
    }

    /// Sets the number of positions per sequence of the KV cache. Default: the model's training
    /// context, but at most 4,096.
    pub fn context(mut self, positions: impl Into<Option<usize>>) -> SessionBuilder<'a> {
        self.context = positions.into();
        self
    }

    /// Sets the number of sequences of the KV cache, 1 to [`MAX_SEQUENCES`]. Default: 1.
    pub fn sequences(mut self, count: impl Into<Option<usize>>) -> SessionBuilder<'a> {
        self.sequences = count.into();
        self
    }

    /// Sets the precision of matrix products with packed or two-byte weights, and of attention over
    /// an f16 cache. Default: [`Session::default_mode`].
    pub fn compute(mut self, mode: impl Into<Option<ComputeMode>>) -> SessionBuilder<'a> {
        self.compute = mode.into();
        self
    }

    /// Sets the element type of the KV cache, f32 or f16. Default: [`Session::default_cache`].
    pub fn cache(mut self, dtype: impl Into<Option<DType>>) -> SessionBuilder<'a> {
        self.cache = dtype.into();
        self
    }

    /// Makes plans deterministic even if the runtime's are not: the same tokens produce the same
    /// logits, bit for bit, whether they run one by one, in chunks or in a batch. Default: the
    /// runtime's setting.
    pub fn deterministic(mut self, deterministic: bool) -> SessionBuilder<'a> {
        self.deterministic = deterministic;
        self
    }

    /// Announces the first text: a prompt of `prompt_tokens` tokens, continued with this sampling.
    /// Its plans are made and compiled while the weights are uploaded, on a background thread or, in
    /// a browser, on the threads of its compiler, so that the first token arrives sooner. Results do
    /// not depend on it. Default: no announcement.
    pub fn prewarm(mut self, prompt_tokens: usize, sampling: &Sampling) -> SessionBuilder<'a> {
        let output = sampling.output_kind();
        self.expected = Some(Expected { tokens: prompt_tokens, output });
        self
    }

    /// Sets what the session does when its device is lost. Default: [`Recovery::SameDevice`].
    /// Ignored for a runtime that cannot open its device again
    /// ([`Runtime::can_reopen`](warploom::runtime::Runtime::can_reopen)).
    pub fn recovery(mut self, recovery: Recovery) -> SessionBuilder<'a> {
        self.recoveries.how = recovery;
        self
    }

    /// Sets the callback that receives each recovery from a lost device. Default: none; recoveries
    /// are also logged as warnings.
    pub fn on_recovery(
        mut self,
        callback: impl Fn(&Recovered) + Send + Sync + 'static,
    ) -> SessionBuilder<'a> {
        let callback: OnRecovery = Arc::new(callback);
        self.recoveries.on_recovery = Some(callback);
        self
    }

    /// Sets the callback that receives the bytes uploaded so far and the total. Default: none.
    pub fn progress(
        mut self,
        progress: impl FnMut(u64, u64) + MaybeSendValue + 'a,
    ) -> SessionBuilder<'a> {
        self.progress = Box::new(progress);
        self
    }

    /// Uploads the weights and allocates the KV cache.
    ///
    /// # Errors
    /// Out of memory, before any upload, if weights and cache exceed the device's budget; invalid
    /// for a context of 0 or longer than the model's, a number of sequences out of range, or a
    /// cache type other than f32 and f16; errors of the device and of opening it.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn build(self) -> Result<Session> {
        warploom_core::base::platform::block_on(self.build_async())
    }

    /// Asynchronous version of `SessionBuilder::build`. Other futures on the same thread may run
    /// between the uploads of two groups of weights.
    ///
    /// # Errors
    /// Same as `SessionBuilder::build`.
    pub async fn build_async(mut self) -> Result<Session> {
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            None => Runtime::builder().build_async().await?,
        };
        let mut progress = std::mem::replace(&mut self.progress, Box::new(|_, _| {}));
        let (expected, mut recoveries) = (self.expected, std::mem::take(&mut self.recoveries));
        if !runtime.can_reopen() {
            recoveries.how = Recovery::Off;
        }
        let mut on = Arc::new(self.on(runtime)?);
        loop {
            upload::check_memory(&on)?;
            let prewarm = Prewarm::begin(&on, expected);
            let uploaded = upload::upload(&on, &mut *progress).await;
            // Ends before a failed upload is reported, so that no thread uses the device later.
            let ready = prewarm.end().await;
            match uploaded {
                Ok(tensors) => {
                    let planner = Planner::new(on.clone(), ready);
                    return Ok(Session::new(on, tensors, planner, recoveries));
                }
                Err(lost) if recoveries.covers(&lost) => {
                    let runtime = recoveries.reopen(&on.runtime, &lost).await?;
                    on = Arc::new(on.with_runtime(runtime));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Checks the settings and fills in the defaults.
    fn on(self, runtime: Runtime) -> Result<DeviceModel> {
        let trained = self.model.config().context;
        let context = self.context.unwrap_or(trained.min(DEFAULT_CONTEXT));
        if context == 0 || context > trained {
            let text = format!(
                "a context of {context} positions, the model was trained for 1 to {trained}"
            );
            return Err(Error::invalid(text));
        }
        let sequences = self.sequences.unwrap_or(1);
        if !(1..=MAX_SEQUENCES).contains(&sequences) {
            let text = format!("{sequences} sequences, a session has 1 to {MAX_SEQUENCES}");
            return Err(Error::invalid(text));
        }
        let profile = runtime.device().profile();
        let mode = self.compute.unwrap_or_else(|| Session::default_mode(profile));
        let dtype = self.cache.unwrap_or(Session::default_cache(mode));
        if !matches!(dtype, DType::F32 | DType::F16) {
            return Err(Error::invalid(format!("a cache of {dtype}, it is of f32 or f16")));
        }
        let weights = self.model.weights_on(profile.kind);
        let cache = CacheShape { sequences, context, dtype };
        let (model, deterministic) = (self.model, self.deterministic);
        Ok(DeviceModel { runtime, model, weights, cache, mode, deterministic })
    }
}
