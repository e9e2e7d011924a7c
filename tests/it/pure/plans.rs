//! Plans for machines that are not present: golden files of the planner's choices, and invariants
//! of every choice.
//!
//! `UPDATE_GOLDEN=1` rewrites the files.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use warploom::engine::Registry;
use warploom::graph::Graph;
use warploom::kernel::Specialization;
use warploom::plan::{Options, Plan, TextOptions};
use warploom::provider::{DeviceKind, DeviceProfile, Support, support};
use warploom_core::base::{DType, Format};
use warploom_llm::config::Config;
use warploom_llm::{CacheShape, DecoderInput, DecoderOutput, Model, class_of};
use warploom_models::gguf::{Access, Gguf};

use crate::{model_bad, smollm};

/// Positions of the cache in these plans.
const CONTEXT: usize = 2048;
/// Name, and tokens of a run.
const PHASES: [(&str, usize); 2] = [("decode", 1), ("prefill", 512)];

pub(crate) fn embedded() -> Arc<Model> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    Model::open(root.join("models/warploom-tiny-llama-Q4_K_M.gguf"), Access::Copy).unwrap()
}

/// Name, graph, positions of the cache.
fn models() -> [(&'static str, Graph, usize); 4] {
    let of = |model: &Model, context| model.graph(context, DecoderOutput::Greedy).unwrap();
    // Their vocabularies in 8 bits are more than one binding of the smaller machines holds.
    let shaped = |config: Option<Config>| {
        config.unwrap().graph(Format::Q4_0, CONTEXT, DecoderOutput::Greedy).unwrap()
    };
    [
        ("tiny-llama", of(&embedded(), 512), 512),
        ("smollm2-135m", of(&smollm::model(), CONTEXT), CONTEXT),
        ("qwen2.5-0.5b", shaped(warploom_llm::shapes::qwen2_5_0_5b()), CONTEXT),
        ("gemma3-270m", shaped(warploom_llm::shapes::gemma3_270m()), CONTEXT),
    ]
}

/// The plan of a model for a profile shipped with the crate.
pub(crate) fn plan(model: &Model, context: usize, tokens: usize, profile: &DeviceProfile) -> Plan {
    plan_of(&model.graph(context, DecoderOutput::Greedy).unwrap(), context, tokens, profile)
}

fn plan_of(graph: &Graph, context: usize, tokens: usize, profile: &DeviceProfile) -> Plan {
    let class = class_of(tokens, context).unwrap();
    let registry = Registry::builtin();
    Plan::new(graph, &class, profile, &Options::new(&registry)).unwrap()
}

/// Every plan of this file: `smollm2-135m.decode.apple-m2`.
fn plans() -> Vec<(String, DeviceProfile, Plan)> {
    let mut plans = Vec::new();
    for (model_name, graph, context) in models() {
        for (phase, tokens) in PHASES {
            for name in DeviceProfile::known_names() {
                let profile = DeviceProfile::known(name).unwrap();
                let plan = plan_of(&graph, context, tokens, &profile);
                plans.push((format!("{model_name}.{phase}.{name}"), profile, plan));
            }
        }
    }
    plans
}

#[test]
fn plans_for_known_machines_are_as_written_down() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/plans");
    let update = std::env::var("UPDATE_GOLDEN").is_ok_and(|v| v == "1");
    let mut changed = String::new();
    for (name, _, plan) in plans() {
        let (path, is) = (folder.join(format!("{name}.txt")), plan.outline());
        if update {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &is).unwrap();
            continue;
        }
        let was = std::fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
        if was != is {
            let _ = writeln!(changed, "{name}:\n{}", difference(&was, &is));
        }
    }
    assert!(changed.is_empty(), "{changed}UPDATE_GOLDEN=1 writes the files anew");
}

/// The lines between the common beginning and end of two texts.
fn difference(was: &str, is: &str) -> String {
    let (was, is): (Vec<&str>, Vec<&str>) = (was.lines().collect(), is.lines().collect());
    let same = was.iter().zip(&is).take_while(|(a, b)| a == b).count();
    let rest = was[same..].iter().rev().zip(is[same..].iter().rev());
    let end = rest.take_while(|(a, b)| a == b).count();
    let lines = |sign: char, lines: &[&str]| -> String {
        lines[same..lines.len() - end].iter().map(|line| format!("  {sign} {line}\n")).collect()
    };
    lines('-', &was) + &lines('+', &is)
}

#[test]
fn a_difference_is_the_lines_that_changed() {
    assert_eq!(difference("a\nb\nc\n", "a\nx\nc\n"), "  - b\n  + x\n");
    assert_eq!(difference("a\nc\n", "a\nb\nc\n"), "  + b\n");
    assert_eq!(difference("", "a\n"), "  + a\n");
}

#[test]
fn choices_suit_the_machine() {
    for (name, profile, plan) in plans() {
        for kernel in &plan.recording.kernels {
            assert_eq!(support(&profile, kernel), Support::Yes, "{name}");
        }
        let rows = if name.contains(".decode.") { "matvec" } else { "matmul" };
        for step in &plan.steps {
            let (kernel, engine) = (step.kernel.to_string(), step.engine.as_str());
            let what = format!("{name}: {} by {engine}, {kernel}", step.label);
            if kernel.contains("+subgroup") {
                assert!(profile.has_subgroups, "{what}");
                // On a software GPU a subgroup is a vector, which the compiler creates itself, but
                // the CPU provider has no subgroups.
                assert_ne!(profile.kind, DeviceKind::Cpu, "{what}");
            }
            if kernel.starts_with("matvec") || kernel.starts_with("matmul") {
                let last = step.label.starts_with("output");
                // Its weights have too few tiles for a large device.
                let large = profile.kind == DeviceKind::Discrete;
                let small = large && name.starts_with("tiny-llama.prefill");
                let rows = if last { "matvec" } else { rows };
                assert!(small || kernel.starts_with(rows), "{what}");
            }
            if profile.provider == "cpu" {
                assert!(!engine.starts_with("wgsl."), "{what}");
            }
        }
    }
}

/// In a layer whose values have another format than its queries and keys, they are a separate
/// launch.
#[test]
fn values_are_computed_concurrently_with_queries_and_keys() {
    let profile = DeviceProfile::known("nvidia-h200").unwrap();
    let cuda = profile.clone().with(|p| p.provider = "cuda".into()).with_cuda_features();
    for (name, graph, context) in models() {
        for (phase, tokens) in PHASES {
            let plan = plan_of(&graph, context, tokens, &cuda);
            plan.verify().unwrap();
            let says = |i: usize, what: fn(&Specialization) -> bool| {
                plan.steps.get(i).and_then(|step| step.kernel.known()).is_some_and(what)
            };
            let beside = |i: &usize| says(*i, |known| known.overlaps_previous);
            let found: Vec<usize> = (0..plan.steps.len()).filter(beside).collect();
            let labels: Vec<&str> = found.iter().map(|i| plan.steps[*i].label.as_str()).collect();
            // Its files mix formats; the others have one.
            let layers: &[u32] = if name == "tiny-llama" { &[0, 3, 6, 7] } else { &[] };
            let expected: Vec<String> =
                layers.iter().map(|n| format!("blk.{n}.attn_norm + blk.{n}.attn_v")).collect();
            assert!(phase != "decode" || labels == expected, "{name}: {labels:?}");
            assert!(labels.iter().all(|label| label.contains("attn_v")), "{name}: {labels:?}");
            assert!(found.iter().all(|i| says(*i - 1, |known| known.allows_overlap)));
        }
    }
    // With barriers of whole buffers there is none between them either.
    let plan = plan_of(&models()[0].1, 512, 1, &profile);
    let report = plan.report();
    let mut values = report.steps.iter().filter(|step| step.label.ends_with("attn_v"));
    assert!(values.all(|step| !step.barrier));
}

#[test]
fn an_explanation_has_every_step_with_numbers() {
    let profile = DeviceProfile::known("nvidia-h200").unwrap();
    let model = smollm::model();
    let plan = plan(&model, CONTEXT, 1, &profile);
    let report = plan.report();
    let (steps, totals) = (&report.steps, &report.totals);
    assert_eq!((steps.len(), totals.dispatches), (plan.steps.len(), plan.steps.len()));
    for step in steps {
        assert!(step.bytes > 0.0 && step.seconds > 0.0, "{step:?}");
        assert!(step.roof > 0.0 && step.roof <= 1.0, "{step:?}");
        assert!(step.shapes.contains(" -> "), "{step:?}");
    }
    // A token reads every weight once, except for the embedding's rows, plus keys and values.
    let weights = model.weight_bytes() as f64;
    assert!(totals.bytes > weights && totals.bytes < 2.5 * weights, "{totals:?}");
    assert!(totals.flops > 2.0 * 130e6 && totals.flops < 5.0 * 135e6, "{totals:?}");
    assert_eq!((totals.submits, totals.waits, totals.upload_bytes), (1, 1, 8));
    assert_eq!(totals.download_bytes, 4);
    assert!(totals.barriers > 0 && totals.barriers <= totals.dispatches, "{totals:?}");
    let sum: f64 = steps.iter().map(|step| step.seconds).sum();
    assert!((sum - totals.seconds).abs() < 1e-9, "{totals:?}");

    let text = plan.explain();
    for words in ["30 times", "barriers", "why:", "arena:", "passes: infer, ", "NVIDIA H200"] {
        assert!(text.contains(words), "{words:?} in\n{text}");
    }
    let all = report.text(&TextOptions { all: true, arena: true, why: false });
    assert!(!all.contains("30 times") && all.lines().count() > plan.steps.len(), "{all}");

    let json = plan.explain_json();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["steps"].as_array().unwrap().len(), plan.steps.len());
    for field in ["number", "label", "engine", "kernel", "shapes", "grid", "bytes", "flops"] {
        assert!(!json["steps"][3][field].is_null(), "{field}");
    }
    assert!(json["choices"][0]["candidates"].as_array().is_some_and(|list| !list.is_empty()));
}

/// The arena report is true: tensors lie within their buffer, and no two with overlapping lifetimes
/// overlap.
#[test]
fn arenas_are_reported_as_they_are() {
    for (name, _, plan) in plans() {
        let memory = plan.report().memory;
        assert_eq!(memory.arena_bytes, plan.arena_bytes());
        assert!(memory.peak_bytes > 0 && memory.peak_bytes <= memory.arena_bytes, "{name}");
        for buffer in &memory.arena {
            for (i, a) in buffer.tensors.iter().enumerate() {
                assert!(a.offset + a.bytes <= buffer.bytes && a.first <= a.last, "{name}: {a:?}");
                for b in &buffer.tensors[..i] {
                    let together = a.first <= b.last && b.first <= a.last;
                    let apart = a.offset >= b.offset + b.bytes || b.offset >= a.offset + a.bytes;
                    assert!(!together || apart, "{name}: {a:?} {b:?}");
                }
            }
        }
    }
}

/// `explain` and `tune` plan for the weight layouts of a session on the device, not those of the
/// file.
#[test]
fn graphs_on_a_device_have_weights_as_it_keeps_them() {
    let file = Gguf::from_bytes(model_bad::good_with_kept_rows(), "kept.gguf").unwrap();
    let model = Model::from_gguf(file).unwrap();
    let cache = CacheShape::new(1, 64, DType::F16);
    let registry = Registry::builtin();
    for (profile, format) in [("nvidia-h200", Format::Q6Kx8), ("cpu-avx512", Format::Q6K)] {
        let device = DeviceProfile::known(profile).unwrap();
        let graph = model
            .graph_on(device.kind, cache, DecoderInput::Tokens, DecoderOutput::Greedy)
            .unwrap();
        let class = class_of(1, 64).unwrap();
        let plan = Plan::new(&graph, &class, &device, &Options::new(&registry)).unwrap();
        let wanted = format!("{format}[64, 2048]");
        assert!(plan.explain().contains(&wanted), "{profile}: no {wanted}\n{}", plan.explain());
    }
}
