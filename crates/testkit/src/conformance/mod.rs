//! The conformance suite, for engines and providers of anybody: the table of cases, run and told.
//!
//! # An engine
//!
//! It is forced wherever it says that it applies, in every case, in plans that fuse and in plans that do not, for
//! exact sizes and for ranges of sizes. The report says in how many cases it was really used; none is a failure, with
//! the reasons that the engine gave.
//!
//! ```
//! use std::sync::Arc;
//! use warploom::engine::{Cost, Engine, EngineId, Lowering, Query, Registry};
//! use warploom::testkit::Conformance;
//! use warploom::{Result, Runtime};
//!
//! /// Softmax, by way of an engine of the crate; one of your own lowers to kernels of its own.
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
//! Leave `only` out to run the whole table.
//!
//! # A provider
//!
//! Every device that it lists is opened with all it has, and once more at WebGPU's floor where that is less; plans
//! are made with the engines of this crate.
//!
//! ```
//! use warploom::testkit::Conformance;
//!
//! # fn main() -> warploom::Result<()> {
//! let provider = warploom::cpu::Provider;
//! Conformance::new().only("softmax/n").run_provider(&provider)?.assert_passed();
//! # Ok(())
//! # }
//! ```
//!
//! # What is held to be right
//!
//! A case passes when every output and state is within the tolerance of its row, memory was full of NaN before, and the
//! guard zones around buffers are as they were. A case that a device says it cannot do is `unsupported`, which is an
//! answer, unless [`Conformance::complete`] is asked for. What is known to be wrong is declared with its reason
//! ([`KnownFailure`]), and the declaration fails as soon as the case passes. That the suite itself can fail is
//! shown by [`super::faults`].
//!
//! # Stable
//!
//! [`Conformance`], its report and the planted faults are meant for other crates: they change as a public interface does. The
//! table of cases grows from version to version, and so may a provider's failures.

mod report;
mod run;

use std::sync::Arc;

pub use report::{ConformanceReport, DeviceReport, EngineUse, Problem, Row, Sizes, Verdict};

use warploom::engine::{Engine, EngineId, Knobs};
use warploom::error::{Error, Result};
use warploom::provider::Provider;
use warploom::runtime::Runtime;
use warploom_cases::{Case, KnownFailure, Tolerance};

/// Told before each case.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConformanceProgress<'a> {
    /// The device, as its report calls it.
    pub device: &'a str,
    /// The case that comes next.
    pub case: &'a str,
    /// Cases done on this device.
    pub done: usize,
    /// Cases to do on this device.
    pub total: usize,
}

/// A tolerance in the place of that of the table, with its reason, which the report repeats.
#[derive(Clone, Debug)]
struct Allowance {
    case: String,
    tolerance: Tolerance,
    reason: String,
}

type OnProgress = Box<dyn FnMut(ConformanceProgress<'_>)>;

/// The suite with what is asked of it.
#[derive(Default)]
#[must_use = "nothing runs before `run` or `run_provider`"]
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

warploom::base::debug_as!(Conformance, |this| only: this.only, label: this.label);

/// An engine that cases run through.
enum Wanted {
    /// Given by the caller.
    Given(Arc<dyn Engine>),
    /// One of the runtime's registry.
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
    /// The whole table, with the engines that plans choose by themselves.
    pub fn new() -> Conformance {
        Conformance::default()
    }

    /// Forces this engine wherever it applies. It is added to the runtime's registry for the run; cases in which it does
    /// not apply are left out. May be called for several, which are then examined one after another.
    pub fn engine(mut self, engine: Arc<dyn Engine>) -> Conformance {
        self.engines.push(Wanted::Given(engine));
        self
    }

    /// The same for an engine that the runtime's registry has.
    pub fn registered(mut self, engine: EngineId) -> Conformance {
        self.engines.push(Wanted::Registered(engine));
        self
    }

    /// Runs these cases in the place of the table, such as a few rows of one's own.
    pub fn cases(mut self, cases: Vec<Case>) -> Conformance {
        self.table = Some(cases);
        self
    }

    /// Runs only cases whose names begin so: `linear/`, `rms_norm/`. May be called for several beginnings.
    pub fn only(mut self, beginning: impl Into<String>) -> Conformance {
        self.only.push(beginning.into());
        self
    }

    /// Runs one case of so many; 0 and 1 run all.
    pub fn sample(mut self, one_of: usize) -> Conformance {
        self.sample = one_of;
        self
    }

    /// Sets knobs of engines.
    pub fn knobs(mut self, knobs: Knobs) -> Conformance {
        self.knobs = knobs;
        self
    }

    /// Declares what is known to be wrong.
    pub fn known_failures(mut self, known: &[KnownFailure]) -> Conformance {
        self.known.extend_from_slice(known);
        self
    }

    /// Takes another tolerance for cases whose names begin so, with the reason, which the report repeats in each such row.
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

    /// Whether a case that is unsupported is a failure.
    pub fn complete(mut self, complete: bool) -> Conformance {
        self.complete = complete;
        self
    }

    /// What the report calls the device of a runtime, in the place of its id and name.
    pub fn label(mut self, label: impl Into<String>) -> Conformance {
        self.label = Some(label.into());
        self
    }

    /// Tells what comes next.
    pub fn progress(mut self, told: impl FnMut(ConformanceProgress<'_>) + 'static) -> Conformance {
        self.progress = Some(Box::new(told));
        self
    }

    /// Runs the suite on the device of a runtime, with the plans that this runtime makes: engines that it prefers, blocks or
    /// knows to be wrong are so here.
    ///
    /// # Errors
    /// Invalid, for an engine that is registered already or not at all, and for names with which no case begins. What a
    /// device does wrong is no error; the report has it.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn run(&mut self, runtime: &Runtime) -> Result<ConformanceReport> {
        warploom::base::platform::block_on(self.run_async(runtime))
    }

    /// As [`Conformance::run`], as a future. On native builds it blocks the thread that polls it.
    ///
    /// # Errors
    /// As [`Conformance::run`].
    pub async fn run_async(&mut self, runtime: &Runtime) -> Result<ConformanceReport> {
        let cases = self.chosen()?;
        let mut device = self.on_device(runtime, &cases, false, false).await?;
        if let Some(label) = &self.label {
            device.label.clone_from(label);
        }
        Ok(ConformanceReport { devices: vec![device], problems: Vec::new() })
    }

    /// Runs the suite on every device of a provider, with all it has and at WebGPU's floor. What was found on this machine
    /// before, or measured, does not count.
    ///
    /// # Errors
    /// As [`Conformance::run`]; what the provider says when it cannot list its devices. One that does not open, or
    /// none at all, is a problem in the report.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn run_provider(&mut self, provider: &dyn Provider) -> Result<ConformanceReport> {
        warploom::base::platform::block_on(self.run_provider_async(provider))
    }

    /// As [`Conformance::run_provider`], as a future. On native builds it blocks the thread that
    /// polls it.
    ///
    /// # Errors
    /// As [`Conformance::run_provider`].
    pub async fn run_provider_async(
        &mut self,
        provider: &dyn Provider,
    ) -> Result<ConformanceReport> {
        self.on_provider(provider).await
    }

    /// The cases that are asked for.
    ///
    /// # Errors
    /// Invalid, for a beginning that no case has.
    fn chosen(&self) -> Result<Vec<Case>> {
        let table = self.table.clone().unwrap_or_else(super::cases);
        for beginning in &self.only {
            if !table.iter().any(|case| case.name.starts_with(beginning)) {
                return Err(Error::invalid(format!(
                    "no case of the table has a name that begins with {beginning:?}"
                )));
            }
        }
        let wanted = |case: &Case| {
            self.only.is_empty() || self.only.iter().any(|b| case.name.starts_with(b))
        };
        Ok(table.into_iter().filter(wanted).step_by(self.sample.max(1)).collect())
    }
}
