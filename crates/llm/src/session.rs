//! A model on a device: weights, KV cache, and the plans that run it.
//!
//! Each plan is made on first use of a shape bucket and kept. A steady decode step is one
//! recording, one submit and one wait, and allocates no device memory.

use std::collections::HashMap;
use std::sync::Arc;

use super::decoder::{self, BASE, CacheShape, PAST, Run, SEQ, Wanted};
use super::device_sampling::check_undrawn;
use super::model::Model;
use super::prewarm::{Expected, Planner, Ready};
use super::shape_buckets::{CLASSES, class_index, class_of_kind};
use super::weights::{self, Weight};
use warploom::base::{ComputeMode, DType, ShapeClass, SymbolValues};
use warploom::error::{Error, Result};
use warploom::ir::Graph;
use warploom::plan::{Plan, merged_weights};
use warploom::provider::{Device, DeviceKind, DeviceProfile};
use warploom::runtime::{DeviceTensors, Instance, Runtime, WeightSource};
use warploom::sampling::Draw;

/// Options of a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionOptions {
    /// Positions of the KV cache per sequence; `None` is the model's training context, at most
    /// 4,096.
    pub context: Option<usize>,
    /// Sequences of the KV cache, 1 to [`MAX_SEQUENCES`]; `None` is one.
    pub sequences: Option<usize>,
    /// Precision of products with packed or 2-byte weights (`ir::computing_in`), and of attention
    /// over an f16 cache; `None` is [`Session::default_mode`].
    pub compute: Option<ComputeMode>,
    /// Element type of the KV cache, f32 or f16; `None` is [`Session::default_cache`].
    pub cache: Option<DType>,
    /// Makes plans deterministic even if the runtime's are not: the same tokens give the same
    /// logits, bit for bit, one by one, in chunks or in a batch.
    pub deterministic: bool,
    /// The shape of the first text, if known: its plans are prewarmed.
    pub expected: Option<Expected>,
}

/// Default limit of the context, in positions.
const DEFAULT_CONTEXT: usize = 4096;

/// Maximum sequences of a session.
pub const MAX_SEQUENCES: usize = 64;

/// A model on a device.
pub struct Session {
    runtime: Runtime,
    model: Arc<Model>,
    /// In the formats that the device keeps.
    weights: Vec<Weight>,
    resident: DeviceTensors,
    graphs: HashMap<(Run, Wanted), Graph>,
    /// Plans prewarmed before their first use.
    ready: HashMap<Kind, Plan>,
    instances: HashMap<Kind, Instance>,
    cache: CacheShape,
    mode: ComputeMode,
    deterministic: bool,
    /// Filled positions of each sequence.
    pub(super) past: Vec<usize>,
    /// Whether the device holds the token that follows them.
    pub(super) chosen: Vec<bool>,
}

warploom::base::debug_as!(Session, |this| model: this.model, device: this.device().profile().id(), past: this.past);

/// The use of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub(super) run: Run,
    /// Index into the shape buckets of the run.
    pub(super) class: usize,
    pub(super) wanted: Wanted,
}

impl Session {
    /// Uploads the weights and allocates the KV cache. `progress` receives the bytes uploaded so
    /// far and the total.
    ///
    /// # Errors
    /// Out of memory, before any upload, if weights and cache exceed the budget; invalid, for a
    /// context of 0 or beyond the model's, or a number of sequences out of range.
    pub fn new(
        runtime: Runtime,
        model: Arc<Model>,
        options: SessionOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Session> {
        let trained = model.config().context;
        let context = options.context.unwrap_or(trained.min(DEFAULT_CONTEXT));
        if context == 0 || context > trained {
            let text = format!(
                "a context of {context} positions, the model was trained for 1 to {trained}"
            );
            return Err(Error::invalid(text));
        }
        let sequences = options.sequences.unwrap_or(1);
        if !(1..=MAX_SEQUENCES).contains(&sequences) {
            let text = format!("{sequences} sequences, a session has 1 to {MAX_SEQUENCES}");
            return Err(Error::invalid(text));
        }
        let mode =
            options.compute.unwrap_or_else(|| Session::default_mode(runtime.device().profile()));
        let dtype = options.cache.unwrap_or(Session::default_cache(mode));
        if !matches!(dtype, DType::F32 | DType::F16) {
            return Err(Error::invalid(format!("a cache of {dtype}, it is of f32 or f16")));
        }
        let cache = CacheShape { sequences, context, dtype };
        weights::check_memory(&runtime, &model, cache)?;
        let weights = model.weights_on(runtime.device().profile().kind);
        let mut session = Session {
            runtime,
            model,
            weights,
            resident: DeviceTensors::new(),
            graphs: HashMap::new(),
            ready: HashMap::new(),
            instances: HashMap::new(),
            cache,
            mode,
            deterministic: options.deterministic,
            past: vec![0; sequences],
            chosen: vec![false; sequences],
        };
        let (runtime, model) = (session.runtime.clone(), session.model.clone());
        let weights = session.weights.clone();
        let planner = Planner {
            runtime: &runtime,
            model: &model,
            weights: &weights,
            cache,
            mode,
            deterministic: options.deterministic,
        };
        let (uploaded, ready) = planner.beside(options.expected, || session.upload(progress));
        uploaded?;
        for Ready { kind, graph, plan } in ready {
            session.graphs.insert((kind.run, kind.wanted), graph);
            session.ready.insert(kind, plan);
        }
        Ok(session)
    }

    /// Default precision of products with packed weights: `Int8`, as in llama.cpp; `F32` on
    /// software GPUs, which gain nothing from it, and in browsers, some of which lack packed 8-bit
    /// dot products.
    pub fn default_mode(profile: &DeviceProfile) -> ComputeMode {
        match profile.kind {
            _ if cfg!(target_arch = "wasm32") => ComputeMode::F32,
            DeviceKind::Software | DeviceKind::Null => ComputeMode::F32,
            _ => ComputeMode::Int8,
        }
    }

    /// Default element type of the KV cache: f32 in `F32`, which is exact; otherwise f16, as in
    /// llama.cpp, because it halves the memory traffic of a long context.
    pub fn default_cache(mode: ComputeMode) -> DType {
        match mode {
            ComputeMode::F32 => DType::F32,
            ComputeMode::Int8 | ComputeMode::F16 => DType::F16,
        }
    }

    /// Element type of the KV cache.
    pub fn cache_type(&self) -> DType {
        self.cache.dtype
    }

    /// Precision of products with packed weights.
    pub fn mode(&self) -> ComputeMode {
        self.mode
    }

    fn upload(&mut self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let (model, runtime) = (self.model.clone(), self.runtime.clone());
        let (pool, device) = (runtime.pool(), &**runtime.device());
        let total = model.weight_bytes();
        let mut done = 0;
        for group in self.groups()? {
            let bytes: Vec<_> = group
                .iter()
                .map(|weight| weights::bytes(model.file(), model.config(), weight))
                .collect::<Result<_>>()?;
            let named = group.iter().zip(&bytes);
            let sources: Vec<WeightSource> =
                named.map(|(weight, bytes)| WeightSource { name: &weight.name, bytes }).collect();
            self.resident.upload(pool, device, &sources, &mut |bytes| {
                done += bytes;
                progress(done, total);
            })?;
        }
        let elements = (self.cache.rows() * model.config().kv_width()) as u64;
        let bytes = (elements * self.cache.dtype.bytes()).next_multiple_of(4);
        let layers = 0..model.config().layers;
        let caches: Vec<String> = layers
            .flat_map(|layer| ['k', 'v'].map(|kind| decoder::cache_name(kind, layer)))
            .collect();
        let mut states: Vec<_> = caches.iter().map(|name| (name.as_str(), bytes)).collect();
        states.push((decoder::CHOSEN, (self.cache.sequences * 4) as u64));
        self.resident.states(pool, device, &states)
    }

    /// Every weight; weights that plans read as one are grouped.
    fn groups(&self) -> Result<Vec<Vec<Weight>>> {
        let graph = self.model.graph_with(&self.weights, self.cache, Run::One, Wanted::Logits)?;
        let merged = merged_weights(&graph, self.runtime.device().profile())?;
        let mut groups: Vec<Vec<Weight>> = Vec::new();
        for weight in &self.weights {
            let find = |names: &&Vec<String>| names.contains(&weight.name);
            match merged.iter().find(find) {
                None => groups.push(vec![weight.clone()]),
                // The whole group goes to the position of its first weight.
                Some(names) if groups.iter().flatten().any(|w| names.contains(&w.name)) => {}
                Some(names) => {
                    let weights = self.weights.iter();
                    let of = |name: &String| weights.clone().find(|w| w.name == *name).cloned();
                    groups.push(names.iter().filter_map(of).collect());
                }
            }
        }
        Ok(groups)
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The device it is on.
    pub fn device(&self) -> &Arc<dyn Device> {
        self.runtime.device()
    }

    /// Positions of the KV cache per sequence.
    pub fn context(&self) -> usize {
        self.cache.context
    }

    /// Sequences of the KV cache.
    pub fn sequences(&self) -> usize {
        self.cache.sequences
    }

    /// Plans made so far: one for each shape bucket and requested output.
    pub fn plans(&self) -> usize {
        self.instances.len()
    }

    /// Filled positions of the first sequence.
    pub fn past(&self) -> usize {
        self.past_of(0)
    }

    /// Filled positions of a sequence; 0 for an unknown sequence.
    pub fn past_of(&self, sequence: usize) -> usize {
        self.past.get(sequence).copied().unwrap_or(0)
    }

    /// Drops positions of the first sequence from `past` on.
    ///
    /// # Errors
    /// Invalid, if fewer are filled.
    pub fn truncate(&mut self, past: usize) -> Result<()> {
        self.truncate_sequence(0, past)
    }

    /// Drops positions of a sequence from `past` on.
    ///
    /// # Errors
    /// Invalid, if fewer are filled, or for an unknown sequence.
    pub fn truncate_sequence(&mut self, sequence: usize, past: usize) -> Result<()> {
        self.check_sequence(sequence)?;
        let filled = self.past_of(sequence);
        if past > filled {
            let text = format!("cannot keep {past} positions, {filled} are filled");
            return Err(Error::invalid(text));
        }
        self.chosen[sequence] &= past == filled;
        self.past[sequence] = past;
        Ok(())
    }

    pub(super) fn check_sequence(&self, sequence: usize) -> Result<()> {
        let count = self.cache.sequences;
        match sequence < count {
            true => Ok(()),
            false => Err(Error::invalid(format!("sequence {sequence} of {count}"))),
        }
    }

    /// Runs tokens of the first sequence: [`Session::run_sequence`].
    ///
    /// # Errors
    /// As [`Session::run_sequence`].
    pub async fn run(&mut self, tokens: &[u32], wanted: Wanted) -> Result<Vec<u8>> {
        self.run_sequence(0, tokens, wanted).await
    }

    /// As [`Session::run`], blocking.
    ///
    /// # Errors
    /// As [`Session::run`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn run_blocking(&mut self, tokens: &[u32], wanted: Wanted) -> Result<Vec<u8>> {
        warploom::base::platform::block_on(self.run(tokens, wanted))
    }

    /// Runs tokens of a sequence after its cached positions and returns the requested output after
    /// the last: nothing, logits `[v]` f32 or a token `[1]` u32, as little-endian bytes; or logits
    /// after every one, `[tokens, v]`. Long runs are split into chunks.
    ///
    /// # Errors
    /// Invalid, for an unknown sequence, no tokens, an id outside the vocabulary, more tokens than
    /// the context has room for, no token to choose (the cache is then unchanged), and for
    /// [`Wanted::Drawn`] (use [`Session::draw_sequence`]); errors of planning and of the device.
    pub async fn run_sequence(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        wanted: Wanted,
    ) -> Result<Vec<u8>> {
        check_undrawn(wanted)?;
        let bytes = self.run_pieces(sequence, tokens, wanted, None).await?;
        if wanted == Wanted::Token {
            self.check_chosen(&[sequence], tokens.len(), &bytes)?;
        }
        Ok(bytes)
    }

    /// As [`Session::run_sequence`]; `draw` holds the parameters of [`Wanted::Drawn`].
    pub(super) async fn run_pieces(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        wanted: Wanted,
        draw: Option<&Draw>,
    ) -> Result<Vec<u8>> {
        self.check_sequence(sequence)?;
        self.check_tokens(sequence, tokens)?;
        // Logits of many tokens are large, so fewer stay on the device at once.
        let (most, early) = match wanted {
            Wanted::AllLogits => (CLASSES[2].1, wanted),
            _ => (CLASSES[3].1, Wanted::Cache),
        };
        let (mut rest, mut bytes) = (tokens, Vec::new());
        while rest.len() > most {
            let (piece, after) = rest.split_at(most);
            bytes.append(&mut self.step(sequence, piece, early, None).await?);
            rest = after;
        }
        bytes.append(&mut self.step(sequence, rest, wanted, draw).await?);
        Ok(bytes)
    }

    /// As [`Session::run_sequence`], blocking.
    ///
    /// # Errors
    /// As [`Session::run_sequence`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn run_sequence_blocking(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        wanted: Wanted,
    ) -> Result<Vec<u8>> {
        warploom::base::platform::block_on(self.run_sequence(sequence, tokens, wanted))
    }

    pub(super) fn check_tokens(&self, sequence: usize, tokens: &[u32]) -> Result<()> {
        if tokens.is_empty() {
            return Err(Error::invalid("no tokens to run"));
        }
        let vocabulary = self.model.config().vocabulary;
        if let Some(id) = tokens.iter().find(|id| **id as usize >= vocabulary) {
            return Err(Error::invalid(format!("token {id} of a vocabulary of {vocabulary}")));
        }
        let (past, context) = (self.past_of(sequence), self.cache.context);
        if tokens.len() > context - past {
            return Err(Error::invalid(format!(
                "{} tokens after {past} do not fit a context of {context} positions",
                tokens.len(),
            )));
        }
        Ok(())
    }

    async fn step(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        wanted: Wanted,
        draw: Option<&Draw>,
    ) -> Result<Vec<u8>> {
        let (past, count) = (self.past[sequence], tokens.len());
        let symbols = self.symbols(sequence, past).with(SEQ, count as u64);
        let positions: Vec<i32> = (past..past + count).map(|position| position as i32).collect();
        let mut inputs =
            vec![bytemuck::cast_slice(tokens).to_vec(), bytemuck::cast_slice(&positions).to_vec()];
        inputs.extend(draw.map(Draw::bytes));
        let class = class_index(count)?;
        let instance = self.instance(Kind { run: Run::One, class, wanted }).await?;
        let outputs = instance.read_async(symbols, inputs).await?;
        self.past[sequence] += count;
        self.chosen[sequence] = wanted.is_token();
        Ok(outputs.into_iter().next().unwrap_or_default())
    }

    /// The symbol values of a run of a sequence.
    pub(super) fn symbols(&self, sequence: usize, past: usize) -> SymbolValues {
        let symbols = SymbolValues::new().with(PAST, past as u64);
        match self.cache.sequences {
            1 => symbols,
            _ => symbols.with(BASE, (sequence * self.cache.context) as u64),
        }
    }

    /// The plan of a kind, made on first use.
    pub(super) async fn instance(&mut self, kind: Kind) -> Result<&Instance> {
        if !self.instances.contains_key(&kind) {
            let plan = match self.ready.remove(&kind) {
                Some(plan) => plan,
                None => self.plan(kind).await?,
            };
            let instance = Instance::new_async(&self.runtime, plan, &mut self.resident).await?;
            self.instances.insert(kind, instance);
        }
        let instance = self.instances.get(&kind);
        instance.ok_or_else(|| Error::invalid("a plan that was just built is missing"))
    }

    fn planner(&self) -> Planner<'_> {
        Planner {
            runtime: &self.runtime,
            model: &self.model,
            weights: &self.weights,
            cache: self.cache,
            mode: self.mode,
            deterministic: self.deterministic,
        }
    }

    /// A plan of a kind, made without blocking the thread that polls.
    async fn plan(&mut self, kind: Kind) -> Result<Plan> {
        let key = (kind.run, kind.wanted);
        let (plan, graph) = self.planner().plan_async(self.graphs.get(&key), kind).await?;
        self.graphs.entry(key).or_insert(graph);
        Ok(plan)
    }

    fn plan_in(&self, class: &ShapeClass, run: Run, wanted: Wanted) -> Result<Plan> {
        self.planner().plan(&self.planner().graph(run, wanted)?, class)
    }

    /// The plan that runs one token and gives `wanted`, for reports.
    ///
    /// # Errors
    /// Errors of planning.
    pub fn decode_plan(&mut self, wanted: Wanted) -> Result<Plan> {
        let kind = Kind { run: Run::One, class: 0, wanted };
        match self.instances.get(&kind) {
            Some(instance) => Ok(instance.plan().clone()),
            None => self.plan_in(&class_of_kind(kind, self.cache), kind.run, kind.wanted),
        }
    }

    /// A plan for exactly these lengths of the first sequence, for reports, and the values of its
    /// symbols.
    ///
    /// # Errors
    /// Errors of planning.
    pub fn plan_for(
        &mut self,
        tokens: usize,
        past: usize,
        wanted: Wanted,
    ) -> Result<(Plan, SymbolValues)> {
        let symbols = self.symbols(0, past).with(SEQ, tokens as u64);
        let mut class = ShapeClass::new();
        for (symbol, value) in symbols.iter() {
            class = class.with(symbol, value, value);
        }
        Ok((self.plan_in(&class, Run::One, wanted)?, symbols))
    }

    /// Weights and KV cache, to run other plans over them.
    pub fn resident(&mut self) -> &mut DeviceTensors {
        &mut self.resident
    }

    /// Bytes of weights and KV cache on the device.
    pub fn resident_bytes(&self) -> u64 {
        self.resident.bytes()
    }
}
