//! An examination of a device: every engine against the reference, on this very driver.
//!
//! Cases are rows of the table of the conformance tests. An engine gets those in which a plan for
//! the device could take it ([`candidates`]), is forced in them, and runs with its memory
//! poisoned and guard zones around it. Each engine is met once before any is met twice, those that
//! estimates take for a case before the others; more cases follow until the time is up. On a GPU in
//! software, which compiles for seconds, it may be up before the last was met: those are told. Where a case has nothing in it but the engine, it comes first; where
//! there are others, engines that were found wrong before are not among them, so that what is wrong
//! is put down to the right one.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use warploom::base::ShapeClass;
use warploom::base::platform::Clock;
use warploom::engine::{Block, DriverKey, EngineId, Sums};
use warploom::error::Result;
use warploom::ir::{NodeId, Op};
use warploom::plan::{Offer, Options, Plan, Selector, candidates};
use warploom::reference;
use warploom::runtime::{Findings, Runtime, WrongEngine, run_plan};
use warploom_cases::{Case, NamedBytes, Report, agree, worse};

/// Multiplications, roughly, above which a case takes the reference too long.
const MOST_WORK: u64 = 1 << 20;

/// How long an examination goes on.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Seconds after which no engine gets another case.
    pub seconds: f64,
    /// Seconds after which none gets its first either, where that is later: those are then told as
    /// left out, and they are such as plans take last.
    pub first_seconds: f64,
    /// Cases of one engine, at most; one at least.
    pub cases: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { seconds: 10.0, first_seconds: 16.0, cases: 8 }
    }
}

/// What an examination found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Examination {
    /// The device.
    pub device: DriverKey,
    /// Every engine of the registry, in its order.
    pub engines: Vec<Examined>,
    /// Those that had no case before the time was up; nothing is known of them.
    pub left_out: Vec<EngineId>,
    /// Seconds that it took.
    pub seconds: f64,
}

/// An engine and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Examined {
    /// The engine.
    pub engine: EngineId,
    /// What came of it.
    #[serde(flatten)]
    pub finding: Finding,
}

/// What came of an engine.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// Every number of every case is within its limit.
    Right {
        /// Cases.
        cases: usize,
        /// Numbers compared.
        elements: usize,
        /// The largest share of its limit that an error reached, 0 to 1.
        worst_share: f64,
    },
    /// A number is wrong.
    Wrong {
        /// The case, by its name in the table.
        case: String,
        /// The output or state.
        tensor: String,
        /// The first element that is wrong; `None` where it is the tensor as a whole.
        index: Option<usize>,
        /// What it should be; `null` in JSON where it is not finite, which `what` tells.
        expected: Option<f64>,
        /// What it is; likewise.
        got: Option<f64>,
        /// In words: index on each axis, both values, error, limit, how many are wrong.
        what: String,
        /// Other engines of that plan; none of them had been found wrong before.
        beside: Vec<EngineId>,
    },
    /// It did not run: a kernel that the driver does not compile, a write outside of a buffer.
    Failed {
        /// The case, by its name in the table.
        case: String,
        /// What the driver or the guard zones say.
        what: String,
    },
    /// Nothing is known of it on this device.
    NotExamined {
        /// Why.
        why: String,
    },
}

impl Finding {
    /// What is wrong, in words with the case; `None` where nothing is known to be.
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
    /// What to keep: the engines that are wrong. What was known of those that were not examined
    /// stays as it was.
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

/// A case in which an engine can be met.
struct Meeting {
    case: usize,
    node: NodeId,
    alone: bool,
    work: u64,
    /// Whether the engine sums in halves.
    half_sums: bool,
}

/// An engine in the course of an examination.
struct Patient {
    engine: EngineId,
    meetings: Vec<Meeting>,
    /// Whether it is the best by estimate in any case.
    wanted: bool,
    /// Why it was not met, as far as is known.
    refused: String,
    passed: usize,
    report: Report,
    wrong: Option<Finding>,
}

/// Examines every engine of a runtime on its device. `progress` is told how many of the engines
/// have been met at least once, how many can be, and which comes next.
///
/// # Errors
/// Invalid, for a case that cannot be planned. What an engine or the driver does wrong is a finding.
pub async fn examine(
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
    // Beyond the cases of the engine that has the most, a round would meet nobody.
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

/// In which order engines are met: where nothing else is in a case first, then what plans take, and of
/// these one of each family before the second of any, so that whatever is done in time says something
/// of every kind of work.
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

/// Every engine of the registry with the cases in which it can be met, in the order to meet them.
fn patients(runtime: &Runtime, cases: &[Case]) -> Result<Vec<Patient>> {
    let profile = runtime.device().profile();
    let options = Options { half_sums: true, ..Options::new(runtime.registry()) };
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
            // Too much for this device, or for these engines.
            Err(error) if error.is_unsupported() => continue,
            Err(error) => return Err(error.context(&case.name)),
        };
        let alone = pieces.len() == 1;
        for piece in pieces {
            // The best of those that plans take unasked.
            let best = piece.can.iter().find(|offer| !sums_in_halves(offer));
            if let Some(best) = best.and_then(|b| patients.get_mut(&b.engine)) {
                best.wanted = true;
            }
            for offer in &piece.can {
                let Some(patient) = patients.get_mut(&offer.engine) else { continue };
                // One piece of a case is enough.
                if patient.meetings.last().is_none_or(|last| last.case != number) {
                    let node = piece.node;
                    let half_sums = sums_in_halves(offer);
                    patient.meetings.push(Meeting { case: number, node, alone, work, half_sums });
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

fn sums_in_halves(offer: &Offer) -> bool {
    offer.notes.sums == Sums::F16
}

/// Multiplications of a case, roughly; 0 where there is no number to compare.
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
            refused: "no case of the table is meant for it".into(),
            passed: 0,
            report: Report::default(),
            wrong: None,
        }
    }

    /// Cases with nothing else in them first, and of these first one of middle size, then such that
    /// any number of them is spread over all sizes.
    fn sorted(mut self) -> Patient {
        self.meetings.sort_by_key(|m| (!m.alone, m.work));
        let alone = self.meetings.iter().take_while(|m| m.alone).count();
        let rest = self.meetings.split_off(alone);
        self.meetings = [spread(self.meetings), spread(rest)].into_iter().flatten().collect();
        self
    }

    /// Meets the engine in one of its cases; whether the device is lost after it.
    async fn meet(
        &mut self,
        runtime: &Runtime,
        cases: &[Case],
        round: usize,
        known: &[Block],
    ) -> bool {
        let meeting = &self.meetings[round];
        let case = &cases[meeting.case];
        let (beside, run) = match self.run(runtime, case, meeting, known).await {
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
            // Too much at this time is no fault of the engine.
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
                let case = match meeting.half_sums {
                    true => &case.with_half_sums(),
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
                            beside,
                        });
                    }
                }
            }
        }
        false
    }

    /// Runs a case with the engine in it: the other engines, and what came of it. `None` where the
    /// engine is not in the plan after all.
    async fn run(
        &self,
        runtime: &Runtime,
        case: &Case,
        meeting: &Meeting,
        known: &[Block],
    ) -> Result<Option<(Vec<EngineId>, Result<NamedBytes>)>> {
        let options = Options {
            force: vec![(Selector::Node(meeting.node), self.engine.clone())],
            half_sums: meeting.half_sums,
            known_wrong: known.to_vec(),
            ..Options::new(runtime.registry())
        };
        let class = ShapeClass::exact(&case.symbols);
        let profile = runtime.device().profile();
        let plan = match Plan::new(&case.graph, &class, profile, &options) {
            Ok(plan) => plan,
            // Among engines that are known to be wrong there is no place for this one.
            Err(error) if error.is_unsupported() => return Err(error),
            Err(error) => return Ok(Some((Vec::new(), Err(error)))),
        };
        let engines = plan.choices.iter().filter_map(|choice| choice.engine.as_ref());
        let (own, mut beside): (Vec<EngineId>, Vec<EngineId>) =
            engines.cloned().partition(|engine| *engine == self.engine);
        if own.is_empty() {
            return Ok(None);
        }
        beside.dedup();
        let outputs =
            run_plan(runtime, &case.graph, plan, &case.symbols, &case.bytes(), true).await;
        Ok(Some((beside, outputs)))
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

/// The middle of a list, then the middles of its halves, and so on.
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
        let examined = examine(&runtime, cases, &limits, progress);
        let found = warploom::base::platform::block_on(examined).unwrap();
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
