//! The next token from the logits: penalty, top-k, top-p, min-p, temperature, draw.
//!
//! The steps come in that order, which is llama.cpp's: the filters see the probabilities at
//! temperature 1, and the temperature only shapes the draw among what they leave. Equal logits
//! are ordered by id, sums are in f64, and the generator is our own, so a seed gives the same
//! text on every machine whose logits are the same.

use crate::error::{Error, Result};
use std::cmp::Ordering;

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits before the draw. 0 is greedy: the largest logit, the lowest id among
    /// equals. Default 0.8.
    pub temperature: f32,
    /// Only this many of the best tokens may be drawn; 0 is no limit. Default 40.
    pub top_k: usize,
    /// Only the fewest best tokens whose probabilities sum to this may be drawn, at least one;
    /// 1 is no limit. Default 0.95.
    pub top_p: f32,
    /// Only tokens at least this probable relative to the best may be drawn; 0 is no limit.
    /// Default 0.05.
    pub min_p: f32,
    /// Positive logits of recent tokens are divided by this and negative ones multiplied; 1 is
    /// off. Default 1.
    pub repetition_penalty: f32,
    /// How many of the last tokens the penalty looks at. Default 64.
    pub repeat_last_n: usize,
    /// Where the generator starts. Default 0.
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

impl Sampling {
    /// Always the most probable token; no penalty.
    pub fn greedy() -> Sampling {
        Sampling { temperature: 0.0, ..Sampling::default() }
    }

    /// Whether the choice is the plain argmax of the logits, which a device can compute.
    pub fn is_argmax(&self) -> bool {
        self.temperature == 0.0 && (self.repetition_penalty == 1.0 || self.repeat_last_n == 0)
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

/// xoshiro256** of Blackman and Vigna ("Scrambled linear pseudorandom number generators", 2021),
/// its state filled by splitmix64 as they advise.
#[derive(Clone, Debug)]
struct Xoshiro256 {
    state: [u64; 4],
}

impl Xoshiro256 {
    fn new(seed: u64) -> Xoshiro256 {
        let mut x = seed;
        let state = std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Xoshiro256 { state }
    }

    fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let out = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        out
    }

    /// In `[0, 1)`, from the upper 53 bits.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Chooses tokens; keeps the generator's state and its buffers from token to token.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: Xoshiro256,
    /// `(logit, id)`, what may still be drawn.
    candidates: Vec<(f32, u32)>,
    /// Distinct recent ids.
    penalised: Vec<u32>,
}

/// Larger logits first, lower ids first among equals.
fn best_first(a: &(f32, u32), b: &(f32, u32)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

impl Sampler {
    /// A sampler at the start of its seed.
    ///
    /// # Errors
    /// Invalid, naming the field of `sampling` that is out of range.
    pub fn new(sampling: Sampling) -> Result<Sampler> {
        sampling.check()?;
        let random = Xoshiro256::new(sampling.seed);
        Ok(Sampler { sampling, random, candidates: Vec::new(), penalised: Vec::new() })
    }

    /// What it was made with.
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// The next token id. `logits` is `[vocabulary]`, changed by the penalty; minus infinity
    /// forbids a token. `recent` is the text so far, oldest first.
    ///
    /// # Errors
    /// Invalid: no logits, a NaN or plus infinity (with its index), every token forbidden, or a
    /// recent id outside the vocabulary.
    pub fn sample(&mut self, logits: &mut [f32], recent: &[u32]) -> Result<u32> {
        let wrong = logits.iter().position(|l| l.is_nan() || *l == f32::INFINITY);
        if let Some(index) = wrong {
            let value = logits[index];
            return Err(Error::invalid(format!("logits: element {index} is {value}")));
        }
        self.penalise(logits, recent)?;
        let Some((best, max)) = argmax(logits) else {
            let n = logits.len();
            return Err(Error::invalid(format!("logits: no token of {n} may be chosen")));
        };
        if self.sampling.temperature == 0.0 || self.sampling.top_k == 1 {
            return Ok(best);
        }
        self.filter(logits, max);
        Ok(self.draw(max))
    }

    /// Divides positive logits of recent tokens, multiplies negative ones, each once.
    fn penalise(&mut self, logits: &mut [f32], recent: &[u32]) -> Result<()> {
        let penalty = self.sampling.repetition_penalty;
        if penalty == 1.0 {
            return Ok(());
        }
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

    /// Leaves in `candidates`, best first where a limit needed the order, what may be drawn.
    fn filter(&mut self, logits: &[f32], max: f32) {
        let Sampling { top_k, top_p, min_p, .. } = self.sampling;
        let kept = &mut self.candidates;
        kept.clear();
        kept.extend(logits.iter().zip(0u32..).map(|(l, id)| (*l, id)));
        if top_k > 0 && top_k < kept.len() {
            kept.select_nth_unstable_by(top_k - 1, best_first);
            kept.truncate(top_k);
        }
        // The share that top-p counts in is that of all tokens that top-k left.
        let weight = |logit: f32| (f64::from(logit) - f64::from(max)).exp();
        let goal = if top_p < 1.0 {
            f64::from(top_p) * kept.iter().map(|c| weight(c.0)).sum::<f64>()
        } else {
            f64::INFINITY
        };
        let floor = f64::from(min_p);
        kept.retain(|c| c.0 > f32::NEG_INFINITY && weight(c.0) >= floor);
        if goal.is_finite() {
            let n = shortest_prefix(kept, goal, weight);
            kept.truncate(n);
        }
        // Always in one order, so that a draw does not depend on how the filters worked.
        kept.sort_unstable_by(best_first);
    }

    /// Draws one of `candidates`, which hold at least the best token.
    fn draw(&mut self, max: f32) -> u32 {
        let temperature = f64::from(self.sampling.temperature);
        let weight = |logit: f32| ((f64::from(logit) - f64::from(max)) / temperature).exp();
        let total: f64 = self.candidates.iter().map(|c| weight(c.0)).sum();
        let mut left = self.random.unit() * total;
        let mut chosen = 0;
        for &(logit, id) in &self.candidates {
            let w = weight(logit);
            if w > 0.0 {
                chosen = id;
                left -= w;
                if left < 0.0 {
                    break;
                }
            }
        }
        chosen
    }
}

/// The lowest index of the largest logit, and the logit; none where every one is minus infinity.
fn argmax(logits: &[f32]) -> Option<(u32, f32)> {
    let mut best: Option<(u32, f32)> = None;
    for (id, &logit) in (0u32..).zip(logits) {
        if logit > best.map_or(f32::NEG_INFINITY, |b| b.1) {
            best = Some((id, logit));
        }
    }
    best
}

/// Moves the best of `all` to the front, in order, and returns how many reach `goal` together, at
/// least one. Sorts in growing pieces: a vocabulary is long and the answer mostly short.
fn shortest_prefix(all: &mut [(f32, u32)], goal: f64, weight: impl Fn(f32) -> f64) -> usize {
    let (mut done, mut piece, mut sum) = (0, 256, 0.0);
    while done < all.len() {
        let rest = &mut all[done..];
        let n = piece.min(rest.len());
        if n < rest.len() {
            rest.select_nth_unstable_by(n - 1, best_first);
        }
        rest[..n].sort_unstable_by(best_first);
        for (i, candidate) in rest[..n].iter().enumerate() {
            sum += weight(candidate.0);
            if sum >= goal {
                return done + i + 1;
            }
        }
        done += n;
        piece = piece.saturating_mul(8);
    }
    done
}
