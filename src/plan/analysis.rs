//! Measurements of a plan on a device, as data: `runtime` measures, `explain` reports.

use serde::Serialize;

/// Measurements of a plan's steps and runs on a device. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// The device, as `provider:index`.
    pub device: String,
    /// The clock that timed the steps.
    pub clock: StepClock,
    /// Number of measured runs, after the warm-up.
    pub runs: usize,
    /// Bandwidth of a copy on the device, in bytes per second, reads and writes together.
    pub bandwidth: u64,
    /// Time of each step, in the order of the plan.
    pub steps: Vec<Spread>,
    /// Wall time of a whole run, including the downloads, without timestamps.
    pub run: Spread,
    /// Part of `run` that the host spends before the device has the work: arguments, encoding and
    /// submission.
    pub host: Spread,
    /// Kernel launches of one run.
    pub dispatches: u64,
    /// Submits of one run.
    pub submits: u64,
    /// Waits of one run.
    pub waits: u64,
    /// Start and end of each step of the last measured run, in seconds after the start of the run's
    /// submit.
    pub spans: Vec<(f64, f64)>,
}

/// The clock that timed the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepClock {
    /// Device timestamps between steps; each step is then a separate pass.
    Device,
    /// The host clock around one step at a time, submit and wait included.
    Host,
}

impl StepClock {
    /// Returns the description of the clock in reports.
    pub fn describe(self) -> &'static str {
        match self {
            StepClock::Device => "device timestamps around each step",
            StepClock::Host => "host clock, one step at a time: submit and wait are in it",
        }
    }
}

/// Summary of a repeated measurement, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    /// Computes the spread of these samples; zeros if there are none.
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
