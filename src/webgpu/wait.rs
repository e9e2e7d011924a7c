//! Waits for a submit: a short spin and a blocking poll on native builds, promises in a browser.

use std::time::{Duration, Instant};

use super::device::{State, WebGpuDevice};
use super::faults::{ScopeFuture, convert};
use super::timing;
use super::transfer::Readback;
use crate::base::oneshot;
use crate::base::platform::BROWSER;
use crate::error::{Error, Result};
use crate::provider::{Completion, Ticket};

/// A submit that has not been waited for.
pub(super) struct Pending {
    pub(super) ticket: u64,
    pub(super) index: wgpu::SubmissionIndex,
    /// The submit's errors, if they were not known at submit, as in a browser.
    pub(super) errors: Option<ScopeFuture>,
    pub(super) readback: Option<Readback>,
    /// Whether the last download holds the timestamps, in ticks.
    pub(super) timestamps: bool,
}

/// Maximum submits kept without a wait; beyond that, the oldest are dropped.
const KEPT: usize = 1 << 16;
/// Time that a wait spins before it blocks, unless the device is the CPU. A blocking wait costs
/// about 20 us more, which matters for the short submits of decoding.
const SPIN: Duration = Duration::from_micros(200);
/// Longest time that a failed call waits for the queue, after which a device reports its loss.
const LOSS: Duration = Duration::from_secs(1);

impl State {
    /// Keeps a submit until it is waited for; returns the one evicted for it, if any.
    pub(super) fn keep(&mut self, pending: Pending) -> Option<Pending> {
        let full = self.pending.len() == KEPT;
        self.pending.push_back(pending);
        full.then(|| self.pending.pop_front()).flatten()
    }
}

impl WebGpuDevice {
    pub(super) async fn wait_for(&self, ticket: Ticket) -> Result<Completion> {
        // An error of another call is returned first and leaves the ticket for another wait.
        if let Err(error) = self.faults.take() {
            self.check_loss()?;
            return Err(error);
        }
        self.check_earlier(ticket).await?;
        let pending = self.take_pending(ticket)?;
        let Pending { index, errors, mut readback, timestamps, .. } = pending;
        if BROWSER {
            if readback.is_none() {
                self.work_done().await;
            }
        } else {
            self.poll_until_ready(index, readback.as_ref())?;
        }
        let mapped = match &mut readback {
            Some(readback) => readback.mapped().await,
            None => true,
        };
        self.check_errors(ticket.0, errors).await?;
        if !mapped {
            // Every other reason would be an error of the submit. A browser reports the loss later.
            if BROWSER {
                self.faults.note_lost("its buffers cannot be read");
                self.faults.check_lost()?;
            }
            let id = self.profile.id();
            return Err(Error::device(format!("the downloads of submit {} on {id}", ticket.0)));
        }
        let mut completion = Completion::default();
        if let Some(readback) = readback {
            completion.downloads = readback.finish(&mut self.state().downloads)?;
        }
        if timestamps && let Some(ticks) = completion.downloads.pop() {
            completion.timestamps = timing::nanoseconds(&ticks, self.tick);
        }
        Ok(completion)
    }

    /// Returns the error of a submit, or the device loss.
    async fn check_errors(&self, ticket: u64, errors: Option<ScopeFuture>) -> Result<()> {
        let error = match errors {
            Some(errors) => errors.await,
            None => None,
        };
        self.faults.check_lost()?;
        match error {
            Some(error) => {
                let what = format!("submit {ticket} on {}", self.profile.id());
                Err(self.error_of(error, &what, None))
            }
            None => Ok(()),
        }
    }

    /// Returns the first error of earlier submits that were not waited for: this submit may have
    /// read what they should have written. A failed submit has no downloads and is dropped.
    async fn check_earlier(&self, ticket: Ticket) -> Result<()> {
        loop {
            let open = self.state().pending.iter_mut().find_map(|pending| {
                let earlier = pending.ticket < ticket.0;
                pending.errors.take_if(|_| earlier).map(|errors| (pending.ticket, errors))
            });
            let Some((earlier, errors)) = open else { return Ok(()) };
            if let Err(error) = self.check_errors(earlier, Some(errors)).await {
                self.state().pending.retain(|pending| pending.ticket != earlier);
                return Err(error);
            }
        }
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

    /// In a browser: waits until everything submitted so far is done.
    async fn work_done(&self) {
        let (sender, receiver) = oneshot::channel();
        self.queue.on_submitted_work_done(move || sender.send(()));
        receiver.await;
    }

    fn poll_until_ready(
        &self,
        index: wgpu::SubmissionIndex,
        readback: Option<&Readback>,
    ) -> Result<()> {
        if self.is_hardware() {
            let start = Instant::now();
            while start.elapsed() < SPIN {
                let status = self.poll(wgpu::PollType::Poll)?;
                let done = matches!(status, Ok(wgpu::PollStatus::QueueEmpty));
                if done || readback.is_some_and(Readback::is_ready) {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
        }
        self.poll_until_done(index)
    }

    /// Blocks until a submit is done and its callbacks have run.
    pub(super) fn poll_until_done(&self, index: wgpu::SubmissionIndex) -> Result<()> {
        loop {
            let submission_index = Some(index.clone());
            let wait = wgpu::PollType::Wait { submission_index, timeout: None };
            match self.poll(wait)? {
                // Some drivers limit the duration of one wait.
                Err(wgpu::PollError::Timeout) => self.faults.check_lost()?,
                // The submit itself failed: its error scopes, or the device loss, give the reason.
                Ok(_) | Err(wgpu::PollError::WrongSubmissionIndex(..)) => break,
            }
        }
        // Polls once more: a destroyed device reports it once its queue is empty.
        self.poll(wgpu::PollType::Poll).map(|_| ())
    }

    /// Returns an error if the device is lost, also if it has not reported that yet: a destroyed device
    /// reports it when it is polled and its queue is empty, and until then each of its calls is only
    /// invalid.
    pub(super) fn check_loss(&self) -> Result<()> {
        self.faults.check_lost()?;
        if !BROWSER {
            let _ =
                self.poll(wgpu::PollType::Wait { submission_index: None, timeout: Some(LOSS) })?;
            let _ = self.poll(wgpu::PollType::Poll)?;
        }
        self.faults.check_lost()
    }

    /// Returns the error of a wgpu call: the loss of the device, if it is lost. `what` names the failed
    /// action; `memory` is the needed and the available bytes, if known.
    pub(super) fn error_of(
        &self,
        error: wgpu::Error,
        what: &str,
        memory: Option<(u64, u64)>,
    ) -> Error {
        self.check_loss().err().unwrap_or_else(|| convert(error, what, memory))
    }

    /// Polls the device. wgpu panics there if the driver fails; such a panic becomes a device loss.
    pub(super) fn poll(
        &self,
        kind: wgpu::PollType,
    ) -> Result<std::result::Result<wgpu::PollStatus, wgpu::PollError>> {
        self.faults.guard("polling", || self.gpu.poll(kind))
    }
}
