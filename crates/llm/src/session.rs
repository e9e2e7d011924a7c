//! A model on a device: weights, KV cache, and the plans that run it.
//!
//! Each plan is made on the first use of its shape bucket, and kept. From then on, a decode step is
//! one recording, one submit and one wait, and allocates no device memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::builder::SessionBuilder;
use super::decoder::{DecoderInput, DecoderOutput, SEQ};
use super::model::Model;
use super::planner::{DeviceModel, PlanKey, Planner};
use super::recovery::{History, Recoveries};
use super::shape_buckets::{CLASSES, bucket_of};
use super::step::{Output, StepOutput};
use warploom::plan::Plan;
use warploom::provider::{Device, DeviceKind, DeviceProfile};
use warploom::runtime::{DeviceTensors, Instance, Runtime};
use warploom::{Error, Result};
use warploom_core::base::{ComputeMode, DType, ShapeClass, SymbolValues};

/// Maximum number of sequences in a session.
pub const MAX_SEQUENCES: usize = 64;

/// A model on a device: weights, KV cache, and the plans that run it. [`Session::builder`] creates
/// one, [`Session::step`](Session::step_async) runs tokens.
pub struct Session {
    pub(super) on: Arc<DeviceModel>,
    pub(super) tensors: DeviceTensors,
    pub(super) planner: Planner,
    pub(super) instances: HashMap<PlanKey, Instance>,
    /// Number of filled positions of each sequence.
    pub(super) past: Vec<usize>,
    /// For each sequence, whether the device holds its chosen next token.
    pub(super) chosen: Vec<bool>,
    /// The host's record of each sequence.
    pub(super) histories: Vec<History>,
    /// For each sequence, the number of tokens that its recurrent states have read; `None` if that is
    /// unknown. Of no meaning in models without such states.
    pub(super) absorbed: Vec<Option<usize>>,
    /// For each sequence, the number of tokens at which a copy of its recurrent states was held.
    pub(super) held: Vec<Option<usize>>,
    pub(super) recoveries: Recoveries,
}

warploom_core::base::debug_as!(Session, |this| model: this.on.model, device: this.device().profile().id(), past: this.past);

impl Session {
    /// Returns a builder for a session with this model.
    pub fn builder<'a>(model: Arc<Model>) -> SessionBuilder<'a> {
        SessionBuilder::new(model)
    }

    pub(super) fn new(
        on: Arc<DeviceModel>,
        tensors: DeviceTensors,
        planner: Planner,
        recoveries: Recoveries,
    ) -> Session {
        let sequences = on.cache.sequences;
        let (past, chosen) = (vec![0; sequences], vec![false; sequences]);
        let (instances, histories) = (HashMap::new(), vec![History::default(); sequences]);
        let (absorbed, held) = (vec![Some(0); sequences], vec![None; sequences]);
        Session {
            on,
            tensors,
            planner,
            instances,
            past,
            chosen,
            histories,
            absorbed,
            held,
            recoveries,
        }
    }

    /// Returns the default compute mode: `Int8`, as in llama.cpp; `F32` on software GPUs, which
    /// gain nothing from `Int8`.
    pub fn default_mode(profile: &DeviceProfile) -> ComputeMode {
        match profile.kind {
            DeviceKind::Cpu => ComputeMode::Int8,
            DeviceKind::Software | DeviceKind::Null => ComputeMode::F32,
            _ => ComputeMode::Int8,
        }
    }

    /// Returns the default element type of the KV cache: f32 in the exact mode `F32`; otherwise
    /// f16, as in llama.cpp, because it halves the memory traffic of a long context.
    pub fn default_cache(mode: ComputeMode) -> DType {
        match mode {
            ComputeMode::F32 => DType::F32,
            ComputeMode::Int8 | ComputeMode::F16 => DType::F16,
        }
    }

    /// Returns the element type of the KV cache.
    pub fn cache_type(&self) -> DType {
        self.on.cache.dtype
    }

    /// Returns the compute mode of matrix products.
    pub fn mode(&self) -> ComputeMode {
        self.on.mode
    }

    /// Returns the model.
    pub fn model(&self) -> &Arc<Model> {
        &self.on.model
    }

    /// Returns the device that the session runs on.
    pub fn device(&self) -> &Arc<dyn Device> {
        self.on.runtime.device()
    }

    /// Returns the runtime that the session runs on. A recovery from a lost device replaces it.
    pub fn runtime(&self) -> &Runtime {
        &self.on.runtime
    }

    /// Returns the number of positions in the KV cache per sequence.
    pub fn context(&self) -> usize {
        self.on.cache.context
    }

    /// Returns the number of sequences in the KV cache.
    pub fn sequences(&self) -> usize {
        self.on.cache.sequences
    }

    /// Returns the number of plans used so far: one for each kind of input, shape bucket and
    /// output.
    pub fn plans(&self) -> usize {
        self.instances.len()
    }

    /// Returns the number of filled positions of the first sequence.
    pub fn past(&self) -> usize {
        self.past_of(0)
    }

    /// Returns the number of filled positions of a sequence; 0 if there is no such sequence.
    pub fn past_of(&self, sequence: usize) -> usize {
        self.past.get(sequence).copied().unwrap_or(0)
    }

    /// Drops the positions of the first sequence from `past` on. A model with recurrent layers reads
    /// the positions before `past` again at its next step, unless `past` is 0: their states cannot
    /// be taken back, but to where they were held ([`Session::hold_states`]).
    ///
    /// # Errors
    /// Invalid if fewer than `past` positions are filled.
    pub fn truncate(&mut self, past: usize) -> Result<()> {
        self.truncate_sequence(0, past)
    }

    /// Drops the positions of a sequence from `past` on.
    ///
    /// # Errors
    /// Invalid if fewer than `past` positions are filled, or if there is no such sequence.
    pub fn truncate_sequence(&mut self, sequence: usize, past: usize) -> Result<()> {
        self.check_sequence(sequence)?;
        let filled = self.past_of(sequence);
        if past > filled {
            let text = format!("cannot keep {past} positions, {filled} are filled");
            return Err(Error::invalid(text));
        }
        self.chosen[sequence] &= past == filled;
        self.past[sequence] = past;
        self.histories[sequence].truncate(past);
        self.held[sequence] = self.held[sequence].filter(|held| *held <= past);
        Ok(())
    }

    pub(super) fn check_sequence(&self, sequence: usize) -> Result<()> {
        let count = self.on.cache.sequences;
        match sequence < count {
            true => Ok(()),
            false => Err(Error::invalid(format!("sequence {sequence} of {count}"))),
        }
    }

    /// Returns an error if the last run of a sequence chose no token to continue from.
    pub(super) fn check_chosen(&self, sequence: usize) -> Result<()> {
        match self.chosen[sequence] {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "sequence {sequence} has no token to go on from: its last run chose none"
            ))),
        }
    }

    /// Returns the error for `count` more tokens than the context has room for.
    pub(super) fn no_room(&self, sequence: usize, count: usize) -> Error {
        let (past, context) = (self.past_of(sequence), self.context());
        let text =
            format!("{count} tokens after {past} do not fit a context of {context} positions");
        Error::invalid(text)
    }

    pub(super) fn check_tokens(&self, sequence: usize, tokens: &[u32]) -> Result<()> {
        if tokens.is_empty() {
            return Err(Error::invalid("no tokens to run"));
        }
        let vocabulary = self.model().config().vocabulary;
        if let Some(id) = tokens.iter().find(|id| **id as usize >= vocabulary) {
            return Err(Error::invalid(format!("token {id} of a vocabulary of {vocabulary}")));
        }
        match tokens.len() > self.context() - self.past_of(sequence) {
            true => Err(self.no_room(sequence, tokens.len())),
            false => Ok(()),
        }
    }

    /// Brings the recurrent states of a sequence to its last position, if they have read other tokens:
    /// by reading its tokens again from where they were held, or from the first.
    pub(super) async fn catch_up(&mut self, sequence: usize) -> Result<()> {
        let past = self.past_of(sequence);
        let is_recurrent = self.model().config().is_recurrent();
        // A token at position 0 clears the states.
        if !is_recurrent || past == 0 || self.absorbed[sequence] == Some(past) {
            return Ok(());
        }
        let begin = self.held[sequence].filter(|held| *held <= past).unwrap_or(0);
        if begin > 0 {
            self.absorbed[sequence] = None;
            self.take_held(sequence)?;
            self.absorbed[sequence] = Some(begin);
        }
        let (history, chosen) = (self.histories[sequence].clone(), self.chosen[sequence]);
        self.past[sequence] = begin;
        self.histories[sequence].truncate(begin);
        let mut done = Ok(());
        for chunk in history.tokens()[begin..].chunks(CLASSES[3].1) {
            done = self.run_chunk(sequence, chunk, Output::Nothing).await.map(drop);
            if done.is_err() {
                self.absorbed[sequence] = None;
                break;
            }
        }
        self.past[sequence] = past;
        self.histories[sequence] = history;
        self.chosen[sequence] = chosen;
        done
    }

    /// Runs tokens of one sequence, in chunks.
    pub(super) async fn run_tokens(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        output: Output<'_>,
    ) -> Result<StepOutput> {
        self.check_sequence(sequence)?;
        self.check_tokens(sequence, tokens)?;
        // Logits of many tokens are large, so chunks are smaller if all logits are returned.
        let (most, early) = match output {
            Output::AllLogits => (CLASSES[2].1, output),
            _ => (CLASSES[3].1, Output::Nothing),
        };
        let (mut rest, mut before) = (tokens, Vec::new());
        while rest.len() > most {
            let (chunk, after) = rest.split_at(most);
            let bytes = self.run_chunk(sequence, chunk, early).await?;
            before.extend(bytemuck::pod_collect_to_vec::<u8, f32>(&bytes));
            rest = after;
        }
        let bytes = self.run_chunk(sequence, rest, output).await?;
        let out = self.output_of(output.kind(), std::iter::once(sequence), &bytes)?;
        self.note_chosen(&out);
        match before.is_empty() {
            true => Ok(out),
            false => {
                before.extend_from_slice(out.logits());
                Ok(StepOutput::from_logits(before, self.model().config().vocabulary))
            }
        }
    }

    async fn run_chunk(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        output: Output<'_>,
    ) -> Result<Vec<u8>> {
        let (past, count) = (self.past[sequence], tokens.len());
        let symbols = self.symbols(sequence, past).with(SEQ, count as u64);
        let positions: Vec<i32> = (past..past + count).map(|position| position as i32).collect();
        let mut inputs =
            vec![bytemuck::cast_slice(tokens).to_vec(), bytemuck::cast_slice(&positions).to_vec()];
        inputs.extend(output.params_input());
        let (bucket, output) = (bucket_of(count)?, output.kind());
        let key = PlanKey { input: DecoderInput::Tokens, bucket, output };
        self.absorbed[sequence] = None;
        let outputs = self.instance(key).await?.read_async(symbols, inputs).await?;
        self.past[sequence] += count;
        self.absorbed[sequence] = Some(self.past[sequence]);
        self.histories[sequence].extend(tokens);
        self.chosen[sequence] = output.is_token();
        Ok(outputs.into_iter().next().unwrap_or_default())
    }

    /// Returns the symbol values of a run that follows `past` cached positions of `sequence`.
    pub(super) fn symbols(&self, sequence: usize, past: usize) -> SymbolValues {
        self.on.symbols(sequence, past)
    }

    /// Returns the instance for `key`, made on first use.
    pub(super) async fn instance(&mut self, key: PlanKey) -> Result<&Instance> {
        match self.instances.entry(key) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let plan = self.planner.take(key).await?;
                let instance =
                    Instance::new_async(&self.on.runtime, plan, &mut self.tensors).await?;
                Ok(entry.insert(instance))
            }
        }
    }

    /// Returns the plan of a run of one token that computes `output`, for use in reports.
    ///
    /// # Errors
    /// Errors of planning.
    pub fn decode_plan(&mut self, output: DecoderOutput) -> Result<Plan> {
        let key = PlanKey { input: DecoderInput::Tokens, bucket: 0, output };
        match self.instances.get(&key) {
            Some(instance) => Ok(instance.plan().clone()),
            None => self.planner.plan(key),
        }
    }

    /// Makes a plan for exactly `tokens` tokens after `past` positions of the first sequence, and
    /// returns it with the values of its symbols, for use in reports.
    ///
    /// # Errors
    /// Errors of planning.
    pub fn plan_for(
        &mut self,
        tokens: usize,
        past: usize,
        output: DecoderOutput,
    ) -> Result<(Plan, SymbolValues)> {
        let symbols = self.symbols(0, past).with(SEQ, tokens as u64);
        let mut class = ShapeClass::new();
        for (symbol, value) in symbols.iter() {
            class = class.with(symbol, value, value);
        }
        Ok((self.planner.plan_in(&class, DecoderInput::Tokens, output)?, symbols))
    }

    /// Returns the weights and the KV cache, for running other plans on them.
    pub fn device_tensors(&mut self) -> &mut DeviceTensors {
        &mut self.tensors
    }

    /// Returns the size of weights and KV cache on the device in bytes.
    pub fn device_bytes(&self) -> u64 {
        self.tensors.bytes()
    }
}
