//! What was measured of a plan on a device, as data: `runtime` measures, `explain` tells.

use serde::Serialize;

/// Times of a plan's steps and runs on a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// The device, `provider:index`.
    pub device: String,
    /// Which clock timed the steps.
    pub clock: StepClock,
    /// Runs that were measured, after the warm-up.
    pub runs: usize,
    /// Bytes a second that the device reads and writes together in a copy.
    pub bandwidth: u64,
    /// Each step of the plan.
    pub steps: Vec<Spread>,
    /// Wall time of a whole run that is read, without timestamps in it.
    pub run: Spread,
    /// Part of it until the device has the work: arguments, encoding, submit.
    pub host: Spread,
    /// Kernel launches of one run.
    pub dispatches: u64,
    /// Submits of one run.
    pub submits: u64,
    /// Waits of one run.
    pub waits: u64,
    /// When each step of the last measured run began and ended, in seconds after its submit
    /// began.
    pub spans: Vec<(f64, f64)>,
}

/// Which clock timed the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepClock {
    /// Timestamps that the device writes between steps, each of which is then a pass of its own.
    Device,
    /// The host's, around one step at a time: submit and wait are in it.
    Host,
}

impl StepClock {
    /// In words, as reports name it.
    pub fn describe(self) -> &'static str {
        match self {
            StepClock::Device => "device timestamps around each step",
            StepClock::Host => "host clock, one step at a time: submit and wait are in it",
        }
    }
}

/// Seconds of something that was timed several times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The fewest.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// That of these seconds; zeros where there are none.
    pub fn of(mut seconds: Vec<f64>) -> Spread {
        seconds.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (seconds.first(), seconds.last()) else {
            return Spread::default();
        };
        let half = seconds.len() / 2;
        let median = match seconds.len() % 2 {
            1 => seconds[half],
            _ => (seconds[half - 1] + seconds[half]) / 2.0,
        };
        Spread { median, min: *min, max: *max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }
}
