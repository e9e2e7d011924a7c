//! Executes the suite: plans each case and judges the results.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::report::{ConformanceReport, DeviceReport, EngineUse, Problem, Row, Sizes};
use super::{Conformance, ConformanceProgress, OnProgress, Wanted};
use warploom::engine::{DriverKey, EngineId, Registry};
use warploom::graph::NodeId;
use warploom::plan::{Candidates, Options, Plan, Selector, candidates};
use warploom::provider::{DeviceProfile, OpenOptions, Provider};
use warploom::runtime::{Runtime, SyncMode, run_plan_async};
use warploom::{Error, Result};
use warploom_cases::{Case, Failure, Outcome, declared, judge};
use warploom_core::base::ShapeClass;
use warploom_core::base::platform::Clock;
use warploom_core::reference::{self, Evaluation};

/// State of a run on one device.
struct Bench<'a> {
    suite: &'a Conformance,
    runtime: &'a Runtime,
    registry: Registry,
    /// Whether findings and measurements stored on this machine are ignored.
    trusting: bool,
    uses: Vec<EngineUse>,
    /// Indices in `uses` of engines already counted for the current case.
    counted: BTreeSet<usize>,
    rows: Vec<Row>,
}

/// A case with its tolerance on a device.
struct Held<'a> {
    case: Cow<'a, Case>,
    note: String,
    expected: Result<Evaluation<'a>>,
}

impl Conformance {
    pub(super) async fn on_provider(
        &mut self,
        provider: &dyn Provider,
    ) -> Result<ConformanceReport> {
        let (mut found, cases) = (ConformanceReport::default(), self.chosen()?);
        let profiles = provider.list().await?;
        if profiles.is_empty() {
            let why = provider.absence().map_or(String::new(), |why| format!(": {why}"));
            found.problems.push(Problem::NoDevice { why });
        }
        for (index, listed) in profiles.iter().enumerate() {
            let mut whole = None;
            for floor in [false, true] {
                let options = OpenOptions { floor, ..OpenOptions::default() };
                let device = match provider.open(index, options).await {
                    Ok(device) => device,
                    Err(error) => {
                        let (device, why) = (listed.id(), error.to_string());
                        found.problems.push(Problem::NotOpened { device, why });
                        break;
                    }
                };
                let profile = device.profile().clone();
                // A device without more than the floor would only repeat the same run.
                if whole.as_ref() == Some(&profile) {
                    break;
                }
                let runtime = Runtime::on(device, SyncMode::Lazy, None)?;
                found.devices.push(self.on_device(&runtime, &cases, floor, true).await?);
                whole = Some(profile);
            }
        }
        Ok(found)
    }

    pub(super) async fn on_device(
        &mut self,
        runtime: &Runtime,
        cases: &[Case],
        floor: bool,
        trusting: bool,
    ) -> Result<DeviceReport> {
        let mut on_progress = self.progress.take();
        let found = self.examined(runtime, cases, floor, trusting, &mut on_progress).await;
        self.progress = on_progress;
        found
    }

    async fn examined(
        &self,
        runtime: &Runtime,
        cases: &[Case],
        floor: bool,
        trusting: bool,
        on_progress: &mut Option<OnProgress>,
    ) -> Result<DeviceReport> {
        let clock = Clock::now();
        let profile = runtime.device().profile();
        let at = if floor { " at the floor" } else { "" };
        let label = format!("{} {:?}{at}", profile.id(), profile.name);
        let mut bench = Bench::new(self, runtime, trusting)?;
        let mut problems = Vec::new();
        let cases: Vec<&Case> = cases.iter().filter(|case| case.is_for(profile.kind)).collect();
        for (done, case) in cases.iter().enumerate() {
            if let Some(on_progress) = on_progress.as_mut() {
                let (device, total) = (label.as_str(), cases.len());
                on_progress(ConformanceProgress { device, case: &case.name, done, total });
            }
            if bench.case(case).await? {
                let left = cases.len() - done - 1;
                problems.push(Problem::DeviceLost { case: case.name.clone(), left });
                break;
            }
        }
        let Bench { uses: engines, rows, .. } = bench;
        Ok(DeviceReport {
            label,
            device: DriverKey::of(profile),
            floor,
            cases: cases.len(),
            rows,
            engines,
            problems,
            seconds: clock.elapsed().as_secs_f64(),
            complete: self.complete,
        })
    }

    /// Returns a case with its tolerance on this device, and the reason if that is not the table's.
    fn held<'c>(&self, case: &'c Case, runtime: &Runtime) -> (Cow<'c, Case>, String) {
        let allowed = self.allowances.iter().find(|row| case.name.starts_with(&row.case));
        if let Some(row) = allowed {
            let own = Case { tolerance: row.tolerance, ..case.clone() };
            return (Cow::Owned(own), row.reason.clone());
        }
        if runtime.f16_accumulate() {
            let own = case.with_f16_accumulate().on(runtime.device().profile()).into_owned();
            return (Cow::Owned(own), "sums may be f16".into());
        }
        match case.on(runtime.device().profile()) {
            Cow::Owned(own) => (Cow::Owned(own), "tensor cores take f16".into()),
            same => (same, String::new()),
        }
    }
}

impl<'a> Bench<'a> {
    fn new(suite: &'a Conformance, runtime: &'a Runtime, trusting: bool) -> Result<Bench<'a>> {
        let mut registry = runtime.registry().clone();
        let mut uses: Vec<EngineUse> = Vec::new();
        for wanted in &suite.engines {
            match wanted {
                Wanted::Given(engine) => registry.add(engine.clone())?,
                Wanted::Registered(id) if registry.get(id).is_some() => {}
                Wanted::Registered(id) => {
                    return Err(Error::invalid(format!("no engine {id} is registered")));
                }
            }
            let (engine, refused) = (wanted.id().clone(), BTreeMap::new());
            uses.push(EngineUse { engine, cases: 0, refused });
        }
        let (counted, rows) = (BTreeSet::new(), Vec::new());
        Ok(Bench { suite, runtime, registry, trusting, uses, counted, rows })
    }

    fn options(&self, fused: bool) -> Options<'_> {
        let mut options = Options { registry: &self.registry, ..self.runtime.plan_options() };
        options.knobs = self.suite.knobs.clone();
        if !fused {
            options.without.push("fuse".into());
        }
        if self.trusting {
            options.known_wrong.clear();
            options.tuned.clear();
        }
        options
    }

    /// Runs a case in every variant; returns whether the device was lost.
    async fn case(&mut self, case: &Case) -> Result<bool> {
        self.counted.clear();
        let (held, note) = self.suite.held(case, self.runtime);
        let tensors = case.tensors();
        let expected = reference::eval(&case.graph, &case.symbols, &tensors);
        let held = Held { case: held, note, expected };
        let classes = [(Sizes::Exact, Some(ShapeClass::exact(&case.symbols)))];
        for (sizes, class) in classes.into_iter().chain([(Sizes::Ranges, ranges(case))]) {
            let Some(class) = class else { continue };
            if self.uses.is_empty() {
                let options = self.options(true);
                let plan = Plan::new(&case.graph, &class, self.profile(), &options);
                let (verdict, lost) = self.judged(&held, plan).await;
                self.note(&held, sizes, None, true, verdict);
                if lost {
                    return Ok(true);
                }
            }
            if self.forced(&held, sizes, &class).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs a case with each engine forced wherever it applies; returns whether the device was
    /// lost.
    async fn forced(&mut self, held: &Held<'_>, sizes: Sizes, class: &ShapeClass) -> Result<bool> {
        if self.uses.is_empty() {
            return Ok(false);
        }
        let mut done: Vec<Vec<Candidates>> = Vec::new();
        for fused in [true, false] {
            let pieces = match self.pieces(held, class, fused) {
                Ok(pieces) => pieces,
                // Another operation of the case cannot be planned here.
                Err(error) if error.is_unsupported() => {
                    (0..self.uses.len()).for_each(|engine| self.refuse(engine, error.to_string()));
                    continue;
                }
                Err(error) => return Err(error.context(&held.case.name)),
            };
            // Without fusion the second plan equals the first.
            let nodes = |pieces: &[Candidates]| -> Vec<Vec<NodeId>> {
                pieces.iter().map(|piece| piece.nodes.clone()).collect()
            };
            if done.iter().any(|other| nodes(other) == nodes(&pieces)) {
                continue;
            }
            for engine in 0..self.uses.len() {
                if self.through(held, sizes, class, engine, fused, &pieces).await {
                    return Ok(true);
                }
            }
            done.push(pieces);
        }
        Ok(false)
    }

    /// Returns the groups of a case, with the engines that can and cannot execute each.
    fn pieces(&self, held: &Held<'_>, class: &ShapeClass, fused: bool) -> Result<Vec<Candidates>> {
        candidates(&held.case.graph, class, self.profile(), &self.options(fused))
    }

    /// Runs a case with one engine forced in the groups to which it applies; returns whether the
    /// device was lost.
    async fn through(
        &mut self,
        held: &Held<'_>,
        sizes: Sizes,
        class: &ShapeClass,
        engine: usize,
        fused: bool,
        pieces: &[Candidates],
    ) -> bool {
        let id = self.uses[engine].engine.clone();
        let can = |piece: &&Candidates| piece.can.iter().any(|offer| offer.engine == id);
        let nodes = pieces.iter().filter(can).map(|piece| Selector::Node(piece.node));
        let force: Vec<(Selector, EngineId)> = nodes.map(|node| (node, id.clone())).collect();
        for (_, reason) in pieces.iter().flat_map(|p| &p.cannot).filter(|(own, _)| *own == id) {
            self.refuse(engine, reason.clone());
        }
        if force.is_empty() {
            return false;
        }
        let options = Options { force, ..self.options(fused) };
        let plan = Plan::new(&held.case.graph, class, self.profile(), &options);
        drop(options);
        let taken = |plan: &Plan| plan.choices.iter().any(|c| c.engine.as_ref() == Some(&id));
        if plan.as_ref().is_ok_and(|plan| !taken(plan)) {
            self.refuse(engine, "plans leave it out although it is forced".into());
            return false;
        }
        let planned = plan.is_ok();
        let (outcome, lost) = self.judged(held, plan).await;
        let ran = match &outcome {
            // An empty result proves nothing.
            Outcome::Pass(report) => report.elements > 0,
            Outcome::Fail(_) => planned,
            Outcome::Unsupported(_) => false,
            // Neither does a declared failure: an engine with only declared failures has proven
            // nothing.
            Outcome::KnownToFail(reason) => {
                self.refuse(engine, format!("known to fail: {reason}"));
                false
            }
        };
        self.uses[engine].cases += usize::from(ran && self.counted.insert(engine));
        self.note(held, sizes, Some(id), fused, outcome);
        lost
    }

    fn refuse(&mut self, engine: usize, reason: String) {
        *self.uses[engine].refused.entry(reason).or_default() += 1;
    }

    fn profile(&self) -> &'a DeviceProfile {
        self.runtime.device().profile()
    }

    /// Runs a plan with poisoned memory and guard zones; returns the outcome, and whether the
    /// device was lost.
    async fn judged(&self, held: &Held<'_>, plan: Result<Plan>) -> (Outcome, bool) {
        let (case, profile) = (&*held.case, self.profile());
        let expected = match &held.expected {
            Ok(expected) => expected,
            Err(error) => {
                let what = format!("{}: the reference: {error}", case.name);
                return (Outcome::Fail(Failure::new(what)), false);
            }
        };
        let actual = match plan {
            Ok(plan) => {
                let (graph, symbols) = (&case.graph, &case.symbols);
                run_plan_async(self.runtime, graph, plan, symbols, &case.bytes(), true).await
            }
            Err(error) => Err(error),
        };
        let lost = actual.as_ref().is_err_and(Error::is_device_lost);
        let outcome = judge(case, expected, actual);
        (declared(&self.suite.known, &profile.name, &profile.driver, case, outcome), lost)
    }

    fn note(
        &mut self,
        held: &Held<'_>,
        sizes: Sizes,
        engine: Option<EngineId>,
        fused: bool,
        outcome: Outcome,
    ) {
        let (case, note) = (held.case.name.clone(), held.note.clone());
        self.rows.push(Row { case, sizes, engine, fused, note, verdict: outcome.into() });
    }
}

/// Returns ranges of each symbol that include larger values than this run needs, as in a decoder's
/// plans.
fn ranges(case: &Case) -> Option<ShapeClass> {
    case.symbols.iter().fold(None, |class, (symbol, value)| {
        Some(class.unwrap_or_default().with(symbol, value.min(1), value * 2 + 3))
    })
}
