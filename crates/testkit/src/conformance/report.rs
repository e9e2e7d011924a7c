//! What a run of the suite found, as data and as text.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use warploom::engine::{DriverKey, EngineId};
use warploom_cases::{Failure, Outcome, Report};

/// Rows of one kind that the text shows.
const SHOWN: usize = 20;

/// What a run of the suite found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ConformanceReport {
    /// Each device, with all it has or at the floor.
    pub devices: Vec<DeviceReport>,
    /// What is wrong besides with the provider as a whole.
    pub problems: Vec<Problem>,
}

/// What a run found on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DeviceReport {
    /// `cpu:0 "avx512"`, with `at the floor` where it is.
    pub label: String,
    /// The device as its driver tells it.
    pub device: DriverKey,
    /// Whether [`Conformance::run_provider`](super::Conformance::run_provider) opened it with WebGPU's guaranteed limits and
    /// nothing more.
    pub floor: bool,
    /// Cases that were asked for.
    pub cases: usize,
    /// Every run, in the order of the table.
    pub rows: Vec<Row>,
    /// Each engine that was asked for, in that order.
    pub engines: Vec<EngineUse>,
    /// What is wrong besides with the device as a whole.
    pub problems: Vec<Problem>,
    /// Seconds that it took.
    pub seconds: f64,
    /// Whether what is unsupported counts as a failure.
    pub complete: bool,
}

/// Something wrong that is no row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Problem {
    /// The provider lists no device.
    NoDevice {
        /// Why, as far as it says.
        why: String,
    },
    /// A device that is listed does not open.
    NotOpened {
        /// `provider:index`.
        device: String,
        /// What the provider says.
        why: String,
    },
    /// The device was lost; nothing ran after this case.
    DeviceLost {
        /// The case.
        case: String,
        /// Cases that did not run for that.
        left: usize,
    },
}

/// For which sizes a case was planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Sizes {
    /// Those of the run.
    Exact,
    /// Ranges with room for more than the run needs, as a decoder's plans have.
    Ranges,
}

/// One run of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The case, by its name in the table.
    pub case: String,
    /// For which sizes it was planned.
    pub sizes: Sizes,
    /// The engine that was forced, if one was.
    pub engine: Option<EngineId>,
    /// Whether operations that may be one kernel were.
    pub fused: bool,
    /// Why the tolerance is not that of the table; empty where it is.
    pub note: String,
    /// What came of it.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// Every number is right; how close they are.
    Pass(Report),
    /// Something is wrong: the first number that is, or why there is none.
    Fail(Failure),
    /// The device, or its engines, say that they cannot.
    Unsupported {
        /// Why.
        reason: String,
    },
    /// Wrong, as it is declared to be.
    KnownToFail {
        /// Why.
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

/// How an engine that was asked for was used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EngineUse {
    /// The engine.
    pub engine: EngineId,
    /// Cases in which it was in a plan that ran, but for those that are declared to fail.
    pub cases: usize,
    /// Why not in others, with the number of pieces: what it said itself, what the planner did, or the
    /// declaration, with the number of runs.
    pub refused: BTreeMap<String, usize>,
}

impl DeviceReport {
    /// Rows that passed.
    pub fn passed(&self) -> usize {
        self.rows.iter().filter(|row| matches!(row.verdict, Verdict::Pass(_))).count()
    }

    /// Rows that failed.
    pub fn failures(&self) -> impl Iterator<Item = (&Row, &Failure)> {
        self.rows.iter().filter_map(|row| match &row.verdict {
            Verdict::Fail(failure) => Some((row, failure)),
            _ => None,
        })
    }

    /// Rows that are unsupported, with the reason.
    pub fn unsupported(&self) -> impl Iterator<Item = (&Row, &str)> {
        self.rows.iter().filter_map(|row| match &row.verdict {
            Verdict::Unsupported { reason } => Some((row, reason.as_str())),
            _ => None,
        })
    }

    /// Everything that keeps the device from passing, in words.
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
    /// How the run was planned, where that is not the usual way.
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
    /// Adds what another run found, such as that of another device.
    pub fn extend(&mut self, other: ConformanceReport) {
        self.devices.extend(other.devices);
        self.problems.extend(other.problems);
    }

    /// Everything that keeps the run from passing, in words; empty where it passed. A device on which nothing passed
    /// and an engine that was used nowhere are among it.
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong: Vec<String> = self.problems.iter().map(Problem::to_string).collect();
        wrong.extend(self.devices.iter().flat_map(DeviceReport::wrong));
        if self.devices.is_empty() && wrong.is_empty() {
            wrong.push("no device".into());
        }
        wrong
    }

    /// Whether every case passed that can run.
    pub fn passed(&self) -> bool {
        self.wrong().is_empty()
    }

    /// For tests: stops where something is wrong.
    ///
    /// # Panics
    /// With everything that is wrong, where anything is.
    #[track_caller]
    pub fn assert_passed(&self) {
        let wrong = self.wrong();
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    }

    /// All of it as JSON: each row with how close it is, the first wrong element and both values, or the reason.
    pub fn to_json(&self) -> serde_json::Value {
        // Numbers, texts and lists: there is nothing in it that JSON cannot hold.
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
        let told = |(reason, (count, case)): (&str, (usize, &str))| match count {
            1 => format!("unsupported: {case}: {reason}"),
            _ => format!("unsupported: {count} such as {case}: {reason}"),
        };
        shown.extend(reasons.into_iter().map(told));
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
