//! Results of a conformance run, as data and as text.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use warploom::engine::{DriverKey, EngineId};
use warploom_cases::{Failure, Outcome, Report};

/// Maximum number of rows of each kind that the text shows.
const SHOWN: usize = 20;

/// Results of a conformance run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ConformanceReport {
    /// Each device, with all its features or at the floor.
    pub devices: Vec<DeviceReport>,
    /// Problems of the provider as a whole.
    pub problems: Vec<Problem>,
}

/// Results on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DeviceReport {
    /// Label of the device, such as `cpu:0 "avx512"`, with `at the floor` if applicable.
    pub label: String,
    /// Key of the device's driver.
    pub device: DriverKey,
    /// Whether [`Conformance::run_provider`](super::Conformance::run_provider) opened it with only
    /// WebGPU's guaranteed limits.
    pub floor: bool,
    /// Number of selected cases.
    pub cases: usize,
    /// Every run, in table order.
    pub rows: Vec<Row>,
    /// Each requested engine, in order.
    pub engines: Vec<EngineUse>,
    /// Problems of the device as a whole.
    pub problems: Vec<Problem>,
    /// Duration in seconds.
    pub seconds: f64,
    /// Whether an unsupported case counts as a failure.
    pub complete: bool,
}

/// A problem outside of the rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Problem {
    /// The provider lists no devices.
    NoDevice {
        /// The reason, if known.
        why: String,
    },
    /// A listed device does not open.
    NotOpened {
        /// Id of the device: `provider:index`.
        device: String,
        /// The provider's error.
        why: String,
    },
    /// The device was lost; nothing ran after this case.
    DeviceLost {
        /// The case.
        case: String,
        /// Number of cases that did not run because of it.
        left: usize,
    },
}

/// The sizes that a case was planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Sizes {
    /// The exact sizes of the run.
    Exact,
    /// Ranges that include larger sizes than the run needs, as in a decoder's plans.
    Ranges,
}

/// One run of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// Name of the case in the table.
    pub case: String,
    /// The sizes that the case was planned for.
    pub sizes: Sizes,
    /// The forced engine, if any.
    pub engine: Option<EngineId>,
    /// Whether operator fusion was enabled.
    pub fused: bool,
    /// Reason why the tolerance was overridden; empty if the case table's tolerance applies.
    pub note: String,
    /// The result.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// Every value is within tolerance; holds the accuracy reached.
    Pass(Report),
    /// A failure: the first wrong value, or why there are no values.
    Fail(Failure),
    /// The device or its engines report it as unsupported.
    Unsupported {
        /// The reason.
        reason: String,
    },
    /// Wrong, as declared.
    KnownToFail {
        /// The declared reason.
        reason: String,
    },
}

impl From<Outcome> for Verdict {
    fn from(outcome: Outcome) -> Verdict {
        match outcome {
            Outcome::Pass(report) => Verdict::Pass(report),
            Outcome::Fail(failure) => Verdict::Fail(failure),
            Outcome::Unsupported(reason) => Verdict::Unsupported { reason },
            Outcome::KnownToFail(reason) => Verdict::KnownToFail { reason },
        }
    }
}

/// How often a requested engine was used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EngineUse {
    /// The engine.
    pub engine: EngineId,
    /// Number of cases in which the executed plan contained the engine, not counting declared
    /// failures.
    pub cases: usize,
    /// Why it was not used in other cases: each reason given by the engine or the planner, with its
    /// number of groups, and each declared failure with its number of runs.
    pub refused: BTreeMap<String, usize>,
}

impl DeviceReport {
    /// Returns the number of rows that passed.
    pub fn passed(&self) -> usize {
        self.rows.iter().filter(|row| matches!(row.verdict, Verdict::Pass(_))).count()
    }

    /// Iterates over the rows that failed, each with its failure.
    pub fn failures(&self) -> impl Iterator<Item = (&Row, &Failure)> {
        self.rows.iter().filter_map(|row| match &row.verdict {
            Verdict::Fail(failure) => Some((row, failure)),
            _ => None,
        })
    }

    /// Iterates over the unsupported rows, each with the reason.
    pub fn unsupported(&self) -> impl Iterator<Item = (&Row, &str)> {
        self.rows.iter().filter_map(|row| match &row.verdict {
            Verdict::Unsupported { reason } => Some((row, reason.as_str())),
            _ => None,
        })
    }

    /// Lists everything that makes the device fail, as text.
    fn wrong(&self) -> Vec<String> {
        let mut wrong: Vec<String> = Vec::new();
        for (row, failure) in self.failures() {
            wrong.push(format!("{}: {failure}{}", self.label, row.how()));
        }
        if self.complete {
            let rows = self.unsupported();
            wrong.extend(rows.map(|(row, reason)| {
                format!("{}: {} is unsupported: {reason}{}", self.label, row.case, row.how())
            }));
        }
        for unused in self.engines.iter().filter(|engine| engine.cases == 0) {
            let mut text = format!("{}: {} was used in no case", self.label, unused.engine);
            for (reason, pieces) in &unused.refused {
                text += &format!("; {reason} ({pieces} times)");
            }
            wrong.push(text);
        }
        wrong.extend(self.problems.iter().map(|p| format!("{}: {p}", self.label)));
        let numbers = |row: &Row| matches!(row.verdict, Verdict::Pass(r) if r.elements > 0);
        if self.engines.is_empty() && !self.rows.iter().any(numbers) && wrong.is_empty() {
            wrong.push(format!(
                "{}: no case of {} with numbers in it passed",
                self.label, self.cases
            ));
        }
        wrong
    }
}

impl Row {
    /// Describes how the run was planned, if not by default.
    fn how(&self) -> String {
        let mut how = Vec::new();
        how.extend(self.engine.as_ref().map(|engine| format!("{engine} forced")));
        how.extend((!self.fused).then(|| "every operation alone".to_string()));
        how.extend((self.sizes == Sizes::Ranges).then(|| "planned for ranges".to_string()));
        match how.is_empty() {
            true => String::new(),
            false => format!(" ({})", how.join(", ")),
        }
    }
}

impl ConformanceReport {
    /// Appends another run, such as one on a different device.
    pub fn extend(&mut self, other: ConformanceReport) {
        self.devices.extend(other.devices);
        self.problems.extend(other.problems);
    }

    /// Lists everything that makes the run fail, as text; empty if it passed. Includes devices on
    /// which nothing passed and engines that were never used.
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong: Vec<String> = self.problems.iter().map(Problem::to_string).collect();
        wrong.extend(self.devices.iter().flat_map(DeviceReport::wrong));
        if self.devices.is_empty() && wrong.is_empty() {
            wrong.push("no device".into());
        }
        wrong
    }

    /// Returns whether nothing is wrong, as [`ConformanceReport::wrong`] lists it.
    pub fn passed(&self) -> bool {
        self.wrong().is_empty()
    }

    /// Asserts that the run passed, for tests.
    ///
    /// # Panics
    /// Panics if anything is wrong; the message lists every problem.
    #[track_caller]
    pub fn assert_passed(&self) {
        let wrong = self.wrong();
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    }

    /// Returns the report as JSON: each row with its accuracy, the first wrong element and both
    /// values, or the reason.
    pub fn to_json(&self) -> serde_json::Value {
        // Only numbers, strings and lists, which always serialise.
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl fmt::Display for ConformanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            writeln!(f, "{problem}")?;
        }
        self.devices.iter().try_for_each(|device| write!(f, "{device}"))
    }
}

impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |known: bool| {
            let rows = self.rows.iter().filter(|row| match row.verdict {
                Verdict::KnownToFail { .. } => known,
                Verdict::Unsupported { .. } => !known,
                _ => false,
            });
            rows.count()
        };
        let (cases, runs, seconds) = (self.cases, self.rows.len(), self.seconds);
        writeln!(
            f,
            "{}: {} of {runs} runs of {cases} cases passed, {} unsupported, {} known to fail, {seconds:.1} s",
            self.label,
            self.passed(),
            count(false),
            count(true),
        )?;
        for used in &self.engines {
            writeln!(f, "  {} was used in {} cases", used.engine, used.cases)?;
        }
        let worst = self.rows.iter().filter_map(|row| match row.verdict {
            Verdict::Pass(report) => Some((report.worst_share, row)),
            _ => None,
        });
        if let Some((share, row)) = worst.max_by(|a, b| a.0.total_cmp(&b.0)) {
            writeln!(f, "  nearest to its limit: {} with {:.0} %", row.case, 100.0 * share)?;
        }
        let mut shown = self.wrong();
        let mut reasons: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        for (row, reason) in self.unsupported().filter(|_| !self.complete) {
            reasons.entry(reason).or_insert((0, &row.case)).0 += 1;
        }
        let described = |(reason, (count, case)): (&str, (usize, &str))| match count {
            1 => format!("unsupported: {case}: {reason}"),
            _ => format!("unsupported: {count} such as {case}: {reason}"),
        };
        shown.extend(reasons.into_iter().map(described));
        for line in shown.iter().take(SHOWN) {
            writeln!(f, "  {line}")?;
        }
        match shown.len() > SHOWN {
            true => writeln!(f, "  and {} more", shown.len() - SHOWN),
            false => Ok(()),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::NoDevice { why } => write!(f, "the provider lists no device{why}"),
            Problem::NotOpened { device, why } => write!(f, "{device} does not open: {why}"),
            Problem::DeviceLost { case, left } => {
                write!(f, "the device was lost in {case}; {left} cases did not run")
            }
        }
    }
}
