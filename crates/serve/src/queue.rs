//! Passes jobs to the scheduler, and their answers back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use warploom::Error;
use warploom_llm::Sampling;

/// A generation job.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Job {
    /// The tokens of the prompt.
    pub prompt: Vec<u32>,
    /// Maximum number of tokens to generate.
    pub max_tokens: usize,
    /// How the next token is chosen.
    pub sampling: Sampling,
    /// Strings that end the answer, none of them empty; they are not part of it.
    pub stop: Vec<String>,
    /// Deadline of the answer.
    pub deadline: Instant,
}

impl Job {
    /// Creates a job that generates as many tokens after `prompt` as the context has room for,
    /// until `deadline`, with default sampling and no stop strings.
    pub fn new(prompt: Vec<u32>, deadline: Instant) -> Job {
        let (sampling, stop) = (Sampling::default(), Vec::new());
        Job { prompt, max_tokens: usize::MAX, sampling, stop, deadline }
    }
}

warploom_llm::setters!(Job {
    max_tokens: usize,
    sampling: Sampling,
    stop: Vec<String>,
    deadline: Instant,
});

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The model generated an end token or a stop string.
    Stop,
    /// [`Job::max_tokens`] or the end of the context was reached.
    Length,
}

/// The end of a complete answer, and its token counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Done {
    /// Why it ended.
    pub ended: Ended,
    /// Number of prompt tokens.
    pub prompt_tokens: usize,
    /// Number of prompt tokens that were already in the KV cache.
    pub cached_tokens: usize,
    /// Number of generated tokens, including an end token.
    pub completion_tokens: usize,
}

/// Why an answer is missing or incomplete.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The queue is full; the value is its limit.
    Full(usize),
    /// The deadline passed.
    Late,
    /// The server is stopping.
    Stopping,
    /// The request is invalid.
    Request(Error),
    /// The model's logits yield no next token.
    Model(Error),
    /// An error of the device or its runtime.
    Device(Error),
}

/// A part of an answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Piece {
    /// The first token has been chosen.
    Started,
    /// More text: whole characters, never a part of a stop string.
    Text(String),
    /// The end of a complete answer.
    Done(Done),
    /// The end of an answer that is missing or incomplete.
    Failed(Failure),
}

/// A job with the sending side of its answer. Dropping it ends the answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) job: Job,
    out: Sender<Piece>,
    gone: Arc<AtomicBool>,
}

impl Pending {
    /// Returns whether the [`Ticket`] of the answer was dropped.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Sends a part of the answer. Errors are ignored, because [`Pending::is_gone`] detects a
    /// dropped [`Ticket`].
    pub(super) fn send(&self, piece: Piece) {
        let _ = self.out.send(piece);
    }
}

/// The receiving side of an answer. Dropping it cancels the job and frees its sequence at the
/// scheduler's next turn.
#[derive(Debug)]
pub struct Ticket {
    pieces: Receiver<Piece>,
    gone: Arc<AtomicBool>,
}

impl Ticket {
    /// Waits for the next part of the answer; `None` if there is none within `wait`. The last part
    /// is [`Piece::Done`] or [`Piece::Failed`].
    pub fn next(&self, wait: Duration) -> Option<Piece> {
        match self.pieces.recv_timeout(wait) {
            Ok(piece) => Some(piece),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                let ended = Error::device("the scheduler has ended");
                Some(Piece::Failed(Failure::Device(ended)))
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Pending>,
    /// Set when the server stops: the deadline of running answers.
    until: Option<Instant>,
}

/// A bounded queue between clients and the scheduler.
#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    limit: usize,
    running: AtomicUsize,
    failing: AtomicBool,
}

impl Queue {
    /// Creates a queue for at most `limit` waiting jobs.
    pub fn new(limit: usize) -> Queue {
        Queue {
            state: Mutex::default(),
            changed: Condvar::new(),
            limit,
            running: AtomicUsize::new(0),
            failing: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while the lock is held, so the state is always consistent.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Enqueues a job.
    ///
    /// # Errors
    /// [`Failure::Full`] if the queue is full; [`Failure::Stopping`] after [`Queue::stop`].
    pub fn submit(&self, job: Job) -> Result<Ticket, Failure> {
        let (out, pieces) = channel();
        let gone = Arc::new(AtomicBool::new(false));
        let mut state = self.state();
        if state.until.is_some() {
            return Err(Failure::Stopping);
        }
        if state.waiting.len() >= self.limit {
            state.waiting.retain(|pending| !pending.is_gone());
        }
        if state.waiting.len() >= self.limit {
            return Err(Failure::Full(self.limit));
        }
        state.waiting.push_back(Pending { job, out, gone: gone.clone() });
        drop(state);
        self.changed.notify_one();
        Ok(Ticket { pieces, gone })
    }

    /// Refuses new jobs and fails waiting ones; running ones may continue until `until`.
    pub fn stop(&self, until: Instant) {
        let mut state = self.state();
        state.until = Some(until);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for pending in waiting {
            pending.send(Piece::Failed(Failure::Stopping));
        }
        self.changed.notify_one();
    }

    /// Returns the deadline of running answers; `None` before [`Queue::stop`].
    pub(super) fn until(&self) -> Option<Instant> {
        self.state().until
    }

    /// Returns the number of waiting jobs.
    pub fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    /// Returns the number of running jobs.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    pub(super) fn set_running(&self, count: usize) {
        self.running.store(count, Ordering::Relaxed);
    }

    /// Returns whether the last step on the device failed.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    pub(super) fn set_failing(&self, failing: bool) {
        self.failing.store(failing, Ordering::Relaxed);
    }

    /// Takes the job that has waited longest, and drops cancelled and late ones before it.
    pub(super) fn take(&self) -> Option<Pending> {
        let mut state = self.state();
        while let Some(pending) = state.waiting.pop_front() {
            if pending.is_gone() {
                continue;
            }
            if Instant::now() >= pending.job.deadline {
                pending.send(Piece::Failed(Failure::Late));
                continue;
            }
            return Some(pending);
        }
        None
    }

    /// Fails late jobs and drops cancelled ones, anywhere in the queue.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        self.state().waiting.retain(|pending| {
            if now >= pending.job.deadline {
                pending.send(Piece::Failed(Failure::Late));
            }
            now < pending.job.deadline && !pending.is_gone()
        });
    }

    /// Waits at most `wait` for a job or for [`Queue::stop`].
    pub(super) fn wait(&self, wait: Duration) {
        let state = self.state();
        if state.waiting.is_empty() && state.until.is_none() {
            drop(self.changed.wait_timeout(state, wait));
        }
    }
}
