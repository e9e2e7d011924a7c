//! Recovery of a session from a lost device.
//!
//! A session keeps the tokens in its cache, and for each sequence the token that was chosen last.
//! If a step reports a lost device, the session opens the device again, uploads the weights,
//! computes the cache again from the tokens, and repeats the step. The cache is computed again in
//! prompts rather than token by token, so the logits after a recovery equal those without one up to
//! the rounding of sums; in deterministic mode they are equal bit for bit.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::decoder;
use super::planner::Planner;
use super::session::Session;
use super::step::{Output, StepOutput};
use super::upload;
use warploom::runtime::{Reopen, Runtime};
use warploom::{Error, Result};
use warploom_core::base::platform::Clock;

/// Maximum number of losses in a row without a step between them. A kernel that hangs loses the
/// device at every repetition.
const MAX_LOSSES: u32 = 3;

/// What a session does when its device is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recovery {
    /// Does not recover: this step and every later one return the error.
    Off,
    /// Opens the same device again.
    #[default]
    SameDevice,
    /// Opens the same device again; if it does not open, the best other device that does.
    AnyDevice,
}

/// A recovery that succeeded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recovered {
    /// The error that reported the loss.
    pub lost: String,
    /// Id of the device that the session runs on now.
    pub device: String,
    /// Number of tokens recomputed, over all sequences.
    pub tokens: usize,
    /// Time from the report of the loss until the session could continue.
    pub elapsed: Duration,
}

impl fmt::Display for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tokens, seconds) = (self.tokens, self.elapsed.as_secs_f64());
        write!(
            f,
            "the device was lost ({}); goes on with {}, {tokens} tokens computed again in \
             {seconds:.1} s",
            self.lost, self.device
        )
    }
}

/// Callback that receives each recovery.
pub type OnRecovery = Arc<dyn Fn(&Recovered) + Send + Sync>;

/// How a session recovers, and what happened so far.
#[derive(Default)]
pub(super) struct Recoveries {
    pub(super) how: Recovery,
    pub(super) on_recovery: Option<OnRecovery>,
    /// Losses since the last step that succeeded.
    in_a_row: u32,
    pub(super) all: Vec<Recovered>,
}

impl Recoveries {
    /// Opens the device of `runtime` again after `lost`, unless recovery is off or the device was
    /// lost too often; returns the error then.
    pub(super) async fn reopen(&mut self, runtime: &Runtime, lost: &Error) -> Result<Runtime> {
        self.in_a_row += 1;
        let reopen = match self.how {
            Recovery::AnyDevice => Reopen::OrNext,
            _ => Reopen::Same,
        };
        runtime.reopen_async(reopen).await.map_err(|error| {
            Error::device_lost(format!("{lost}; and it cannot be opened again: {error}"))
        })
    }

    /// Returns whether this error is a loss to recover from.
    pub(super) fn covers(&self, error: &Error) -> bool {
        error.is_device_lost() && self.how != Recovery::Off && self.in_a_row < MAX_LOSSES
    }
}

/// The host's record of a sequence.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// The tokens in the cache.
    tokens: Vec<u32>,
    /// The token that the last run chose.
    next: Option<u32>,
}

impl History {
    /// Returns the tokens in the cache.
    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Appends tokens that a run added to the cache.
    pub(super) fn extend(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
        self.next = None;
    }

    /// Appends the token chosen last, which a run of run-ahead decoding added to the cache, and
    /// sets the one that it chose.
    pub(super) fn advance(&mut self, chosen: u32) {
        self.tokens.extend(self.next.replace(chosen));
    }

    /// Sets the token that the last run chose.
    pub(super) fn choose(&mut self, token: Option<u32>) {
        self.next = token;
    }

    pub(super) fn truncate(&mut self, past: usize) {
        if past < self.tokens.len() {
            self.tokens.truncate(past);
            self.next = None;
        }
    }
}

/// The state of all sequences before a step.
pub(super) struct Checkpoint(Vec<(usize, bool, Option<u32>)>);

impl Session {
    /// Returns the recoveries so far, oldest first.
    pub fn recoveries(&self) -> &[Recovered] {
        &self.recoveries.all
    }

    pub(super) fn checkpoint(&self) -> Checkpoint {
        let each = self.past.iter().zip(&self.chosen).zip(&self.histories);
        Checkpoint(each.map(|((past, chosen), history)| (*past, *chosen, history.next)).collect())
    }

    pub(super) fn restore(&mut self, Checkpoint(each): Checkpoint) {
        for (sequence, (past, chosen, next)) in each.into_iter().enumerate() {
            self.past[sequence] = past;
            self.chosen[sequence] = chosen;
            self.histories[sequence].truncate(past);
            self.histories[sequence].next = next;
        }
    }

    /// Notes the tokens that a step chose.
    pub(super) fn note_chosen(&mut self, out: &StepOutput) {
        for token in out.next_tokens() {
            self.histories[token.sequence].choose(token.token.ok());
        }
    }

    /// Notes that a step succeeded.
    pub(super) fn progressed(&mut self) {
        self.recoveries.in_a_row = 0;
    }

    /// Opens the device again after `lost`, and computes the cache again.
    ///
    /// # Errors
    /// Device lost, with the session as before, if the device does not open again or was lost too
    /// often in a row; other errors of opening it, of the upload and of the runs.
    pub(super) async fn recover(&mut self, mut lost: Error) -> Result<()> {
        let (begin, first) = (Clock::now(), lost.to_string());
        let (pasts, histories) = (self.past.clone(), self.histories.clone());
        loop {
            if !self.recoveries.covers(&lost) {
                return Err(lost);
            }
            match self.open_again(&lost).await {
                Ok(()) => break,
                Err(error) => {
                    self.past.clone_from(&pasts);
                    self.histories.clone_from(&histories);
                    match error.is_device_lost() {
                        true => lost = error,
                        false => return Err(error.context(format!("recovering from: {first}"))),
                    }
                }
            }
        }
        let recovered = Recovered {
            lost: first,
            device: self.device().profile().id(),
            tokens: pasts.iter().sum(),
            elapsed: begin.elapsed(),
        };
        tracing::warn!("{recovered}");
        if let Some(callback) = &self.recoveries.on_recovery {
            callback(&recovered);
        }
        self.recoveries.all.push(recovered);
        Ok(())
    }

    async fn open_again(&mut self, lost: &Error) -> Result<()> {
        let old = self.on.clone();
        let runtime = self.recoveries.reopen(&old.runtime, lost).await?;
        let on = Arc::new(old.with_runtime(runtime));
        upload::check_memory(&on)?;
        let tensors = upload::upload(&on, &mut |_, _| ()).await?;
        // The old buffers are freed with their device.
        self.instances.clear();
        self.tensors = tensors;
        self.planner = Planner::new(on.clone(), Vec::new());
        self.on = on;
        for sequence in 0..self.sequences() {
            let History { tokens, next } = std::mem::take(&mut self.histories[sequence]);
            self.past[sequence] = 0;
            self.absorbed[sequence] = Some(0);
            self.held[sequence] = None;
            if !tokens.is_empty() {
                self.run_tokens(sequence, &tokens, Output::Nothing).await?;
            }
            if let Some(next) = next {
                self.set_chosen(sequence, next)?;
            }
        }
        Ok(())
    }

    /// Sets the token that run-ahead decoding of a sequence continues from.
    fn set_chosen(&mut self, sequence: usize, token: u32) -> Result<()> {
        let (device, offset) = (self.on.runtime.device(), 4 * sequence as u64);
        self.tensors.write(&**device, decoder::CHOSEN, offset, &token.to_le_bytes())?;
        self.histories[sequence].choose(Some(token));
        self.chosen[sequence] = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_the_cache_and_the_next_token() {
        let mut history = History::default();
        history.extend(&[5, 6, 7]);
        history.choose(Some(8));
        history.advance(9);
        assert_eq!((&history.tokens[..], history.next), (&[5, 6, 7, 8][..], Some(9)));
        // A cache of the same length keeps its chosen token.
        history.truncate(4);
        assert_eq!(history.next, Some(9));
        history.truncate(2);
        assert_eq!((&history.tokens[..], history.next), (&[5, 6][..], None));
    }

    #[test]
    fn losses_without_progress_are_counted() {
        let mut recoveries = Recoveries::default();
        let lost = Error::device_lost("gone");
        assert!(recoveries.covers(&lost) && !recoveries.covers(&Error::device("other")));
        recoveries.in_a_row = MAX_LOSSES;
        assert!(!recoveries.covers(&lost));
        recoveries = Recoveries { how: Recovery::Off, ..Recoveries::default() };
        assert!(!recoveries.covers(&lost));
    }
}
