//! Run-ahead decoding of several sequences: same as `run_ahead`, but each run decodes one token of
//! every sequence.

use super::batch::{bucket_of, params_words};
use super::decoder::{DecoderInput, DecoderOutput, SEQ};
use super::planner::PlanKey;
use super::session::Session;
use super::step::{NextToken, StepOutput};
use warploom::{Error, Result};
use warploom_core::base::SymbolValues;
use warploom_core::sampling::SampleParams;

impl Session {
    /// Decodes `count` tokens of each sequence, and returns those of the first run first. If they
    /// are sampled, `params` has one entry per token in the same order. After an error, the
    /// sequences have as many filled positions as before, but no chosen tokens.
    pub(super) async fn run_ahead_batch(
        &mut self,
        sequences: &[usize],
        count: usize,
        output: DecoderOutput,
        params: &[SampleParams],
    ) -> Result<StepOutput> {
        let symbols = SymbolValues::new().with(SEQ, sequences.len() as u64);
        let mut rows = params.chunks(sequences.len());
        let args = (0..count).map(|run| {
            let mut inputs = self.places_of_each(sequences, run, true);
            inputs.extend(rows.next().map(params_words));
            (symbols.clone(), inputs)
        });
        let args: Vec<_> = args.collect();
        // Unknown until all runs are done.
        for sequence in sequences {
            self.chosen[*sequence] = false;
            self.absorbed[*sequence] = None;
        }
        let bucket = bucket_of(sequences.len());
        let key = PlanKey { input: DecoderInput::BatchRunAhead, bucket, output };
        let at_once = self.runs_ahead();
        let instance = self.instance(key).await?;
        let mut next = Vec::with_capacity(count * sequences.len());
        for (run, outputs) in instance.read_all_async(args, at_once).await?.into_iter().enumerate()
        {
            let bytes = outputs.into_iter().next().unwrap_or_default();
            let of_run = self.output_of(output, sequences.iter().copied(), &bytes)?;
            for token in of_run.next_tokens() {
                let position = token.position + run + 1;
                let id = token.token.map_err(|why| self.no_token(token.sequence, position, why))?;
                next.push(NextToken::new(token.sequence, position, Ok(id)));
            }
        }
        for token in &next {
            self.histories[token.sequence].advance(token.id()?);
        }
        for sequence in sequences {
            self.past[*sequence] += count;
            self.absorbed[*sequence] = Some(self.past[*sequence]);
            self.chosen[*sequence] = true;
        }
        Ok(StepOutput::from_next(next))
    }

    /// Checks that each sequence occurs once, and has a chosen token and room for `count` more.
    pub(super) fn check_run_ahead(&self, sequences: &[usize], count: usize) -> Result<()> {
        if sequences.is_empty() {
            return Err(Error::invalid("no sequences to run"));
        }
        for (i, sequence) in sequences.iter().enumerate() {
            self.check_sequence(*sequence)?;
            if sequences[..i].contains(sequence) {
                return Err(Error::invalid(format!("sequence {sequence} twice in one run")));
            }
            self.check_chosen(*sequence)?;
            if count > self.context() - self.past[*sequence] {
                return Err(self.no_room(*sequence, count));
            }
        }
        Ok(())
    }
}
