//! Tests a device: every engine against the reference, on the installed driver.
//!
//! Cases are rows of the conformance table. An engine is tested in cases in which a plan for the
//! device could use it ([`candidates`]). It is forced in them and runs with poisoned memory and
//! guard zones. Each engine is tested once before any is tested twice, starting with those that
//! estimates choose for a case. More cases follow until the time limit. On a software GPU, which
//! takes seconds to compile, the limit may pass before every engine is tested; the remaining ones
//! are reported. Cases that use only the engine under test run first. Other cases exclude engines
//! already found wrong, so that an error is attributed to the right engine.

mod engine_test;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use warploom::Result;
use warploom::engine::{Block, DriverKey, EngineId, Sums};
use warploom::graph::{NodeId, Op};
use warploom::plan::{Offer, Options, candidates};
use warploom::runtime::{Findings, Runtime, WrongEngine};
use warploom_cases::Case;
use warploom_core::base::ShapeClass;
use warploom_core::base::platform::Clock;

use engine_test::{EngineTest, Trial};

/// Approximate number of multiplications above which the reference takes too long.
const MOST_WORK: u64 = 1 << 20;

/// Time limits of a test run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time limit in seconds, after which no engine gets another case.
    pub seconds: f64,
    /// Time limit for the first case of an engine, in seconds, if later than `seconds`. Engines not
    /// reached by then are reported as skipped; they are those that plans choose last.
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
        /// The driver's error, or a description of the overwritten guard zone.
        what: String,
    },
    /// Not tested on this device.
    NotExamined {
        /// The reason.
        why: String,
    },
}

impl Finding {
    /// Returns the description of the error with its case, or `None` if there is no error.
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
    let mut tests = engine_tests(runtime, cases)?;
    let device = DriverKey::of(runtime.device().profile());
    let order = order(&tests);
    let total = tests.iter().filter(|test| !test.trials.is_empty()).count();
    let (mut known, mut tested, mut left_out) = (Vec::new(), 0, Vec::new());
    let first_seconds = limits.first_seconds.max(limits.seconds);
    // No engine has cases for more rounds than this.
    let rounds = tests.iter().map(|test| test.trials.len()).max().unwrap_or(0);
    'all: for round in 0..rounds.min(limits.cases.max(1)) {
        for i in &order {
            let test = &mut tests[*i];
            if test.wrong.is_some() || round >= test.trials.len() {
                continue;
            }
            if round > 0 && clock.elapsed().as_secs_f64() > limits.seconds {
                break 'all;
            }
            if round == 0 && clock.elapsed().as_secs_f64() > first_seconds {
                test.refused = format!("it had no case in {first_seconds} s");
                left_out.push(test.engine.clone());
                continue;
            }
            progress(tested, total, &test.engine);
            tested += usize::from(round == 0);
            let lost = test.run_case(runtime, cases, round, &known).await;
            if let Some(what) = test.wrong.as_ref().and_then(Finding::complaint) {
                let (device, engine) = (device.clone(), test.engine.clone());
                known.push(Block { device, engine, reason: format!("wrong in {what}") });
            }
            if lost {
                let by = format!("the device was lost by {}", test.engine);
                tests.iter_mut().for_each(|test| test.refused.clone_from(&by));
                break 'all;
            }
        }
    }
    let engines = tests.into_iter().map(EngineTest::finish).collect();
    Ok(Examination { device, engines, left_out, seconds: clock.elapsed().as_secs_f64() })
}

/// Returns indices in test order: first engines with cases that only they use, then those that
/// plans use. Among these, one engine of each family comes before the second of any, so that an
/// early stop still covers every kind of operation.
fn order(tests: &[EngineTest]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tests.len()).collect();
    let first = |i: usize| {
        let test = &tests[i];
        Reverse((test.trials.first().is_some_and(|m| m.alone), test.preferred))
    };
    order.sort_by_key(|i| first(*i));
    let mut tested: BTreeMap<_, usize> = BTreeMap::new();
    let mut turns = vec![0; tests.len()];
    for i in &order {
        let mut words = tests[*i].engine.as_str().split('.');
        let turn = tested.entry((first(*i), words.next(), words.next())).or_default();
        turns[*i] = *turn;
        *turn += 1;
    }
    order.sort_by_key(|i| (first(*i), turns[*i]));
    order
}

/// Returns every engine of the registry with the cases that can test it, in test order.
fn engine_tests(runtime: &Runtime, cases: &[Case]) -> Result<Vec<EngineTest>> {
    let profile = runtime.device().profile();
    let options = Options { f16_accumulate: true, ..Options::new(runtime.registry()) };
    let engines = runtime.registry().engines();
    let mut tests: BTreeMap<EngineId, EngineTest> =
        engines.iter().map(|engine| (engine.id().clone(), EngineTest::new(engine.id()))).collect();
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
            if let Some(best) = best.and_then(|b| tests.get_mut(&b.engine)) {
                best.preferred = true;
            }
            for offer in &piece.can {
                let Some(test) = tests.get_mut(&offer.engine) else { continue };
                // One group per case is enough.
                if test.trials.last().is_none_or(|last| last.case != number) {
                    let node = piece.node;
                    let f16_accumulate = accumulates_in_f16(offer);
                    test.trials.push(Trial { case: number, node, alone, work, f16_accumulate });
                }
            }
            for (engine, reason) in &piece.cannot {
                if let Some(test) = tests.get_mut(engine) {
                    test.refused.clone_from(reason);
                }
            }
        }
    }
    let in_order = engines.iter().filter_map(|engine| tests.remove(engine.id()));
    Ok(in_order.map(EngineTest::sorted).collect())
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
}
