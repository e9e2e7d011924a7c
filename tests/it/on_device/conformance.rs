//! The case table on every device: with all features and at WebGPU's floor, with poisoned memory
//! and guard zones, planned for exact sizes and, if a case has symbols, for ranges.

use std::collections::BTreeMap;

use warploom::engine::{EngineId, Registry};
use warploom::graph::{BinaryOp, Graph, Op, UnaryOp};
use warploom::provider::DeviceKind;
use warploom::runtime::{RunOptions, Runtime, SyncMode, run_graph};
use warploom_core::base::{DType, Dim, Format, Shape, SymbolValues};
use warploom_testkit::{Conformance, ConformanceReport, KnownFailure};

use crate::devices;
use crate::interpret_device::Checked;
use crate::{Need, ran, skip, tell};

/// Known failures, with the reason. A row fails as soon as its device is right.
const KNOWN: [KnownFailure; 0] = [];

/// The suite on every device of the machine for which `suite` returns one. If it returns none, the
/// test is skipped for the lack of `need`.
fn on_every_device(
    need: Need,
    floors: bool,
    suite: impl Fn(&Runtime, Conformance) -> Option<Conformance>,
) {
    let mut found = ConformanceReport::default();
    let mut covered = Vec::new();
    for (label, runtime) in devices::of_machine(floors) {
        let profile = runtime.device().profile();
        // Software devices take a sample: most of their time is spent in cases for real GPUs, and
        // `interpret_kernels` runs every kernel. At the floor most kernels are the same again.
        let step = match label.ends_with(devices::FLOOR) {
            true => devices::sample_software(profile, 12),
            false => devices::sample(profile, 16).max(devices::sample_software(profile, 4)),
        };
        let Some(suite) = suite(&runtime, Conformance::new().sample(step)) else { continue };
        let kind = devices::kind(&label, &runtime);
        let mut suite = suite.known_failures(&KNOWN).complete(true).label(label);
        let report = suite.run(&runtime).unwrap();
        tell(&format!("conformance: {report}"));
        covered.push(kind);
        found.extend(report);
    }
    if found.devices.is_empty() {
        return skip(need, "no device of this machine can run these engines");
    }
    ran(covered.iter().map(String::as_str));
    found.assert_passed();
}

/// Products of quantised rows by every engine of a device, also if the ranking prefers another.
#[test]
fn products_of_rounded_rows_are_right_in_every_way() {
    for how in ["matvec_int8", "matvec_prequant"] {
        for tail in ["", ".subgroup"] {
            on_every_device(Need::WebGpu, false, |runtime, suite| {
                let profile = runtime.device().profile();
                let formats = Format::ALL.into_iter().chain(Format::KEPT);
                let formats = formats.filter(|format| format.is_quantised());
                let ids = formats.map(|f| EngineId::new(format!("wgsl.{how}.{f}{tail}")));
                let suite = ids.fold(suite.only("int8/"), Conformance::registered);
                let slow = profile.kind == DeviceKind::Software;
                let usable = tail.is_empty() || profile.has_subgroups;
                match profile.provider.as_str() {
                    "webgpu" if usable => Some(if slow { suite.sample(3) } else { suite }),
                    "cpu" => None,
                    _ => (usable && !slow).then_some(suite),
                }
            });
        }
    }
}

/// Cases of products of two computed matrices, and an engine on cooperative matrices for them.
const ON_MATRICES: (&str, &str) = ("library/f16/", "wgsl.matmul_batched_coop");

/// The ranking uses large tiles only for large matrices.
#[test]
fn products_of_matrices_are_right_by_tiles() {
    for (cases, engine) in [("matmul/", "wgsl.matmul_batched_tiled"), ON_MATRICES] {
        let tiled = engine == "wgsl.matmul_batched_tiled";
        let need = if tiled { Need::WebGpu } else { Need::Matrix };
        on_every_device(need, tiled, |runtime, suite| {
            let profile = runtime.device().profile();
            let suite = suite.only(cases).registered(EngineId::new(engine));
            let usable = tiled || profile.has_matrix_hw;
            let suite = match profile.kind {
                DeviceKind::Software => suite.sample(8),
                _ => suite,
            };
            (profile.provider != "cpu" && usable).then_some(suite)
        });
    }
}

/// Few machines have matrix hardware, and an engine without a case fails there.
#[test]
fn products_by_tiles_have_cases_where_there_is_matrix_hardware() {
    let runtime = Runtime::on(Checked::with_matrices(), SyncMode::Lazy, None).unwrap();
    let (cases, engine) = ON_MATRICES;
    let suite = Conformance::new().only(cases).registered(EngineId::new(engine));
    suite.complete(true).run(&runtime).unwrap().assert_passed();
}

/// Only CUDA has them; `interpret_kernels` checks their definition everywhere.
#[test]
fn products_of_several_rounded_rows_are_right_by_tiles() {
    on_every_device(Need::Cuda, false, |runtime, suite| {
        let profile = runtime.device().profile();
        let ids = ["q4_k", "q6_kx8", "q8_0x8", "q4_0x8"]
            .map(|f| EngineId::new(format!("wgsl.matvec_mma.{f}")));
        let suite = ids.into_iter().fold(suite.only("int8/"), Conformance::registered);
        (profile.provider == "cuda" && profile.has_matrix_hw).then_some(suite)
    });
}

#[test]
fn every_case_is_right_on_every_device() {
    on_every_device(Need::Driver, true, |_, suite| Some(suite));
}

/// Products of every size on cooperative matrices, which the ranking uses only for many rows.
fn products_on_matrices(way: &str) {
    let need = if way.starts_with("cuda.") { Need::Cuda } else { Need::Matrix };
    for (cases, packed) in [("int8/", true), ("in_f16/", false)] {
        on_every_device(need, false, |runtime, suite| {
            let few =
                [Format::Plain(DType::F16), Format::Plain(DType::BF16), Format::Q4K, Format::Q8_0];
            let formats = Format::ALL.into_iter().filter(|format| match packed {
                true => format.is_quantised(),
                false => few.contains(format),
            });
            let ids = formats.map(|format| EngineId::new(format!("{way}.{format}")));
            let known = |id: &EngineId| Registry::builtin().get(id).is_some();
            let suite = ids.filter(known).fold(suite.only(cases), Conformance::registered);
            let profile = runtime.device().profile();
            let here = if way.starts_with("cuda.") {
                profile.has_gemm_library
            } else {
                profile.has_matrix_hw
            };
            here.then_some(suite)
        });
    }
}

#[test]
fn products_on_cooperative_matrices_are_right() {
    products_on_matrices("wgsl.matmul_coop");
}

/// f16 GEMM, with split-K if tiles are few, and its reduction (`split_k_reduce`).
#[test]
fn products_of_weights_decoded_to_f16_are_right() {
    products_on_matrices("wgsl.matmul_f16_coop");
}

#[test]
fn products_of_f16_by_a_library_are_right() {
    products_on_matrices("cuda.cublaslt.f16");
}

/// The ranking uses it only for many tokens.
#[test]
fn attention_on_cooperative_matrices_is_right() {
    on_every_device(Need::Matrix, false, |runtime, suite| {
        let suite = suite.only("attention_f16/").registered(EngineId::new("wgsl.attn_coop"));
        runtime.device().profile().has_matrix_hw.then_some(suite)
    });
}

/// Flash decoding (split-KV) in two launches. The ranking uses it only on large devices.
#[test]
fn attention_is_right_with_keys_spread_over_workgroups() {
    on_every_device(Need::WebGpu, true, |runtime, suite| {
        let split = EngineId::new("wgsl.attn_split_kv");
        let suite = suite.only("attention/").registered(split);
        (runtime.device().profile().provider != "cpu").then_some(suite)
    });
}

/// Flash decoding (split-KV) in one launch, and attention of few tokens by subgroups. Few devices
/// have subgroups of exactly 32 lanes; `interpret_kernels` tests these kernels everywhere.
#[test]
fn attention_is_right_where_lanes_share_keys() {
    for cases in ["attention/", "f16_kv/"] {
        for engine in ["wgsl.attn_subgroup", "wgsl.attn_split_kv_fused"] {
            on_every_device(Need::Driver, false, |runtime, suite| {
                let profile = runtime.device().profile();
                let lanes = [profile.subgroup_min, profile.subgroup_max] == [32, 32];
                let usable = profile.has_subgroups && lanes && profile.provider != "cpu";
                let ordered =
                    profile.provider == "cuda" || profile.driver.starts_with("Vulkan NVIDIA");
                let ordered = ordered || engine != "wgsl.attn_split_kv_fused";
                let suite = suite.only(cases).registered(EngineId::new(engine));
                (usable && ordered).then_some(suite)
            });
        }
    }
}

#[test]
fn every_device_has_a_bandwidth() {
    for (label, runtime) in devices::every(false) {
        let bandwidth = runtime.measure_bandwidth().unwrap();
        tell(&format!("bandwidth: {label}: {:.1} GB/s", bandwidth as f64 / 1e9));
        // From a slow laptop to an accelerator of some years from now.
        assert!((100_000_000..100_000_000_000_000).contains(&bandwidth), "{bandwidth} bytes/s");
    }
}

/// An operation fused into its reader must not read a state after its update.
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
        let outputs = run.unwrap();
        assert_eq!(outputs["y"], bytes([9.0, 18.0, 27.0, 36.0]), "{label}");
        assert_eq!(outputs["s"], bytes([20.0, 40.0, 60.0, 80.0]), "{label}");
    }
}
