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

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing filtered: the bare softmax.
    fn plain(seed: u64) -> Sampling {
        Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed, ..Default::default() }
    }

    /// How often each id comes in `n` draws.
    fn counts(sampling: Sampling, logits: &[f32], n: usize) -> Vec<usize> {
        let mut sampler = Sampler::new(sampling).unwrap();
        let mut counts = vec![0; logits.len()];
        for _ in 0..n {
            counts[sampler.sample(&mut logits.to_vec(), &[]).unwrap() as usize] += 1;
        }
        counts
    }

    #[test]
    fn generator_follows_the_published_algorithm() {
        // First outputs of xoshiro256** from the state 1, 2, 3, 4.
        let mut random = Xoshiro256 { state: [1, 2, 3, 4] };
        let got: Vec<u64> = (0..4).map(|_| random.next()).collect();
        assert_eq!(got, [11520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
        // First output of splitmix64 from 0.
        assert_eq!(Xoshiro256::new(0).state[0], 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals() {
        let mut sampler = Sampler::new(Sampling::greedy()).unwrap();
        assert_eq!(sampler.sample(&mut [1.0, 3.0, 3.0, 2.0], &[]).unwrap(), 1);
        assert_eq!(sampler.sample(&mut [f32::NEG_INFINITY, -5.0], &[]).unwrap(), 1);
    }

    #[test]
    fn draws_follow_the_softmax() {
        let logits = [0.0, 1.0, -2.0, 0.5, f32::NEG_INFINITY];
        for temperature in [0.5, 1.0, 2.0] {
            let n = 40_000;
            let got = counts(Sampling { temperature, ..plain(7) }, &logits, n);
            let weights: Vec<f64> =
                logits.iter().map(|l| (f64::from(*l) / f64::from(temperature)).exp()).collect();
            let total: f64 = weights.iter().sum();
            for (id, weight) in weights.iter().enumerate() {
                let p = weight / total;
                // Five standard deviations of a binomial.
                let tolerance = 5.0 * (p * (1.0 - p) / n as f64).sqrt() + 1e-12;
                let share = got[id] as f64 / n as f64;
                assert!(
                    (share - p).abs() <= tolerance,
                    "T {temperature}, id {id}: {share}, want {p}"
                );
            }
        }
    }

    #[test]
    fn a_seed_gives_the_same_tokens_and_another_gives_others() {
        let logits: Vec<f32> = (0..50).map(|i| (i % 7) as f32 * 0.3).collect();
        let run = |seed| {
            let mut sampler = Sampler::new(plain(seed)).unwrap();
            (0..64).map(|_| sampler.sample(&mut logits.clone(), &[]).unwrap()).collect::<Vec<u32>>()
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
        // Top-p counts shares of what top-k left: 0.5 of 0.8 is 0.625.
        assert_eq!(kept(Sampling { top_k: 2, top_p: 0.6, ..plain(3) }), [1]);
        // Min-p takes nothing from what top-p counts in.
        assert_eq!(kept(Sampling { top_p: 0.9, min_p: 0.5, ..plain(3) }), [1, 3]);
    }

    #[test]
    fn top_p_is_right_beyond_the_first_sorted_piece() {
        // 5,000 equal tokens: half of the probability is half of the tokens, lowest ids first.
        let mut sampler = Sampler::new(Sampling { top_p: 0.5, ..plain(1) }).unwrap();
        sampler.filter(&vec![1.0; 5_000], 1.0);
        assert_eq!(sampler.candidates.len(), 2_500);
        assert!(sampler.candidates.iter().enumerate().all(|(i, c)| c.1 == i as u32));
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
        // 3 lies outside the window of three, 0 counts once.
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
            (&[0.0, f32::NAN, 1.0], "element 1 is NaN"),
            (&[f32::INFINITY], "element 0 is inf"),
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
