//! What the host does with logits besides sampling: penalties, biases, and log probabilities.

use std::cmp::Ordering;
use std::collections::HashMap;

use warploom::{Error, Result};

/// Changes to the logits of an answer, as in the OpenAI API.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LogitEdits {
    /// Subtracted from the logit of a token for each time that the answer contains it.
    pub frequency_penalty: f32,
    /// Subtracted from the logit of each token that the answer contains.
    pub presence_penalty: f32,
    /// Pairs of a token and the number that is added to its logit.
    pub bias: Vec<(u32, f32)>,
    /// Minimum number of tokens before the answer may end.
    pub min_tokens: usize,
    /// The tokens that end an answer, which `min_tokens` forbids.
    pub ends: Vec<u32>,
}

warploom_llm::setters!(LogitEdits {
    frequency_penalty: f32,
    presence_penalty: f32,
    bias: Vec<(u32, f32)>,
    min_tokens: usize,
    ends: Vec<u32>,
});

impl LogitEdits {
    /// Returns whether the next token of an answer of `written` tokens depends on the edits.
    pub fn apply_at(&self, written: usize) -> bool {
        let penalises = self.frequency_penalty != 0.0 || self.presence_penalty != 0.0;
        !self.bias.is_empty() || (penalises && written > 0) || written < self.min_tokens
    }

    /// Changes the logits of the token that follows `answer`.
    ///
    /// # Errors
    /// Invalid if a bias names a token outside the vocabulary.
    pub fn apply(&self, logits: &mut [f32], answer: &[u32]) -> Result<()> {
        if self.frequency_penalty != 0.0 || self.presence_penalty != 0.0 {
            let mut counts: HashMap<u32, f32> = HashMap::new();
            answer.iter().for_each(|token| *counts.entry(*token).or_default() += 1.0);
            for (token, count) in counts {
                if let Some(logit) = logits.get_mut(token as usize) {
                    *logit -= count * self.frequency_penalty + self.presence_penalty;
                }
            }
        }
        let size = logits.len();
        for (token, bias) in &self.bias {
            let Some(logit) = logits.get_mut(*token as usize) else {
                return Err(Error::invalid(format!("token {token} of a vocabulary of {size}")));
            };
            *logit += bias;
        }
        if answer.len() < self.min_tokens {
            for token in &self.ends {
                if let Some(logit) = logits.get_mut(*token as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
        Ok(())
    }
}

/// The log probability of a token, and those of the most probable ones in its place, all at
/// temperature 1 and before any edit.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Logprob {
    /// The token.
    pub token: u32,
    /// The bytes that it stands for.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// The most probable tokens, their bytes and log probabilities, best first.
    pub top: Vec<(u32, Vec<u8>, f32)>,
}

impl Logprob {
    pub(super) fn new(token: u32, bytes: Vec<u8>, logprob: f32) -> Logprob {
        Logprob { token, bytes, logprob, top: Vec::new() }
    }
}

/// The log probabilities of one row of logits.
#[derive(Debug)]
pub(super) struct LogProbs {
    row: Vec<f32>,
    /// Logarithm of the sum of the exponentials of the row.
    norm: f64,
}

impl LogProbs {
    pub(super) fn new(row: &[f32]) -> LogProbs {
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|logit| f64::from(logit - top).exp()).sum();
        LogProbs { row: row.to_vec(), norm: f64::from(top) + sum.ln() }
    }

    /// Returns the log probability of a token; minus infinity if it is outside the row.
    pub(super) fn of(&self, token: u32) -> f32 {
        let logit = self.row.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
        (f64::from(logit) - self.norm) as f32
    }

    /// Returns the `count` most probable tokens, best first, the lowest id first among equals.
    pub(super) fn top(&self, count: usize) -> Vec<u32> {
        let better = |a: &u32, b: &u32| -> Ordering {
            let logit = |id: &u32| self.row.get(*id as usize).copied().unwrap_or(f32::NAN);
            logit(b).total_cmp(&logit(a)).then(a.cmp(b))
        };
        let mut ids: Vec<u32> = (0..self.row.len() as u32).collect();
        let count = count.min(ids.len());
        if count == 0 {
            return Vec::new();
        }
        ids.select_nth_unstable_by(count - 1, better);
        ids.truncate(count);
        ids.sort_unstable_by(better);
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probabilities_are_those_of_a_softmax() {
        let probs = LogProbs::new(&[1.0, 3.0, 3.0, f32::NEG_INFINITY, -200.0]);
        let sum = 1f64.exp() + 2.0 * 3f64.exp();
        for (token, logit) in [(0, 1.0), (1, 3.0), (2, 3.0), (4, -200.0)] {
            let want = (logit - sum.ln()) as f32;
            assert!((probs.of(token) - want).abs() < 1e-4, "{token}");
        }
        assert_eq!(probs.of(3), f32::NEG_INFINITY);
        assert_eq!(probs.of(9), f32::NEG_INFINITY);
        assert_eq!(probs.top(3), [1, 2, 0]);
        assert_eq!(probs.top(9), [1, 2, 0, 4, 3]);
        assert!(probs.top(0).is_empty());
    }

    #[test]
    fn penalties_count_the_answer_alone() {
        let edits = LogitEdits::default().frequency_penalty(0.5).presence_penalty(0.25);
        let mut logits = [1.0, 1.0, 1.0];
        assert!(!edits.apply_at(0) && edits.apply_at(1));
        edits.apply(&mut logits, &[2, 2, 1, 7]).unwrap();
        assert_eq!(logits, [1.0, 0.25, -0.25]);
    }

    #[test]
    fn biases_and_a_minimum_apply() {
        let edits = LogitEdits::default().bias(vec![(1, -100.0), (0, 2.0)]).min_tokens(2);
        let edits = edits.ends(vec![2]);
        let mut logits = [0.0; 3];
        edits.apply(&mut logits, &[0]).unwrap();
        assert_eq!(logits, [2.0, -100.0, f32::NEG_INFINITY]);
        let mut logits = [0.0; 3];
        edits.apply(&mut logits, &[0, 0]).unwrap();
        assert_eq!(logits, [2.0, -100.0, 0.0]);
        let wrong = LogitEdits::default().bias(vec![(3, 1.0)]);
        let error = wrong.apply(&mut logits, &[]).unwrap_err().to_string();
        assert!(error.contains("token 3 of a vocabulary of 3"), "{error}");
    }
}
