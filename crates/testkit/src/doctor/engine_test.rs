//! One engine under test: its cases, and what they found.

use warploom::Result;
use warploom::engine::{Block, EngineId};
use warploom::graph::NodeId;
use warploom::plan::{Options, Plan, Selector};
use warploom::runtime::{Runtime, run_plan_async};
use warploom_cases::{Case, NamedBytes, Report, agree, worse};
use warploom_core::base::ShapeClass;
use warploom_core::reference;

use super::{Examined, Finding};

/// A case that can test an engine.
pub(super) struct Trial {
    /// Index in the table.
    pub(super) case: usize,
    pub(super) node: NodeId,
    /// Whether the case uses only this engine.
    pub(super) alone: bool,
    /// Approximate number of multiplications.
    pub(super) work: u64,
    /// Whether the engine accumulates in f16.
    pub(super) f16_accumulate: bool,
}

/// An engine under test.
pub(super) struct EngineTest {
    pub(super) engine: EngineId,
    pub(super) trials: Vec<Trial>,
    /// Whether it has the best estimate of the default engines in at least one case.
    pub(super) preferred: bool,
    /// Why it was not tested, if known.
    pub(super) refused: String,
    passed: usize,
    report: Report,
    pub(super) wrong: Option<Finding>,
}

impl EngineTest {
    pub(super) fn new(engine: &EngineId) -> EngineTest {
        EngineTest {
            engine: engine.clone(),
            trials: Vec::new(),
            preferred: false,
            refused: "no case of the table applies to it".into(),
            passed: 0,
            report: Report::default(),
            wrong: None,
        }
    }

    /// Orders cases: those that use only this engine come before others. Among each, one of middle
    /// size is first, and every prefix covers all sizes.
    pub(super) fn sorted(mut self) -> EngineTest {
        self.trials.sort_by_key(|m| (!m.alone, m.work));
        let alone = self.trials.iter().take_while(|m| m.alone).count();
        let rest = self.trials.split_off(alone);
        self.trials = [spread(self.trials), spread(rest)].into_iter().flatten().collect();
        self
    }

    /// Tests the engine in one of its cases; returns whether the device was lost.
    pub(super) async fn run_case(
        &mut self,
        runtime: &Runtime,
        cases: &[Case],
        round: usize,
        known: &[Block],
    ) -> bool {
        let trial = &self.trials[round];
        let case = &cases[trial.case];
        let (other_engines, run) = match self.run(runtime, case, trial, known).await {
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
                let case = match trial.f16_accumulate {
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

    /// Runs a case with the engine forced; returns the plan's other engines and the outcome.
    /// Returns `None` if the plan does not contain the engine after all.
    async fn run(
        &self,
        runtime: &Runtime,
        case: &Case,
        trial: &Trial,
        known: &[Block],
    ) -> Result<Option<(Vec<EngineId>, Result<NamedBytes>)>> {
        let options = Options {
            force: vec![(Selector::Node(trial.node), self.engine.clone())],
            f16_accumulate: trial.f16_accumulate,
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

    pub(super) fn finish(self) -> Examined {
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
    fn a_list_is_spread_and_whole() {
        assert_eq!(spread((0..8).collect()), [4, 2, 6, 1, 3, 5, 7, 0]);
        assert_eq!(spread(vec![9]), [9]);
        assert_eq!(spread(Vec::<u8>::new()), [0u8; 0]);
        let mut all = spread((0..77).collect::<Vec<_>>());
        all.sort_unstable();
        assert_eq!(all, (0..77).collect::<Vec<_>>());
    }
}
