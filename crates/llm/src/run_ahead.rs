//! Run-ahead decoding: each run reads the token chosen by the previous run from device memory, so
//! several runs are in flight and the device computes the next tokens while the host reads one.

use std::collections::VecDeque;

use super::decoder::{DecoderInput, DecoderOutput};
use super::planner::PlanKey;
use super::session::Session;
use super::step::{NextToken, StepOutput};
use warploom::provider::DeviceKind;
use warploom::runtime::Begun;
use warploom::{Error, Result};
use warploom_core::sampling::{NoToken, SampleParams};

/// Maximum runs in flight on a GPU. While the host handles one run, the other three hide its work
/// and wake-up latency; at the end of a text they are wasted.
const RUNS_AHEAD: usize = 4;

impl Session {
    /// Decodes `count` tokens of one sequence. If they are sampled, `params` has one entry per
    /// token. After an error, the sequence has as many filled positions as before, but no chosen
    /// token.
    pub(super) async fn run_ahead(
        &mut self,
        sequence: usize,
        count: usize,
        output: DecoderOutput,
        params: &[SampleParams],
    ) -> Result<StepOutput> {
        let mut ahead = RunAhead::new(self, sequence, output)?;
        ahead.check_room(count)?;
        let past = ahead.session.past[sequence];
        let tokens = ahead.all(count, params).await;
        drop(ahead);
        if tokens.is_err() {
            self.past[sequence] = past;
            self.chosen[sequence] = false;
        }
        tokens.map(StepOutput::from_next)
    }

    /// Returns the maximum number of runs in flight if the device chooses the tokens: more than one
    /// if run-ahead decoding is faster than a step for each token. On a CPU it is 1: there is no
    /// wait to hide, and runs after the end of the text would be wasted. So it is for a model with
    /// recurrent layers: a run after the end of the text cannot be taken back.
    pub fn runs_ahead(&self) -> usize {
        match self.device().profile().kind {
            DeviceKind::Cpu => 1,
            _ if self.model().config().is_recurrent() => 1,
            _ => RUNS_AHEAD,
        }
    }
}

/// Runs of one sequence, each continuing from the token that the previous one chose on the device.
/// Runs that are unread when this value is dropped are discarded.
pub(super) struct RunAhead<'s> {
    session: &'s mut Session,
    sequence: usize,
    output: DecoderOutput,
    /// Maximum runs in flight.
    most: usize,
    running: VecDeque<Begun>,
}

impl RunAhead<'_> {
    /// Prepares run-ahead decoding of a sequence, which continues from the token that its last run
    /// chose.
    pub(super) fn new(
        session: &mut Session,
        sequence: usize,
        output: DecoderOutput,
    ) -> Result<RunAhead<'_>> {
        session.check_sequence(sequence)?;
        session.check_chosen(sequence)?;
        let most = session.runs_ahead();
        Ok(RunAhead { session, sequence, output, most, running: VecDeque::new() })
    }

    /// Returns whether a run must be read before another can begin.
    pub(super) fn is_full(&self) -> bool {
        self.running.len() >= self.most
    }

    /// Returns the number of runs that have begun but are unread.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns the number of positions that the context has left after the runs in flight.
    pub(super) fn room(&self) -> usize {
        self.session.context() - self.session.past[self.sequence] - self.running.len()
    }

    fn check_room(&self, count: usize) -> Result<()> {
        match count <= self.room() {
            true => Ok(()),
            false => Err(self.session.no_room(self.sequence, count)),
        }
    }

    fn key(&self) -> PlanKey {
        PlanKey { input: DecoderInput::RunAhead, bucket: 0, output: self.output }
    }

    /// Submits the next run. `params` are the sampling parameters of its token, if it is sampled.
    pub(super) async fn begin(&mut self, params: Option<&SampleParams>) -> Result<()> {
        self.check_room(1)?;
        let position = self.session.past[self.sequence] + self.running.len();
        let mut inputs = vec![(position as i32).to_le_bytes().to_vec()];
        inputs.extend(params.map(SampleParams::bytes));
        let symbols = self.session.symbols(self.sequence, position);
        let key = self.key();
        // Unknown until all runs are read.
        self.session.chosen[self.sequence] = false;
        self.session.absorbed[self.sequence] = None;
        let instance = self.session.instance(key).await?;
        self.running.push_back(instance.begin_async(symbols, inputs).await?);
        self.session.absorbed[self.sequence] = Some(position + 1);
        Ok(())
    }

    /// Waits for the oldest unread run and returns its token; `None` if all runs are read.
    pub(super) async fn next(&mut self) -> Result<Option<u32>> {
        let Some(begun) = self.running.pop_front() else { return Ok(None) };
        let key = self.key();
        let outputs = self.session.instance(key).await?.end_async(begun).await?;
        let word = outputs.first().and_then(|bytes| bytes.first_chunk::<4>());
        let word = word.ok_or_else(|| Error::device("a run returned no token"))?;
        // Runs that continued from an invalid token read a zero embedding, and are dropped.
        let position = self.session.past[self.sequence] + 1;
        let token = NoToken::check(u32::from_le_bytes(*word))
            .map_err(|why| self.session.no_token(self.sequence, position, why))?;
        self.session.past[self.sequence] += 1;
        self.session.histories[self.sequence].advance(token);
        self.session.chosen[self.sequence] = self.running.is_empty();
        Ok(Some(token))
    }

    /// Performs `count` runs and returns their tokens.
    async fn all(&mut self, count: usize, params: &[SampleParams]) -> Result<Vec<NextToken>> {
        let mut tokens = Vec::with_capacity(count);
        for run in 0..count {
            if self.is_full() {
                self.read_into(&mut tokens).await?;
            }
            self.begin(params.get(run)).await?;
        }
        while self.read_into(&mut tokens).await? {}
        Ok(tokens)
    }

    /// Appends the token of the oldest unread run; returns false if all runs are read.
    async fn read_into(&mut self, tokens: &mut Vec<NextToken>) -> Result<bool> {
        let Some(token) = self.next().await? else { return Ok(false) };
        let position = self.session.past[self.sequence];
        tokens.push(NextToken::new(self.sequence, position, Ok(token)));
        Ok(true)
    }

    /// Waits for the unread runs, so that none of their errors is lost.
    pub(super) async fn finish(mut self) -> Result<()> {
        let key = self.key();
        while let Some(begun) = self.running.pop_front() {
            self.session.instance(key).await?.end_async(begun).await?;
        }
        Ok(())
    }
}
