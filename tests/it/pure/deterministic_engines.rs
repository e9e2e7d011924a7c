//! Engines in deterministic mode: selection, exclusion, detection and reports.

use std::sync::Arc;

use warploom::engine::{
    Cost, DriverKey, Engine, EngineId, KnobValues, Lowering, OTHER_OPERATION, Query,
    ReductionOrder, Registry, StepBinding, Tuned, TunedChoices,
};
use warploom::graph::{Graph, Op, ReduceOp};
use warploom::kernel::{Access, KernelSpec, SourceSpec};
use warploom::plan::{Options, Plan, TextOptions, tasks};
use warploom::provider::{DeviceProfile, Word};
use warploom::runtime::{RunOptions, Runtime};
use warploom_core::base::{ComputeMode, DType, Dim, Format, Shape, ShapeClass};

use crate::deterministic::{along, differs, feed_forward};

/// Sums of rows of x in its own WGSL, whose lanes take columns in turn: the number of lanes depends
/// on the number of rows, which it hides.
struct SplitByRows {
    id: EngineId,
    honest: bool,
}

const SPLIT: &str = "
struct Params { rows: u32, cols: u32, x_offset: u32, y_offset: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1)
fn sum(@builtin(workgroup_id) id: vec3<u32>) {
    var parts: array<f32, 8>;
    let lanes = max(8u / params.rows, 1u);
    for (var c = 0u; c < params.cols; c++) {
        parts[c % lanes] += x[params.x_offset + id.x * params.cols + c];
    }
    var sum = 0.0;
    for (var lane = 0u; lane < lanes; lane++) {
        sum += parts[lane];
    }
    y[params.y_offset + id.x] = sum;
}
";

impl Engine for SplitByRows {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        match query.op {
            Op::Reduce { op: ReduceOp::Sum, axes, .. } if axes == &[1] => Ok(()),
            _ => Err(OTHER_OPERATION.into()),
        }
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        match self.honest {
            true => Err("lanes follow from the number of rows".into()),
            false => Ok(ReductionOrder::new(0, "a lie")),
        }
    }

    fn cost(&self, _query: &Query) -> Cost {
        Cost { bytes: 1.0, flops: 1.0, dispatches: 0.0, efficiency: 1.0 }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> warploom::Result<()> {
        let (x, y) = (&query.operands[0], query.output);
        let kernel = KernelSpec::Source(SourceSpec {
            twins: Vec::new(),
            name: "split_by_rows".into(),
            wgsl: SPLIT.into(),
            entry: "sum".into(),
            bindings: vec![Access::Read, Access::ReadWrite],
            param_words: 4,
            constants: Default::default(),
        });
        let sizes = [&x.shape[0], &x.shape[1], &x.layout.offset, &y.layout.offset];
        let params = sizes.into_iter().map(Word::dim).collect::<warploom::Result<_>>()?;
        let bindings = [(x.tensor, Access::Read), (y.tensor, Access::ReadWrite)];
        let bindings =
            bindings.map(|(tensor, access)| StepBinding { tensor, offset: 0, bytes: None, access });
        let grid = [x.shape[0].clone(), Dim::new(1), Dim::new(1)];
        out.step(kernel, params, bindings.into_iter().collect(), grid)
    }
}

/// The check detects a wrongly declared order, and the mode excludes an engine without one.
#[test]
fn an_engine_that_splits_by_rows_is_caught_or_left_out() {
    let sum = Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep: false };
    let case = along("planted", sum, &[301], 0);
    for (honest, mode, found) in [(false, true, true), (true, true, false), (true, false, true)] {
        let mut runtime = Runtime::builder().device("cpu").build().unwrap();
        let id = EngineId::new("acme.split_by_rows");
        runtime
            .registry_mut()
            .unwrap()
            .add(Arc::new(SplitByRows { id: id.clone(), honest }))
            .unwrap();
        // The mode must exclude it even if it is preferred.
        let options =
            RunOptions { deterministic: mode, preferred: vec![id], ..RunOptions::default() };
        let differs = differs(&runtime, &case, &options).unwrap();
        assert_eq!(differs.is_some(), found, "honest {honest}, mode {mode}: {differs:?}");
    }
}

/// Without the mode the CPU sums in a different order for one row than for many: the reason for the
/// mode.
#[test]
fn without_the_mode_bits_depend_on_the_rows() {
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    for mode in [ComputeMode::F32, ComputeMode::Int8] {
        let case = feed_forward(Format::Q4K, mode);
        let found = differs(&runtime, &case, &RunOptions::default()).unwrap();
        assert!(found.is_some(), "{mode}: bits that the mode keeps were equal anyway");
    }
}

#[test]
fn an_operation_without_an_order_is_an_error_that_names_what_was_refused() {
    let graph = {
        let mut graph = Graph::new("attend");
        let [q, k, v] =
            ["q", "k", "v"].map(|name| graph.input(name, Shape::new([4u64, 2, 64]), DType::F32));
        let op = Op::attention(0.125, true, None, Dim::new(0));
        let y = graph.add(op, &[q, k, v]).unwrap();
        let y = graph.label(y, "layer 3 attention");
        graph.output("y", y).unwrap();
        graph
    };
    let registry = Registry::builtin();
    let profile = DeviceProfile::known("nvidia-h200").unwrap();
    let mut options = Options { deterministic: true, ..Options::new(&registry) };
    let plan = Plan::new(&graph, &ShapeClass::new(), &profile, &options).unwrap();
    assert!(plan.deterministic && plan.report().deterministic);
    assert!(plan.report().text(&TextOptions::default()).contains("deterministic: bits"));
    assert_eq!(Plan::load(&plan.save().unwrap()).unwrap(), plan);
    let engines = ["catalogue.attn_decode", "catalogue.attn_decode.subgroup"];
    options.block = engines.map(EngineId::new).to_vec();
    let error = Plan::new(&graph, &ShapeClass::new(), &profile, &options).unwrap_err();
    let text = error.to_string();
    for part in [
        "layer 3 attention",
        "attention [4, 2, 64] [4, 2, 64] [4, 2, 64] on",
        "in deterministic mode",
        "catalogue.attn_prefill: not deterministic: tokens share tiles of keys",
        "wgsl.attn_split_kv: not deterministic: the slices of the keys",
        "catalogue.attn_decode: blocked by the caller",
    ] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    options.deterministic = false;
    let plan = Plan::new(&graph, &ShapeClass::new(), &profile, &options).unwrap();
    assert!(
        !plan.deterministic
            && !plan.report().text(&TextOptions::default()).contains("deterministic")
    );
}

/// The bits of a row must not depend on the number of rows, so no engine of another order replaces
/// the first if its launch has too few workgroups.
#[test]
fn more_rows_than_a_launch_has_are_an_error_that_names_the_operation() {
    const MANY: u64 = 70_000;
    let attend = |spans: bool| {
        let mut graph = Graph::new("attend");
        let q = graph.input("q", Shape::new([MANY, 2, 8]), DType::F32);
        let [k, v] = ["k", "v"].map(|name| graph.input(name, Shape::new([4u64, 2, 8]), DType::F32));
        let op = Op::attention(1.0, false, None, Dim::new(0));
        let mut operands = vec![q, k, v];
        if spans {
            operands.push(graph.input("spans", Shape::new([MANY, 2]), DType::I32));
        }
        let y = graph.add(op, &operands).unwrap();
        graph.output("y", y).unwrap();
        graph
    };
    let multiply = |op: Op| {
        let mut graph = Graph::new("product");
        let x = graph.input("x", Shape::new([MANY, 256]), DType::F32);
        let w = graph.weight("w", Shape::new([32u64, 256]), Format::Q4K);
        let y = graph.add(op, &[x, w]).unwrap();
        graph.output("y", y).unwrap();
        graph
    };
    let groups = "70000 workgroups along its tokens, the device has 65535";
    let layers = "not deterministic: products by rows come first, and 70000 layers of workgroups, \
                  the device has 65535";
    let decode = format!("catalogue.attn_decode: {groups}");
    let split = format!("wgsl.attn_split_kv: {groups}");
    let product = format!("wgsl.matmul.q4_k: {layers}");
    let rounded = format!("wgsl.matmul_rounded.q4_k: {layers}");
    let int8 = Op::Linear { mode: ComputeMode::Int8 };
    let table = [
        (attend(false), "attention [70000, 2, 8]", &decode, Some("catalogue.attn_prefill")),
        (attend(true), "attention [70000, 2, 8]", &split, None),
        (multiply(Op::linear()), "linear [70000, 256]", &product, Some("wgsl.matmul.q4_k")),
        (multiply(int8), "linear [70000, 256]", &rounded, Some("wgsl.matmul_rounded.q4_k")),
    ];
    let (registry, class) = (Registry::builtin(), ShapeClass::new());
    for name in ["nvidia-h200", "browser-floor"] {
        let mut profile = DeviceProfile::known(name).unwrap();
        profile.has_matrix_hw = false;
        for (graph, names, refuses, otherwise) in &table {
            let mut options = Options { deterministic: true, ..Options::new(&registry) };
            let error = Plan::new(graph, &class, &profile, &options).unwrap_err();
            let text = error.to_string();
            let said = [*names, "in deterministic mode", refuses.as_str()];
            let missing = said.iter().find(|part| !text.contains(**part));
            assert!(error.is_unsupported() && missing.is_none(), "{missing:?} is not in: {text}");
            options.deterministic = false;
            match (Plan::new(graph, &class, &profile, &options), otherwise) {
                (Ok(plan), Some(engine)) => {
                    let taken = plan.choices[0].engine.as_ref().map(EngineId::as_str);
                    assert_eq!(taken, Some(*engine));
                    plan.fits(&profile.clone().with(|p| p.name = "the same".into())).unwrap();
                }
                (Err(error), None) => assert!(error.to_string().contains(groups), "{error}"),
                (Err(error), Some(_)) => panic!("{name}: {error}"),
                (Ok(plan), None) => panic!("{name}: {}", plan.choices[0].why),
            }
        }
    }
}

/// A measured choice is used if its reduction order is the one that the mode uses anyway.
#[test]
fn a_tuned_choice_is_taken_in_its_order_alone() {
    let mut graph = Graph::new("product");
    let x = graph.input("x", Shape::new([1u64, 256]), DType::F32);
    let w = graph.weight("w", Shape::new([512u64, 256]), Format::Q4K);
    let y = graph.add(Op::linear(), &[x, w]).unwrap();
    graph.output("y", y).unwrap();
    let (registry, class) = (Registry::builtin(), ShapeClass::new());
    let profile = DeviceProfile::known("nvidia-h200").unwrap();
    let task = tasks(&graph, &class, &profile, &Options::new(&registry)).unwrap().remove(0);
    let id = EngineId::new("wgsl.matvec.q4_k.subgroup");
    for (knob, value, in_order) in [("rows", 1, true), ("threads", 64, false)] {
        let tuned = Tuned {
            engine: id.clone(),
            engine_version: registry.get(&id).unwrap().version(),
            knobs: KnobValues::default().with(knob, value),
            seconds: 1e-6,
            against: id.clone(),
            against_seconds: 2e-6,
        };
        let mut choices = TunedChoices::new(DriverKey::of(&profile));
        choices.choices.insert(task.key.clone(), tuned);
        let tuned = vec![Arc::new(choices)];
        for deterministic in [false, true] {
            let options =
                Options { deterministic, tuned: tuned.clone(), ..Options::new(&registry) };
            let plan = Plan::new(&graph, &class, &profile, &options).unwrap();
            let choice = &plan.choices[0];
            assert_eq!(choice.engine.as_ref(), Some(&id), "{}", choice.why);
            assert_eq!(choice.tuned.is_some(), in_order || !deterministic, "{}", choice.why);
            let reported = choice.why.contains("left out: another order");
            assert_eq!(reported, deterministic && !in_order, "{}", choice.why);
        }
    }
}
