//! Successive halving: contenders run alternately, and slow ones are eliminated early.
//!
//! Times are compared only within a round, each with the first contender's time. So clock changes
//! of the device affect all contenders equally.

/// `(rounds, ratio)`: after this many rounds, contenders that take more than `ratio` times as long
/// as the best are eliminated.
const CUTS: [(usize, f64); 5] = [(2, 2.0), (4, 1.4), (7, 1.15), (11, 1.06), (15, 1.03)];

/// Number of parts that the rounds are divided into; the medians of the parts measure stability.
const PARTS: usize = 3;
/// Minimum rounds per part: with fewer, a disturbed round would be the median.
const LEAST_OF_A_PART: usize = 3;

/// A contender's measurements so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Lane {
    /// Seconds of each round, at each point of measurement.
    pub(super) rounds: Vec<Vec<f64>>,
    /// Median over rounds of the time relative to the first contender's; points have equal weight.
    pub(super) ratio: f64,
    /// Same as `ratio`, but the lower median for an even number of rounds: of two rounds one may
    /// have been disturbed.
    low: f64,
    /// Error that eliminated it, if any.
    pub(super) failed: Option<String>,
    out: bool,
}

impl Lane {
    /// Returns the fraction of rounds in which it was faster than another contender.
    pub(super) fn ahead(&self, other: &Lane) -> f64 {
        let pairs = self.rounds.iter().zip(&other.rounds);
        let won = pairs.filter(|(own, other)| times(own, other) < 1.0).count();
        won as f64 / self.rounds.len().max(1) as f64
    }

    /// Returns the drift of its time relative to another contender's: the rounds are divided into
    /// three parts, and this is the largest median over the smallest. 1 if the rounds are too few
    /// to divide.
    pub(super) fn spread(&self, other: &Lane) -> f64 {
        let pairs = self.rounds.iter().zip(&other.rounds);
        let ratios: Vec<f64> = pairs.map(|(own, other)| times(own, other)).collect();
        let parts = (ratios.len() / LEAST_OF_A_PART).clamp(1, PARTS);
        let parts = ratios.chunks(ratios.len().div_ceil(parts).max(1));
        let medians: Vec<f64> = parts.map(|part| median(part.iter().copied())).collect();
        let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
        medians.iter().copied().fold(0.0, f64::max) / least
    }

    /// Returns whether this contender beats the first one, `other`: by more than the factor `gain`
    /// (1 or more) and its own [`Lane::spread`], and in at least the fraction `sure` of the rounds.
    pub(super) fn beats(&self, other: &Lane, gain: f64, sure: f64) -> bool {
        let gain = gain.max(self.spread(other));
        self.failed.is_none() && self.ratio * gain < 1.0 && self.ahead(other) >= sure
    }

    /// Returns the median time in seconds at a point.
    pub(super) fn seconds(&self, point: usize) -> f64 {
        median(self.rounds.iter().filter_map(|round| round.get(point)).copied())
    }
}

/// Why a contender or the race stops.
pub(super) enum Fault {
    /// This contender is eliminated.
    Out(String),
    /// The race stops.
    Stop(crate::error::Error),
}

/// Result of work for a contender, or why it stops.
pub(super) type Raced<T> = Result<T, Fault>;

/// Races `count` contenders. `time` runs one, by index, and returns its seconds at each point. The
/// first is never eliminated as slow. At least `least` rounds run even if `late` returns true, and
/// at most `most`.
///
/// # Errors
/// The error that stopped the race.
pub(super) fn race(
    count: usize,
    (least, most): (usize, usize),
    time: &mut dyn FnMut(usize) -> Raced<Vec<f64>>,
    late: &mut dyn FnMut() -> bool,
) -> crate::error::Result<Vec<Lane>> {
    let mut lanes = vec![Lane { ratio: 1.0, low: 1.0, ..Lane::default() }; count];
    for round in 0..most {
        // The first contender of a round may find an idle device.
        for i in 0..count {
            let i = (i + round) % count;
            if lanes[i].out {
                continue;
            }
            match time(i) {
                Ok(seconds) => lanes[i].rounds.push(seconds),
                Err(Fault::Out(why)) => {
                    lanes[i].failed = Some(why);
                    lanes[i].out = true;
                }
                Err(Fault::Stop(error)) => return Err(error),
            }
        }
        weigh(&mut lanes);
        let running = |lanes: &[Lane]| lanes.iter().filter(|lane| !lane.out).count();
        if lanes.first().is_none_or(|first| first.out)
            || (running(&lanes) < 2 && round + 1 >= least)
        {
            break;
        }
        let best = lanes.iter().filter(|l| !l.out).map(|l| l.low).fold(f64::INFINITY, f64::min);
        if let Some((_, times)) = CUTS.iter().find(|(after, _)| *after == round + 1) {
            for lane in lanes.iter_mut().skip(1) {
                lane.out |= lane.low > times * best;
            }
        }
        if round + 1 >= least && late() {
            break;
        }
    }
    Ok(lanes)
}

/// Updates each contender's ratio to the first, from rounds in which both ran.
fn weigh(lanes: &mut [Lane]) {
    let Some(first) = lanes.first().map(|lane| lane.rounds.clone()) else { return };
    for lane in lanes.iter_mut().filter(|lane| !lane.out) {
        let pairs = lane.rounds.iter().zip(&first);
        let mut ratios: Vec<f64> = pairs.map(|(own, first)| times(own, first)).collect();
        ratios.sort_by(f64::total_cmp);
        let middle = ratios.len().saturating_sub(1) / 2;
        lane.low = ratios.get(middle).copied().unwrap_or(f64::INFINITY);
        lane.ratio = median(ratios.into_iter());
    }
}

/// Returns the time relative to another contender's in a round: the geometric mean over points.
fn times(own: &[f64], other: &[f64]) -> f64 {
    let logs: f64 = own.iter().zip(other).map(|(a, b)| (a / b).ln()).sum();
    (logs / own.len().max(1) as f64).exp()
}

/// Returns the median; infinite if there are no values.
pub(super) fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    match numbers.len() {
        0 => f64::INFINITY,
        n if n % 2 == 1 => numbers[n / 2],
        n => (numbers[n / 2 - 1] + numbers[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losers_are_out_early_and_the_first_stays() {
        let (mut runs, mut clock) = ([0usize; 5], 1.0);
        let mut time = |i: usize| {
            runs[i] += 1;
            // The device slows down steadily, which affects all contenders.
            clock *= 1.01;
            match i {
                4 if runs[4] == 2 => Err(Fault::Out("lost its memory".into())),
                i => Ok(vec![clock * [1.5, 1.0, 1.02, 6.0, 1.0][i]; 2]),
            }
        };
        let lanes = race(5, (3, 21), &mut time, &mut || false).unwrap();
        assert_eq!((runs[0], runs[1], runs[3], runs[4]), (21, 21, 2, 2));
        assert!((lanes[1].ratio - 1.0 / 1.5).abs() < 0.02, "{}", lanes[1].ratio);
        assert!(lanes[2].ratio > lanes[1].ratio && lanes[0].ratio == 1.0);
        assert_eq!(lanes[4].failed.as_deref(), Some("lost its memory"));
        assert!(lanes[0].seconds(1) > 1.5);
        assert_eq!((lanes[1].ahead(&lanes[0]), lanes[3].ahead(&lanes[0])), (1.0, 0.0));
    }

    /// Races a contender that takes `ratio` times another's 1.5 us over 21 rounds.
    fn pair(ratio: impl Fn(usize) -> f64) -> Vec<Lane> {
        pairs(21, ratio)
    }

    fn pairs(rounds: usize, ratio: impl Fn(usize) -> f64) -> Vec<Lane> {
        let mut runs = [0; 2];
        let mut time = |i: usize| {
            runs[i] += 1;
            Ok(vec![1.5e-6 * if i == 0 { 1.0 } else { ratio(runs[1] - 1) }])
        };
        race(2, (rounds, rounds), &mut time, &mut || false).unwrap()
    }

    #[test]
    fn what_noise_may_explain_is_no_win() {
        let wins = |lanes: &[Lane], gain| lanes[1].beats(&lanes[0], gain, 0.8);
        let steady = pair(|_| 0.9);
        assert!(wins(&steady, 1.03) && wins(&steady, 1.1));
        // No more than the difference between two runs of the same work.
        assert!(!wins(&steady, 1.12));
        assert!(!wins(&pair(|_| 0.975), 1.03));
        // Much faster at the beginning and hardly at the end: the true ratio is uncertain.
        let drifting = pair(|round| [0.8, 0.9, 0.97][round / 7]);
        assert!((drifting[1].ratio - 0.9).abs() < 1e-9 && drifting[1].ahead(&drifting[0]) == 1.0);
        assert!((drifting[1].spread(&drifting[0]) - 0.97 / 0.8).abs() < 1e-9);
        assert!(!wins(&drifting, 1.03));
        // A disturbed round is not one of the medians.
        assert!(wins(&pair(|round| if round == 4 { 3.0 } else { 0.9 }), 1.03));
        // The same with five rounds, whichever is disturbed.
        for disturbed in 0..5 {
            let lanes = pairs(5, |round| if round == disturbed { 30.0 } else { 0.04 });
            assert!(wins(&lanes, 1.3), "{disturbed}");
            assert_eq!(lanes[1].rounds.len(), 5, "{disturbed}");
        }
        // A fourfold win survives a busy machine.
        assert!(wins(&pair(|round| 0.25 * [1.0, 2.0, 1.5][round / 7]), 1.3));
        assert!(!Lane { ratio: 0.5, ..Lane::default() }.beats(&Lane::default(), 1.03, 0.8));
    }

    #[test]
    fn it_ends_at_the_time_limit_or_if_no_candidate_can_win() {
        let mut runs = 0;
        let mut time = |_: usize| {
            runs += 1;
            Ok(vec![1.0])
        };
        race(2, (3, 21), &mut time, &mut || true).unwrap();
        assert_eq!(runs, 6);
        let mut time = |_: usize| -> Raced<Vec<f64>> { Err(Fault::Out("gone".into())) };
        let lanes = race(2, (3, 21), &mut time, &mut || false).unwrap();
        assert!(lanes.iter().all(|lane| lane.rounds.is_empty() && lane.failed.is_some()));
        let mut time = |_: usize| Err(Fault::Stop(crate::error::Error::device_lost("gone")));
        assert!(race(2, (3, 21), &mut time, &mut || false).unwrap_err().is_device_lost());
    }
}
