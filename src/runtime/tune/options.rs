//! How to search, and what a search tells.

use std::time::Duration;

use serde::Serialize;

use crate::config;
use crate::engine::{EngineId, KnobValues, TaskKey, Tuned};
use crate::error::{Error, Result};

/// What a runtime does with measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TuneMode {
    /// Plans are made by estimates alone.
    Off,
    /// Plans take what was measured before.
    #[default]
    Cached,
    /// As [`TuneMode::Cached`], and what a session needs and was not measured is, before its first
    /// run. In a browser, where nothing may block, nothing is.
    Search,
}

impl TuneMode {
    /// That of `WARPLOOM_TUNE`; [`TuneMode::Cached`] where it is not set.
    ///
    /// # Errors
    /// Invalid, for another value of the variable.
    pub fn from_env() -> Result<TuneMode> {
        match config::var(&config::TUNE).as_deref() {
            None | Some("cached") => Ok(TuneMode::Cached),
            Some("off") => Ok(TuneMode::Off),
            Some("search") => Ok(TuneMode::Search),
            Some(other) => Err(crate::runtime::bad_var(&config::TUNE, other)),
        }
    }
}

/// How to search.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// Seconds of the whole search, about. Each task gets its share of what is left, and is
    /// compared with the estimate's choice whatever that takes, also with 0.
    pub seconds: f64,
    /// Rounds of the last comparison of a task, at most; the first five are always run.
    pub rounds: usize,
    /// How long the device is kept busy before the first figure of a task; 0 for not at all.
    pub warm_up: Duration,
    /// Bytes that runs read in turn before they read the same weights again: beyond what the
    /// device's caches hold. 0 reads the same ones each time.
    pub rotate_bytes: u64,
    /// How long one run of a candidate may take, by the device's clock where it has one. One that takes up to four
    /// times as long is asked once more.
    pub run_limit: Duration,
    /// How long its kernels may compile.
    pub compile_limit: Duration,
    /// After how long the device counts as lost.
    pub hang_limit: Duration,
    /// Engines that are tried with their knobs at their defaults beside the estimate's choice, the
    /// best by estimate first; with 0 only that one's knobs are.
    pub engines: usize,
    /// Candidates of one task, at most, the estimate's choice among them.
    pub candidates: usize,
    /// Whether tasks that were measured before, or could not be, are measured again.
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
    /// Refuses what no search can be made with.
    ///
    /// # Errors
    /// Invalid, naming the field: seconds below 0 or no number; no rounds, no candidates, or a limit
    /// of no time.
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
            let what = "with that nothing can be measured";
            return Err(Error::invalid(format!("TuneOptions::{field} is 0: {what}")));
        }
        Ok(())
    }
}

/// Where a search is.
#[derive(Clone, Copy, Debug)]
pub struct TuneProgress<'a> {
    /// Tasks that are done.
    pub done: usize,
    /// Tasks in all.
    pub tasks: usize,
    /// The one at hand.
    pub label: &'a str,
    /// Candidates of it that were looked at.
    pub candidates: usize,
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TuneReport {
    /// Tasks that were measured before, and not again.
    pub known: usize,
    /// Those that could not be measured before, and were not tried again.
    pub unmeasured: usize,
    /// Those that were measured or tried, in their order.
    pub results: Vec<TuneResult>,
    /// Candidates that ran.
    pub measured: usize,
    /// What ended the search before its time: a device that is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Why what was kept before is not taken: its file cannot be read. What is found is kept in its
    /// place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored: Option<String>,
    /// Why what was found, or a part of it, is not on disk and lasts as long as the runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
    /// Why candidates are not written down before they run: one that ends the process is tried
    /// again by the next search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_journal: Option<String>,
}

/// What came of a task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TuneResult {
    /// The task.
    pub key: TaskKey,
    /// What the first such piece is called.
    pub label: String,
    /// Its operands and result.
    pub shapes: String,
    /// Such pieces of the plan.
    pub count: usize,
    /// The best; `None` where nothing could be measured.
    pub tuned: Option<Tuned>,
    /// Why nothing could be measured, where that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmeasured: Option<String>,
    /// Times what the estimate's choice takes, the median over rounds of both; 1 where that is the
    /// best.
    pub ratio: f64,
    /// Candidates that ran.
    pub measured: usize,
    /// Candidates that are out for another reason than their speed.
    pub dropped: Vec<Dropped>,
}

/// What came of one of several ways that were compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timing {
    /// Seconds of each round, at each point of [`Task::points`](crate::plan::Task::points).
    pub rounds: Vec<Vec<f64>>,
    /// How its numbers differ from those of the first way, where they do.
    pub wrong: Option<String>,
}

/// A candidate that is out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// The engine.
    pub engine: EngineId,
    /// Its knobs.
    pub knobs: KnobValues,
    /// Why.
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
            let told = error.to_string();
            assert!(
                error.is_invalid() && told.contains(&format!("TuneOptions::{field}")),
                "{told}"
            );
        }
    }
}
