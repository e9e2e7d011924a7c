//! Passes jobs to the scheduler, and their answers back.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;

use super::guard::Guard;
use super::logits::{LogitEdits, Logprob};
use super::metrics::Metrics;
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
    /// Constraint of the text.
    pub guard: Option<Guard>,
    /// Changes to the logits.
    pub edits: LogitEdits,
    /// The number of most probable tokens to report at each token; `None` reports no log
    /// probabilities.
    pub logprobs: Option<usize>,
    /// Whether the answer goes on after the model's end tokens.
    pub ignore_end: bool,
    /// Control tokens that appear in the text, with the text for each. All others stand for no
    /// text.
    pub shown: Arc<HashMap<u32, Arc<str>>>,
}

impl Job {
    /// Creates a job that generates as many tokens after `prompt` as the context has room for,
    /// until `deadline`, with default sampling and no stop strings.
    pub fn new(prompt: Vec<u32>, deadline: Instant) -> Job {
        Job {
            prompt,
            max_tokens: usize::MAX,
            sampling: Sampling::default(),
            stop: Vec::new(),
            deadline,
            guard: None,
            edits: LogitEdits::default(),
            logprobs: None,
            ignore_end: false,
            shown: Arc::default(),
        }
    }
}

warploom_llm::setters!(Job {
    max_tokens: usize,
    sampling: Sampling,
    stop: Vec<String>,
    deadline: Instant,
    guard: Option<Guard>,
    edits: LogitEdits,
    logprobs: Option<usize>,
    ignore_end: bool,
    shown: Arc<HashMap<u32, Arc<str>>>,
});

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The model generated an end token or a stop string, or completed its constraint.
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
    /// Index in [`Job::stop`] of the stop string that ended it.
    pub stop_string: Option<usize>,
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
    /// The constraint exceeds its limits, or no text follows it.
    Grammar(Error),
    /// An error of the device or its runtime.
    Device(Error),
}

/// A part of an answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Piece {
    /// The first token has been chosen.
    Started {
        /// Number of prompt tokens that were already in the KV cache.
        cached_tokens: usize,
    },
    /// More text: whole characters, never a part of a stop string.
    Text(String),
    /// The log probability of the next token, before its text.
    Logprob(Box<Logprob>),
    /// The end of a complete answer.
    Done(Done),
    /// The end of an answer that is missing or incomplete.
    Failed(Failure),
}

/// What both sides of an answer know.
#[derive(Debug, Default)]
struct Link {
    /// Whether the receiving side was dropped.
    gone: AtomicBool,
    /// The task that waits for the next part.
    waiting: AtomicWaker,
}

/// Wakes the receiving side when the sending one is dropped.
#[derive(Debug)]
struct Sending(Arc<Link>);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.waiting.wake();
    }
}

/// A job with the sending side of its answer. Dropping it ends the answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) job: Job,
    /// Index of the job among those of its ticket.
    index: usize,
    /// When the job was submitted.
    pub(super) begin: Instant,
    out: Sender<(usize, Piece)>,
    /// After `out`, because fields are dropped in this order.
    link: Sending,
}

impl Pending {
    /// Returns whether the [`Ticket`] of the answer was dropped.
    pub(super) fn is_gone(&self) -> bool {
        self.link.0.gone.load(Ordering::Relaxed)
    }

    /// Sends a part of the answer. Errors are ignored, because [`Pending::is_gone`] detects a
    /// dropped [`Ticket`].
    pub(super) fn send(&self, piece: Piece) {
        let _ = self.out.send((self.index, piece));
        self.link.0.waiting.wake();
    }
}

/// The receiving side of the answers of one request. Dropping it cancels the jobs and frees their
/// sequences at the scheduler's next turn.
#[derive(Debug)]
pub struct Ticket {
    pieces: Receiver<(usize, Piece)>,
    link: Arc<Link>,
}

impl Ticket {
    /// Waits for the next part of the answer; `None` if there is none within `wait`. The last part
    /// is [`Piece::Done`] or [`Piece::Failed`].
    pub fn next(&self, wait: Duration) -> Option<Piece> {
        self.next_of_all(wait).map(|(_, piece)| piece)
    }

    /// Waits for the next part of any of the answers, with the index of its job; `None` if there is
    /// none within `wait`.
    pub fn next_of_all(&self, wait: Duration) -> Option<(usize, Piece)> {
        match self.pieces.recv_timeout(wait) {
            Ok(piece) => Some(piece),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(ended()),
        }
    }

    /// Same as [`Ticket::next_of_all`], without a limit of time and without blocking the thread
    /// that polls it, in any executor.
    pub async fn next_of_all_async(&mut self) -> (usize, Piece) {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(usize, Piece)> {
        // A part may come before the task is noted: the second attempt finds it.
        for attempt in 0..2 {
            match self.pieces.try_recv() {
                Ok(piece) => return Poll::Ready(piece),
                Err(TryRecvError::Disconnected) => return Poll::Ready(ended()),
                Err(TryRecvError::Empty) if attempt == 0 => self.link.waiting.register(cx.waker()),
                Err(TryRecvError::Empty) => {}
            }
        }
        Poll::Pending
    }
}

/// The last part of an answer whose scheduler has ended.
fn ended() -> (usize, Piece) {
    (0, Piece::Failed(Failure::Device(Error::device("the scheduler has ended"))))
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.link.gone.store(true, Ordering::Relaxed);
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
    pub(super) metrics: Metrics,
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
            metrics: Metrics::default(),
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
        self.submit_all(vec![job])
    }

    /// Enqueues jobs whose answers arrive together: all of them or none.
    ///
    /// # Errors
    /// Same as [`Queue::submit`].
    pub fn submit_all(&self, jobs: Vec<Job>) -> Result<Ticket, Failure> {
        let (out, pieces) = channel();
        let link = Arc::new(Link::default());
        let mut state = self.state();
        if state.until.is_some() {
            return Err(Failure::Stopping);
        }
        let is_full = |state: &State| state.waiting.len() + jobs.len() > self.limit;
        if is_full(&state) {
            state.waiting.retain(|pending| !pending.is_gone());
        }
        if is_full(&state) {
            return Err(Failure::Full(self.limit));
        }
        let begin = Instant::now();
        for (index, job) in jobs.into_iter().enumerate() {
            let (out, link) = (out.clone(), Sending(link.clone()));
            state.waiting.push_back(Pending { job, index, begin, out, link });
        }
        drop(state);
        self.changed.notify_one();
        Ok(Ticket { pieces, link })
    }

    /// Returns the maximum number of waiting jobs.
    pub fn limit(&self) -> usize {
        self.limit
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_awaited_ticket_is_woken_by_parts_and_by_the_end_of_their_sender() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let queue = Queue::new(1);
        let job = Job::new(vec![1], Instant::now() + Duration::from_secs(60));
        let mut ticket = queue.submit(job).unwrap();
        let pending = queue.take().unwrap();
        let wait = Duration::from_millis(20);
        let sending = std::thread::spawn(move || {
            std::thread::sleep(wait);
            pending.send(Piece::Started { cached_tokens: 3 });
            std::thread::sleep(wait);
            drop(pending);
        });
        runtime.block_on(async {
            let mut next = async || {
                let next = ticket.next_of_all_async();
                tokio::time::timeout(Duration::from_secs(20), next).await.unwrap()
            };
            assert!(matches!(next().await, (0, Piece::Started { cached_tokens: 3 })));
            assert!(matches!(next().await, (0, Piece::Failed(Failure::Device(_)))));
        });
        sending.join().unwrap();
    }
}
