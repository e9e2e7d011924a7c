//! A request that occupies a sequence: its sampler, its constraint and its text.

use std::sync::Arc;
use std::time::Instant;

use super::guard::Watch;
use super::logits::{LogProbs, Logprob};
use super::metrics::Metrics;
use super::queue::{Failure, Job, Pending, Piece};
use super::sequences::Sequences;
use warploom::{Error, Result};
use warploom_llm::utf8::Utf8Stream;
use warploom_llm::{DecoderOutput, Sampler, StopStrings};

/// A request that occupies a sequence.
pub(super) struct Running {
    pub(super) pending: Pending,
    pub(super) sampler: Sampler,
    watch: Option<Watch>,
    text: Utf8Stream,
    stops: StopStrings,
    /// Number of prompt tokens found in the KV cache.
    pub(super) cached: usize,
    /// Number of generated tokens.
    pub(super) written: usize,
}

/// What follows a token of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// The answer goes on.
    More,
    /// A stop string was found; the text before it has been sent.
    Stopped,
    /// The constraint is complete, once the tokens are written that it forced.
    Complete,
}

impl Running {
    pub(super) fn new(mut pending: Pending, sampler: Sampler, cached: usize) -> Running {
        Running {
            watch: pending.job.guard.take().map(Watch::new),
            stops: StopStrings::new(pending.job.stop.clone()),
            text: Utf8Stream::new(),
            pending,
            sampler,
            cached,
            written: 0,
        }
    }

    fn job(&self) -> &Job {
        &self.pending.job
    }

    /// Returns the output of a step from which the next token can be chosen.
    pub(super) fn output_kind(&self) -> DecoderOutput {
        match self.needs_logits() {
            true => DecoderOutput::Logits,
            false => self.sampler.sampling().output_kind(),
        }
    }

    /// Returns whether the host must see the logits of the next token.
    pub(super) fn needs_logits(&self) -> bool {
        let job = self.job();
        job.logprobs.is_some()
            || job.edits.apply_at(self.written)
            || self.watch.as_ref().is_some_and(Watch::is_on)
    }

    /// Chooses the next token from the logits after `tokens`, the prompt and the answer so far.
    pub(super) fn pick(
        &mut self,
        logits: &mut [f32],
        tokens: &[u32],
        steps: &impl Sequences,
        metrics: &Metrics,
    ) -> Result<(u32, Option<Logprob>), Failure> {
        let at = |error: Error| Failure::Model(error.context(format!("position {}", tokens.len())));
        let probs = self.job().logprobs.map(|top| (LogProbs::new(logits), top));
        if self.needs_logits() {
            // A mask would hide a broken model.
            check_numbers(logits).map_err(at)?;
            let answer = tokens.get(self.job().prompt.len()..).unwrap_or_default();
            self.job().edits.apply(logits, answer).map_err(Failure::Request)?;
        }
        if let Some(watch) = self.watch.as_mut().filter(|watch| watch.is_on()) {
            let begin = Instant::now();
            watch.mask(logits).map_err(Failure::Grammar)?;
            metrics.masked(begin.elapsed());
        }
        let token = self.sampler.sample(logits, tokens).map_err(at)?;
        let bytes = |token: u32| steps.bytes_of(token).unwrap_or_default().to_vec();
        let logprob = probs.map(|(probs, top)| {
            let tops = probs.top(top).into_iter();
            let top = tops.map(|token| (token, bytes(token), probs.of(token))).collect();
            Logprob { top, ..Logprob::new(token, bytes(token), probs.of(token)) }
        });
        Ok((token, logprob))
    }

    /// Sends the text of a token, as far as it is certain. The constraint advances, unless the
    /// token is one that it forced.
    pub(super) fn write(
        &mut self,
        token: u32,
        bytes: &[u8],
        logprob: Option<Logprob>,
        is_forced: bool,
    ) -> Result<After, Failure> {
        let shown: Arc<str>;
        let bytes = match self.job().shown.get(&token) {
            Some(name) => {
                shown = name.clone();
                shown.as_bytes()
            }
            None => bytes,
        };
        if let (Some(watch), false) = (&mut self.watch, is_forced) {
            watch.accept(token, bytes).map_err(Failure::Grammar)?;
        }
        if let Some(logprob) = logprob {
            self.pending.send(Piece::Logprob(Box::new(logprob)));
        }
        let text = self.text.push(bytes);
        let (text, stopped) = self.stops.push(&text);
        if !text.is_empty() {
            self.pending.send(Piece::Text(text));
        }
        Ok(match stopped {
            true => After::Stopped,
            false if self.watch.as_ref().is_some_and(Watch::is_finished) => After::Complete,
            false => After::More,
        })
    }

    /// Returns the tokens that the constraint forces next. There are none if log probabilities are
    /// wanted, which need the logits at each token.
    pub(super) fn forced(&mut self) -> Result<Vec<u32>, Failure> {
        match (&mut self.watch, self.pending.job.logprobs) {
            (Some(watch), None) => watch.accept_forced().map_err(Failure::Grammar),
            _ => Ok(Vec::new()),
        }
    }

    /// Returns the index of the stop string that was found.
    pub(super) fn stop_string(&self) -> Option<usize> {
        self.stops.found()
    }

    /// Sends the text that was held back; returns whether it contains a stop string.
    pub(super) fn flush(&mut self) -> bool {
        let (mut rest, stopped) = self.stops.push(&self.text.finish());
        if !stopped {
            rest.push_str(&self.stops.finish());
        }
        if !rest.is_empty() {
            self.pending.send(Piece::Text(rest));
        }
        stopped
    }
}

/// Returns an error if a logit is NaN or plus infinity.
fn check_numbers(logits: &[f32]) -> Result<()> {
    match logits.iter().position(|logit| logit.is_nan() || *logit == f32::INFINITY) {
        Some(index) => Err(Error::invalid(format!("logit {index} is NaN or plus infinity"))),
        None => Ok(()),
    }
}
