//! Continuous batching: many requests over the sequences of one session.
//!
//! A turn runs at most one chunk of one prompt, then one token of every decoding answer in a single
//! run, so a long prompt delays each token of the other answers by at most one chunk. Requests
//! start in order of arrival. A sequence keeps its KV cache, so that a later request with the same
//! prefix can reuse it: see [`super::reuse`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::logits::Logprob;
use super::queue::{Done, Ended, Failure, Job, Pending, Piece, Queue};
use super::reuse::{Prefixes, TAIL};
use super::running::{After, Running};
use super::sequences::Sequences;
use warploom::runtime::KeepAlive;
use warploom::{Error, Result};
use warploom_llm::{DecoderOutput, NextToken, Output, Sampler, StepOutput, StepRequest};

/// Maximum sleep of an idle scheduler between two checks of the queue.
const NAP: Duration = Duration::from_millis(500);

/// The output of a run for one sequence.
enum Given<'a> {
    /// The token chosen by the device, or why there is none.
    Token(NextToken),
    /// The logits, from which the host chooses a token.
    Logits(&'a mut [f32]),
}

/// A sequence: its contents and its current request.
#[derive(Default)]
pub(super) struct Slot {
    /// The tokens in the cache, followed by those still to run.
    pub(super) tokens: Vec<u32>,
    pub(super) running: Option<Running>,
    /// Serial number of its last assignment; lower numbers are older.
    pub(super) used: u64,
}

/// Runs the jobs of a queue on sequences.
pub struct Scheduler<S: Sequences> {
    pub(super) steps: S,
    pub(super) queue: Arc<Queue>,
    pub(super) slots: Vec<Slot>,
    /// Caches in host memory.
    pub(super) prefixes: Prefixes<S::Saved>,
    /// Maximum number of prompt tokens to run in one turn.
    piece: usize,
    /// Index of the sequence whose prompt was run last.
    reader: usize,
    given: u64,
    /// The keep-alive of the device, and its duration after the last answer.
    awake: Option<(KeepAlive, Duration)>,
}

impl<S: Sequences> Scheduler<S> {
    /// Creates a scheduler. A turn runs at most `piece` tokens of a prompt; 0 counts as 1.
    pub fn new(steps: S, queue: Arc<Queue>, piece: usize) -> Scheduler<S> {
        let slots = (0..steps.sequences()).map(|_| Slot::default()).collect();
        let prefixes = Prefixes::new(0);
        let piece = piece.max(1);
        Scheduler { steps, queue, slots, prefixes, piece, reader: 0, given: 0, awake: None }
    }

    /// Keeps the caches of sequences in up to `bytes` bytes of host memory when their sequences are
    /// taken for other requests. Default: none.
    pub fn prefix_memory(self, bytes: u64) -> Scheduler<S> {
        Scheduler { prefixes: Prefixes::new(bytes), ..self }
    }

    /// Makes [`Scheduler::run`] keep the GPU clock up for `time` after it starts and whenever it
    /// becomes idle; `None` disables this.
    pub fn keep_awake(self, awake: Option<KeepAlive>, time: Duration) -> Scheduler<S> {
        Scheduler { awake: awake.map(|awake| (awake, time)), ..self }
    }

    /// Returns the sequences that the scheduler drives.
    pub fn steps(&self) -> &S {
        &self.steps
    }

    /// Runs jobs until the queue is stopped and running answers have ended.
    pub fn run(&mut self) {
        let mut idle = false;
        loop {
            if self.turn() {
                idle = false;
                continue;
            }
            if self.queue.until().is_some() {
                return;
            }
            if let (Some((awake, time)), false) = (&self.awake, idle) {
                awake.hold(*time);
            }
            idle = true;
            self.queue.wait(NAP);
        }
    }

    /// Runs one turn; returns false if there was nothing to run.
    pub fn turn(&mut self) -> bool {
        self.end_unwanted();
        self.admit();
        let read = self.read_piece();
        let written = self.write_tokens();
        read || written
    }

    /// Frees the sequences of cancelled and late requests, and all sequences after the stop
    /// deadline.
    fn end_unwanted(&mut self) {
        self.queue.sweep();
        let (now, until) = (Instant::now(), self.queue.until());
        for index in 0..self.slots.len() {
            let Some(running) = &self.slots[index].running else { continue };
            if running.pending.is_gone() {
                self.free(index);
            } else if now >= running.pending.job.deadline {
                self.fail(index, Failure::Late);
            } else if until.is_some_and(|until| now >= until) {
                self.fail(index, Failure::Stopping);
            }
        }
    }

    /// Assigns free sequences to waiting jobs.
    fn admit(&mut self) {
        while self.slots.iter().any(|slot| slot.running.is_none()) {
            let Some(pending) = self.queue.take() else { return };
            match self.place(&pending.job) {
                Ok((index, cached, sampler)) => self.begin(index, cached, sampler, pending),
                Err(error) => pending.send(Piece::Failed(Failure::Request(error))),
            }
        }
    }

    /// Picks a sequence for a job; see [`Scheduler::take_sequence`]. Returns its index, the number of
    /// tokens that are cached, and the sampler of the job.
    fn place(&mut self, job: &Job) -> Result<(usize, usize, Sampler)> {
        let (context, prompt) = (self.steps.context(), &job.prompt);
        if prompt.is_empty() || prompt.len() > context {
            let text = format!("a prompt of {} tokens, the context has {context}", prompt.len());
            return Err(Error::invalid(text));
        }
        let sampler = Sampler::new(job.sampling.clone())?;
        let taken = self.take_sequence(job)?;
        let (index, cached) = taken.ok_or_else(|| Error::invalid("there is no free sequence"))?;
        Ok((index, cached, sampler))
    }

    fn begin(&mut self, index: usize, cached: usize, sampler: Sampler, pending: Pending) {
        if let Some((awake, _)) = &self.awake {
            awake.rest();
        }
        self.given += 1;
        self.slots[index] = Slot {
            tokens: pending.job.prompt.clone(),
            running: Some(Running::new(pending, sampler, cached)),
            used: self.given,
        };
        self.tell_running();
    }

    fn tell_running(&self) {
        self.queue.set_running(self.slots.iter().filter(|slot| slot.running.is_some()).count());
    }

    /// Returns the number of tokens that a running sequence still has to run; 0 for a free one.
    fn left(&self, index: usize) -> usize {
        let slot = &self.slots[index];
        slot.running.as_ref().map_or(0, |_| slot.tokens.len() - self.steps.past_of(index))
    }

    /// Runs a chunk of the next unfinished prompt, round-robin; returns false if there is none.
    fn read_piece(&mut self) -> bool {
        let count = self.slots.len();
        let round = (1..=count).map(|step| (self.reader + step) % count);
        // A prompt with one token left joins the batched decode run.
        let Some(index) = round.into_iter().find(|index| self.left(*index) > 1) else {
            return false;
        };
        self.reader = index;
        let slot = &self.slots[index];
        let Some(running) = &slot.running else { return false };
        let past = self.steps.past_of(index);
        // Where the states of recurrent layers are held for the next request of the conversation.
        let hold = running.pending.job.prompt.len().saturating_sub(TAIL);
        let hold = Some(hold).filter(|hold| self.steps.is_recurrent() && *hold > past);
        let end = slot.tokens.len().min(past + self.piece).min(hold.unwrap_or(usize::MAX));
        let params = [running.sampler.sampling().params(end)];
        let output = match end == slot.tokens.len() {
            true if running.needs_logits() => Output::Logits,
            true => running.sampler.sampling().output(&params),
            false => Output::Nothing,
        };
        let result = self.steps.step(StepRequest::tokens(index, &slot.tokens[past..end], output));
        if result.is_ok() && hold == Some(end) {
            // Without them the next request reads more, which is right as well.
            if let Err(error) = self.steps.hold_states(index) {
                tracing::warn!("the states of sequence {index} were not held: {error}");
            }
        }
        self.choose_from(result, &[index]);
        true
    }

    /// Runs the last token of every decoding answer, and chooses the next one; returns false if no
    /// answer is being decoded.
    fn write_tokens(&mut self) -> bool {
        let writing: Vec<usize> = (0..self.slots.len()).filter(|i| self.left(*i) == 1).collect();
        let last = |index: &usize| Some((*index, *self.slots[*index].tokens.last()?));
        let tokens: Vec<(usize, u32)> = writing.iter().filter_map(last).collect();
        if tokens.is_empty() {
            return false;
        }
        let running = |index: &usize| self.slots[*index].running.as_ref();
        let kinds = || writing.iter().filter_map(running).map(Running::output_kind);
        let params: Vec<_>;
        let output = if kinds().any(|kind| kind == DecoderOutput::Logits) {
            Output::Logits
        } else if kinds().all(|kind| kind == DecoderOutput::Greedy) {
            Output::Greedy
        } else {
            let params_of = |index: &usize| {
                let sampling = running(index)?.sampler.sampling();
                Some(sampling.params(self.slots[*index].tokens.len()))
            };
            params = writing.iter().filter_map(params_of).collect();
            Output::Sample(&params)
        };
        let result = self.steps.step(StepRequest::batch(&tokens, output));
        self.choose_from(result, &writing);
        true
    }

    /// Takes the next tokens of the answers on the sequences `indices` from the output of a step.
    fn choose_from(&mut self, result: Result<StepOutput>, indices: &[usize]) {
        let Some(mut output) = self.done(result) else { return };
        for (next, index) in output.next_tokens().iter().zip(indices) {
            self.choose(*index, Given::Token(*next));
        }
        for (row, index) in output.rows_mut().zip(indices) {
            self.choose(*index, Given::Logits(row));
        }
    }

    /// Returns the output of a step; after an error, fails all running answers and drops all
    /// caches.
    fn done<T>(&mut self, result: Result<T>) -> Option<T> {
        self.queue.set_failing(result.is_err());
        result.inspect_err(|error| self.fail_all(error)).ok()
    }

    /// Takes the next token of the answer on sequence `index` from the output of a step.
    fn choose(&mut self, index: usize, given: Given<'_>) {
        let slot = &mut self.slots[index];
        let Some(running) = &mut slot.running else { return };
        let position = slot.tokens.len();
        let chosen = match given {
            Given::Token(next) => {
                let token = next.token.map_err(|why| Failure::Model(why.at(position)));
                token.map(|token| (token, None))
            }
            Given::Logits(logits) => {
                running.pick(logits, &slot.tokens, &self.steps, &self.queue.metrics)
            }
        };
        let done = chosen.and_then(|(token, logprob)| self.append_all(index, token, logprob));
        if let Err(failure) = done {
            let is_broken = matches!(failure, Failure::Model(_));
            self.fail(index, failure);
            if is_broken {
                self.forget(index);
            }
        }
    }

    /// Appends a token to an answer and then those that its constraint forces, which the next steps
    /// run as one chunk. Ends the answer if due.
    fn append_all(
        &mut self,
        index: usize,
        token: u32,
        logprob: Option<Logprob>,
    ) -> Result<(), Failure> {
        self.append(index, token, logprob, None)?;
        let Some(running) = &mut self.slots[index].running else { return Ok(()) };
        let forced = running.forced()?;
        let count = forced.len();
        for (number, token) in forced.into_iter().enumerate() {
            self.append(index, token, None, Some(count - number - 1))?;
        }
        Ok(())
    }

    /// Appends a token to an answer, and ends the answer if due. `forced` is the number of forced
    /// tokens that follow a forced one.
    fn append(
        &mut self,
        index: usize,
        token: u32,
        logprob: Option<Logprob>,
        forced: Option<usize>,
    ) -> Result<(), Failure> {
        let slot = &mut self.slots[index];
        let Some(running) = &mut slot.running else { return Ok(()) };
        if running.written == 0 {
            self.queue.metrics.begin(running.pending.begin.elapsed());
            running.pending.send(Piece::Started { cached_tokens: running.cached });
        }
        running.written += 1;
        let ends = self.steps.is_stop(token) && !running.pending.job.ignore_end;
        if ends && forced.is_none() {
            self.finish(index, Ended::Stop);
            return Ok(());
        }
        slot.tokens.push(token);
        let bytes = self.steps.bytes_of(token).map_err(Failure::Device)?;
        let most = running.written >= running.pending.job.max_tokens;
        match running.write(token, bytes, logprob, forced.is_some())? {
            After::Stopped => self.end(index, Ended::Stop),
            After::Complete if forced.unwrap_or(0) == 0 => self.finish(index, Ended::Stop),
            _ if most || slot.tokens.len() > self.steps.context() => {
                self.finish(index, Ended::Length);
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends an answer and sends the text held back.
    fn finish(&mut self, index: usize, ended: Ended) {
        let Some(running) = &mut self.slots[index].running else { return };
        let stopped = running.flush();
        self.end(index, if stopped { Ended::Stop } else { ended });
    }

    fn end(&mut self, index: usize, ended: Ended) {
        if let Some(running) = self.free(index) {
            let done = Done {
                ended,
                stop_string: running.stop_string(),
                prompt_tokens: running.pending.job.prompt.len(),
                cached_tokens: running.cached,
                completion_tokens: running.written,
            };
            self.queue.metrics.done(&done, running.pending.begin.elapsed());
            running.pending.send(Piece::Done(done));
        }
    }

    /// Frees a sequence and returns its request. Its cache stays for a later request.
    fn free(&mut self, index: usize) -> Option<Running> {
        let slot = &mut self.slots[index];
        slot.tokens.truncate(self.steps.past_of(index));
        let running = slot.running.take();
        // Before the end is sent, so that a client with an answer is no longer counted.
        self.tell_running();
        running
    }

    fn fail(&mut self, index: usize, failure: Failure) {
        if let Some(running) = self.free(index) {
            self.queue.metrics.failed();
            running.pending.send(Piece::Failed(failure));
        }
    }

    /// Fails all running answers and drops all caches: after an error of the device none is valid.
    fn fail_all(&mut self, error: &Error) {
        for index in 0..self.slots.len() {
            self.fail(index, Failure::Device(error.duplicate()));
            self.forget(index);
        }
    }

    /// Drops the cache of a sequence.
    fn forget(&mut self, index: usize) {
        // The cache is not used again, so an error does not matter.
        let _ = self.steps.truncate(index, 0);
        self.slots[index].tokens.clear();
    }
}
