//! Batched decoding: one token of each of several sequences in one run, over a shared KV cache.
//!
//! Sequence `i` occupies `context` rows of the cache, starting at row `i * context`. Each token
//! comes with the row that it is written to and the span of rows that it attends to, so the
//! sequences may differ in length.

use super::decoder::{self, DecoderInput, SEQ};
use super::planner::PlanKey;
use super::session::{MAX_SEQUENCES, Session};
use super::step::{Output, StepOutput};
use warploom::{Error, Result};
use warploom_core::base::{ShapeClass, SymbolValues};
use warploom_core::sampling::SampleParams;

/// Number of inputs that locate the tokens of a run in the cache: positions, rows and spans.
const PLACES: usize = 3;

/// Maximum number of sequences per run, for each shape bucket.
const CLASSES: [usize; 3] = [8, 16, MAX_SEQUENCES];

/// Returns the shape buckets of batched runs, in ascending order of the number of sequences.
pub(super) fn classes() -> [ShapeClass; 3] {
    let mut least = 1;
    CLASSES.map(|most| {
        let class = ShapeClass::new().with(SEQ, least, most as u64);
        least = most as u64 + 1;
        class
    })
}

/// Returns the shape bucket of a run with one token of each of `sequences` sequences.
///
/// # Errors
/// Invalid if `sequences` is 0 or more than [`MAX_SEQUENCES`].
pub fn class_of_batch(sequences: usize) -> Result<ShapeClass> {
    let found = CLASSES.iter().position(|most| (1..=*most).contains(&sequences));
    let found = found.ok_or_else(|| {
        Error::invalid(format!("a run of {sequences} sequences, it is of 1 to {MAX_SEQUENCES}"))
    })?;
    Ok(classes()[found].clone())
}

impl Session {
    /// Checks that each token belongs to a sequence of its own with room for it.
    pub(super) fn check_batch(&self, tokens: &[(usize, u32)]) -> Result<()> {
        if tokens.is_empty() {
            return Err(Error::invalid("no tokens to run"));
        }
        for (i, (sequence, token)) in tokens.iter().enumerate() {
            self.check_sequence(*sequence)?;
            self.check_tokens(*sequence, std::slice::from_ref(token))?;
            if tokens[..i].iter().any(|(other, _)| other == sequence) {
                return Err(Error::invalid(format!("sequence {sequence} twice in one run")));
            }
        }
        Ok(())
    }

    /// Runs one token of each of several sequences, in one run. `tokens` holds pairs of a sequence
    /// and its token.
    pub(super) async fn run_batch(
        &mut self,
        tokens: &[(usize, u32)],
        output: Output<'_>,
    ) -> Result<StepOutput> {
        let sequences: Vec<usize> = tokens.iter().map(|(sequence, _)| *sequence).collect();
        let ids: Vec<u32> = tokens.iter().map(|(_, token)| *token).collect();
        let kind = output.kind();
        let key =
            PlanKey { input: DecoderInput::Batch, bucket: bucket_of(tokens.len()), output: kind };
        let has_slots = decoder::has_slots(self.model().config(), key.input, kind);
        let mut inputs = self.places_of_each(&sequences, 0, has_slots);
        inputs.insert(inputs.len() - PLACES, bytemuck::cast_slice(&ids).to_vec());
        inputs.extend(output.params_input());
        // What the device holds is unknown until the run is done.
        for sequence in &sequences {
            self.chosen[*sequence] = false;
            self.absorbed[*sequence] = None;
        }
        let instance = self.instance(key).await?;
        let symbols = SymbolValues::new().with(SEQ, tokens.len() as u64);
        let outputs = instance.read_async(symbols, inputs).await?;
        for (sequence, token) in tokens {
            self.past[*sequence] += 1;
            self.absorbed[*sequence] = Some(self.past[*sequence]);
            self.histories[*sequence].extend(&[*token]);
            self.chosen[*sequence] = kind.is_token();
        }
        let bytes = outputs.into_iter().next().unwrap_or_default();
        let out = self.output_of(kind, sequences.into_iter(), &bytes)?;
        self.note_chosen(&out);
        Ok(out)
    }

    /// Returns the inputs, as bytes, of a run that chooses a token for every sequence, each at the
    /// last position of its context. Of all batched runs, this one reads the most of the KV cache;
    /// it is meant for profiling.
    pub fn inputs_of_full_sequences(&self) -> Vec<Vec<u8>> {
        let last = self.context() - 1;
        let each: Vec<_> = (0..self.sequences()).map(|sequence| (sequence, last)).collect();
        let mut inputs = self.places(&each, true);
        inputs.insert(inputs.len() - PLACES, vec![0; 4 * each.len()]);
        inputs
    }

    /// Returns the inputs that locate the next token of each sequence after `run` further runs.
    pub(super) fn places_of_each(
        &self,
        sequences: &[usize],
        run: usize,
        has_slots: bool,
    ) -> Vec<Vec<u8>> {
        let each: Vec<_> = sequences.iter().map(|s| (*s, self.past_of(*s) + run)).collect();
        self.places(&each, has_slots)
    }

    /// Returns the sequences (only if `has_slots` is set), positions, cache rows and spans, each as
    /// the bytes of an input. `each` holds pairs of a sequence and its number of filled positions.
    fn places(&self, each: &[(usize, usize)], has_slots: bool) -> Vec<Vec<u8>> {
        let base = |sequence: usize| (sequence * self.context()) as i32;
        let slots: Vec<i32> = each.iter().map(|(s, _)| *s as i32).collect();
        let positions: Vec<i32> = each.iter().map(|(_, past)| *past as i32).collect();
        let rows: Vec<i32> = each.iter().map(|(s, past)| base(*s) + *past as i32).collect();
        let spans = each.iter().map(|(s, past)| [base(*s), base(*s) + *past as i32 + 1]);
        let spans: Vec<[i32; 2]> = spans.collect();
        let mut inputs = Vec::new();
        if has_slots {
            inputs.push(bytemuck::cast_slice(&slots).to_vec());
        }
        inputs.push(bytemuck::cast_slice(&positions).to_vec());
        inputs.push(bytemuck::cast_slice(&rows).to_vec());
        inputs.push(bytemuck::cast_slice(&spans).to_vec());
        inputs
    }
}

/// Encodes sampling parameters as the bytes of the input `sample_params`.
pub(super) fn params_words(params: &[SampleParams]) -> Vec<u8> {
    let words: Vec<u32> = params.iter().flat_map(SampleParams::words).collect();
    bytemuck::cast_slice(&words).to_vec()
}

/// Returns the index of the shape bucket of a run of `sequences` sequences.
pub(super) fn bucket_of(sequences: usize) -> usize {
    CLASSES.iter().position(|most| sequences <= *most).unwrap_or(CLASSES.len() - 1)
}
