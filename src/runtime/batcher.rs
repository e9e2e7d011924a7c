//! Gathers prepared work into submits.
//!
//! Each thread records into a queue of its own, so threads do not wait for each other. A queue is
//! handed to the device when it holds enough dispatches, when a read needs it, or when another
//! thread records work on a buffer that it writes: a reader never overtakes a writer's commands.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use crate::error::{Error, Result};
use crate::provider::{Args, BufferId, Completion, Device, PreparedId, Ticket};

/// Dispatches after which a queue is handed over unless the environment says otherwise.
pub(super) const DEFAULT_DISPATCHES: usize = 1024;

/// Work of one kind that can be recorded again and again.
#[derive(Clone, Debug)]
pub struct Work {
    /// The prepared recording.
    pub prepared: PreparedId,
    /// Its kernel launches.
    pub dispatches: usize,
    /// Its downloads.
    pub downloads: usize,
    /// Buffers that it touches; all are taken as written, which is never wrong.
    pub buffers: Arc<[BufferId]>,
}

/// Gathers prepared work into submits; see the module.
pub struct Batcher {
    device: Arc<dyn Device>,
    threshold: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queues: HashMap<ThreadId, Queue>,
    /// Which thread's unsubmitted work touches a buffer.
    touched: HashMap<BufferId, ThreadId>,
    batches: HashMap<u64, Batch>,
    next: u64,
}

#[derive(Default)]
struct Queue {
    work: Vec<(PreparedId, Args)>,
    dispatches: usize,
    downloads: usize,
    batch: u64,
    buffers: Vec<BufferId>,
}

/// A submit that somebody may still read from.
struct Batch {
    ticket: Option<Ticket>,
    readers: usize,
    /// Read by the first of several readers, kept for the others.
    done: Option<Result<Completion, Error>>,
}

/// Recorded work whose downloads can be read once.
#[derive(Debug)]
#[must_use = "reading it is what makes its failures known"]
pub struct Pending {
    batch: u64,
    first: usize,
    count: usize,
}

impl Batcher {
    /// Hands work over after so many dispatches.
    pub fn new(device: Arc<dyn Device>, threshold: usize) -> Batcher {
        Batcher { device, threshold, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic between two updates can lose work, which the next read reports as not found.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records work on this thread's queue. Nothing waits.
    ///
    /// # Errors
    /// What the device says of a submit, when the queue had to be handed over.
    pub fn record(&self, work: &Work, args: Args) -> Result<Pending> {
        let me = std::thread::current().id();
        let mut state = self.state();
        let mut others: Vec<ThreadId> = Vec::new();
        for buffer in work.buffers.iter() {
            match state.touched.insert(*buffer, me) {
                Some(owner) if owner != me && !others.contains(&owner) => others.push(owner),
                _ => {}
            }
        }
        for owner in others {
            self.flush_queue(&mut state, owner)?;
        }
        if state.queues.get(&me).is_none_or(|queue| queue.work.is_empty()) {
            state.next += 1;
            let batch = state.next;
            state.queues.entry(me).or_default().batch = batch;
            state.batches.insert(batch, Batch { ticket: None, readers: 0, done: None });
        }
        let queue = state.queues.entry(me).or_default();
        queue.work.push((work.prepared, args));
        queue.dispatches += work.dispatches;
        let pending = Pending { batch: queue.batch, first: queue.downloads, count: work.downloads };
        queue.downloads += work.downloads;
        queue.buffers.extend_from_slice(&work.buffers);
        let full = queue.dispatches >= self.threshold;
        if let Some(batch) = state.batches.get_mut(&pending.batch) {
            batch.readers += 1;
        }
        if full {
            self.flush_queue(&mut state, me)?;
        }
        Ok(pending)
    }

    /// Hands this thread's work over. Nothing waits.
    ///
    /// # Errors
    /// What the device says of the submit.
    pub fn flush(&self) -> Result<()> {
        self.flush_queue(&mut self.state(), std::thread::current().id())
    }

    fn flush_queue(&self, state: &mut State, thread: ThreadId) -> Result<()> {
        let Some(queue) = state.queues.get_mut(&thread) else { return Ok(()) };
        if queue.work.is_empty() {
            return Ok(());
        }
        let result = self.device.submit(&queue.work);
        queue.work.clear();
        (queue.dispatches, queue.downloads) = (0, 0);
        let batch_id = queue.batch;
        for buffer in queue.buffers.drain(..) {
            if state.touched.get(&buffer) == Some(&thread) {
                state.touched.remove(&buffer);
            }
        }
        let batch = state.batches.get_mut(&batch_id);
        match (result, batch) {
            (Ok(ticket), Some(batch)) => {
                batch.ticket = Some(ticket);
                Ok(())
            }
            (Ok(_), None) => Ok(()),
            (Err(error), batch) => {
                let copy = error.duplicate();
                if let Some(batch) = batch {
                    batch.done = Some(Err(error));
                }
                Err(copy)
            }
        }
    }

    /// Hands over what `pending` belongs to, waits for it, and yields its downloads.
    ///
    /// # Errors
    /// Whatever went wrong since the last read: see [`Device::wait`].
    pub async fn read(&self, pending: Pending) -> Result<Vec<Vec<u8>>> {
        let ticket = {
            let mut state = self.state();
            let owner = state
                .queues
                .iter()
                .find(|(_, queue)| queue.batch == pending.batch && !queue.work.is_empty());
            if let Some(owner) = owner.map(|(thread, _)| *thread) {
                // The failure is kept in the batch, where `finish` finds it.
                let _ = self.flush_queue(&mut state, owner);
            }
            match state.batches.get(&pending.batch) {
                None => return Err(Error::invalid("recorded work is read twice")),
                Some(batch) if batch.done.is_some() => None,
                Some(batch) => batch.ticket,
            }
        };
        if let Some(ticket) = ticket {
            let result = self.device.wait(ticket).await;
            if let Some(batch) = self.state().batches.get_mut(&pending.batch) {
                batch.done = Some(result);
            }
        }
        self.finish(&pending)
    }

    /// Takes the downloads of one reader out of a finished batch.
    fn finish(&self, pending: &Pending) -> Result<Vec<Vec<u8>>> {
        let mut state = self.state();
        let Some(batch) = state.batches.get_mut(&pending.batch) else {
            return Err(Error::invalid("recorded work is read twice"));
        };
        batch.readers = batch.readers.saturating_sub(1);
        let last = batch.readers == 0;
        let result = match &mut batch.done {
            Some(Ok(done)) => {
                let range = pending.first..pending.first + pending.count;
                let parts = done.downloads.get_mut(range);
                parts.map(|parts| parts.iter_mut().map(std::mem::take).collect()).ok_or_else(|| {
                    Error::device("the device yielded fewer downloads than were recorded")
                })
            }
            Some(Err(error)) => Err(error.duplicate()),
            None => Err(Error::device("recorded work was never submitted")),
        };
        if last {
            state.batches.remove(&pending.batch);
        }
        result
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
