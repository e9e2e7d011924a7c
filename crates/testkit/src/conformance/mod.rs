//! The conformance suite for third-party engines and providers: runs the case table and reports.
//!
//! # An engine
//!
//! The engine is forced wherever it applies: in every case, with and without fusion, for exact
//! sizes and for ranges of sizes. The report counts the cases that really used it. Zero is a
//! failure, with the reasons given by the engine.
//!
//! ```
//! use std::sync::Arc;
//! use warploom::engine::{Cost, Engine, EngineId, Lowering, Query, Registry};
//! use warploom_testkit::Conformance;
//! use warploom::{Result, Runtime};
//!
//! /// Softmax by a built-in engine; a real one lowers to its own kernels.
//! struct Mine(EngineId, Arc<dyn Engine>);
//!
//! impl Engine for Mine {
//!     fn id(&self) -> &EngineId {
//!         &self.0
//!     }
//!     fn applies(&self, query: &Query) -> Result<(), String> {
//!         self.1.applies(query)
//!     }
//!     fn cost(&self, query: &Query) -> Cost {
//!         self.1.cost(query)
//!     }
//!     fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
//!         self.1.lower(query, out)
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let runtime = Runtime::builder().device("cpu").build()?;
//! let inner = runtime.registry().get(&EngineId::new("catalogue.softmax")).unwrap().clone();
//! let mine = Arc::new(Mine(EngineId::new("acme.softmax"), inner));
//!
//! let report = Conformance::new().engine(mine).only("softmax/n").run(&runtime)?;
//! println!("{report}");
//! report.assert_passed();
//! # assert!(report.devices[0].engines[0].cases > 3);
//! # Ok(())
//! # }
//! ```
//!
//! Without `only` the whole table runs.
//!
//! # A provider
//!
//! Every listed device is opened with all its features, and again at WebGPU's floor if that is
//! less. Plans use the engines of this crate.
//!
//! ```
//! use warploom_testkit::Conformance;
//!
//! # fn main() -> warploom::Result<()> {
//! let provider = warploom_cpu::Provider;
//! Conformance::new().only("softmax/n").run_provider(&provider)?.assert_passed();
//! # Ok(())
//! # }
//! ```
//!
//! # Criteria
//!
//! A case passes if every output and state is within the row's tolerance. Before a run, memory is
//! filled with NaN; after it, the guard zones around buffers must be unchanged. A case that a
//! device reports as unsupported is `unsupported`, which is not a failure, unless
//! [`Conformance::complete`] is set. Known errors are declared with a reason ([`KnownFailure`]); a
//! declaration fails as soon as its case passes. The planted faults in [`super::faults`] show that
//! the suite itself can fail.
//!
//! # Stability
//!
//! [`Conformance`], its report and the planted faults are a public interface for other crates and
//! follow this crate's versioning. The case table grows between versions, so a provider may fail
//! new cases.

mod report;
mod run;

use std::sync::Arc;

pub use report::{ConformanceReport, DeviceReport, EngineUse, Problem, Row, Sizes, Verdict};

use warploom::engine::{Engine, EngineId, Knobs};
use warploom::provider::Provider;
use warploom::runtime::Runtime;
use warploom::{Error, Result};
use warploom_cases::{Case, KnownFailure, Tolerance};

/// Progress, reported before each case.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConformanceProgress<'a> {
    /// Label of the device, as in the report.
    pub device: &'a str,
    /// The next case.
    pub case: &'a str,
    /// Number of finished cases on this device.
    pub done: usize,
    /// Total number of cases on this device.
    pub total: usize,
}

/// A tolerance that replaces the table's; the report repeats its reason.
#[derive(Clone, Debug)]
struct Allowance {
    case: String,
    tolerance: Tolerance,
    reason: String,
}

type OnProgress = Box<dyn FnMut(ConformanceProgress<'_>)>;

/// The suite and its options.
#[derive(Default)]
#[must_use = "nothing runs until `run` or `run_provider`"]
pub struct Conformance {
    engines: Vec<Wanted>,
    table: Option<Vec<Case>>,
    only: Vec<String>,
    sample: usize,
    knobs: Knobs,
    known: Vec<KnownFailure>,
    allowances: Vec<Allowance>,
    complete: bool,
    label: Option<String>,
    progress: Option<OnProgress>,
}

warploom_core::base::debug_as!(Conformance, |this| only: this.only, label: this.label);

/// An engine under test.
enum Wanted {
    /// Provided by the caller.
    Given(Arc<dyn Engine>),
    /// From the runtime's registry.
    Registered(EngineId),
}

impl Wanted {
    fn id(&self) -> &EngineId {
        match self {
            Wanted::Given(engine) => engine.id(),
            Wanted::Registered(id) => id,
        }
    }
}

impl Conformance {
    /// Creates the suite of the whole table, with the engines that planning chooses.
    pub fn new() -> Conformance {
        Conformance::default()
    }

    /// Forces this engine wherever it applies. It is added to the runtime's registry for the run;
    /// cases in which it does not apply are skipped. Can be called several times; the engines are
    /// tested one after another.
    pub fn engine(mut self, engine: Arc<dyn Engine>) -> Conformance {
        self.engines.push(Wanted::Given(engine));
        self
    }

    /// Same as [`Conformance::engine`], for an engine in the runtime's registry.
    pub fn registered(mut self, engine: EngineId) -> Conformance {
        self.engines.push(Wanted::Registered(engine));
        self
    }

    /// Runs these cases instead of the table.
    pub fn cases(mut self, cases: Vec<Case>) -> Conformance {
        self.table = Some(cases);
        self
    }

    /// Runs only cases with this name prefix, such as `linear/`. Can be called for several
    /// prefixes.
    pub fn only(mut self, beginning: impl Into<String>) -> Conformance {
        self.only.push(beginning.into());
        self
    }

    /// Runs one of every `one_of` cases; 0 and 1 run all.
    pub fn sample(mut self, one_of: usize) -> Conformance {
        self.sample = one_of;
        self
    }

    /// Sets engine knobs.
    pub fn knobs(mut self, knobs: Knobs) -> Conformance {
        self.knobs = knobs;
        self
    }

    /// Declares known failures.
    pub fn known_failures(mut self, known: &[KnownFailure]) -> Conformance {
        self.known.extend_from_slice(known);
        self
    }

    /// Overrides the tolerance of cases with this name prefix. The report repeats the reason in
    /// each such row.
    pub fn tolerance(
        mut self,
        beginning: impl Into<String>,
        tolerance: Tolerance,
        reason: impl Into<String>,
    ) -> Conformance {
        let (case, reason) = (beginning.into(), reason.into());
        self.allowances.push(Allowance { case, tolerance, reason });
        self
    }

    /// Sets whether an unsupported case is a failure.
    pub fn complete(mut self, complete: bool) -> Conformance {
        self.complete = complete;
        self
    }

    /// Sets the label of the runtime's device in the report, instead of its id and name.
    pub fn label(mut self, label: impl Into<String>) -> Conformance {
        self.label = Some(label.into());
        self
    }

    /// Reports progress before each case.
    pub fn progress(
        mut self,
        on_progress: impl FnMut(ConformanceProgress<'_>) + 'static,
    ) -> Conformance {
        self.progress = Some(Box::new(on_progress));
        self
    }

    /// Runs the suite on the runtime's device with the runtime's planning options: its preferred,
    /// blocked and known-wrong engines apply.
    ///
    /// # Errors
    /// Invalid if a given engine is already registered, a requested one is not, or a prefix matches
    /// no case. Failures of the device are in the report.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn run(&mut self, runtime: &Runtime) -> Result<ConformanceReport> {
        warploom_core::base::platform::block_on(self.run_async(runtime))
    }

    /// Async version of [`Conformance::run`]. The polling thread plans and computes expected
    /// results.
    ///
    /// # Errors
    /// Same as [`Conformance::run`].
    pub async fn run_async(&mut self, runtime: &Runtime) -> Result<ConformanceReport> {
        let cases = self.chosen()?;
        let mut device = self.on_device(runtime, &cases, false, false).await?;
        if let Some(label) = &self.label {
            device.label.clone_from(label);
        }
        Ok(ConformanceReport { devices: vec![device], problems: Vec::new() })
    }

    /// Runs the suite on every device of a provider, with all its features and at WebGPU's floor.
    /// Findings and measurements stored on this machine are ignored.
    ///
    /// # Errors
    /// Same as [`Conformance::run`], and the provider's error if it cannot list its devices. A
    /// device that does not open, or an empty list, is a problem in the report.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn run_provider(&mut self, provider: &dyn Provider) -> Result<ConformanceReport> {
        warploom_core::base::platform::block_on(self.run_provider_async(provider))
    }

    /// Async version of [`Conformance::run_provider`]. The polling thread plans, computes expected
    /// results, and may be blocked by the provider's own futures.
    ///
    /// # Errors
    /// Same as [`Conformance::run_provider`].
    pub async fn run_provider_async(
        &mut self,
        provider: &dyn Provider,
    ) -> Result<ConformanceReport> {
        self.on_provider(provider).await
    }

    /// Returns the selected cases.
    ///
    /// # Errors
    /// Invalid if a prefix matches no case.
    fn chosen(&self) -> Result<Vec<Case>> {
        let table = self.table.clone().unwrap_or_else(super::cases);
        for beginning in &self.only {
            if !table.iter().any(|case| case.name.starts_with(beginning)) {
                return Err(Error::invalid(format!("no case name starts with {beginning:?}")));
            }
        }
        let wanted = |case: &Case| {
            self.only.is_empty() || self.only.iter().any(|b| case.name.starts_with(b))
        };
        Ok(table.into_iter().filter(wanted).step_by(self.sample.max(1)).collect())
    }
}
