//! The table of cases on every device: with all it has and at WebGPU's floor, memory poisoned
//! and guard zones around it, planned for exact sizes and, where a case has symbols, for ranges.

use std::collections::BTreeMap;

use warploom::base::platform::block_on;
use warploom::base::{DType, Dim, Format, Shape, ShapeClass, SymbolValues};
use warploom::engine::EngineId;
use warploom::ir::{BinaryOp, Graph, Op, UnaryOp};
use warploom::provider::DeviceKind;
use warploom::runtime::{RunOptions, Runtime, run_graph};
use warploom::testkit::{self, Case, KnownFailure, Outcome};

use crate::devices;
use crate::tell;

/// What is known to be wrong, with the reason. A row fails as soon as its device is right.
const KNOWN: [KnownFailure; 0] = [];

/// What no device does yet, with its reason: beginnings of names of cases.
const UNSUPPORTED: [(&str, &str); 0] = [];

fn outcome(runtime: &Runtime, case: &Case, class: Option<&ShapeClass>) -> Outcome {
    outcome_through(runtime, case, class, Vec::new())
}

fn outcome_through(
    runtime: &Runtime,
    case: &Case,
    class: Option<&ShapeClass>,
    preferred: Vec<EngineId>,
) -> Outcome {
    let options =
        RunOptions { class: class.cloned(), guard: true, preferred, ..RunOptions::default() };
    let profile = runtime.device().profile();
    let case = &*case.on(profile);
    let outcome = testkit::run_case(case, &|graph, symbols, bindings| {
        block_on(run_graph(runtime, graph, symbols, bindings, &options))
    });
    testkit::declared(&KNOWN, &profile.name, &profile.driver, case, outcome)
}

/// Products of every size on cooperative matrices, which the ranking takes for many rows only.
#[test]
fn products_on_cooperative_matrices_are_right() {
    let cases = testkit::cases();
    let formats = Format::ALL.into_iter().filter(|format| format.is_quantised());
    let coop: Vec<EngineId> =
        formats.map(|format| EngineId::new(format!("wgsl.matmul_coop.{format}"))).collect();
    let mut wrong = Vec::new();
    for (label, runtime) in devices::every(false) {
        if !runtime.device().profile().has_matrix_hw {
            tell(&format!("conformance: {label} has no cooperative matrices"));
            continue;
        }
        let cases = cases.iter().filter(|case| case.name.starts_with("int8/"));
        for case in cases {
            match outcome_through(&runtime, case, None, coop.clone()) {
                Outcome::Pass(_) => {}
                other => wrong.push(format!("{label}: {}: {other:?}", case.name)),
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Products of rounded rows in every way that devices have, also where the ranking takes another.
#[test]
fn products_of_rounded_rows_are_right_in_every_way() {
    let cases = testkit::cases();
    let cases: Vec<&Case> = cases.iter().filter(|case| case.name.starts_with("int8/")).collect();
    let packed = Format::ALL.into_iter().filter(|format| format.is_quantised());
    let packed: Vec<Format> = packed.collect();
    let mut wrong = Vec::new();
    for (label, runtime) in devices::every(true) {
        let profile = runtime.device().profile();
        if profile.provider == "cpu" {
            continue;
        }
        for how in ["matvec_int8", "matvec_codes"] {
            for tail in ["", ".subgroup"] {
                let ids = packed.iter().map(|f| EngineId::new(format!("wgsl.{how}.{f}{tail}")));
                let ids: Vec<EngineId> = ids.collect();
                // Compilers of software devices take most of the time.
                let step = if profile.kind == DeviceKind::Software { 3 } else { 1 };
                for case in cases.iter().step_by(devices::sample(profile, 24).max(step)) {
                    match outcome_through(&runtime, case, None, ids.clone()) {
                        Outcome::Pass(_) => {}
                        other => {
                            wrong.push(format!("{label}: {how}{tail}: {}: {other:?}", case.name))
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_case_is_right_on_every_device() {
    let cases = testkit::cases();
    let mut wrong = Vec::new();
    for (label, runtime) in devices::every(true) {
        let begin = std::time::Instant::now();
        let mut passed = 0;
        let mut unsupported: Vec<(String, String)> = Vec::new();
        let step = devices::sample(runtime.device().profile(), 8);
        let cases: Vec<&Case> = cases.iter().step_by(step).collect();
        for case in &cases {
            match outcome(&runtime, case, None) {
                Outcome::Pass(_) => passed += 1,
                Outcome::Fail(text) => wrong.push(format!("{label}: {}: {text}", case.name)),
                Outcome::KnownToFail(reason) => {
                    tell(&format!("{label}: {} is known to fail: {reason}", case.name))
                }
                Outcome::Unsupported(reason) => unsupported.push((case.name.clone(), reason)),
            }
            if let Some(class) = ranges(case)
                && let Outcome::Fail(text) = outcome(&runtime, case, Some(&class))
            {
                wrong.push(format!("{label}: {} in {class}: {text}", case.name));
            }
        }
        tell(&format!(
            "conformance: {label}: {passed} of {} cases (one of {step}) in {:.1} s",
            cases.len(),
            begin.elapsed().as_secs_f64()
        ));
        for (case, reason) in &unsupported {
            if !UNSUPPORTED.iter().any(|(name, _)| case.starts_with(name)) {
                wrong.push(format!("{label}: {case} is unsupported: {reason}"));
            }
        }
        for (name, _) in UNSUPPORTED {
            if !unsupported.iter().any(|(case, _)| case.starts_with(name)) {
                wrong.push(format!("{label}: {name} is declared unsupported and runs"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Ranges for each symbol, with room for more than this run needs, as a decoder's plans have.
fn ranges(case: &Case) -> Option<ShapeClass> {
    case.symbols.iter().fold(None, |class, (symbol, value)| {
        Some(class.unwrap_or_default().with(symbol, value.min(1), value * 2 + 3))
    })
}

/// The ranking takes it on large devices only.
#[test]
fn attention_is_right_with_keys_spread_over_workgroups() {
    let cases = testkit::cases();
    let split = EngineId::new("wgsl.attn_split");
    let mut wrong = Vec::new();
    for (label, runtime) in devices::every(true) {
        if runtime.device().profile().provider == "cpu" {
            continue;
        }
        let of_attention = cases.iter().filter(|case| case.name.starts_with("attention/"));
        for case in of_attention.step_by(devices::sample(runtime.device().profile(), 8)) {
            for class in [None].into_iter().chain(ranges(case).map(Some)) {
                let preferred = vec![split.clone()];
                match outcome_through(&runtime, case, class.as_ref(), preferred) {
                    Outcome::Pass(_) => {}
                    other => wrong.push(format!("{label}: {}: {other:?}", case.name)),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_device_has_a_bandwidth() {
    for (label, runtime) in devices::every(false) {
        let bandwidth = block_on(runtime.measure_bandwidth()).unwrap();
        tell(&format!("bandwidth: {label}: {:.1} GB/s", bandwidth as f64 / 1e9));
        // From a slow laptop to an accelerator of some years from now.
        assert!((100_000_000..100_000_000_000_000).contains(&bandwidth), "{bandwidth} bytes/s");
    }
}

/// An operation that is applied where its reader reads must not read a state after its update.
#[test]
fn what_reads_a_state_reads_it_before_the_update() {
    let mut graph = Graph::new("old state");
    let shape = Shape::new([4]);
    let state = graph.state("s", shape.clone(), DType::F32);
    let new = graph.input("x", shape, DType::F32);
    let old = graph.add(Op::Unary(UnaryOp::Neg), &[state]).unwrap();
    let doubled = graph.add(Op::Binary(BinaryOp::Add), &[new, new]).unwrap();
    graph.add(Op::Update { at: Dim::new(0) }, &[state, doubled]).unwrap();
    let sum = graph.add(Op::Binary(BinaryOp::Add), &[old, new]).unwrap();
    graph.output("y", sum).unwrap();
    let bytes = |v: [f32; 4]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let bindings: BTreeMap<String, Vec<u8>> = [
        ("s".to_string(), bytes([1.0, 2.0, 3.0, 4.0])),
        ("x".to_string(), bytes([10.0, 20.0, 30.0, 40.0])),
    ]
    .into();
    for (label, runtime) in devices::every(false) {
        let (symbols, options) = (SymbolValues::new(), RunOptions::default());
        let run = run_graph(&runtime, &graph, &symbols, &bindings, &options);
        let outputs = block_on(run).unwrap();
        assert_eq!(outputs["y"], bytes([9.0, 18.0, 27.0, 36.0]), "{label}");
        assert_eq!(outputs["s"], bytes([20.0, 40.0, 60.0, 80.0]), "{label}");
    }
}
