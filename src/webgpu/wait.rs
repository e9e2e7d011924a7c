//! Waiting for a submit: a short spin and a blocking poll natively, promises in a browser.

use std::time::{Duration, Instant};

use super::device::{State, WebGpuDevice};
use super::faults::{ScopeFuture, convert};
use super::oneshot;
use super::timing;
use super::transfer::Readback;
use crate::base::platform::BROWSER;
use crate::error::{Error, Result};
use crate::provider::{Completion, Ticket};

/// A submit that was not waited for yet.
pub(super) struct Pending {
    pub(super) ticket: u64,
    pub(super) index: wgpu::SubmissionIndex,
    /// Its errors, where they were not known as it was submitted: in browsers.
    pub(super) errors: Option<ScopeFuture>,
    pub(super) readback: Option<Readback>,
    /// Whether the last download is the timestamps, in ticks.
    pub(super) timestamps: bool,
}

/// Submits that nobody waited for are forgotten beyond this number, the oldest first.
const KEPT: usize = 1 << 16;
/// How long a wait spins before it blocks, where the device is not the CPU itself. A blocking
/// wait costs some 20 us more, which is much for the short submits of decoding.
const SPIN: Duration = Duration::from_micros(200);

impl State {
    /// Keeps a submit until it is waited for, and gives the one that is forgotten for it, if any.
    pub(super) fn keep(&mut self, pending: Pending) -> Option<Pending> {
        let full = self.pending.len() == KEPT;
        self.pending.push_back(pending);
        full.then(|| self.pending.pop_front()).flatten()
    }
}

impl WebGpuDevice {
    pub(super) async fn wait_for(&self, ticket: Ticket) -> Result<Completion> {
        // An error of some other call comes first and leaves the ticket for another wait.
        self.faults.take()?;
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

    /// What went wrong in a submit; the device's loss.
    async fn check_errors(&self, ticket: u64, errors: Option<ScopeFuture>) -> Result<()> {
        let error = match errors {
            Some(errors) => errors.await,
            None => None,
        };
        self.faults.check_lost()?;
        match error {
            Some(error) => {
                let what = format!("submit {ticket} on {}", self.profile.id());
                Err(convert(error, &what, None))
            }
            None => Ok(()),
        }
    }

    /// What went wrong in submits that nobody waited for yet: this one may have read what they should have written. A submit
    /// that failed has nothing to give, and is forgotten.
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
                "{ticket:?} was never given, is waited for twice, or {KEPT} submits came after it"
            ))
        })
    }

    /// In a browser: until everything submitted so far is done.
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
                // Some drivers limit how long one wait may last.
                Err(wgpu::PollError::Timeout) => self.faults.check_lost()?,
                // The submit itself failed: its error scopes, or the loss, say why.
                Ok(_) | Err(wgpu::PollError::WrongSubmissionIndex(..)) => break,
            }
        }
        // One more look: a device that was destroyed says so once its queue is empty.
        self.poll(wgpu::PollType::Poll).map(|_| ())
    }

    /// wgpu panics in `poll` when the driver fails there.
    pub(super) fn poll(
        &self,
        kind: wgpu::PollType,
    ) -> Result<std::result::Result<wgpu::PollStatus, wgpu::PollError>> {
        self.faults.guard("polling", || self.gpu.poll(kind))
    }
}
