//! Requests on their way to the scheduler, and answers on their way back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use warploom::error::Error;
use warploom_llm::Sampling;

/// What is to be written.
#[derive(Clone, Debug)]
pub struct Job {
    /// The tokens to go on from.
    pub prompt: Vec<u32>,
    /// Most tokens to write.
    pub max_tokens: usize,
    /// How the next token is chosen.
    pub sampling: Sampling,
    /// Strings that end the answer, none of them empty; they are not part of it.
    pub stop: Vec<String>,
    /// When nobody waits for it any more.
    pub deadline: Instant,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By an end token of the model or a stop string.
    Stop,
    /// By `max_tokens` or the end of the context.
    Length,
}

/// What an answer took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Why it ended.
    pub ended: Ended,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that a cache held already.
    pub cached_tokens: usize,
    /// Tokens that were written, an end token included.
    pub completion_tokens: usize,
}

/// Why there is no answer, or no more of it.
#[derive(Debug)]
pub enum Failure {
    /// As many requests wait as may: this many.
    Full(usize),
    /// The deadline passed.
    Late,
    /// The server ends.
    Stopping,
    /// The request is to blame.
    Request(Error),
    /// The model's numbers, which give no next token.
    Model(Error),
    /// The device, or what drives it.
    Device(Error),
}

/// A part of an answer.
#[derive(Debug)]
pub enum Piece {
    /// The first token is chosen.
    Started,
    /// More text: whole characters, never a part of a stop string.
    Text(String),
    /// The end.
    Done(Done),
    /// The end, before the answer is whole.
    Failed(Failure),
}

/// A job and where its answer goes. Dropping it ends the answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) job: Job,
    out: Sender<Piece>,
    gone: Arc<AtomicBool>,
}

impl Pending {
    /// Whether nobody waits for the answer.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// A reader that has gone is seen by [`Pending::is_gone`].
    pub(super) fn send(&self, piece: Piece) {
        let _ = self.out.send(piece);
    }
}

/// The reader of an answer. Dropping it cancels the job: its place is free at the next turn.
#[derive(Debug)]
pub struct Ticket {
    pieces: Receiver<Piece>,
    gone: Arc<AtomicBool>,
}

impl Ticket {
    /// The next part, or none within `wait`. After [`Piece::Done`] and [`Piece::Failed`] there is
    /// none.
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
    /// Set when the server ends: until when running answers may go on.
    until: Option<Instant>,
}

/// A bounded queue between those who ask and the scheduler.
#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    limit: usize,
    running: AtomicUsize,
    failing: AtomicBool,
}

impl Queue {
    /// A queue in which at most `limit` jobs wait.
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
        // Nothing panics while it is held; what it guards is whole at every line.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Puts a job in line.
    ///
    /// # Errors
    /// [`Failure::Full`] and [`Failure::Stopping`].
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

    /// Takes no more jobs, and fails those that wait; those that run have until `until`.
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

    /// Until when running answers may go on, once [`Queue::stop`] was called.
    pub(super) fn until(&self) -> Option<Instant> {
        self.state().until
    }

    /// Jobs that wait.
    pub fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    /// Jobs that run.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    pub(super) fn set_running(&self, count: usize) {
        self.running.store(count, Ordering::Relaxed);
    }

    /// Whether the last thing that the device did was to fail.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    pub(super) fn set_failing(&self, failing: bool) {
        self.failing.store(failing, Ordering::Relaxed);
    }

    /// The job that has waited longest; those that nobody waits for or that are late go.
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

    /// Ends those that are late, wherever in the line they stand.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        self.state().waiting.retain(|pending| {
            if now >= pending.job.deadline {
                pending.send(Piece::Failed(Failure::Late));
            }
            now < pending.job.deadline && !pending.is_gone()
        });
    }

    /// Waits until there is a job or the queue stops, at most `wait`.
    pub(super) fn wait(&self, wait: Duration) {
        let state = self.state();
        if state.waiting.is_empty() && state.until.is_none() {
            drop(self.changed.wait_timeout(state, wait));
        }
    }
}
