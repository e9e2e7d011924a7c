//! Waits for a submit: a short spin, then a blocking wait.

use std::time::{Duration, Instant};

use super::device::{CudaDevice, State};
use super::memory::Event;
use super::transfer::Readback;
use warploom_core::error::{Error, Result};
use warploom_hal::{Completion, Ticket};

/// A submit that has not been waited for.
pub(super) struct Pending {
    pub(super) ticket: u64,
    /// Recorded after all of its work.
    pub(super) done: Event,
    pub(super) readback: Option<Readback>,
    pub(super) stamps: Vec<Event>,
}

/// Maximum number of pending submits; older ones are dropped.
const KEPT: usize = 1 << 16;
/// Time that a wait spins before it blocks; blocking adds 20 us.
const SPIN: Duration = Duration::from_micros(200);

impl State {
    /// Keeps a submit until it is waited for.
    pub(super) fn keep(&mut self, pending: Pending) -> Result<()> {
        if self.pending.len() == KEPT
            && let Some(oldest) = self.pending.pop_front()
        {
            // The device may still write to its pinned memory.
            oldest.done.wait()?;
            self.passed(oldest.ticket);
        }
        self.pending.push_back(pending);
        Ok(())
    }

    /// Marks a submit as complete, and drops the retired objects that no later submit uses.
    fn passed(&mut self, ticket: u64) {
        self.done = self.done.max(ticket);
        let done = self.done;
        self.retired.retain(|(ticket, _)| *ticket > done);
    }

    /// Returns whether the stream holds only uploads: all submits are complete, and no peer copy is
    /// pending.
    pub(super) fn is_idle(&self) -> bool {
        let done = |event: &Event| event.is_done().unwrap_or(false);
        self.is_through() && self.peer.as_deref().is_none_or(done)
    }

    /// Returns whether all submits are known to be complete. A submit that a thread is waiting for
    /// counts as incomplete, since it is no longer in `pending`.
    fn is_through(&self) -> bool {
        match self.pending.back() {
            Some(last) if last.ticket == self.tickets => last.done.is_done().unwrap_or(false),
            _ => self.done == self.tickets,
        }
    }

    /// Keeps an object that submits in flight may use, and drops it when they complete.
    pub(super) fn retire(&mut self, what: Box<dyn Send>) {
        if self.is_through() {
            let tickets = self.tickets;
            self.passed(tickets);
        } else {
            self.retired.push((self.tickets, what));
        }
    }
}

impl CudaDevice {
    pub(super) fn wait_for(&self, ticket: Ticket) -> Result<Completion> {
        self.gpu.check_lost()?;
        let pending = self.take_pending(ticket)?;
        let _current = self.gpu.enter()?;
        let named =
            |error: Error| error.context(format!("submit {} on {}", ticket.0, self.profile.id()));
        self.until_done(&pending.done).map_err(named)?;
        let Pending { done, readback, stamps, .. } = pending;
        let mut guard = self.state();
        let state = &mut *guard;
        state.passed(ticket.0);
        state.events.push(done);
        let mut completion = Completion::default();
        if let Some(readback) = readback {
            completion.downloads = readback.finish(&mut state.downloads);
        }
        if let (Some(first), Some(epoch)) = (stamps.first(), &state.epoch) {
            // Relative to the submit's first timestamp, since long intervals have low resolution.
            // Never zero.
            let begin = 1 + first.nanoseconds_since(epoch)?;
            for stamp in &stamps {
                completion.timestamps.push(begin + stamp.nanoseconds_since(first)?);
            }
        }
        Ok(completion)
    }

    fn take_pending(&self, ticket: Ticket) -> Result<Pending> {
        let mut state = self.state();
        state.counters.waits += 1;
        let place = state.pending.binary_search_by_key(&ticket.0, |pending| pending.ticket);
        let pending = place.ok().and_then(|place| state.pending.remove(place));
        pending.ok_or_else(|| {
            Error::invalid(format!(
                "{ticket:?} is unknown, was awaited twice, or {KEPT} submits came after it"
            ))
        })
    }

    fn until_done(&self, done: &Event) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < SPIN {
            if done.is_done()? {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        done.wait()
    }
}
