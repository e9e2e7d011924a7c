//! Calls the library for the commands: detects devices, opens models, generates and measures.

use crate::analyze;
use crate::args::Place;
use crate::download;
use crate::timing_device::Clocked;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warploom::ComputeMode;

use warploom::plan::Report;
use warploom::provider::{Device, DeviceKind, DeviceProfile};
use warploom::runtime::{AnalyzeOptions, Detection, Runtime, tuned_on};
use warploom_llm::chat::Chat;
use warploom_llm::sampler::Sampling;
use warploom_llm::tokenizer::EncodeOptions;
use warploom_llm::{
    DecoderOutput, Event, Finish, GenerateOptions, Model, OnUpload, OnWindow, Output, Perplexity,
    PerplexityOptions, Recovery, Session, StepRequest,
};
use warploom_models::gguf::Access;

/// The available devices and the selected one.
pub(crate) struct Found {
    pub(crate) startup_line: String,
    pub(crate) devices: Vec<FoundDevice>,
    /// Providers that could not list their devices, and the reason.
    pub(crate) failures: Vec<(String, String)>,
    /// Unavailable providers, and what the machine lacks for each.
    pub(crate) absent: Vec<(String, String)>,
}

pub(crate) struct FoundDevice {
    pub(crate) profile: DeviceProfile,
    pub(crate) reason: String,
    pub(crate) selected: bool,
    /// Number of tasks for which the tuner stored a choice.
    pub(crate) tuned: usize,
}

/// A generation request.
pub(crate) struct Request {
    pub(crate) max_tokens: usize,
    pub(crate) sampling: Sampling,
}

/// The generated text and its timing.
pub(crate) struct Written {
    pub(crate) text: String,
    pub(crate) tokens: Vec<u32>,
    pub(crate) prompt_tokens: usize,
    pub(crate) ended: Finish,
    pub(crate) first_token_seconds: f64,
    pub(crate) decode_seconds: f64,
}

impl Written {
    pub(crate) fn prefill_rate(&self) -> f64 {
        crate::units::rate(self.prompt_tokens as f64, self.first_token_seconds)
    }

    /// Returns the decoded tokens per second, without the first token.
    pub(crate) fn decode_rate(&self) -> f64 {
        crate::units::rate(self.tokens.len().saturating_sub(1) as f64, self.decode_seconds)
    }
}

/// Results of a benchmark. Counts cover the whole decode phase.
pub(crate) struct Measured {
    pub(crate) prompt_tokens: usize,
    pub(crate) prefill_seconds: f64,
    pub(crate) tokens: usize,
    pub(crate) decode_seconds: f64,
    /// Part of `decode_seconds` in which the host waited for the device.
    pub(crate) waited_seconds: f64,
    pub(crate) weight_bytes_per_token: u64,
    /// KV cache bytes read for the token in the middle of the decode phase.
    pub(crate) cache_bytes_per_token: u64,
    pub(crate) dispatches: u64,
    pub(crate) submits: u64,
    pub(crate) waits: u64,
    pub(crate) allocations: u64,
    /// Fraction of a separate decode phase in which the device was idle, 0 to 1; `None` if not
    /// measured, as on devices without timestamps.
    pub(crate) idle_share: Option<f64>,
    /// Batched decoding, if several sequences were requested.
    pub(crate) each: Option<MeasuredEach>,
}

/// Results of a benchmark of batched decoding.
pub(crate) struct MeasuredEach {
    pub(crate) sequences: usize,
    /// Number of tokens of all sequences together.
    pub(crate) tokens: usize,
    pub(crate) seconds: f64,
}

/// A model on a device.
pub(crate) struct Loaded {
    session: Session,
    profile: DeviceProfile,
    startup_line: String,
    clock: Option<Arc<Clocked>>,
    runtime: Runtime,
}

/// Detects devices without opening one.
pub(crate) fn detect(device: Option<&str>) -> anyhow::Result<Found> {
    let variable = warploom_core::config::var(&warploom_core::config::DEVICE);
    let requested = device.or(variable.as_deref()).unwrap_or("auto");
    let detection = Detection::detect(requested)?;
    let selected = detection.selected;
    Ok(Found {
        startup_line: detection.startup_line(),
        failures: detection.failures,
        absent: detection.absent,
        devices: detection
            .devices
            .into_iter()
            .enumerate()
            .filter(|(i, device)| device.rank.is_some() || *i == selected)
            .map(|(i, device)| FoundDevice {
                // Planning reports a file that cannot be read.
                tuned: tuned_on(&device.profile).map_or(0, |(tuned, _)| tuned.choices.len()),
                profile: device.profile,
                reason: device.reason.to_owned(),
                selected: i == selected,
            })
            .collect(),
    })
}

impl Loaded {
    pub(crate) fn open(
        place: &Place,
        first_prompt: impl FnOnce(&Model) -> Option<usize>,
        sampling: &Sampling,
        progress: &mut OnUpload<'_>,
    ) -> anyhow::Result<Loaded> {
        let (model, runtime) = open_both(place)?;
        let first = first_prompt(&model).map(|tokens| (tokens, sampling));
        Loaded::on(place, model, runtime, None, (1, first), progress)
    }

    /// Loads a model with `sequences` KV caches, each for the whole context.
    #[cfg(feature = "serve")]
    pub(crate) fn serving(
        place: &Place,
        model: Arc<Model>,
        runtime: Runtime,
        sequences: usize,
        progress: &mut OnUpload<'_>,
    ) -> anyhow::Result<Loaded> {
        Loaded::on(place, model, runtime, None, (sequences, None), progress)
    }

    /// Opens the model on a timing device, with several sequences, for [`Loaded::bench`].
    pub(crate) fn open_clocked(
        place: &Place,
        sequences: usize,
        progress: &mut OnUpload<'_>,
    ) -> anyhow::Result<Loaded> {
        let (model, plain) = open_both(place)?;
        let line = plain.startup_line();
        let clock = Arc::new(Clocked::new(plain.device().clone()));
        let runtime = Runtime::on(clock.clone(), plain.sync(), plain.pool().budget())?;
        let mut loaded =
            Loaded::on(place, model, runtime, Some(clock), (sequences, None), progress)?;
        loaded.startup_line = line;
        Ok(loaded)
    }

    fn on(
        place: &Place,
        model: Arc<Model>,
        runtime: Runtime,
        clock: Option<Arc<Clocked>>,
        (sequences, first): (usize, Option<(usize, &Sampling)>),
        progress: &mut OnUpload<'_>,
    ) -> anyhow::Result<Loaded> {
        // A device requested by name is never replaced by another.
        let recovery = match runtime.detection().requested.as_str() {
            "auto" => Recovery::AnyDevice,
            _ => Recovery::SameDevice,
        };
        let mut builder = Session::builder(model)
            .runtime(runtime.clone())
            .recovery(recovery)
            .sequences(sequences)
            .context(place.context)
            .compute(place.compute)
            .cache(place.cache)
            .deterministic(place.deterministic)
            .progress(progress);
        if let Some((tokens, sampling)) = first {
            builder = builder.prewarm(tokens, sampling);
        }
        let session = builder.build()?;
        Ok(Loaded {
            session,
            profile: runtime.device().profile().clone(),
            startup_line: runtime.startup_line(),
            clock,
            runtime,
        })
    }

    /// Times each step of a run of `tokens` tokens after `past` others, with a plan for exactly
    /// these lengths.
    pub(crate) fn kernels(
        &mut self,
        tokens: usize,
        past: usize,
        runs: usize,
    ) -> anyhow::Result<Report> {
        let (plan, symbols) = self.session.plan_for(tokens, past, DecoderOutput::Greedy)?;
        let inputs = analyze::zeros_for(&plan, &symbols)?;
        let options = AnalyzeOptions { runs, ..AnalyzeOptions::default() };
        let resident = self.session.device_tensors();
        let analysis = self.runtime.analyze(&plan, resident, &symbols, &inputs, &options);
        Ok(plan.report().measured(analysis?))
    }

    pub(crate) fn startup_line(&self) -> &str {
        &self.startup_line
    }

    pub(crate) fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    pub(crate) fn compute_mode(&self) -> &str {
        match self.session.mode() {
            ComputeMode::F32 => "F32: exact products of dequantised weights, 32-bit sums",
            ComputeMode::Int8 => {
                "Int8: packed weights times activations rounded to 8 bits (each within 1/254 of the \
                 largest of its 32), 32-bit sums; --compute f32 is exact"
            }
            ComputeMode::F16 => {
                "F16: f16 products on tensor cores if available, f32 sums; --compute f32 is exact"
            }
        }
    }

    pub(crate) fn model_name(&self) -> &str {
        self.session.model().file().name()
    }

    pub(crate) fn context(&self) -> usize {
        self.session.context()
    }

    /// Starts a conversation with the model.
    pub(crate) fn into_chat(self) -> anyhow::Result<Chat> {
        Ok(Chat::new(self.session)?)
    }

    #[cfg(feature = "serve")]
    pub(crate) fn into_session(self) -> Session {
        self.session
    }

    pub(crate) fn generate(
        &mut self,
        prompt: &str,
        request: &Request,
        on_text: &mut (dyn FnMut(&str) -> ControlFlow<()> + Send),
    ) -> anyhow::Result<Written> {
        let options = GenerateOptions::default()
            .max_tokens(request.max_tokens)
            .sampling(request.sampling.clone())
            .parse_special(true);
        let done = self.session.generate(prompt, &options, &mut |event| match event {
            Event::Text(text) => on_text(text),
            // No new text, but detects a closed output or an interrupt.
            _ => on_text(""),
        })?;
        Ok(Written {
            text: done.text,
            tokens: done.tokens,
            prompt_tokens: done.prompt_tokens,
            ended: done.finish,
            first_token_seconds: done.first_token.as_secs_f64(),
            decode_seconds: done.decode.as_secs_f64(),
        })
    }

    /// Returns the perplexity of a text, or of its beginning if `progress` ends the measurement.
    pub(crate) fn perplexity(
        &mut self,
        text: &str,
        special: bool,
        options: &PerplexityOptions,
        progress: &mut OnWindow<'_>,
    ) -> anyhow::Result<Perplexity> {
        let encode = EncodeOptions::default().parse_special(special);
        let tokens = self.session.model().tokenizer().encode(text, encode)?;
        Ok(self.session.perplexity(&tokens, options, progress)?)
    }

    /// Times the prefill of `prompt` tokens and the greedy decoding of `tokens` tokens, after a
    /// warm-up that makes the plans and raises a GPU's clock.
    pub(crate) fn bench(&mut self, prompt: usize, tokens: usize) -> anyhow::Result<Measured> {
        let vocabulary = self.session.model().config().vocabulary as u32;
        // Token ids all over the vocabulary; their values do not affect the time.
        let ids: Vec<u32> =
            (0..prompt as u32).map(|i| i.wrapping_mul(2_654_435_761) % vocabulary).collect();
        let kind = self.profile.kind;
        let busy = match kind {
            DeviceKind::Discrete | DeviceKind::Integrated => Duration::from_millis(500),
            _ => Duration::ZERO,
        };
        self.profile.local_bandwidth = self.runtime.measure_bandwidth()?;
        let ahead = self.session.runs_ahead() > 1;
        self.warm_up(&ids, busy, ahead)?;
        self.session.truncate(0)?;
        let begin = Instant::now();
        let mut token = self.token(&ids)?;
        let prefill = begin.elapsed();

        let device: &Arc<dyn Device> = self.runtime.device();
        let before = device.counters();
        let waited = self.clock.as_ref().map_or(Duration::ZERO, |clock| clock.waited());
        let begin = Instant::now();
        match ahead {
            true => self.run_ahead(tokens)?,
            false => {
                for _ in 0..tokens {
                    token = self.token(&[token])?;
                }
            }
        }
        let decode = begin.elapsed();
        let now = self.clock.as_ref().map_or(Duration::ZERO, |clock| clock.waited());
        let after = self.runtime.device().counters();
        let model = self.session.model();
        Ok(Measured {
            prompt_tokens: prompt,
            prefill_seconds: prefill.as_secs_f64(),
            tokens,
            decode_seconds: decode.as_secs_f64(),
            waited_seconds: (now - waited).as_secs_f64(),
            weight_bytes_per_token: model.bytes_per_token(),
            cache_bytes_per_token: model.cache_bytes_per_token(self.session.cache_type())
                * (prompt + tokens / 2) as u64,
            dispatches: after.dispatches - before.dispatches,
            submits: after.submits - before.submits,
            waits: after.waits - before.waits,
            allocations: after.allocations - before.allocations,
            idle_share: self.idle_share(prompt, token, tokens)?,
            each: self.bench_each(&ids, tokens, busy)?,
        })
    }

    /// Decodes once more after `prompt` tokens, with timestamps around the submits, and returns the
    /// fraction of the time in which the GPU waits for the host.
    fn idle_share(
        &mut self,
        prompt: usize,
        token: u32,
        tokens: usize,
    ) -> anyhow::Result<Option<f64>> {
        let gpu = matches!(self.profile.kind, DeviceKind::Discrete | DeviceKind::Integrated);
        let clock = self.clock.clone().filter(|_| gpu && self.profile.has_timestamps && tokens > 2);
        let Some(clock) = clock else { return Ok(None) };
        self.session.truncate(prompt)?;
        self.token(&[token])?;
        clock.begin_timing()?;
        let decoded = self.run_ahead(tokens - 1);
        let share = clock.end_timing();
        decoded?;
        Ok(share)
    }

    /// Times batched decoding: `tokens` tokens for each sequence after a prompt, after warm-up runs
    /// for `busy`. Returns `None` if the session has one sequence.
    fn bench_each(
        &mut self,
        ids: &[u32],
        tokens: usize,
        busy: Duration,
    ) -> anyhow::Result<Option<MeasuredEach>> {
        let sequences = self.session.sequences();
        if sequences == 1 {
            return Ok(None);
        }
        let session = &mut self.session;
        for sequence in 0..sequences {
            session.truncate_sequence(sequence, 0)?;
            session.step(StepRequest::tokens(sequence, ids, Output::Nothing))?;
        }
        let each: Vec<usize> = (0..sequences).collect();
        let first: Vec<(usize, u32)> = each.iter().map(|sequence| (*sequence, ids[0])).collect();
        let begin_again = |session: &mut Session| -> anyhow::Result<()> {
            for sequence in 0..sequences {
                session.truncate_sequence(sequence, ids.len())?;
            }
            session.step(StepRequest::batch(&first, Output::Greedy))?;
            Ok(())
        };
        let run = |session: &mut Session, tokens: usize| -> anyhow::Result<()> {
            begin_again(session)?;
            let count = tokens.saturating_sub(1);
            session.step(StepRequest::run_ahead(&each, count, Output::Greedy))?;
            Ok(())
        };
        // The first run makes the plans, and an idle GPU may lower its clock meanwhile.
        run(session, tokens.min(2))?;
        let begin = Instant::now();
        while begin.elapsed() < busy {
            run(session, tokens)?;
        }
        let begin = Instant::now();
        run(session, tokens)?;
        let seconds = begin.elapsed().as_secs_f64();
        Ok(Some(MeasuredEach { sequences, tokens: tokens * sequences, seconds }))
    }

    /// Runs once to make the plans, during which a GPU is idle, and then repeatedly for `busy`.
    fn warm_up(&mut self, ids: &[u32], busy: Duration, ahead: bool) -> anyhow::Result<()> {
        let mut made: Option<Instant> = None;
        loop {
            self.session.truncate(0)?;
            let token = self.token(ids)?;
            if self.session.past() < self.session.context() {
                self.token(&[token])?;
            }
            if ahead && self.session.past() < self.session.context() {
                self.run_ahead(1)?;
            }
            if made.get_or_insert_with(Instant::now).elapsed() >= busy {
                return Ok(());
            }
        }
    }

    /// Runs tokens and returns the most likely next one.
    fn token(&mut self, ids: &[u32]) -> anyhow::Result<u32> {
        Ok(self.session.step(StepRequest::tokens(0, ids, Output::Greedy))?.token()?)
    }

    /// Decodes `count` tokens after the last one, with run-ahead decoding.
    fn run_ahead(&mut self, count: usize) -> anyhow::Result<()> {
        self.session.step(StepRequest::run_ahead(&[0], count, Output::Greedy))?;
        Ok(())
    }
}

/// Opens the selected device and returns its profile, with the measured memory bandwidth.
pub(crate) fn measured_profile(device: Option<&str>) -> anyhow::Result<DeviceProfile> {
    let builder = Runtime::builder();
    let builder = device.map_or(builder.clone(), |device| builder.device(device));
    let runtime = builder.build()?;
    let mut profile = runtime.device().profile().clone();
    if profile.kind != DeviceKind::Null {
        profile.local_bandwidth = runtime.measure_bandwidth()?;
    }
    Ok(profile)
}

/// Opens the model while drivers initialise, which takes about as long. If the named file does not
/// exist, no driver is initialised. If both fail, the model's error is returned.
pub(crate) fn open_both(place: &Place) -> anyhow::Result<(Arc<Model>, Runtime)> {
    let file = place.model.as_deref().map(download::here).transpose()?;
    if file.as_ref().is_some_and(|file| !file.exists()) {
        return Ok((read_model(file, place)?, open_runtime(place)?));
    }
    std::thread::scope(|scope| {
        let runtime = scope.spawn(|| open_runtime(place));
        let model = read_model(file, place);
        let runtime = runtime.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((model?, runtime?))
    })
}

pub(crate) fn open_runtime(place: &Place) -> anyhow::Result<Runtime> {
    let mut builder = place.set(Runtime::builder());
    if place.deterministic {
        builder = builder.deterministic(true);
    }
    Ok(builder.build()?)
}

pub(crate) fn open_model(place: &Place) -> anyhow::Result<Arc<Model>> {
    read_model(place.model.as_deref().map(download::here).transpose()?, place)
}

fn read_model(file: Option<PathBuf>, place: &Place) -> anyhow::Result<Arc<Model>> {
    let access = if place.copy { Access::Copy } else { Access::Mmap };
    match file {
        Some(file) => Ok(Model::open(file, access)?),
        #[cfg(feature = "embedded-model")]
        None => Ok(Model::embedded()?),
        #[cfg(not(feature = "embedded-model"))]
        None => anyhow::bail!("no model file"),
    }
}
