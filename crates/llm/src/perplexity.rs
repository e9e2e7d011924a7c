//! Measures how well a model predicts a text: the mean negative log-likelihood of its tokens, and
//! the perplexity.
//!
//! The text is split into independent windows. Each starts with its own BOS token if the model
//! expects one before a text. Logits are read back for a few positions at a time, reduced in f64
//! and dropped.

use std::ops::ControlFlow;

use super::session::Session;
use super::step::{Output, StepRequest};
use warploom::{Error, Result};

/// Settings of a perplexity measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PerplexityOptions {
    /// Number of tokens in a window, not counting the BOS token; `None` uses the longest window
    /// that fits the context.
    pub window: Option<usize>,
    /// Number of tokens at the start of each window that the model reads but that are not scored.
    pub skip: usize,
}

crate::setters!(PerplexityOptions { window: Option<usize>, skip: usize });

/// Progress callback. Receives the result so far and the total number of tokens to score, and
/// returns whether to continue. `Send` on native targets.
#[cfg(not(target_arch = "wasm32"))]
pub type OnWindow<'a> = dyn FnMut(&Perplexity, usize) -> ControlFlow<()> + Send + 'a;
/// Progress callback. Receives the result so far and the total number of tokens to score, and
/// returns whether to continue.
#[cfg(target_arch = "wasm32")]
pub type OnWindow<'a> = dyn FnMut(&Perplexity, usize) -> ControlFlow<()> + 'a;

/// Perplexity of a text, or of the part that has been measured so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Perplexity {
    /// Number of scored tokens.
    pub tokens: usize,
    /// Number of windows started.
    pub windows: usize,
    /// Sum of `-ln p(token)`, in nats.
    sum: f64,
    /// Sum of the squares of `-ln p(token)`.
    squares: f64,
}

impl Perplexity {
    /// Returns the mean negative log-likelihood, in nats per token; NaN before the first token.
    pub fn mean(&self) -> f64 {
        self.sum / self.tokens as f64
    }

    /// Returns the standard error of [`Perplexity::mean`], assuming independent tokens; NaN for
    /// fewer than two tokens.
    pub fn mean_error(&self) -> f64 {
        let n = self.tokens as f64;
        let variance = (self.squares / n - self.mean().powi(2)).max(0.0) * n / (n - 1.0);
        if self.tokens < 2 { f64::NAN } else { (variance / n).sqrt() }
    }

    /// Returns the perplexity, `exp(mean)`.
    pub fn value(&self) -> f64 {
        self.mean().exp()
    }

    /// Returns the standard error of the perplexity, to first order.
    pub fn error(&self) -> f64 {
        self.value() * self.mean_error()
    }

    /// Adds the negative log-likelihood of `token` given `logits`, one logit per vocabulary entry.
    fn add(&mut self, logits: &[f32], token: u32) {
        let most = logits.iter().fold(f32::NEG_INFINITY, |most, v| most.max(*v));
        let sum: f64 = logits.iter().map(|v| f64::from(v - most).exp()).sum();
        let nll = match logits.get(token as usize) {
            Some(v) => sum.ln() + f64::from(most - v),
            None => f64::NAN,
        };
        self.tokens += 1;
        self.sum += nll;
        self.squares += nll * nll;
    }
}

/// Maximum number of tokens in a run; the logits of all of them are in memory at once.
const RUN: usize = 64;

impl Session {
    /// Measures the perplexity of the model on `tokens`, a text without a BOS token. Uses the first
    /// sequence and drops its cached positions. `progress` is called after each run; if it breaks,
    /// the measurement ends and the result so far is returned.
    ///
    /// # Errors
    /// Invalid if no token would be scored, the window is empty or does not fit the context, or a
    /// token is outside the vocabulary; device if logits are NaN or plus infinity. Also the errors of
    /// [`Session::step_async`].
    pub async fn perplexity_async(
        &mut self,
        tokens: &[u32],
        options: &PerplexityOptions,
        progress: &mut OnWindow<'_>,
    ) -> Result<Perplexity> {
        let tokenizer = self.model().tokenizer();
        let begin = tokenizer.bos().filter(|_| tokenizer.adds_bos());
        let vocabulary = self.model().config().vocabulary;
        if let Some(id) = tokens.iter().find(|id| **id as usize >= vocabulary) {
            return Err(Error::invalid(format!("token {id} of a vocabulary of {vocabulary}")));
        }
        // The last token of a window is predicted but never run, so without a BOS token one more
        // fits.
        let room = self.context() + usize::from(begin.is_none());
        let window = options.window.unwrap_or(room);
        if window == 0 || window > room {
            return Err(Error::invalid(format!(
                "a window of {window} tokens, a context of {} positions holds 1 to {room}",
                self.context()
            )));
        }
        // Without a BOS token, nothing predicts the first token.
        let skip = options.skip.max(usize::from(begin.is_none()));
        let counted = |len: usize| len.saturating_sub(skip);
        let total = tokens.chunks(window).map(|w| counted(w.len())).sum();
        if total == 0 {
            return Err(Error::invalid(format!(
                "no token counts: {} tokens in windows of {window}, the first {skip} of each not \
                 counted",
                tokens.len()
            )));
        }
        let mut done = Perplexity::default();
        for part in tokens.chunks(window).filter(|part| counted(part.len()) > 0) {
            self.truncate(0)?;
            done.windows += 1;
            // Token `i` of `read` is predicted by the logits after token `i - 1`.
            let read: Vec<u32> = begin.into_iter().chain(part.iter().copied()).collect();
            let first = read.len() - counted(part.len());
            let mut at = 0;
            while at + 1 < read.len() {
                let end = (at + RUN).min(read.len() - 1);
                // Tokens before the first scored one only fill the cache.
                let output = if end < first { Output::Nothing } else { Output::AllLogits };
                let out = self.step_async(StepRequest::tokens(0, &read[at..end], output)).await?;
                for (i, row) in (at + 1..=end).zip(out.rows()).filter(|(i, _)| *i >= first) {
                    done.add(row, read[i]);
                }
                at = end;
                if !done.sum.is_finite() {
                    let text = format!("logits that are not numbers in window {}", done.windows);
                    return Err(Error::device(text));
                }
                if progress(&done, total).is_break() {
                    return Ok(done);
                }
            }
        }
        Ok(done)
    }

    /// Blocking version of [`Session::perplexity_async`].
    ///
    /// # Errors
    /// Same as [`Session::perplexity_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn perplexity(
        &mut self,
        tokens: &[u32],
        options: &PerplexityOptions,
        progress: &mut OnWindow<'_>,
    ) -> Result<Perplexity> {
        warploom_core::base::platform::block_on(self.perplexity_async(tokens, options, progress))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uniform_guess_is_as_perplexed_as_there_are_tokens() {
        let mut got = Perplexity::default();
        for token in 0..8 {
            got.add(&[3.5; 8], token);
        }
        assert!((got.value() - 8.0).abs() < 1e-12 && got.error().abs() < 1e-6, "{got:?}");
        // A token without a logit makes the result NaN.
        got.add(&[3.5; 8], 8);
        assert!(got.value().is_nan());
    }

    #[test]
    fn the_error_is_that_of_a_mean() {
        let mut got = Perplexity::default();
        assert!(got.mean().is_nan() && got.mean_error().is_nan());
        // Two tokens, of probabilities 1/4 and 3/4: ln 4 and ln 4/3.
        got.add(&[0.0, 3f32.ln()], 0);
        assert!(got.mean_error().is_nan());
        got.add(&[0.0, 3f32.ln()], 1);
        let [a, b] = [4f64.ln(), (4.0 / 3.0f64).ln()];
        assert!((got.mean() - (a + b) / 2.0).abs() < 1e-7);
        // Half of their difference: sqrt(((a - b)^2 / 2) / 2).
        assert!((got.mean_error() - (a - b) / 2.0).abs() < 1e-7, "{got:?}");
        assert!((got.error() - got.value() * (a - b) / 2.0).abs() < 1e-6);
    }
}
