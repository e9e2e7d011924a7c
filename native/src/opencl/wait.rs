//! Waits for a submit, through the event of its last command.

use std::sync::Arc;

use super::cl::{Cl, Event};
use super::device::{OpenClDevice, State};
use warploom_core::error::{Error, Result};
use warploom_hal::{Completion, Ticket};

/// A submit that has not been waited for.
pub(super) struct Pending {
    pub(super) ticket: u64,
    /// Completes after all commands of the submit.
    pub(super) done: Arc<Event>,
    /// The downloads, to which the device writes until `done` completes.
    pub(super) downloads: Vec<Vec<u8>>,
    pub(super) timestamps: Vec<Event>,
}

/// Maximum number of pending submits; older ones are dropped.
const KEPT: usize = 1 << 16;

impl Drop for Pending {
    fn drop(&mut self) {
        // Immediate for a submit that was waited for. An error is reported elsewhere.
        let _ = self.done.wait();
    }
}

impl State {
    /// Keeps a submit until it is waited for.
    pub(super) fn keep(&mut self, pending: Pending) {
        if self.pending.len() == KEPT {
            self.pending.pop_front();
        }
        self.pending.push_back(pending);
    }
}

impl OpenClDevice {
    pub(super) fn wait_for(&self, ticket: Ticket) -> Result<Completion> {
        let mut pending = self.take_pending(ticket)?;
        let what = || format!("submit {}", ticket.0);
        let fault = |code| self.fault(code, &what());
        pending.done.wait().map_err(fault)?;
        // A loss reported by another call affects this submit too.
        self.faults.check_lost()?;
        let timestamps = pending.timestamps.iter().map(Event::end_nanoseconds);
        let timestamps = timestamps.collect::<Cl<Vec<u64>>>().map_err(fault)?;
        Ok(Completion { downloads: std::mem::take(&mut pending.downloads), timestamps })
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
}
