//! Gathers prepared work into submits, so that only reads wait (lazy sync).
//!
//! Each thread records into its own queue, so threads do not wait for each other. A queue is
//! submitted when it holds enough dispatches, when a read needs it, when it is started and the
//! device has nothing to do ([`super::start`]), or when another thread records work on a buffer that
//! the queue accesses. So a reader never overtakes a writer's commands.
//!
//! Submits are made by the thread that records or reads: a GPU's driver returns at once, but a
//! software Vulkan driver waits in the call for earlier work. A read waits on the polling thread if
//! that thread may block, else on the batcher's own thread, one per device.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};
use std::thread::ThreadId;

use crate::base::platform::MaybeSend;
#[cfg(not(target_arch = "wasm32"))]
use crate::base::platform::{block_on, runs_in_place};
use crate::error::{Error, Result};
#[cfg(not(target_arch = "wasm32"))]
use crate::provider::worker::Worker;
use crate::provider::{Args, BufferId, Completion, Device, PreparedId, Ticket};

/// Default number of dispatches after which a queue is submitted.
pub(super) const DEFAULT_DISPATCHES: usize = 1024;
/// Bytes of memory that a queue may keep alive before it is submitted. Memory that is dropped after
/// it was recorded is reusable only after the submit.
const KEPT_BYTES: u64 = 256 << 20;
/// Number of queues above which those without work are dropped; their threads may have ended.
const KEPT_QUEUES: usize = 64;

/// Resources that recorded work needs until it is submitted, and their device memory in bytes.
#[derive(Clone, Default)]
pub(super) struct Keep {
    /// Memory and prepared work.
    pub(super) things: Vec<Arc<dyn MaybeSend>>,
    /// Their device memory in bytes.
    pub(super) bytes: u64,
}

/// A prepared recording that can be recorded repeatedly.
#[derive(Clone, Debug)]
pub(super) struct Work {
    /// The prepared recording.
    pub(super) prepared: PreparedId,
    /// Number of kernel launches.
    pub(super) dispatches: usize,
    /// Number of downloads.
    pub(super) downloads: usize,
    /// Buffers that it accesses. All count as written, which is always safe.
    pub(super) buffers: Arc<[BufferId]>,
}

/// Gathers prepared work into submits, with a queue for each recording thread.
pub struct Batcher {
    pub(super) device: Arc<dyn Device>,
    threshold: usize,
    pub(super) state: Arc<Shared>,
    /// Thread that submits started work.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) starter: Worker,
    /// Thread that waits for the device on behalf of async readers.
    #[cfg(not(target_arch = "wasm32"))]
    waiter: Worker,
}

/// The batcher's state, shared with the jobs of its waiting thread.
#[derive(Default)]
pub(super) struct Shared(Mutex<State>);

crate::base::debug_as!(Batcher, |this| device: this.device.profile().id(), threshold: this.threshold);

#[derive(Default)]
pub(super) struct State {
    pub(super) queues: HashMap<ThreadId, Queue>,
    /// For each buffer, the thread whose unsubmitted work accesses it.
    touched: HashMap<BufferId, ThreadId>,
    /// Submits whose success no wait has confirmed yet.
    unconfirmed: Vec<(Ticket, Arc<Batch>)>,
    /// Whether the starting thread runs, and will submit what is started meanwhile.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) is_followed: bool,
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) work: Vec<(PreparedId, Args)>,
    dispatches: usize,
    downloads: usize,
    pub(super) batch: Arc<Batch>,
    buffers: Vec<BufferId>,
    keep: Keep,
    /// Whether the work is to be submitted as soon as the device has nothing to do.
    pub(super) is_started: bool,
}

/// The work of one submit, shared by all its readers.
#[derive(Debug, Default)]
pub(super) struct Batch {
    progress: Mutex<Progress>,
    /// Set if the device failed in this submit, or in work whose results it may have read.
    failure: OnceLock<Error>,
    /// Set when a wait has confirmed that the submit is complete.
    is_complete: AtomicBool,
}

#[derive(Debug, Default)]
enum Progress {
    #[default]
    Recorded,
    Submitted(Ticket),
    /// One reader waits for the device on behalf of all; these are the wakers of the others.
    Waiting(Vec<Waker>),
    Done(Result<Completion>),
}

/// A handle to recorded work that reports whether the work failed.
#[derive(Clone, Debug)]
pub struct Receipt(Arc<Batch>);

impl Receipt {
    /// Returns the failure, if one is known. A failure is known after the next wait at the latest.
    pub fn failure(&self) -> Option<Error> {
        self.0.failure.get().map(Error::duplicate)
    }

    /// Returns whether a wait has confirmed that the work is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.0.is_complete.load(Ordering::Acquire)
    }
}

/// Guard held by the reader that waits for the device: if it is dropped early, all readers fail.
pub(super) struct Waits(pub(super) Arc<Batch>);

impl Drop for Waits {
    fn drop(&mut self) {
        if matches!(*self.0.progress(), Progress::Waiting(_)) {
            let text = "the read that waited for this submit was dropped";
            self.0.finish(Err(Error::device(text)));
        }
    }
}

/// Recorded work. Its downloads can be read once; dropping it discards them.
#[derive(Debug)]
#[must_use = "read it to see its errors"]
pub struct Pending {
    batch: Arc<Batch>,
    thread: ThreadId,
    first: usize,
    count: usize,
}

impl Batch {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        // Only complete values are stored, so a poisoned lock is safe.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the wait for this submit; `None` if it is over or another reader waits.
    pub(super) fn begin_wait(&self) -> Option<Ticket> {
        match &mut *self.progress() {
            progress @ Progress::Submitted(_) => {
                match std::mem::replace(progress, Progress::Waiting(Vec::new())) {
                    Progress::Submitted(ticket) => Some(ticket),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Stores the result and wakes all waiting readers.
    pub(super) fn finish(&self, result: Result<Completion>) {
        let before = std::mem::replace(&mut *self.progress(), Progress::Done(result));
        if let Progress::Waiting(wakers) = before {
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    fn fail(&self, error: &Error) {
        // Later failures follow from the first.
        let _ = self.failure.set(error.duplicate());
    }
}

impl Batcher {
    /// Creates a batcher that submits a queue after `threshold` dispatches.
    pub fn new(device: Arc<dyn Device>, threshold: usize) -> Batcher {
        Batcher {
            device,
            threshold,
            state: Arc::default(),
            #[cfg(not(target_arch = "wasm32"))]
            starter: Worker::new("warploom start"),
            #[cfg(not(target_arch = "wasm32"))]
            waiter: Worker::new("warploom wait"),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Records work in this thread's queue and keeps `keep` alive until the submit: memory returned
    /// to a pool earlier could be overwritten before the work reads it. Nothing waits, but a full
    /// queue is submitted.
    ///
    /// # Errors
    /// The device's error if a queue is submitted and the submit fails.
    pub(super) fn record(&self, work: &Work, args: Args, keep: Keep) -> Result<Pending> {
        let thread = std::thread::current().id();
        let mut state = self.state();
        let mut others: Vec<ThreadId> = Vec::new();
        for buffer in work.buffers.iter() {
            match state.touched.insert(*buffer, thread) {
                Some(owner) if owner != thread && !others.contains(&owner) => others.push(owner),
                _ => {}
            }
        }
        for owner in others {
            self.flush_queue(&mut state, owner)?;
        }
        let queue = state.queues.entry(thread).or_default();
        queue.work.push((work.prepared, args));
        queue.dispatches += work.dispatches;
        let (first, count) = (queue.downloads, work.downloads);
        queue.downloads += count;
        queue.buffers.extend_from_slice(&work.buffers);
        queue.keep.things.extend(keep.things);
        queue.keep.bytes += keep.bytes;
        let pending = Pending { batch: queue.batch.clone(), thread, first, count };
        if queue.dispatches >= self.threshold || queue.keep.bytes >= KEPT_BYTES {
            self.flush_queue(&mut state, thread)?;
        }
        Ok(pending)
    }

    /// Submits this thread's work. Does not wait for a GPU; the CPU provider computes in this call
    /// if the thread may block.
    ///
    /// # Errors
    /// The device's error if the submit fails.
    pub fn flush(&self) -> Result<()> {
        self.flush_queue(&mut self.state(), std::thread::current().id())
    }

    /// Submits the work of every thread, as [`Batcher::flush`] does.
    ///
    /// # Errors
    /// The device's error for the first submit that fails.
    pub fn flush_all(&self) -> Result<()> {
        let mut state = self.state();
        let threads: Vec<ThreadId> = state.queues.keys().copied().collect();
        let results: Vec<_> =
            threads.into_iter().map(|thread| self.flush_queue(&mut state, thread)).collect();
        results.into_iter().collect()
    }

    fn flush_queue(&self, state: &mut State, thread: ThreadId) -> Result<()> {
        state.submit(&*self.device, thread)
    }

    /// Blocking version of [`Batcher::read_async`].
    ///
    /// # Errors
    /// Same as [`Batcher::read_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn read(&self, pending: Pending) -> Result<Vec<Vec<u8>>> {
        block_on(self.read_async(pending))
    }

    /// Submits the queue that holds `pending` if it is not submitted yet, waits for the submit and
    /// returns the downloads. If the future is dropped, other reads of the same submit are not
    /// affected, except in a browser.
    ///
    /// # Errors
    /// Any device failure since the last read; see [`Device::wait`].
    pub async fn read_async(&self, pending: Pending) -> Result<Vec<Vec<u8>>> {
        if matches!(*pending.batch.progress(), Progress::Recorded) {
            // The failure is stored in the batch and returned below.
            let _ = self.flush_queue(&mut self.state(), pending.thread);
        }
        self.wait_for(&pending.batch).await?;
        pending.take()
    }

    /// Waits for a submitted batch.
    async fn wait_for(&self, batch: &Arc<Batch>) -> Result<()> {
        if let Some(ticket) = batch.begin_wait() {
            self.wait_for_batch(ticket, Waits(batch.clone())).await?;
        }
        // Another thread may be waiting for the same submit.
        std::future::poll_fn(|context| match &mut *batch.progress() {
            Progress::Waiting(wakers) => {
                if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
            _ => Poll::Ready(()),
        })
        .await;
        Ok(())
    }

    /// Submits this thread's work and waits for all that was submitted.
    ///
    /// # Errors
    /// Any device failure since the last wait.
    pub(super) async fn synchronize(&self) -> Result<()> {
        let last = {
            let mut state = self.state();
            self.flush_queue(&mut state, std::thread::current().id())?;
            state.unconfirmed.last().map(|(_, batch)| batch.clone())
        };
        let Some(batch) = last else { return Ok(()) };
        self.wait_for(&batch).await?;
        match &*batch.progress() {
            Progress::Done(Err(error)) => Err(error.duplicate()),
            _ => Ok(()),
        }
    }

    /// Waits for the submit of a batch and then wakes the batch's readers. If this thread must not
    /// block, only starts the wait on the waiting thread.
    async fn wait_for_batch(&self, ticket: Ticket, waits: Waits) -> Result<()> {
        #[cfg(not(target_arch = "wasm32"))]
        if !runs_in_place() {
            let (device, state) = (self.device.clone(), self.state.clone());
            // Done even if the reader is dropped; if it panics, `waits` ends the wait.
            return self.waiter.spawn(move || {
                let result = block_on(device.wait(ticket));
                state.confirm(ticket, &result);
                waits.0.finish(result);
            });
        }
        let result = self.device.wait(ticket).await;
        self.state.confirm(ticket, &result);
        waits.0.finish(result);
        Ok(())
    }

    /// Waits for a submit that was made outside the batcher.
    ///
    /// # Errors
    /// Same as [`Device::wait`].
    pub(super) async fn wait(&self, ticket: Ticket) -> Result<Completion> {
        #[cfg(not(target_arch = "wasm32"))]
        if !runs_in_place() {
            let device = self.device.clone();
            return self.waiter.run(move || block_on(device.wait(ticket))).await;
        }
        self.device.wait(ticket).await
    }
}

impl State {
    /// Submits the work of a thread's queue.
    ///
    /// # Errors
    /// The device's error, which the readers of the work get too.
    pub(super) fn submit(&mut self, device: &dyn Device, thread: ThreadId) -> Result<()> {
        let Some(queue) = self.queues.get_mut(&thread) else { return Ok(()) };
        if queue.work.is_empty() {
            return Ok(());
        }
        let result = device.submit(&queue.work);
        queue.work.clear();
        (queue.dispatches, queue.downloads) = (0, 0);
        queue.is_started = false;
        let batch = std::mem::take(&mut queue.batch);
        queue.keep = Keep::default();
        for buffer in queue.buffers.drain(..) {
            if self.touched.get(&buffer) == Some(&thread) {
                self.touched.remove(&buffer);
            }
        }
        let (progress, result) = match result {
            Ok(ticket) => {
                if self.unconfirmed.len() == self.unconfirmed.capacity() {
                    // Batches without any reader or receipt left.
                    self.unconfirmed.retain(|(_, batch)| Arc::strong_count(batch) > 1);
                }
                self.unconfirmed.push((ticket, batch.clone()));
                (Progress::Submitted(ticket), Ok(()))
            }
            Err(error) => {
                let copy = error.duplicate();
                batch.fail(&error);
                (Progress::Done(Err(error)), Err(copy))
            }
        };
        *batch.progress() = progress;
        if self.queues.len() > KEPT_QUEUES {
            self.queues.retain(|_, queue| !queue.work.is_empty());
        }
        result
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic between two updates can lose work; its reader then gets an error.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the result of a wait, which covers everything submitted before. After a failure all
    /// work in flight is marked as failed, since it may have read invalid data.
    pub(super) fn confirm(&self, ticket: Ticket, result: &Result<Completion>) {
        let mut state = self.lock();
        match result {
            Ok(_) => state.unconfirmed.retain(|(other, batch)| {
                let is_complete = *other <= ticket;
                batch.is_complete.fetch_or(is_complete, Ordering::Release);
                !is_complete
            }),
            Err(error) => {
                let submitted = std::mem::take(&mut state.unconfirmed);
                submitted.iter().for_each(|(_, batch)| batch.fail(error));
                let recorded = state.queues.values().filter(|queue| !queue.work.is_empty());
                recorded.for_each(|queue| queue.batch.fail(error));
            }
        }
    }
}

impl Pending {
    /// Returns a receipt that later reports whether the work failed.
    pub fn receipt(&self) -> Receipt {
        Receipt(self.batch.clone())
    }

    /// Takes the downloads of this work from a finished batch.
    fn take(self) -> Result<Vec<Vec<u8>>> {
        match &mut *self.batch.progress() {
            Progress::Done(Ok(done)) => {
                let parts = done.downloads.get_mut(self.first..self.first + self.count);
                parts.map(|parts| parts.iter_mut().map(std::mem::take).collect()).ok_or_else(|| {
                    Error::device("the device yielded fewer downloads than were recorded")
                })
            }
            Progress::Done(Err(error)) => Err(error.duplicate()),
            _ => Err(Error::device("recorded work was never submitted")),
        }
    }
}

impl Drop for Batcher {
    fn drop(&mut self) {
        let mut state = std::mem::take(&mut *self.state());
        let threads: Vec<ThreadId> = state.queues.keys().copied().collect();
        for thread in threads {
            if let Err(error) = self.flush_queue(&mut state, thread) {
                tracing::error!("work recorded last was not submitted: {error}");
            }
        }
    }
}

#[cfg(test)]
#[path = "batcher_tests.rs"]
mod tests;
