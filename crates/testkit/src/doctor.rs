//! Tests a device: every engine against the reference, on the installed driver.
//!
//! Cases are rows of the conformance table. An engine is tested in cases in which a plan for the
//! device could use it ([`candidates`]). It is forced in them and runs with poisoned memory and
//! guard zones. Each engine is tested once before any is tested twice, starting with those that
//! estimates choose for a case. More cases follow until the time limit. On a software GPU, which
//! takes seconds to compile, the limit may pass before every engine is tested; the remaining ones
//! are reported. Cases that use only the engine under test run first. Other cases exclude engines
//! already found wrong, so that an error is attributed to the right engine.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use warploom::Result;
use warploom::engine::{Block, DriverKey, EngineId, Sums};
use warploom::graph::{NodeId, Op};
use warploom::plan::{Offer, Options, Plan, Selector, candidates};
use warploom::runtime::{Findings, Runtime, WrongEngine, run_plan_async};
use warploom_cases::{Case, NamedBytes, Report, agree, worse};
use warploom_core::base::ShapeClass;
use warploom_core::base::platform::Clock;
use warploom_core::reference;

/// Approximate number of multiplications above which the reference takes too long.
const MOST_WORK: u64 = 1 << 20;

/// Time limits of a test run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Seconds after which no engine gets another case.
    pub seconds: f64,
    /// Seconds, if later than `seconds`, after which no engine gets its first case. The remaining
    /// engines are reported as skipped; they are those that plans choose last.
    pub first_seconds: f64,
    /// Maximum number of cases per engine, at least one.
    pub cases: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { seconds: 10.0, first_seconds: 16.0, cases: 8 }
    }
}

/// Results of testing a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Examination {
    /// The device.
    pub device: DriverKey,
    /// Every engine of the registry, in order.
    pub engines: Vec<Examined>,
    /// Engines without a case before the time limit; nothing is known about them.
    pub left_out: Vec<EngineId>,
    /// Duration in seconds.
    pub seconds: f64,
}

/// An engine and its finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Examined {
    /// The engine.
    pub engine: EngineId,
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
}

/// Result for one engine.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// Every value of every case is within its limit.
    Right {
        /// Number of cases.
        cases: usize,
        /// Number of values compared.
        elements: usize,
        /// The largest error as a share of its limit, 0 to 1.
        worst_share: f64,
    },
    /// A value is wrong.
    Wrong {
        /// Name of the case in the table.
        case: String,
        /// The output or state.
        tensor: String,
        /// Row-major index of the first wrong element; `None` if the tensor as a whole is wrong.
        index: Option<usize>,
        /// Expected value; `null` in JSON if not finite (`what` contains it).
        expected: Option<f64>,
        /// Actual value; `null` in JSON if not finite (`what` contains it).
        got: Option<f64>,
        /// Description: index on each axis, both values, error, limit, number of wrong values.
        what: String,
        /// Other engines in that plan; none of them had been found wrong before.
        other_engines: Vec<EngineId>,
    },
    /// The driver rejects a kernel of the engine, or a kernel writes outside its buffers.
    Failed {
        /// Name of the case in the table.
        case: String,
        /// The driver's error, or that of the guard zones.
        what: String,
    },
    /// Not tested on this device.
    NotExamined {
        /// The reason.
        why: String,
    },
}

impl Finding {
    /// Returns the description of the error with its case; `None` if there is no error.
    pub fn complaint(&self) -> Option<String> {
        match self {
            Finding::Wrong { case, tensor, what, .. } => {
                Some(format!("{case}: {tensor:?}: {what}"))
            }
            Finding::Failed { case, what } => Some(format!("{case}: {what}")),
            Finding::Right { .. } | Finding::NotExamined { .. } => None,
        }
    }
}

impl Examination {
    /// Returns the findings to store: the wrong engines. Earlier findings (`before`) on untested
    /// engines are kept.
    pub fn findings(&self, before: Option<&Findings>) -> Findings {
        let known = before.map(|before| before.wrong.as_slice()).unwrap_or_default();
        let wrong = self.engines.iter().filter_map(|examined| match &examined.finding {
            Finding::NotExamined { .. } => {
                known.iter().find(|wrong| wrong.engine == examined.engine).cloned()
            }
            finding => finding
                .complaint()
                .map(|what| WrongEngine { engine: examined.engine.clone(), what }),
        });
        Findings::new(self.device.clone(), wrong.collect())
    }
}

/// A case that can test an engine.
struct Meeting {
    case: usize,
    node: NodeId,
    alone: bool,
    work: u64,
    /// Whether the engine accumulates in f16.
    f16_accumulate: bool,
}

/// An engine under test.
struct Patient {
    engine: EngineId,
    meetings: Vec<Meeting>,
    /// Whether it has the best estimate of the default engines in at least one case.
    wanted: bool,
    /// Why it was not tested, if known.
    refused: String,
    passed: usize,
    report: Report,
    wrong: Option<Finding>,
}

/// Blocking version of [`examine_async`].
///
/// # Errors
/// Same as [`examine_async`].
#[cfg(not(target_arch = "wasm32"))]
pub fn examine(
    runtime: &Runtime,
    cases: &[Case],
    limits: &Limits,
    progress: &mut dyn FnMut(usize, usize, &EngineId),
) -> Result<Examination> {
    warploom_core::base::platform::block_on(examine_async(runtime, cases, limits, progress))
}

/// Tests every engine of a runtime on its device; the polling thread plans and computes expected
/// results. `progress` receives the number of engines tested at least once, the number that can be
/// tested, and the next engine.
///
/// # Errors
/// Invalid if a case cannot be planned. Errors of an engine or the driver are findings.
pub async fn examine_async(
    runtime: &Runtime,
    cases: &[Case],
    limits: &Limits,
    progress: &mut dyn FnMut(usize, usize, &EngineId),
) -> Result<Examination> {
    let clock = Clock::now();
    let mut patients = patients(runtime, cases)?;
    let device = DriverKey::of(runtime.device().profile());
    let order = order(&patients);
    let total = patients.iter().filter(|patient| !patient.meetings.is_empty()).count();
    let (mut known, mut met, mut left_out) = (Vec::new(), 0, Vec::new());
    let first_seconds = limits.first_seconds.max(limits.seconds);
    // No engine has cases for more rounds than this.
    let rounds = patients.iter().map(|patient| patient.meetings.len()).max().unwrap_or(0);
    'all: for round in 0..rounds.min(limits.cases.max(1)) {
        for i in &order {
            let patient = &mut patients[*i];
            if patient.wrong.is_some() || round >= patient.meetings.len() {
                continue;
            }
            if round > 0 && clock.elapsed().as_secs_f64() > limits.seconds {
                break 'all;
            }
            if round == 0 && clock.elapsed().as_secs_f64() > first_seconds {
                patient.refused = format!("it had no case in {first_seconds} s");
                left_out.push(patient.engine.clone());
                continue;
            }
            progress(met, total, &patient.engine);
            met += usize::from(round == 0);
            let lost = patient.meet(runtime, cases, round, &known).await;
            if let Some(what) = patient.wrong.as_ref().and_then(Finding::complaint) {
                let (device, engine) = (device.clone(), patient.engine.clone());
                known.push(Block { device, engine, reason: format!("wrong in {what}") });
            }
            if lost {
                let by = format!("the device was lost by {}", patient.engine);
                patients.iter_mut().for_each(|patient| patient.refused.clone_from(&by));
                break 'all;
            }
        }
    }
    let engines = patients.into_iter().map(Patient::discharged).collect();
    Ok(Examination { device, engines, left_out, seconds: clock.elapsed().as_secs_f64() })
}

/// Returns indices in test order: first engines with cases that only they use, then those that
/// plans use. Among these, one engine of each family comes before the second of any, so that an
/// early stop still covers every kind of operation.
fn order(patients: &[Patient]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..patients.len()).collect();
    let first = |i: usize| {
        let patient = &patients[i];
        Reverse((patient.meetings.first().is_some_and(|m| m.alone), patient.wanted))
    };
    order.sort_by_key(|i| first(*i));
    let mut met: BTreeMap<_, usize> = BTreeMap::new();
    let mut turns = vec![0; patients.len()];
    for i in &order {
        let mut words = patients[*i].engine.as_str().split('.');
        let turn = met.entry((first(*i), words.next(), words.next())).or_default();
        turns[*i] = *turn;
        *turn += 1;
    }
    order.sort_by_key(|i| (first(*i), turns[*i]));
    order
}

/// Returns every engine of the registry with the cases that can test it, in test order.
fn patients(runtime: &Runtime, cases: &[Case]) -> Result<Vec<Patient>> {
    let profile = runtime.device().profile();
    let options = Options { f16_accumulate: true, ..Options::new(runtime.registry()) };
    let engines = runtime.registry().engines();
    let mut patients: BTreeMap<EngineId, Patient> =
        engines.iter().map(|engine| (engine.id().clone(), Patient::new(engine.id()))).collect();
    for (number, case) in cases.iter().enumerate() {
        let work = work(case)?;
        if work == 0 || work > MOST_WORK {
            continue;
        }
        let class = ShapeClass::exact(&case.symbols);
        let pieces = match candidates(&case.graph, &class, profile, &options) {
            Ok(pieces) => pieces,
            // Too large for this device, or for these engines.
            Err(error) if error.is_unsupported() => continue,
            Err(error) => return Err(error.context(&case.name)),
        };
        let alone = pieces.len() == 1;
        for piece in pieces {
            // The best engine among those that plans use by default.
            let best = piece.can.iter().find(|offer| !accumulates_in_f16(offer));
            if let Some(best) = best.and_then(|b| patients.get_mut(&b.engine)) {
                best.wanted = true;
            }
            for offer in &piece.can {
                let Some(patient) = patients.get_mut(&offer.engine) else { continue };
                // One group per case is enough.
                if patient.meetings.last().is_none_or(|last| last.case != number) {
                    let node = piece.node;
                    let f16_accumulate = accumulates_in_f16(offer);
                    patient.meetings.push(Meeting {
                        case: number,
                        node,
                        alone,
                        work,
                        f16_accumulate,
                    });
                }
            }
            for (engine, reason) in &piece.cannot {
                if let Some(patient) = patients.get_mut(engine) {
                    patient.refused.clone_from(reason);
                }
            }
        }
    }
    let in_order = engines.iter().filter_map(|engine| patients.remove(engine.id()));
    Ok(in_order.map(Patient::sorted).collect())
}

fn accumulates_in_f16(offer: &Offer) -> bool {
    offer.notes.sums == Sums::F16
}

/// Returns the approximate number of multiplications of a case; 0 if it has no values to compare.
fn work(case: &Case) -> Result<u64> {
    let (graph, symbols) = (&case.graph, &case.symbols);
    let elements = |id: &NodeId| graph.node(*id).shape.elements().eval_size(symbols);
    let outputs: Result<Vec<u64>> = graph.outputs().iter().map(|(_, id)| elements(id)).collect();
    if outputs?.contains(&0) {
        return Ok(0);
    }
    graph.ids().try_fold(0u64, |sum, id| {
        let node = graph.node(id);
        let x = node.inputs.first().filter(|_| matches!(node.op, Op::Linear { .. } | Op::MatMul));
        let summed = x.and_then(|x| graph.node(*x).shape.dims().last());
        let summed = summed.map_or(Ok(1), |dim| dim.eval_size(symbols))?;
        Ok(sum.saturating_add(elements(&id)?.saturating_mul(summed)))
    })
}

impl Patient {
    fn new(engine: &EngineId) -> Patient {
        Patient {
            engine: engine.clone(),
            meetings: Vec::new(),
            wanted: false,
            refused: "no case of the table applies to it".into(),
            passed: 0,
            report: Report::default(),
            wrong: None,
        }
    }

    /// Orders cases: those that use only this engine come before others. Among each, one of middle
    /// size is first, and every prefix covers all sizes.
    fn sorted(mut self) -> Patient {
        self.meetings.sort_by_key(|m| (!m.alone, m.work));
        let alone = self.meetings.iter().take_while(|m| m.alone).count();
        let rest = self.meetings.split_off(alone);
        self.meetings = [spread(self.meetings), spread(rest)].into_iter().flatten().collect();
        self
    }

    /// Tests the engine in one of its cases; returns whether the device was lost.
    async fn meet(
        &mut self,
        runtime: &Runtime,
        cases: &[Case],
        round: usize,
        known: &[Block],
    ) -> bool {
        let meeting = &self.meetings[round];
        let case = &cases[meeting.case];
        let (other_engines, run) = match self.run(runtime, case, meeting, known).await {
            Ok(Some(run)) => run,
            Ok(None) => {
                self.refused = "plans leave it out although it is forced".into();
                return false;
            }
            Err(error) => {
                self.refused = error.to_string();
                return false;
            }
        };
        let outputs = match run {
            Ok(outputs) => outputs,
            // Out of memory at this time is not the engine's fault.
            Err(error) if error.is_out_of_memory() => {
                self.refused = error.to_string();
                return false;
            }
            Err(error) => {
                let case = case.name.clone();
                self.wrong = Some(Finding::Failed { case, what: error.to_string() });
                return error.is_device_lost();
            }
        };
        let tensors = case.tensors();
        match reference::eval(&case.graph, &case.symbols, &tensors) {
            Err(error) => self.refused = format!("the reference: {error}"),
            Ok(expected) => {
                let case = match meeting.f16_accumulate {
                    true => &case.with_f16_accumulate(),
                    false => case,
                };
                match agree(&case.on(runtime.device().profile()), &expected, &outputs) {
                    Ok(report) => {
                        self.passed += 1;
                        self.report = worse(self.report, report);
                    }
                    Err(wrong) => {
                        self.wrong = Some(Finding::Wrong {
                            case: case.name.clone(),
                            tensor: wrong.tensor,
                            index: wrong.mismatch.first_bad,
                            expected: wrong.mismatch.values.map(|values| values[0]),
                            got: wrong.mismatch.values.map(|values| values[1]),
                            what: wrong.mismatch.message,
                            other_engines,
                        });
                    }
                }
            }
        }
        false
    }

    /// Runs a case with the engine forced; returns the plan's other engines and the outcome. `None`
    /// if the plan does not contain the engine after all.
    async fn run(
        &self,
        runtime: &Runtime,
        case: &Case,
        meeting: &Meeting,
        known: &[Block],
    ) -> Result<Option<(Vec<EngineId>, Result<NamedBytes>)>> {
        let options = Options {
            force: vec![(Selector::Node(meeting.node), self.engine.clone())],
            f16_accumulate: meeting.f16_accumulate,
            known_wrong: known.to_vec(),
            ..Options::new(runtime.registry())
        };
        let class = ShapeClass::exact(&case.symbols);
        let profile = runtime.device().profile();
        let plan = match Plan::new(&case.graph, &class, profile, &options) {
            Ok(plan) => plan,
            // No plan has this engine without known-wrong ones.
            Err(error) if error.is_unsupported() => return Err(error),
            Err(error) => return Ok(Some((Vec::new(), Err(error)))),
        };
        let engines = plan.choices.iter().filter_map(|choice| choice.engine.as_ref());
        let (own, mut other_engines): (Vec<EngineId>, Vec<EngineId>) =
            engines.cloned().partition(|engine| *engine == self.engine);
        if own.is_empty() {
            return Ok(None);
        }
        other_engines.dedup();
        let outputs =
            run_plan_async(runtime, &case.graph, plan, &case.symbols, &case.bytes(), true).await;
        Ok(Some((other_engines, outputs)))
    }

    fn discharged(self) -> Examined {
        let Report { elements, worst_share, .. } = self.report;
        let finding = match self.wrong {
            Some(wrong) => wrong,
            None if self.passed > 0 => Finding::Right { cases: self.passed, elements, worst_share },
            None => Finding::NotExamined { why: self.refused },
        };
        Examined { engine: self.engine, finding }
    }
}

/// Reorders a list: its middle first, then the middles of both halves, and so on.
fn spread<T>(list: Vec<T>) -> Vec<T> {
    let count = list.len();
    let mut list: Vec<Option<T>> = list.into_iter().map(Some).collect();
    let mut out = Vec::with_capacity(count);
    let mut parts = 2;
    while out.len() < count {
        for part in 1..parts {
            out.extend(list[part * count / parts].take());
        }
        parts *= 2;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_examination_ends_with_its_cases() {
        let runtime = Runtime::builder().device("cpu").build().unwrap();
        let cases = &crate::cases()[..2];
        let limits = Limits { seconds: 1e6, first_seconds: 1e6, cases: usize::MAX };
        let progress = &mut |_: usize, _: usize, _: &EngineId| {};
        let found = examine(&runtime, cases, &limits, progress).unwrap();
        assert!(found.left_out.is_empty(), "{:?}", found.left_out);
        assert!(found.engines.iter().any(|e| matches!(e.finding, Finding::Right { .. })));
    }

    #[test]
    fn a_list_is_spread_and_whole() {
        assert_eq!(spread((0..8).collect()), [4, 2, 6, 1, 3, 5, 7, 0]);
        assert_eq!(spread(vec![9]), [9]);
        assert_eq!(spread(Vec::<u8>::new()), [0u8; 0]);
        let mut all = spread((0..77).collect::<Vec<_>>());
        all.sort_unstable();
        assert_eq!(all, (0..77).collect::<Vec<_>>());
    }
}
