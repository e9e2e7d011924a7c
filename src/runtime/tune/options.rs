//! Options and results of a tuning search.

use std::time::Duration;

use serde::Serialize;

use crate::config;
use crate::engine::{EngineId, KnobValues, TaskKey, Tuned};
use crate::error::{Error, Result};

/// How a runtime uses measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TuneMode {
    /// Plans use estimates only.
    Off,
    /// Plans use cached measurements.
    #[default]
    Cached,
    /// Plans use cached measurements, and a session measures the uncached tasks of its plans before
    /// its first run. In a browser nothing is measured, since nothing may block.
    Search,
}

impl TuneMode {
    /// Returns the mode named by `WARPLOOM_TUNE`; [`TuneMode::Cached`] if the variable is unset.
    ///
    /// # Errors
    /// Invalid if the variable has an unknown value.
    pub fn from_env() -> Result<TuneMode> {
        match config::var(&config::TUNE).as_deref() {
            None | Some("cached") => Ok(TuneMode::Cached),
            Some("off") => Ok(TuneMode::Off),
            Some("search") => Ok(TuneMode::Search),
            Some(other) => Err(crate::runtime::bad_var(&config::TUNE, other)),
        }
    }
}

/// Options for a tuning search.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// Approximate time limit of the search in seconds. Each task gets a share of the remaining
    /// time. The comparison with the estimated choice always runs, even with 0.
    pub seconds: f64,
    /// Maximum rounds of a task's final comparison; the first five always run.
    pub rounds: usize,
    /// Time that the device is kept busy before the first measurement of a task; 0 for none.
    pub warm_up: Duration,
    /// Bytes of weights that runs rotate through, which must exceed the device's caches. 0 reads
    /// the same weights each time.
    pub rotate_bytes: u64,
    /// Time limit of one run of a candidate, by the device's clock if it has one. A candidate that
    /// takes up to four times as long gets a second try.
    pub run_limit: Duration,
    /// Time limit for compiling each kernel of a candidate.
    pub compile_limit: Duration,
    /// Time after which a device that has not answered counts as lost.
    pub hang_limit: Duration,
    /// Number of engines that are tried with default knobs besides the estimated choice, best
    /// estimate first. With 0 only the knobs of the estimated choice are tried.
    pub engines: usize,
    /// Maximum candidates per task, including the estimated choice.
    pub candidates: usize,
    /// Whether tasks that were measured before, or could not be measured, are tried again.
    pub again: bool,
}

impl Default for TuneOptions {
    fn default() -> TuneOptions {
        TuneOptions {
            seconds: 120.0,
            rounds: 21,
            warm_up: Duration::from_millis(500),
            rotate_bytes: 128 << 20,
            run_limit: Duration::from_secs(2),
            compile_limit: Duration::from_secs(60),
            hang_limit: Duration::from_secs(30),
            engines: 6,
            candidates: 48,
            again: false,
        }
    }
}

impl TuneOptions {
    /// Rejects options that no search can use.
    ///
    /// # Errors
    /// Invalid, naming the field, if `seconds` is negative or NaN, or if `rounds`, `candidates` or
    /// a time limit is 0.
    pub fn check(&self) -> Result<()> {
        if self.seconds.is_nan() || self.seconds < 0.0 {
            let seconds = self.seconds;
            return Err(Error::invalid(format!("TuneOptions::seconds is {seconds}, at least 0")));
        }
        let zero = [
            ("rounds", self.rounds == 0),
            ("candidates", self.candidates == 0),
            ("run_limit", self.run_limit.is_zero()),
            ("compile_limit", self.compile_limit.is_zero()),
            ("hang_limit", self.hang_limit.is_zero()),
        ];
        if let Some((field, _)) = zero.iter().find(|(_, zero)| *zero) {
            let what = "then nothing can be measured";
            return Err(Error::invalid(format!("TuneOptions::{field} is 0: {what}")));
        }
        Ok(())
    }
}

/// Progress of a search.
#[derive(Clone, Copy, Debug)]
pub struct TuneProgress<'a> {
    /// Number of finished tasks.
    pub done: usize,
    /// Total number of tasks.
    pub tasks: usize,
    /// Label of the current task.
    pub label: &'a str,
    /// Number of candidates of the current task tried so far.
    pub candidates: usize,
}

/// Results of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TuneReport {
    /// Number of tasks skipped because an earlier search measured them.
    pub known: usize,
    /// Number of tasks skipped because an earlier search could not measure them.
    pub unmeasured: usize,
    /// Results of the tasks that were measured or tried, in order.
    pub results: Vec<TuneResult>,
    /// Number of candidates that ran with a correct result.
    pub measured: usize,
    /// Why the search stopped early: the error with which the device was lost. `None` if it did
    /// not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Why the cache file was ignored, if it was invalid. New results replace it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored: Option<String>,
    /// Why some or all results are not on disk; `None` if they all are. Such results last only as
    /// long as the runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
    /// Why no journal is written; `None` if one is. Without a journal, a candidate that ends the
    /// process is tried again by the next search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_journal: Option<String>,
}

/// Result for one task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TuneResult {
    /// Key of the task.
    pub key: TaskKey,
    /// Label of its first occurrence.
    pub label: String,
    /// Shapes of its operands and result.
    pub shapes: String,
    /// Number of occurrences in the plan.
    pub count: usize,
    /// The best candidate; `None` if none could be measured.
    pub tuned: Option<Tuned>,
    /// Why no candidate could be measured; `None` if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmeasured: Option<String>,
    /// Median time of the best candidate over all rounds, as a fraction of the estimated choice's;
    /// 1 if the estimated choice is the best.
    pub ratio: f64,
    /// Number of candidates that ran with a correct result.
    pub measured: usize,
    /// Candidates that were eliminated for a reason other than speed.
    pub dropped: Vec<Dropped>,
}

/// Result of one compared candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timing {
    /// Seconds per run: for each round, at each point of
    /// [`Task::points`](crate::plan::Task::points).
    pub rounds: Vec<Vec<f64>>,
    /// How the candidate's result differs from the first candidate's, if it does.
    pub wrong: Option<String>,
}

/// An eliminated candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// Id of the engine.
    pub engine: EngineId,
    /// Knob values of the engine.
    pub knobs: KnobValues,
    /// Why it was eliminated.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_measure_nothing_are_refused_by_name() {
        let good = TuneOptions::default;
        good().check().unwrap();
        let least = TuneOptions { seconds: 0.0, engines: 0, rotate_bytes: 0, ..good() };
        TuneOptions { warm_up: Duration::ZERO, candidates: 1, rounds: 1, ..least }.check().unwrap();
        let zero = Duration::ZERO;
        for (field, options) in [
            ("seconds is -1,", TuneOptions { seconds: -1.0, ..good() }),
            ("seconds is NaN,", TuneOptions { seconds: f64::NAN, ..good() }),
            ("rounds is 0", TuneOptions { rounds: 0, ..good() }),
            ("candidates is 0", TuneOptions { candidates: 0, ..good() }),
            ("run_limit is 0", TuneOptions { run_limit: zero, ..good() }),
            ("compile_limit is 0", TuneOptions { compile_limit: zero, ..good() }),
            ("hang_limit is 0", TuneOptions { hang_limit: zero, ..good() }),
        ] {
            let error = options.check().unwrap_err();
            let message = error.to_string();
            assert!(
                error.is_invalid() && message.contains(&format!("TuneOptions::{field}")),
                "{message}"
            );
        }
    }
}
