//! The table of cases on every device: with all it has and at WebGPU's floor, memory poisoned
//! and guard zones around it, planned for exact sizes and, where a case has symbols, for ranges.

use std::collections::BTreeMap;

use warploom::base::ShapeClass;
use warploom::base::platform::block_on;
use warploom::runtime::{RunOptions, Runtime, run_graph};
use warploom::testkit::{self, Case, KnownFailure, Outcome};

use crate::devices;
use crate::tell;

/// What is known to be wrong, with the reason. A row fails as soon as its device is right.
const KNOWN: [KnownFailure; 0] = [];

fn outcome(runtime: &Runtime, case: &Case, class: Option<&ShapeClass>) -> Outcome {
    let options = RunOptions { class: class.cloned(), guard: true, preferred: Vec::new() };
    let profile = runtime.device().profile();
    let outcome = testkit::run_case(case, &|graph, symbols, bindings| {
        block_on(run_graph(runtime, graph, symbols, bindings, &options))
    });
    testkit::declared(&KNOWN, &profile.name, &profile.driver, case, outcome)
}

#[test]
fn every_case_is_right_on_every_device() {
    let cases = testkit::cases();
    let mut wrong = Vec::new();
    for (label, runtime) in devices::every(true) {
        let begin = std::time::Instant::now();
        let mut passed = 0;
        let mut unsupported: BTreeMap<String, usize> = BTreeMap::new();
        for case in &cases {
            match outcome(&runtime, case, None) {
                Outcome::Pass(_) => passed += 1,
                Outcome::Fail(text) => wrong.push(format!("{label}: {}: {text}", case.name)),
                Outcome::KnownToFail(reason) => {
                    tell(&format!("{label}: {} is known to fail: {reason}", case.name))
                }
                Outcome::Unsupported(reason) => *unsupported.entry(reason).or_default() += 1,
            }
            if case.symbols.iter().next().is_some() {
                // Room for more than this run needs, as a decoder's plans have.
                let ranges = case.symbols.iter();
                let class = ranges.fold(ShapeClass::new(), |class, (symbol, value)| {
                    class.with(symbol, value.min(1), value * 2 + 3)
                });
                if let Outcome::Fail(text) = outcome(&runtime, case, Some(&class)) {
                    wrong.push(format!("{label}: {} in {class}: {text}", case.name));
                }
            }
        }
        tell(&format!(
            "conformance: {label}: {passed} of {} cases in {:.1} s",
            cases.len(),
            begin.elapsed().as_secs_f64()
        ));
        for (reason, count) in unsupported {
            wrong.push(format!("{label}: {count} cases unsupported: {reason}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
