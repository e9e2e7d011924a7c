//! Vectors of texts, by an encoder or by a language model.

use std::collections::HashMap;
use std::sync::Arc;

use super::builder::OnUpload;
use super::config::Pooling;
use super::decoder::{self, SEQ, TEXTS};
use super::model::Model;
use super::rerank;
use super::tokenizer::EncodeOptions;
use super::upload;
use warploom::graph::{Graph, computing_in};
use warploom::plan::Plan;
use warploom::provider::Device;
use warploom::runtime::{DeviceTensors, Instance, Reopen, Runtime};
use warploom::{Error, Result};
use warploom_core::base::platform::MaybeSendValue;
use warploom_core::base::{ComputeMode, ShapeClass, SymbolValues};

/// Smallest and largest number of tokens in a run, by shape bucket.
const BUCKETS: [(usize, usize); 5] = [(1, 16), (17, 64), (65, 256), (257, 2048), (2049, MOST)];
/// Maximum number of tokens of a text.
const MOST: usize = 1 << 15;
/// Tokens of a run of several texts.
const RUN: usize = 2048;
/// Maximum number of texts of a run.
const MAX_TEXTS: usize = 64;

/// A model on a device that computes a vector for each text: an encoder such as BERT, or a language
/// model, whose last hidden state is taken. [`Embedder::builder`] creates one.
///
/// ```no_run
/// use warploom_llm::{Embedder, Model, cosine};
/// use warploom_models::gguf::Access;
///
/// # fn main() -> warploom::Result<()> {
/// let model = Model::open("all-MiniLM-L6-v2", Access::Mmap)?;
/// let mut embedder = Embedder::builder(model).build()?;
/// let vectors = embedder.embed(&["A cat sleeps.", "A kitten naps.", "Stocks fell."])?;
/// assert!(cosine(&vectors[0], &vectors[1]) > cosine(&vectors[0], &vectors[2]));
/// # Ok(())
/// # }
/// ```
pub struct Embedder {
    model: Arc<Model>,
    runtime: Runtime,
    graph: Arc<Graph>,
    tensors: DeviceTensors,
    instances: HashMap<usize, Instance>,
    settings: Settings,
}

warploom_core::base::debug_as!(Embedder, |this| model: this.model, device: this.device().profile().id());

/// A text as tokens, or two that are read together.
pub(super) struct Text {
    pub(super) tokens: Vec<u32>,
    /// Index of the first token of the second type.
    pub(super) second: usize,
}

/// What vectors depend on besides the model.
#[derive(Clone, Copy)]
struct Settings {
    pooling: Pooling,
    normalises: bool,
    truncates: bool,
    mode: ComputeMode,
}

/// Builds an [`Embedder`]; created by [`Embedder::builder`].
#[must_use = "it does nothing until it is built"]
pub struct EmbedderBuilder<'a> {
    model: Arc<Model>,
    runtime: Option<Runtime>,
    pooling: Option<Pooling>,
    normalises: bool,
    truncates: bool,
    compute: Option<ComputeMode>,
    progress: Box<OnUpload<'a>>,
}

warploom_core::base::debug_as!(EmbedderBuilder<'a>, |this| model: this.model, pooling: this.pooling);

impl<'a> EmbedderBuilder<'a> {
    /// Sets the runtime, and with it the device. Default: a new runtime on the best device of the
    /// machine.
    pub fn runtime(mut self, runtime: Runtime) -> EmbedderBuilder<'a> {
        self.runtime = Some(runtime);
        self
    }

    /// Sets how the hidden states of a text become one vector. Default: as the model's file says;
    /// otherwise the mean of an encoder's tokens, and the last token of a language model.
    /// [`Pooling::Score`] makes a reranker of a language model that was trained to answer yes or no,
    /// for files that do not say so.
    pub fn pooling(mut self, pooling: impl Into<Option<Pooling>>) -> EmbedderBuilder<'a> {
        self.pooling = pooling.into();
        self
    }

    /// Sets whether vectors are divided by their length, so that a dot product is a cosine. Default:
    /// true.
    pub fn normalise(mut self, normalise: bool) -> EmbedderBuilder<'a> {
        self.normalises = normalise;
        self
    }

    /// Sets whether a text that is longer than the model's context is cut; otherwise it is an error.
    /// The tokens that end a text stay. Default: false.
    pub fn truncate(mut self, truncate: bool) -> EmbedderBuilder<'a> {
        self.truncates = truncate;
        self
    }

    /// Sets the precision of matrix products. Default: [`ComputeMode::F32`], as vectors are compared
    /// with those of other programs.
    pub fn compute(mut self, mode: impl Into<Option<ComputeMode>>) -> EmbedderBuilder<'a> {
        self.compute = mode.into();
        self
    }

    /// Sets the callback that receives the bytes uploaded so far and the total. Default: none.
    pub fn progress(
        mut self,
        progress: impl FnMut(u64, u64) + MaybeSendValue + 'a,
    ) -> EmbedderBuilder<'a> {
        self.progress = Box::new(progress);
        self
    }

    /// Uploads the weights.
    ///
    /// # Errors
    /// Out of memory, before any upload, if the weights exceed the device's memory; unsupported for
    /// a model with recurrent layers; errors of the device and of opening it.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn build(self) -> Result<Embedder> {
        warploom_core::base::platform::block_on(self.build_async())
    }

    /// Asynchronous version of `EmbedderBuilder::build`.
    ///
    /// # Errors
    /// Same as `EmbedderBuilder::build`.
    pub async fn build_async(self) -> Result<Embedder> {
        let EmbedderBuilder {
            model, pooling, normalises, truncates, compute, mut progress, ..
        } = self;
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Runtime::builder().build_async().await?,
        };
        let settings = Settings {
            pooling: match (model.config().pooling, pooling) {
                // Its layers are made for it.
                (Pooling::Score, _) => Pooling::Score,
                (_, Some(Pooling::Score)) if !model.config().architecture.answers => {
                    return Err(rerank::is_none(&model));
                }
                (of_file, given) => given.unwrap_or(of_file),
            },
            normalises,
            truncates,
            mode: compute.unwrap_or(ComputeMode::F32),
        };
        Embedder::on(model, runtime, settings, &mut *progress).await
    }
}

impl Embedder {
    /// Returns a builder for an embedder with this model.
    pub fn builder<'a>(model: Arc<Model>) -> EmbedderBuilder<'a> {
        EmbedderBuilder {
            model,
            runtime: None,
            pooling: None,
            normalises: true,
            truncates: false,
            compute: None,
            progress: Box::new(|_, _| {}),
        }
    }

    async fn on(
        model: Arc<Model>,
        runtime: Runtime,
        settings: Settings,
        progress: &mut OnUpload<'_>,
    ) -> Result<Embedder> {
        upload::check_weights(&runtime, &model)?;
        let weights = model.weights_on(runtime.device().profile().kind);
        let of_file = model.config().pooling == Pooling::Score;
        let answers = match settings.pooling == Pooling::Score && !of_file {
            true => Some(rerank::answers(&model)?),
            false => None,
        };
        let graph = decoder::encoder(model.config(), &weights, answers)?;
        let graph = Arc::new(computing_in(&graph, settings.mode)?);
        let tensors = upload::weights_of(&runtime, &model, &weights, &graph, progress).await?;
        let instances = HashMap::new();
        Ok(Embedder { model, runtime, graph, tensors, instances, settings })
    }

    /// Returns the model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Returns the device that the model runs on.
    pub fn device(&self) -> &Arc<dyn Device> {
        self.runtime.device()
    }

    /// Returns the number of elements of a vector.
    pub fn width(&self) -> usize {
        let config = self.model.config();
        config.dense.last().map_or(config.width, |[results, _]| *results)
    }

    /// Returns how the hidden states of a text become one vector.
    pub fn pooling(&self) -> Pooling {
        self.settings.pooling
    }

    /// Returns whether a text that is too long is cut.
    pub(super) fn truncates(&self) -> bool {
        self.settings.truncates
    }

    /// Returns the maximum number of tokens of a text.
    pub fn context(&self) -> usize {
        self.model.config().context.min(MOST)
    }

    /// Returns the vector of each text, with [`Embedder::width`] elements. Blocks until the device is
    /// done.
    ///
    /// # Errors
    /// Invalid, naming the text, if one has more tokens than the model's context, unless the builder
    /// was to cut it; a vector that is not finite is an error of the device. Also errors of the
    /// tokenizer, of planning and of the device.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn embed(&mut self, texts: &[impl AsRef<str>]) -> Result<Vec<Vec<f32>>> {
        warploom_core::base::platform::block_on(self.embed_async(texts))
    }

    /// Asynchronous version of `Embedder::embed`.
    ///
    /// # Errors
    /// Same as `Embedder::embed`.
    pub async fn embed_async(&mut self, texts: &[impl AsRef<str>]) -> Result<Vec<Vec<f32>>> {
        let encoded = texts.iter().enumerate().map(|(i, text)| {
            self.encode(text.as_ref()).map_err(|e| e.context(format!("text {i}")))
        });
        let tokens = encoded.collect::<Result<Vec<_>>>()?;
        self.embed_tokens_async(&tokens).await
    }

    /// Returns the tokens of a text as [`Embedder::embed`](Embedder::embed_async) reads them, with
    /// those that begin and end it.
    ///
    /// # Errors
    /// Invalid if there are more than the model's context, unless the builder was to cut it; errors of
    /// the tokenizer.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let options = EncodeOptions::default().add_bos(true);
        let mut tokens = self.model.tokenizer().encode(text, options)?;
        let most = self.context();
        if tokens.len() > most {
            if !self.settings.truncates {
                let count = tokens.len();
                return Err(Error::invalid(format!(
                    "{count} tokens, the model's context has {most}"
                )));
            }
            let end = self.model.tokenizer().suffix_len();
            let cut = tokens.len() - most;
            tokens.drain(most - end..most - end + cut);
        }
        Ok(tokens)
    }

    /// Returns the vector of each text, given by its tokens. Blocks until the device is done.
    ///
    /// # Errors
    /// Same as [`Embedder::embed_tokens_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn embed_tokens(&mut self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>> {
        warploom_core::base::platform::block_on(self.embed_tokens_async(texts))
    }

    /// Returns the vector of each text, given by its tokens. Asynchronous.
    ///
    /// # Errors
    /// Invalid, naming the text, if one has no tokens, more than the model's context, or one outside
    /// the vocabulary. Also as `Embedder::embed`.
    pub async fn embed_tokens_async(&mut self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>> {
        if self.pooling() == Pooling::Score {
            return Err(Error::invalid(format!(
                "{}: this model is a reranker, which scores pairs of texts and gives no vectors",
                self.model.file().name()
            )));
        }
        self.check(texts)?;
        let text = |tokens: &Vec<u32>| Text { tokens: tokens.clone(), second: usize::MAX };
        let texts: Vec<Text> = texts.iter().map(text).collect();
        let rows = self.run_all(&texts).await?.into_iter().enumerate();
        let finished =
            rows.map(|(i, row)| self.finished(&row).map_err(|e| e.context(format!("text {i}"))));
        finished.collect()
    }

    /// Returns the result of each text.
    pub(super) async fn run_all(&mut self, texts: &[Text]) -> Result<Vec<Vec<f32>>> {
        // Texts of similar length share a run.
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|text| texts[*text].tokens.len());
        let mut rows = vec![Vec::new(); texts.len()];
        let mut rest = &order[..];
        while !rest.is_empty() {
            let mut tokens = 0;
            let fits = |text: &&usize| {
                tokens += texts[**text].tokens.len();
                tokens <= RUN
            };
            let count = rest.iter().take(MAX_TEXTS).take_while(fits).count().max(1);
            let (run, after) = rest.split_at(count);
            let parts: Vec<&Text> = run.iter().map(|text| &texts[*text]).collect();
            let done = self.run_or_reopen(&parts).await?;
            for (text, row) in run.iter().zip(done.chunks_exact(done.len() / run.len())) {
                rows[*text] = row.to_vec();
            }
            rest = after;
        }
        Ok(rows)
    }

    fn check(&self, texts: &[Vec<u32>]) -> Result<()> {
        let (most, vocabulary) = (self.context(), self.model.config().vocabulary);
        for (i, tokens) in texts.iter().enumerate() {
            if tokens.is_empty() || tokens.len() > most {
                let count = tokens.len();
                let text = format!("text {i}: {count} tokens, the model reads 1 to {most}");
                return Err(Error::invalid(text));
            }
            if let Some(id) = tokens.iter().find(|id| **id as usize >= vocabulary) {
                let text = format!("text {i}: token {id} of a vocabulary of {vocabulary}");
                return Err(Error::invalid(text));
            }
        }
        Ok(())
    }

    /// Divides a vector by its length, if the settings say so.
    fn finished(&self, vector: &[f32]) -> Result<Vec<f32>> {
        let length = vector.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        if !length.is_finite() {
            return Err(Error::device(format!(
                "{}: a vector has elements that are not finite",
                self.model.file().name()
            )));
        }
        let by = if self.settings.normalises && length > 0.0 { length } else { 1.0 };
        Ok(vector.iter().map(|v| (f64::from(*v) / by) as f32).collect())
    }

    /// Runs texts; if the device is lost, opens it again and runs them once more.
    async fn run_or_reopen(&mut self, texts: &[&Text]) -> Result<Vec<f32>> {
        match self.run(texts).await {
            Err(lost) if lost.is_device_lost() && self.runtime.can_reopen() => {
                let runtime = self.runtime.reopen_async(Reopen::Same).await.map_err(|error| {
                    Error::device_lost(format!("{lost}; and it cannot be opened again: {error}"))
                })?;
                tracing::warn!("{lost}; it was opened again");
                let (model, settings) = (self.model.clone(), self.settings);
                *self = Embedder::on(model, runtime, settings, &mut |_, _| {}).await?;
                self.run(texts).await
            }
            done => done,
        }
    }

    async fn run(&mut self, texts: &[&Text]) -> Result<Vec<f32>> {
        let inputs = inputs(&self.model, self.settings.pooling, texts);
        let tokens: usize = texts.iter().map(|text| text.tokens.len()).sum();
        let symbols = SymbolValues::new().with(SEQ, tokens as u64).with(TEXTS, texts.len() as u64);
        let instance = self.instance(tokens).await?;
        let outputs = instance.read_async(symbols, inputs).await?;
        let values: Vec<f32> =
            bytemuck::pod_collect_to_vec(&outputs.into_iter().next().unwrap_or_default());
        match values.is_empty() || !values.len().is_multiple_of(texts.len()) {
            true => {
                Err(Error::device(format!("{} numbers for {} texts", values.len(), texts.len())))
            }
            false => Ok(values),
        }
    }

    /// Returns the instance for a number of tokens, made on first use.
    async fn instance(&mut self, tokens: usize) -> Result<&Instance> {
        let bucket = BUCKETS.iter().position(|(_, high)| tokens <= *high).ok_or_else(|| {
            Error::invalid(format!("a run of {tokens} tokens, a plan is for 1 to {MOST}"))
        })?;
        if !self.instances.contains_key(&bucket) {
            let (low, high) = BUCKETS[bucket];
            let class = ShapeClass::new().with(SEQ, low as u64, high as u64).with(
                TEXTS,
                1,
                MAX_TEXTS as u64,
            );
            let graph = self.graph.clone();
            let made = self.runtime.offload(move |runtime| {
                let profile = runtime.device().profile();
                Plan::new(&graph, &class, profile, &runtime.plan_options())
            });
            let instance =
                Instance::new_async(&self.runtime, made.await?, &mut self.tensors).await?;
            self.instances.insert(bucket, instance);
        }
        self.instances.get(&bucket).ok_or_else(|| Error::invalid("no plan"))
    }
}

/// Returns the inputs of a run, in the order of the graph.
fn inputs(model: &Model, pooling: Pooling, texts: &[&Text]) -> Vec<Vec<u8>> {
    let config = model.config();
    let total: usize = texts.iter().map(|text| text.tokens.len()).sum();
    let mut types: Vec<i32> = Vec::with_capacity(total);
    let (mut tokens, mut positions) = (Vec::with_capacity(total), Vec::with_capacity(total));
    let (mut spans, mut local) = (Vec::with_capacity(total), Vec::new());
    let mut pool = vec![0.0f32; texts.len() * total];
    let window = (0..config.layers).find_map(|layer| config.window(layer)).map(|n| n as usize);
    let encodes = config.architecture.encodes;
    let pooling = match pooling {
        Pooling::Score if !encodes => Pooling::Last,
        pooling => pooling,
    };
    let mut begin = 0;
    for (text, Text { tokens: ids, second }) in texts.iter().enumerate() {
        let len = ids.len();
        tokens.extend_from_slice(ids);
        types.extend((0..len).map(|token| i32::from(token >= *second)));
        for position in 0..len {
            let at = begin + position;
            positions.push(position as i32);
            let end = if encodes { begin + len } else { at + 1 };
            spans.push([begin as i32, end as i32]);
            if let Some(window) = window {
                // Of an encoder, half of the window is before the token and half of it behind.
                let [before, behind] = if encodes { [window / 2; 2] } else { [window - 1, 0] };
                let first = begin.max(at.saturating_sub(before));
                local.push([first as i32, end.min(at + behind + 1) as i32]);
            }
        }
        let row = text * total + begin;
        pool[row..row + len].iter_mut().zip(pooling.weights(len)).for_each(|(to, w)| *to = w);
        begin += len;
    }
    let mut inputs =
        vec![bytemuck::cast_slice(&tokens).to_vec(), bytemuck::cast_slice(&positions).to_vec()];
    if decoder::has_types(config) {
        inputs.push(bytemuck::cast_slice(&types).to_vec());
    }
    inputs.push(bytemuck::cast_slice(&spans).to_vec());
    if decoder::has_windows(config) {
        inputs.push(bytemuck::cast_slice(&local).to_vec());
    }
    inputs.push(bytemuck::cast_slice(&pool).to_vec());
    inputs
}

/// Returns the cosine of the angle between two vectors of equal length; 0 if one has no length.
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths > 0.0 { (dot(a, b) / lengths) as f32 } else { 0.0 }
}
