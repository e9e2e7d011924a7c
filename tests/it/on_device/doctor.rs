//! Doctor: an engine with a planted fault is found with its first wrong number, blocked, excluded
//! from the next plan with the reason in `explain`, and enabled again once it is fixed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use warploom::Result;
use warploom::engine::{Cost, DriverKey, Engine, EngineId, KnobValues, Lowering, Query};
use warploom::graph::Op;
use warploom::plan::Plan;
use warploom::runtime::{Findings, Notebook, Runtime};
use warploom_core::base::ShapeClass;
use warploom_testkit::Case;
use warploom_testkit::doctor::{Examination, Finding, Limits, examine};

use crate::{devices, tell};

/// The built-in normalisation under another name, which claims to be faster. While broken it adds 1
/// to each mean square, so every result is too small.
struct Twin {
    id: EngineId,
    inner: Arc<dyn Engine>,
    broken: Arc<AtomicBool>,
}

const TWIN: &str = "acme.norm";

impl Engine for Twin {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        self.inner.applies(query)
    }

    fn cost(&self, query: &Query) -> Cost {
        Cost { bytes: 1.0, flops: 1.0, dispatches: 1e-6, ..self.inner.cost(query) }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let op = match query.op {
            Op::RmsNorm { eps } if self.broken.load(Ordering::Relaxed) => {
                Op::RmsNorm { eps: eps + 1.0 }
            }
            op => op.clone(),
        };
        self.inner.lower(&Query { op: &op, knobs: KnobValues::NONE, ..*query }, out)
    }
}

/// A runtime with the twin in its registry, and the switch that breaks it.
fn with_twin(mut runtime: Runtime) -> (Runtime, Arc<AtomicBool>) {
    let broken = Arc::new(AtomicBool::new(true));
    let inner = runtime.registry().get(&EngineId::new("catalogue.norm_rms")).unwrap().clone();
    let twin = Twin { id: EngineId::new(TWIN), inner, broken: broken.clone() };
    runtime.registry_mut().unwrap().add(Arc::new(twin)).unwrap();
    (runtime, broken)
}

fn norms() -> Vec<Case> {
    warploom_testkit::cases()
        .into_iter()
        .filter(|case| case.name.starts_with("rms_norm/"))
        .collect()
}

fn examined(runtime: &Runtime, cases: &[Case], limits: &Limits) -> Examination {
    examine(runtime, cases, limits, &mut |_, _, _| {}).unwrap()
}

fn finding<'a>(found: &'a Examination, engine: &str) -> &'a Finding {
    &found.engines.iter().find(|e| e.engine.as_str() == engine).unwrap().finding
}

/// The engines of a plan of a case, and what `explain` prints of it.
fn planned(runtime: &Runtime, case: &Case) -> (Vec<String>, String) {
    let (class, profile) = (ShapeClass::exact(&case.symbols), runtime.device().profile());
    let plan = Plan::new(&case.graph, &class, profile, &runtime.plan_options()).unwrap();
    let engines = plan.choices.iter().filter_map(|choice| choice.engine.as_ref());
    (engines.map(EngineId::to_string).collect(), plan.explain())
}

#[test]
fn a_broken_engine_is_found_left_out_and_comes_back_mended() {
    let cases = norms();
    let limits = Limits { seconds: 0.0, first_seconds: f64::INFINITY, cases: 1 };
    for (label, runtime) in devices::every(false) {
        let (runtime, broken) = with_twin(runtime);
        let folder = std::env::temp_dir().join(format!("warploom-doctor-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let notebook = Notebook::at(&folder);
        let device = DriverKey::of(runtime.device().profile());
        assert!(planned(&runtime, &cases[0]).0.contains(&TWIN.to_string()), "it looks the best");

        let found = examined(&runtime, &cases, &limits);
        let sick = finding(&found, TWIN);
        let Finding::Wrong { case, index, expected, got, what, other_engines, .. } = sick else {
            panic!("{label}: {sick:?}");
        };
        let (index, expected, got) = (index.unwrap(), expected.unwrap(), got.unwrap());
        assert!(
            case.starts_with("rms_norm/") && other_engines.is_empty(),
            "{label}: {case} {other_engines:?}"
        );
        assert!(got.abs() < expected.abs(), "{label}: {got} for {expected}");
        for part in [format!("element {index} "), format!("{expected:?}"), format!("{got:?}")] {
            assert!(what.contains(&part), "{label}: {part:?} in {what}");
        }
        let right = finding(&found, "catalogue.norm_rms");
        assert!(matches!(right, Finding::Right { .. }), "{label}: {right:?}");
        let other = finding(&found, "catalogue.gather");
        assert!(matches!(other, Finding::NotExamined { .. }), "{label}: {other:?}");

        // A later process reads these results.
        let findings = found.findings(None);
        assert_eq!(findings.wrong.len(), 1, "{label}: {:?}", findings.wrong);
        notebook.write(&findings).unwrap();
        let read: Findings = notebook.read(&device).unwrap().unwrap();
        runtime.set_findings(&read);
        let (engines, explained) = planned(&runtime, &cases[0]);
        assert!(!engines.contains(&TWIN.to_string()), "{label}: {engines:?}");
        let line = explained.lines().find(|line| line.contains("blocked by doctor on 2")).unwrap();
        assert!(line.contains(TWIN) && line.contains(case), "{label}: {line}");
        assert!(runtime.startup_line().contains("known_wrong=[acme.norm]"));

        // Another driver of the same device is not meant.
        let mut options = runtime.plan_options();
        options.known_wrong[0].device.driver.push_str(" 2");
        let (class, profile) = (ShapeClass::exact(&cases[0].symbols), runtime.device().profile());
        let plan = Plan::new(&cases[0].graph, &class, profile, &options).unwrap();
        assert!(plan.choices.iter().any(|c| c.engine == Some(EngineId::new(TWIN))), "{label}");

        // An examination that does not meet it changes nothing; one that does, mended, does.
        let none = examined(&runtime, &[], &limits);
        assert_eq!(none.findings(Some(&read)).wrong, read.wrong);
        broken.store(false, Ordering::Relaxed);
        let found = examined(
            &runtime,
            &cases,
            &Limits { seconds: 60.0, first_seconds: f64::INFINITY, cases: 3 },
        );
        let well = finding(&found, TWIN);
        assert!(matches!(well, Finding::Right { cases: 3, .. }), "{label}: {well:?}");
        notebook.write(&found.findings(Some(&read))).unwrap();
        runtime.set_findings(&notebook.read(&device).unwrap().unwrap());
        assert!(planned(&runtime, &cases[0]).0.contains(&TWIN.to_string()), "{label}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

/// Engines that plans use come first, in case time runs out; skipped ones get no result.
#[test]
fn an_examination_in_part_says_which_part() {
    let runtime = Runtime::builder().device("cpu").trusting(true).build().unwrap();
    let (runtime, _broken) = with_twin(runtime);
    let cases = norms();
    let examined = |first_seconds| {
        let (limits, mut met) = (Limits { seconds: 0.0, first_seconds, cases: 1 }, Vec::new());
        let mut tell = |_, _, engine: &EngineId| met.push(engine.to_string());
        let found = examine(&runtime, &cases, &limits, &mut tell).unwrap();
        (found, met)
    };
    let (whole, met) = examined(f64::INFINITY);
    assert!(whole.left_out.is_empty() && whole.findings(None).wrong.len() == 1);
    let at = |name: &str| met.iter().position(|engine| engine == name).unwrap();
    assert!(at(TWIN) < at("catalogue.norm_rms"), "the best by estimate is met first: {met:?}");

    let (part, none) = examined(0.0);
    let left: Vec<String> = part.left_out.iter().map(EngineId::to_string).collect();
    assert_eq!((&left, none.len()), (&met, 0), "all that can be met, in that order");
    let Finding::NotExamined { why } = finding(&part, TWIN) else { panic!("{part:?}") };
    assert_eq!(why, "it had no case in 0 s");
    let before = whole.findings(None);
    assert_eq!(part.findings(Some(&before)).wrong, before.wrong, "what was known stays");
}

/// The whole table, once for each engine: none is wrong here, and few are untested.
#[test]
fn engines_of_this_crate_are_right() {
    let cases = warploom_testkit::cases();
    for (label, runtime) in devices::every(false) {
        if devices::compiles_slowly(&label, &runtime) {
            continue;
        }
        let found = examined(
            &runtime,
            &cases,
            &Limits { seconds: 0.0, first_seconds: f64::INFINITY, cases: 1 },
        );
        let count = |is: fn(&Finding) -> bool| {
            found.engines.iter().filter(|examined| is(&examined.finding)).count()
        };
        let wrong = found.findings(None).wrong;
        assert!(wrong.is_empty(), "{label}: {wrong:?}");
        let right = count(|finding| matches!(finding, Finding::Right { cases: 1, .. }));
        tell(&format!("doctor: {label}: {right} engines in {:.1} s", found.seconds));
        assert!(right >= 80, "{label}: {right} of {}", found.engines.len());
        // Every testable engine is tested; the others have no case or cannot run here.
        for examined in &found.engines {
            if let Finding::NotExamined { why } = &examined.finding {
                assert!(!why.contains("although"), "{label}: {}: {why}", examined.engine);
            }
        }
    }
}
