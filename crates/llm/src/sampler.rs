//! Chooses the next token from the logits: repetition penalty, top-k, top-p, min-p, temperature,
//! random choice.
//!
//! The steps run in that order, which is llama.cpp's: the filters see the probabilities at
//! temperature 1, and the temperature only affects the choice among the remaining tokens. All steps
//! but the penalty are implemented in `warploom_core::sampling`, in integer arithmetic with one
//! random number per position. Devices implement them too, so a seed yields the same text wherever
//! the logits are the same.

use warploom::{Error, Result};
use warploom_core::sampling::{Choice, NoToken, SampleParams, choose};

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sampling {
    /// Divides the logits before a token is sampled. 0 means greedy: the token with the largest
    /// logit, or the one with the lowest id among equals. Default 0.8.
    pub temperature: f32,
    /// Number of most probable tokens to sample from; 0 means no limit. Default 40.
    pub top_k: usize,
    /// Samples only from the smallest set of most probable tokens with a total probability of at
    /// least this, and from at least one; 1 means no limit. Default 0.95.
    pub top_p: f32,
    /// Samples only from tokens with a probability of at least this fraction of the highest one; 0
    /// means no limit. Default 0.05.
    pub min_p: f32,
    /// Divides positive logits of recent tokens, and multiplies negative ones; 1 disables the
    /// penalty. Default 1.
    pub repetition_penalty: f32,
    /// Window of the repetition penalty, in tokens. Default 64.
    pub repeat_last_n: usize,
    /// Random seed; each position has its own random number. Default 0.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repetition_penalty: 1.0,
            repeat_last_n: 64,
            seed: 0,
        }
    }
}

crate::setters!(Sampling {
    temperature: f32,
    top_k: usize,
    top_p: f32,
    min_p: f32,
    repetition_penalty: f32,
    repeat_last_n: usize,
    seed: u64,
});

impl Sampling {
    /// Returns settings that always choose the most probable token, without a penalty.
    pub fn greedy() -> Sampling {
        Sampling { temperature: 0.0, ..Sampling::default() }
    }

    /// Returns whether the choice is the plain argmax of the logits.
    pub fn is_argmax(&self) -> bool {
        self.temperature == 0.0 && !self.penalises()
    }

    /// Returns whether the repetition penalty is enabled. Only the host implements it; without it,
    /// [`Sampling::params`] is all that a device needs.
    pub fn penalises(&self) -> bool {
        self.repetition_penalty != 1.0 && self.repeat_last_n > 0
    }

    /// Returns the sampling parameters for the token after `position` others. They do not include
    /// the repetition penalty, which must already be applied to the logits.
    pub fn params(&self, position: usize) -> SampleParams {
        let greedy = self.temperature == 0.0;
        let natural = std::f64::consts::LOG2_E / f64::from(self.temperature);
        let fixed = |share: f32, units: u64| (f64::from(share) * units as f64) as u32;
        SampleParams {
            scale: if greedy { 0.0 } else { natural as f32 },
            // A value that does not fit in u32 means no limit.
            top_k: if greedy { 1 } else { u32::try_from(self.top_k).unwrap_or(0) },
            top_p: if self.top_p < 1.0 { fixed(self.top_p, 1 << 32) } else { u32::MAX },
            min_p: fixed(self.min_p, 1 << 31),
            seed: self.seed,
            position: position as u32,
        }
    }

    /// Checks the ranges of all fields.
    fn check(&self) -> Result<()> {
        let rows = [
            ("temperature", self.temperature, 0.0, f32::MAX, "a finite number of 0 or more"),
            ("top_p", self.top_p, 0.0, 1.0, "from 0 to 1"),
            ("min_p", self.min_p, 0.0, 1.0, "from 0 to 1"),
            (
                "repetition_penalty",
                self.repetition_penalty,
                f32::MIN_POSITIVE,
                f32::MAX,
                "a finite number above 0",
            ),
        ];
        for (name, value, low, high, words) in rows {
            if !(low..=high).contains(&value) {
                return Err(Error::invalid(format!(
                    "sampling: {name} is {value}, must be {words}"
                )));
            }
        }
        Ok(())
    }
}

/// Samples tokens on the host; reuses its buffers from token to token.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    choice: Choice,
    /// Ids of the recent tokens, without duplicates.
    penalised: Vec<u32>,
}

impl Sampler {
    /// Creates a sampler with these settings.
    ///
    /// # Errors
    /// Invalid, naming the field, if a field of `sampling` is out of range.
    pub fn new(sampling: Sampling) -> Result<Sampler> {
        sampling.check()?;
        Ok(Sampler { sampling, choice: Choice::default(), penalised: Vec::new() })
    }

    /// Returns the settings.
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// Chooses the next token and returns its id. `logits` has one value per vocabulary entry, and
    /// the repetition penalty modifies it; minus infinity forbids a token. `recent` is the whole
    /// text so far, oldest token first; its length is the position that selects the random number.
    ///
    /// # Errors
    /// Invalid if `logits` is empty, a logit is NaN or plus infinity (the error names its index),
    /// every token is forbidden, or the repetition penalty is enabled and a recent id is outside
    /// the vocabulary.
    pub fn sample(&mut self, logits: &mut [f32], recent: &[u32]) -> Result<u32> {
        if self.sampling.penalises() {
            check_numbers(logits)?;
            self.penalise(logits, recent)?;
        }
        let params = self.sampling.params(recent.len());
        NoToken::check(choose(logits, &params, &mut self.choice)).or_else(|_| {
            check_numbers(logits)?;
            let n = logits.len();
            Err(Error::invalid(format!("logits: no token of {n} may be chosen")))
        })
    }

    /// Applies the repetition penalty: divides positive logits of recent tokens and multiplies
    /// negative ones, once per distinct token.
    fn penalise(&mut self, logits: &mut [f32], recent: &[u32]) -> Result<()> {
        let penalty = self.sampling.repetition_penalty;
        let from = recent.len().saturating_sub(self.sampling.repeat_last_n);
        self.penalised.clear();
        self.penalised.extend_from_slice(&recent[from..]);
        self.penalised.sort_unstable();
        self.penalised.dedup();
        let vocabulary = logits.len();
        for id in &self.penalised {
            let Some(logit) = logits.get_mut(*id as usize) else {
                return Err(Error::invalid(format!(
                    "recent token {id} is outside the vocabulary of {vocabulary}"
                )));
            };
            let changed = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            // An extreme penalty may overflow; infinities would make the sums meaningless.
            *logit = if *logit == f32::NEG_INFINITY {
                *logit
            } else {
                changed.clamp(f32::MIN, f32::MAX)
            };
        }
        Ok(())
    }
}

/// Returns an error if a logit is NaN or plus infinity.
fn check_numbers(logits: &[f32]) -> Result<()> {
    match logits.iter().position(|l| l.is_nan() || *l == f32::INFINITY) {
        Some(index) => Err(Error::invalid(format!("logit {index} is NaN or plus infinity"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns settings without filters: the plain softmax.
    fn plain(seed: u64) -> Sampling {
        Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed, ..Default::default() }
    }

    /// Counts how often each id is chosen in `n` samples.
    fn counts(sampling: Sampling, logits: &[f32], n: usize) -> Vec<usize> {
        let mut sampler = Sampler::new(sampling).unwrap();
        let mut counts = vec![0; logits.len()];
        let text = vec![0; n];
        for position in 0..n {
            let token = sampler.sample(&mut logits.to_vec(), &text[..position]).unwrap();
            counts[token as usize] += 1;
        }
        counts
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals() {
        let mut sampler = Sampler::new(Sampling::greedy()).unwrap();
        assert_eq!(sampler.sample(&mut [1.0, 3.0, 3.0, 2.0], &[]).unwrap(), 1);
        assert_eq!(sampler.sample(&mut [f32::NEG_INFINITY, -5.0], &[]).unwrap(), 1);
    }

    #[test]
    fn a_seed_gives_the_same_tokens_and_another_gives_others() {
        let logits: Vec<f32> = (0..50).map(|i| (i % 7) as f32 * 0.3).collect();
        let run = |seed| {
            let mut sampler = Sampler::new(plain(seed)).unwrap();
            let at = |position: usize| sampler.sample(&mut logits.clone(), &vec![0; position]);
            (0..64).map(at).collect::<Result<Vec<u32>>>().unwrap()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn filters_keep_what_they_say() {
        // Probabilities 0.5, 0.3, 0.15, 0.05 in a shuffled order.
        let logits = [0.15f32.ln(), 0.5f32.ln(), 0.05f32.ln(), 0.3f32.ln()];
        let kept = |sampling: Sampling| -> Vec<usize> {
            let got = counts(sampling, &logits, 4_000);
            (0..4).filter(|i| got[*i] > 0).collect()
        };
        assert_eq!(kept(plain(3)), [0, 1, 2, 3]);
        assert_eq!(kept(Sampling { top_k: 2, ..plain(3) }), [1, 3]);
        assert_eq!(kept(Sampling { top_k: 1, ..plain(3) }), [1]);
        assert_eq!(kept(Sampling { top_k: 99, ..plain(3) }), [0, 1, 2, 3]);
        assert_eq!(kept(Sampling { top_p: 0.0, ..plain(3) }), [1]);
        assert_eq!(kept(Sampling { top_p: 0.45, ..plain(3) }), [1]);
        assert_eq!(kept(Sampling { top_p: 0.79, ..plain(3) }), [1, 3]);
        assert_eq!(kept(Sampling { top_p: 0.81, ..plain(3) }), [0, 1, 3]);
        assert_eq!(kept(Sampling { min_p: 0.25, ..plain(3) }), [0, 1, 3]);
        assert_eq!(kept(Sampling { min_p: 1.0, ..plain(3) }), [1]);
        // Top-p counts shares of the tokens left by top-k: 0.5 of 0.8 is 0.625.
        assert_eq!(kept(Sampling { top_k: 2, top_p: 0.6, ..plain(3) }), [1]);
        // Min-p does not change the total of top-p.
        assert_eq!(kept(Sampling { top_p: 0.9, min_p: 0.5, ..plain(3) }), [1, 3]);
    }

    #[test]
    fn extreme_temperatures_stay_sane() {
        let logits = [1.0, 3.0, 2.999];
        assert_eq!(counts(Sampling { temperature: 1e-38, ..plain(1) }, &logits, 50)[1], 50);
        let hot = counts(Sampling { temperature: f32::MAX, ..plain(1) }, &logits, 3_000);
        assert!(hot.iter().all(|n| *n > 800), "{hot:?}");
    }

    #[test]
    fn penalty_touches_each_recent_token_once() {
        let sampling = Sampling { repetition_penalty: 2.0, repeat_last_n: 3, ..Sampling::greedy() };
        let mut sampler = Sampler::new(sampling).unwrap();
        let mut logits = [4.0, 3.0, -1.0, 2.5, f32::NEG_INFINITY];
        // 3 is outside the window of three; 0 counts once.
        assert_eq!(sampler.sample(&mut logits, &[3, 0, 0, 2]).unwrap(), 1);
        assert_eq!(logits[..4], [2.0, 3.0, -2.0, 2.5]);
        let error = sampler.sample(&mut logits, &[5]).unwrap_err();
        assert!(error.to_string().contains("recent token 5"), "{error}");
        // A tiny penalty overflows a positive logit; nothing becomes infinite.
        let sampling = Sampling { repetition_penalty: 1e-30, ..Sampling::greedy() };
        let mut logits = [1e10, 1.0];
        assert_eq!(Sampler::new(sampling).unwrap().sample(&mut logits, &[0]).unwrap(), 0);
        assert_eq!(logits[0], f32::MAX);
    }

    #[test]
    fn bad_logits_are_errors_that_name_the_index() {
        let mut sampler = Sampler::new(Sampling::default()).unwrap();
        let rows: [(&[f32], &str); 4] = [
            (&[0.0, f32::NAN, 1.0], "logit 1 is NaN"),
            (&[f32::INFINITY], "logit 0 is NaN or plus infinity"),
            (&[], "no token of 0"),
            (&[f32::NEG_INFINITY; 2], "no token of 2"),
        ];
        for (logits, words) in rows {
            let error = sampler.sample(&mut logits.to_vec(), &[]).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn options_out_of_range_are_named() {
        let rows = [
            (Sampling { temperature: -1.0, ..plain(0) }, "temperature is -1"),
            (Sampling { temperature: f32::NAN, ..plain(0) }, "temperature is NaN"),
            (Sampling { top_p: 1.5, ..plain(0) }, "top_p is 1.5"),
            (Sampling { min_p: -0.1, ..plain(0) }, "min_p is -0.1"),
            (Sampling { repetition_penalty: 0.0, ..plain(0) }, "repetition_penalty is 0"),
        ];
        for (sampling, words) in rows {
            let error = Sampler::new(sampling).unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains(words), "{error}");
        }
    }
}
