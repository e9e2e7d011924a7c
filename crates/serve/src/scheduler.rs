//! Many requests over the sequences of one session.
//!
//! A turn reads at most one piece of one prompt and then writes one token of every answer that is
//! being written, all in one run: a long prompt holds nobody up for longer than its piece takes.
//! Requests begin in the order in which they came. A sequence keeps what it ran last, so that a
//! request which begins like an earlier one goes on from there.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::queue::{Done, Ended, Failure, Job, Pending, Piece, Queue};
use super::stop::StopStrings;
use warploom::draw::{Draw, nothing_drawn};
use warploom::error::{Error, Result};
use warploom::runtime::Awake;
use warploom_llm::utf8::Utf8Stream;
use warploom_llm::{Sampler, Session, Wanted};

/// What a scheduler drives: sequences of tokens, each with a cache of its own.
pub trait Sequences {
    /// How many there are.
    fn sequences(&self) -> usize;

    /// Positions of each.
    fn context(&self) -> usize;

    /// Positions of one that are filled.
    fn past_of(&self, sequence: usize) -> usize;

    /// Forgets positions of one from `past` on.
    ///
    /// # Errors
    /// Invalid, when fewer are filled.
    fn truncate(&mut self, sequence: usize, past: usize) -> Result<()>;

    /// Appends tokens to one, and gives what is wanted after the last: nothing, logits `[v]` f32
    /// or a token `[1]` u32, as little-endian bytes.
    ///
    /// # Errors
    /// What the device says.
    fn run_one(&mut self, sequence: usize, tokens: &[u32], wanted: Wanted) -> Result<Vec<u8>>;

    /// Appends a token to each of several: logits `[n, v]` f32 or tokens `[n]` u32.
    ///
    /// # Errors
    /// What the device says.
    fn run_each(&mut self, tokens: &[(usize, u32)], wanted: Wanted) -> Result<Vec<u8>>;

    /// As [`Sequences::run_one`], and draws the next token; `None` where none can be drawn.
    ///
    /// # Errors
    /// What the device says.
    fn draw_one(&mut self, sequence: usize, tokens: &[u32], draw: &Draw) -> Result<Option<u32>>;

    /// As [`Sequences::run_each`], and draws the next token of each.
    ///
    /// # Errors
    /// What the device says.
    fn draw_each(&mut self, tokens: &[(usize, u32, Draw)]) -> Result<Vec<Option<u32>>>;

    /// The bytes that a token stands for.
    ///
    /// # Errors
    /// Invalid, for an id outside the vocabulary.
    fn bytes_of(&self, token: u32) -> Result<&[u8]>;

    /// Whether a token ends an answer.
    fn is_stop(&self, token: u32) -> bool;
}

impl Sequences for Session {
    fn sequences(&self) -> usize {
        Session::sequences(self)
    }

    fn context(&self) -> usize {
        Session::context(self)
    }

    fn past_of(&self, sequence: usize) -> usize {
        Session::past_of(self, sequence)
    }

    fn truncate(&mut self, sequence: usize, past: usize) -> Result<()> {
        self.truncate_sequence(sequence, past)
    }

    fn run_one(&mut self, sequence: usize, tokens: &[u32], wanted: Wanted) -> Result<Vec<u8>> {
        self.run_sequence_blocking(sequence, tokens, wanted)
    }

    fn run_each(&mut self, tokens: &[(usize, u32)], wanted: Wanted) -> Result<Vec<u8>> {
        self.run_each_blocking(tokens, wanted)
    }

    fn draw_one(&mut self, sequence: usize, tokens: &[u32], draw: &Draw) -> Result<Option<u32>> {
        self.draw_sequence_blocking(sequence, tokens, draw)
    }

    fn draw_each(&mut self, tokens: &[(usize, u32, Draw)]) -> Result<Vec<Option<u32>>> {
        self.draw_each_blocking(tokens)
    }

    fn bytes_of(&self, token: u32) -> Result<&[u8]> {
        self.model().tokenizer().token_bytes(token)
    }

    fn is_stop(&self, token: u32) -> bool {
        self.model().tokenizer().is_stop(token)
    }
}

/// Longest that an idle scheduler sleeps: jobs behind others are looked at so often.
const NAP: Duration = Duration::from_millis(500);

/// A request that has a sequence.
struct Running {
    pending: Pending,
    sampler: Sampler,
    text: Utf8Stream,
    stops: StopStrings,
    /// Tokens of the prompt that were in the cache.
    cached: usize,
    /// Tokens that were written.
    written: usize,
}

impl Running {
    fn wanted(&self) -> Wanted {
        self.sampler.sampling().wanted()
    }
}

/// What a run gave of one sequence.
enum Given<'a> {
    /// The token that the device drew, if it could.
    Drawn(Option<u32>),
    /// What was wanted.
    Bytes(Wanted, &'a [u8]),
}

/// A sequence: what it holds, and who has it.
#[derive(Default)]
struct Slot {
    /// The tokens in the cache, and behind them those that are still to run.
    tokens: Vec<u32>,
    running: Option<Running>,
    /// When it was last given away.
    used: u64,
}

/// Runs the jobs of a queue on sequences.
pub struct Scheduler<S> {
    pub(super) steps: S,
    queue: Arc<Queue>,
    slots: Vec<Slot>,
    /// Most tokens of a prompt in one turn.
    piece: usize,
    /// The sequence whose prompt was read last.
    reader: usize,
    given: u64,
    /// What keeps the device awake, and how long after the last answer.
    awake: Option<(Awake, Duration)>,
}

impl<S: Sequences> Scheduler<S> {
    /// A scheduler; a turn reads at most `piece` tokens of a prompt, at least 1.
    pub fn new(steps: S, queue: Arc<Queue>, piece: usize) -> Scheduler<S> {
        let slots = (0..steps.sequences()).map(|_| Slot::default()).collect();
        Scheduler { steps, queue, slots, piece: piece.max(1), reader: 0, given: 0, awake: None }
    }

    /// [`Scheduler::run`] keeps the device awake for so long from its start and from each time that nothing is left to do.
    pub fn keep_awake(self, awake: Option<Awake>, time: Duration) -> Scheduler<S> {
        Scheduler { awake: awake.map(|awake| (awake, time)), ..self }
    }

    /// What it drives.
    pub fn steps(&self) -> &S {
        &self.steps
    }

    /// Works until the queue is stopped and what runs has ended.
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

    /// One turn; false where there was nothing to do.
    pub fn turn(&mut self) -> bool {
        self.end_unwanted();
        self.admit();
        let read = self.read_piece();
        let written = self.write_tokens();
        read || written
    }

    /// Frees the sequences of those who have gone, are late, or are not done when the server ends.
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

    /// Gives free sequences to those who wait.
    fn admit(&mut self) {
        while self.slots.iter().any(|slot| slot.running.is_none()) {
            let Some(pending) = self.queue.take() else { return };
            match self.place(&pending.job) {
                Ok((index, cached, sampler)) => self.begin(index, cached, sampler, pending),
                Err(error) => pending.send(Piece::Failed(Failure::Request(error))),
            }
        }
    }

    /// The free sequence that holds the longest beginning of the prompt, among equals the one that
    /// was not used for longest; how many tokens of it are kept, and what chooses the next ones.
    fn place(&mut self, job: &Job) -> Result<(usize, usize, Sampler)> {
        let (context, prompt) = (self.steps.context(), &job.prompt);
        if prompt.is_empty() || prompt.len() > context {
            let text = format!("a prompt of {} tokens, the context has {context}", prompt.len());
            return Err(Error::invalid(text));
        }
        let sampler = Sampler::new(job.sampling.clone())?;
        let free = self.slots.iter().enumerate().filter(|(_, slot)| slot.running.is_none());
        let shared = |slot: &Slot| {
            slot.tokens.iter().zip(prompt).take_while(|(ours, theirs)| ours == theirs).count()
        };
        let best = free.map(|(index, slot)| (shared(slot), Reverse(slot.used), Reverse(index)));
        let Some((shared, _, Reverse(index))) = best.max() else {
            return Err(Error::invalid("there is no free sequence"));
        };
        // At least one token is run: a cache holds no logits.
        let cached = shared.min(prompt.len() - 1);
        self.steps.truncate(index, cached)?;
        Ok((index, cached, sampler))
    }

    fn begin(&mut self, index: usize, cached: usize, sampler: Sampler, pending: Pending) {
        if let Some((awake, _)) = &self.awake {
            awake.rest();
        }
        self.given += 1;
        self.slots[index] = Slot {
            tokens: pending.job.prompt.clone(),
            running: Some(Running {
                stops: StopStrings::new(pending.job.stop.clone()),
                pending,
                sampler,
                text: Utf8Stream::new(),
                cached,
                written: 0,
            }),
            used: self.given,
        };
        self.tell_running();
    }

    fn tell_running(&self) {
        self.queue.set_running(self.slots.iter().filter(|slot| slot.running.is_some()).count());
    }

    /// Tokens of a running sequence that are still to run; 0 where nothing runs.
    fn left(&self, index: usize) -> usize {
        let slot = &self.slots[index];
        slot.running.as_ref().map_or(0, |_| slot.tokens.len() - self.steps.past_of(index))
    }

    /// Reads a piece of the next prompt in the round; false where none is to be read.
    fn read_piece(&mut self) -> bool {
        let count = self.slots.len();
        let round = (1..=count).map(|step| (self.reader + step) % count);
        // What has one token left is run with those that are written.
        let Some(index) = round.into_iter().find(|index| self.left(*index) > 1) else {
            return false;
        };
        self.reader = index;
        let slot = &self.slots[index];
        let Some(running) = &slot.running else { return false };
        let past = self.steps.past_of(index);
        let end = slot.tokens.len().min(past + self.piece);
        let wanted = if end == slot.tokens.len() { running.wanted() } else { Wanted::Cache };
        let tokens = &slot.tokens[past..end];
        if wanted == Wanted::Drawn {
            let draw = running.sampler.sampling().draw(end);
            let result = self.steps.draw_one(index, tokens, &draw);
            if let Some(drawn) = self.done(result) {
                self.choose(index, Given::Drawn(drawn));
            }
            return true;
        }
        let result = self.steps.run_one(index, tokens, wanted);
        if let Some(bytes) = self.done(result)
            && wanted != Wanted::Cache
        {
            self.choose(index, Given::Bytes(wanted, &bytes));
        }
        true
    }

    /// Runs the last token of every answer that is being written, and chooses the next.
    fn write_tokens(&mut self) -> bool {
        let writing: Vec<usize> = (0..self.slots.len()).filter(|i| self.left(*i) == 1).collect();
        let last = |index: &usize| Some((*index, *self.slots[*index].tokens.last()?));
        let tokens: Vec<(usize, u32)> = writing.iter().filter_map(last).collect();
        if tokens.is_empty() {
            return false;
        }
        let running = |index: &usize| self.slots[*index].running.as_ref();
        let all = |what: Wanted| writing.iter().filter_map(running).all(|r| r.wanted() == what);
        let any = |what: Wanted| writing.iter().filter_map(running).any(|r| r.wanted() == what);
        let wanted = match any(Wanted::Logits) {
            true => Wanted::Logits,
            false if all(Wanted::Token) => Wanted::Token,
            false => Wanted::Drawn,
        };
        if wanted == Wanted::Drawn {
            self.draw_tokens(&tokens);
            return true;
        }
        let result = self.steps.run_each(&tokens, wanted);
        if let Some(bytes) = self.done(result) {
            // Rows of `[n]` or `[n, v]`, all of one length.
            let row = bytes.len() / tokens.len();
            for (index, row) in writing.into_iter().zip(bytes.chunks(row.max(1))) {
                self.choose(index, Given::Bytes(wanted, row));
            }
        }
        true
    }

    /// The same where the device draws what comes next.
    fn draw_tokens(&mut self, tokens: &[(usize, u32)]) {
        let draw = |(index, token): &(usize, u32)| {
            let slot = &self.slots[*index];
            let sampling = slot.running.as_ref()?.sampler.sampling();
            Some((*index, *token, sampling.draw(slot.tokens.len())))
        };
        let tokens: Vec<(usize, u32, Draw)> = tokens.iter().filter_map(draw).collect();
        let result = self.steps.draw_each(&tokens);
        for (drawn, (index, ..)) in self.done(result).into_iter().flatten().zip(tokens) {
            self.choose(index, Given::Drawn(drawn));
        }
    }

    /// What a run gave; where the device failed, nothing that it holds is trusted.
    fn done<T>(&mut self, result: Result<T>) -> Option<T> {
        self.queue.set_failing(result.is_err());
        result.inspect_err(|error| self.fail_all(error)).ok()
    }

    /// Takes the next token of an answer from what a run gave.
    fn choose(&mut self, index: usize, given: Given<'_>) {
        let slot = &mut self.slots[index];
        let Some(running) = &mut slot.running else { return };
        let chosen = match given {
            Given::Drawn(token) => token.ok_or_else(nothing_drawn),
            Given::Bytes(wanted, bytes) => match (wanted, bytes.first_chunk::<4>()) {
                (Wanted::Token, Some(word)) => Ok(u32::from_le_bytes(*word)),
                (Wanted::Logits, Some(_)) => {
                    let mut logits: Vec<f32> = bytemuck::pod_collect_to_vec(bytes);
                    running.sampler.sample(&mut logits, &slot.tokens)
                }
                _ => Err(Error::device(format!("a run gave {} bytes", bytes.len()))),
            },
        };
        if let Err(error) = chosen.and_then(|token| self.append(index, token)) {
            self.fail(index, Failure::Device(error));
        }
    }

    /// Appends a token to an answer, and ends it where that is due.
    fn append(&mut self, index: usize, token: u32) -> Result<()> {
        let slot = &mut self.slots[index];
        let Some(running) = &mut slot.running else { return Ok(()) };
        if running.written == 0 {
            running.pending.send(Piece::Started);
        }
        running.written += 1;
        if self.steps.is_stop(token) {
            self.finish(index, Ended::Stop);
            return Ok(());
        }
        slot.tokens.push(token);
        let text = running.text.push(self.steps.bytes_of(token)?);
        let (text, stopped) = running.stops.push(&text);
        if !text.is_empty() {
            running.pending.send(Piece::Text(text));
        }
        let most = running.written >= running.pending.job.max_tokens;
        if stopped {
            self.end(index, Ended::Stop);
        } else if most || slot.tokens.len() > self.steps.context() {
            self.finish(index, Ended::Length);
        }
        Ok(())
    }

    /// Ends an answer with what was held back of it.
    fn finish(&mut self, index: usize, ended: Ended) {
        let Some(running) = &mut self.slots[index].running else { return };
        let (mut rest, stopped) = running.stops.push(&running.text.finish());
        if !stopped {
            rest.push_str(&running.stops.finish());
        }
        if !rest.is_empty() {
            running.pending.send(Piece::Text(rest));
        }
        self.end(index, if stopped { Ended::Stop } else { ended });
    }

    fn end(&mut self, index: usize, ended: Ended) {
        if let Some(running) = self.free(index) {
            running.pending.send(Piece::Done(Done {
                ended,
                prompt_tokens: running.pending.job.prompt.len(),
                cached_tokens: running.cached,
                completion_tokens: running.written,
            }));
        }
    }

    /// Takes a sequence back; what its cache holds stays for a later request.
    fn free(&mut self, index: usize) -> Option<Running> {
        let slot = &mut self.slots[index];
        slot.tokens.truncate(self.steps.past_of(index));
        let running = slot.running.take();
        // Before its end is told: who has an answer is not counted any more.
        self.tell_running();
        running
    }

    fn fail(&mut self, index: usize, failure: Failure) {
        if let Some(running) = self.free(index) {
            running.pending.send(Piece::Failed(failure));
        }
    }

    /// After an error of the device no cache is trusted.
    fn fail_all(&mut self, error: &Error) {
        for index in 0..self.slots.len() {
            self.fail(index, Failure::Device(error.duplicate()));
            // Nothing is kept, so what it says to that does not matter.
            let _ = self.steps.truncate(index, 0);
            self.slots[index].tokens.clear();
        }
    }
}
