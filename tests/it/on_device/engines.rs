//! Engines are an open set: one from another crate (here, a test) is listed, ranked, forced,
//! blocked, tuned by knobs and run like a built-in one.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use warploom::engine::{
    Cost, Engine, EngineId, Knob, Knobs, Lowering, OTHER_OPERATION, Query, Registry, StepBinding,
};
use warploom::graph::{BinaryOp, Graph, Op, UnaryOp};
use warploom::kernel::{Access, KernelSpec, SourceSpec};
use warploom::plan::{Options, Plan, Selector, candidates};
use warploom::provider::{DeviceProfile, Word};
use warploom::runtime::{DeviceTensors, Instance};
use warploom::{Error, Result};
use warploom_core::base::{DType, Dim, Format, Shape, ShapeClass, SymbolValues};

use crate::devices;

/// SiLU of f32 in its own WGSL; `speed` is the share of the device that it claims to reach.
struct Silu {
    id: EngineId,
    speed: f64,
}

const WGSL: &str = "
struct Params { n: u32, x_offset: u32, y_offset: u32, unused: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(THREADS)
fn silu(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = (wid.y * grid.x + wid.x) * THREADSu + lid;
    if (i < params.n) {
        let v = x[params.x_offset + i];
        y[params.y_offset + i] = v / (1.0 + exp(-v));
    }
}
";

impl Silu {
    const NAME: &str = "acme.silu";

    fn new(speed: f64) -> Arc<Silu> {
        Arc::new(Silu { id: EngineId::new(Silu::NAME), speed })
    }
}

fn threads() -> Knob {
    Knob::new("threads", "threads of a workgroup", [32, 64, 128, 256], 128)
}

impl Engine for Silu {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        let (Op::Unary(UnaryOp::Silu), [x]) = (query.op, query.operands) else {
            return Err(OTHER_OPERATION.into());
        };
        if !query.is_wgsl() {
            return Err("the device does not run WGSL".into());
        }
        match x.is_contiguous() && x.format == Format::F32 {
            true => Ok(()),
            false => Err("the operand is not f32 without gaps".into()),
        }
    }

    fn knobs(&self, _query: &Query) -> Vec<Knob> {
        vec![threads()]
    }

    fn cost(&self, query: &Query) -> Cost {
        let (bytes, flops) = (query.total_bytes(), 4.0 * query.output_elements());
        Cost { bytes, flops, dispatches: 1.0, efficiency: self.speed }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let (x, y) = (&query.operands[0], query.output);
        let threads = threads().value(query.knobs);
        let kernel = KernelSpec::Source(SourceSpec {
            name: "acme_silu".into(),
            wgsl: WGSL.replace("THREADS", &threads.to_string()),
            entry: "silu".into(),
            bindings: vec![Access::Read, Access::ReadWrite],
            param_words: 4,
            constants: Default::default(),
            twins: Vec::new(),
        });
        let elements = y.shape.elements();
        let params = vec![
            Word::dim(&elements)?,
            Word::dim(&x.layout.offset)?,
            Word::dim(&y.layout.offset)?,
            Word::Bits(0),
        ];
        let bindings = [(x.tensor, Access::Read), (y.tensor, Access::ReadWrite)];
        let bindings =
            bindings.map(|(tensor, access)| StepBinding { tensor, offset: 0, bytes: None, access });
        let grid = out.fold(elements.ceil_div(&Dim::from(threads)));
        out.step(kernel, params, bindings.into_iter().collect(), grid)
    }
}

const SHAPE: [i64; 2] = [7, 301];

/// Only `silu(x)`.
fn silu_graph() -> Graph {
    let mut g = Graph::new("silu");
    let x = g.input("x", Shape::new(SHAPE), DType::F32);
    let y = g.add(Op::Unary(UnaryOp::Silu), &[x]).unwrap();
    g.output("y", y).unwrap();
    g
}

/// `silu(x + x) * x`, its SiLU labelled.
fn chain_graph() -> Graph {
    let mut g = Graph::new("chain");
    let x = g.input("x", Shape::new(SHAPE), DType::F32);
    let sum = g.add(Op::Binary(BinaryOp::Add), &[x, x]).unwrap();
    let silu = g.add(Op::Unary(UnaryOp::Silu), &[sum]).unwrap();
    let silu = g.label(silu, "gate");
    let y = g.add(Op::Binary(BinaryOp::Mul), &[silu, x]).unwrap();
    g.output("y", y).unwrap();
    g
}

fn profile(name: &str) -> DeviceProfile {
    DeviceProfile::known(name).unwrap()
}

fn with_silu(speed: f64) -> Registry {
    let mut registry = Registry::builtin();
    registry.add(Silu::new(speed)).unwrap();
    assert!(registry.add(Silu::new(speed)).is_err(), "an id occurs once");
    registry
}

fn plan(graph: &Graph, profile: &DeviceProfile, options: &Options) -> Result<Plan> {
    Plan::new(graph, &ShapeClass::new(), profile, options)
}

fn engines(plan: &Plan) -> Vec<&str> {
    plan.steps.iter().map(|step| step.engine.as_str()).collect()
}

fn force(label: &str, id: &str) -> (Selector, EngineId) {
    (Selector::Label(label.into()), EngineId::new(id.to_string()))
}

/// Saved choices name both: ids are unique, and a version is incremented when the launches change.
#[test]
fn ids_and_versions_are_as_written_down() {
    let registry = Registry::builtin();
    let mut lines: Vec<String> =
        registry.engines().iter().map(|e| format!("{} {}\n", e.id(), e.version())).collect();
    lines.sort();
    let ids = lines.iter().map(|line| line.split(' ').next().unwrap());
    assert_eq!(ids.collect::<HashSet<_>>().len(), lines.len(), "an id occurs twice");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/engines.txt");
    if std::env::var("UPDATE_GOLDEN").is_ok_and(|v| v == "1") {
        std::fs::write(&path, lines.concat()).unwrap();
    }
    let was = std::fs::read_to_string(&path).unwrap().replace("\r\n", "\n");
    let (now, was): (HashSet<&str>, HashSet<&str>) =
        (lines.iter().map(|line| line.trim_end()).collect(), was.lines().collect());
    let (new, gone): (Vec<_>, Vec<_>) =
        (now.difference(&was).collect(), was.difference(&now).collect());
    assert!(
        new.is_empty() && gone.is_empty(),
        "{new:?} in the place of {gone:?}: saved choices of those no longer count; UPDATE_GOLDEN=1 writes the file anew"
    );
}

#[test]
fn an_engine_from_outside_is_listed_with_all_it_says() {
    let registry = with_silu(0.5);
    let options = Options::new(&registry);
    let gpu = candidates(&silu_graph(), &ShapeClass::new(), &profile("apple-m2"), &options);
    let [piece] = &gpu.unwrap()[..] else { panic!("one piece") };
    assert_eq!(piece.engine.as_ref().unwrap().as_str(), "fused.elementwise", "{}", piece.why);
    let ids: Vec<&str> = piece.can.iter().map(|offer| offer.engine.as_str()).collect();
    assert_eq!(ids, ["fused.elementwise", Silu::NAME], "the best first");
    let own = &piece.can[1];
    assert_eq!((&own.knobs[..], own.workspace), (&[threads()][..], 0));
    assert!(own.notes.deterministic && own.notes.needs_compiling && own.notes.capturable);
    assert!(own.seconds > piece.can[0].seconds && own.cost.dispatches == 1.0);

    let cpu = candidates(&silu_graph(), &ShapeClass::new(), &profile("cpu-avx512"), &options);
    let [piece] = &cpu.unwrap()[..] else { panic!("one piece") };
    let refused = (EngineId::new(Silu::NAME), "the device does not run WGSL".to_string());
    assert_eq!(piece.cannot, [refused]);
    assert!(piece.can.iter().all(|offer| !offer.notes.needs_compiling), "{piece:?}");
}

#[test]
fn an_engine_from_outside_is_chosen_when_it_is_cheaper_forced_or_preferred_and_never_when_blocked()
{
    let (graph, m2) = (silu_graph(), profile("apple-m2"));
    let fast = with_silu(1.0);
    let mut options = Options::new(&fast);
    assert_eq!(engines(&plan(&graph, &m2, &options).unwrap()), [Silu::NAME]);
    options.block = vec![EngineId::new(Silu::NAME)];
    let blocked = plan(&graph, &m2, &options).unwrap();
    assert_eq!(engines(&blocked), ["fused.elementwise"]);
    assert!(
        blocked.explain().contains("acme.silu: blocked by the caller"),
        "{}",
        blocked.explain()
    );

    let slow = with_silu(0.1);
    assert_eq!(engines(&plan(&graph, &m2, &Options::new(&slow)).unwrap()), ["fused.elementwise"]);
    let mut options = Options::new(&slow);
    options.preferred = vec![EngineId::new(Silu::NAME)];
    assert_eq!(engines(&plan(&graph, &m2, &options).unwrap()), [Silu::NAME]);
    let mut options = Options::new(&slow);
    options.force = vec![(Selector::Operation("silu".into()), EngineId::new(Silu::NAME))];
    let forced = plan(&graph, &m2, &options).unwrap();
    assert_eq!(engines(&forced), [Silu::NAME]);
    assert!(forced.choices[0].why.contains("forced"), "{}", forced.choices[0].why);
    let error = plan(&graph, &profile("cpu-avx512"), &options).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    assert!(error.to_string().contains("the device does not run WGSL"), "{error}");
}

/// A fusion is dropped if the forced engine does not support it.
#[test]
fn a_forced_engine_cuts_what_it_does_not_fuse() {
    let (graph, m2, registry) = (chain_graph(), profile("apple-m2"), with_silu(0.1));
    let mut options = Options::new(&registry);
    assert_eq!(engines(&plan(&graph, &m2, &options).unwrap()), ["fused.elementwise"]);
    options.force = vec![force("gate", Silu::NAME)];
    let apart = plan(&graph, &m2, &options).unwrap();
    assert_eq!(engines(&apart), ["fused.elementwise", Silu::NAME, "fused.elementwise"]);
    let node = apart.choices[1].node;
    options.force = vec![(Selector::Node(node), EngineId::new(Silu::NAME))];
    assert_eq!(engines(&plan(&graph, &m2, &options).unwrap()).len(), 3);
}

/// A norm before a product, with the norm's own kernel forced, and a softmax after a scale.
#[test]
fn forced_engines_of_this_crate_cut_anchors_and_loops() {
    let mut g = Graph::new("norm and product");
    let x = g.input("x", Shape::new([1, 512]), DType::F32);
    let gain = g.weight("gain", Shape::new([512]), Format::F32);
    let w = g.weight("w", Shape::new([512, 512]), Format::Q8_0);
    let norm = g.add(Op::RmsNorm { eps: 1e-5 }, &[x, gain]).unwrap();
    let norm = g.label(norm, "norm");
    let y = g.add(Op::linear(), &[norm, w]).unwrap();
    g.output("y", y).unwrap();
    let (h200, registry) = (profile("nvidia-h200"), Registry::builtin());
    let mut options = Options::new(&registry);
    let one = plan(&g, &h200, &options).unwrap();
    assert_eq!(engines(&one), ["wgsl.matvec.q8_0.subgroup"]);
    options.force = vec![force("norm", "catalogue.norm_rms")];
    let two = plan(&g, &h200, &options).unwrap();
    assert_eq!(engines(&two), ["catalogue.norm_rms", "wgsl.matvec.q8_0.subgroup"]);
    options.force.push((Selector::Operation("linear".into()), EngineId::new("wgsl.matmul.q8_0")));
    let two = plan(&g, &h200, &options).unwrap();
    assert_eq!(engines(&two), ["catalogue.norm_rms", "wgsl.matmul.q8_0"]);

    let mut g = Graph::new("scaled softmax");
    let x = g.input("x", Shape::new([64, 100]), DType::F32);
    let half = g.constant_f32(Shape::new([1]), &[0.5]);
    let scaled = g.add(Op::Binary(BinaryOp::Mul), &[x, half]).unwrap();
    let y = g.add(Op::Softmax, &[scaled]).unwrap();
    g.output("y", y).unwrap();
    let mut options = Options::new(&registry);
    assert_eq!(plan(&g, &h200, &options).unwrap().steps.len(), 1);
    options.force =
        vec![(Selector::Operation("softmax".into()), EngineId::new("catalogue.softmax"))];
    let two = plan(&g, &h200, &options).unwrap();
    assert_eq!(engines(&two), ["fused.elementwise", "catalogue.softmax"]);
}

#[test]
fn wrong_engine_choices_are_errors_with_the_name() {
    let (graph, m2, registry) = (silu_graph(), profile("apple-m2"), with_silu(1.0));
    let error = |change: &dyn Fn(&mut Options)| {
        let mut options = Options::new(&registry);
        change(&mut options);
        plan(&graph, &m2, &options).unwrap_err().to_string()
    };
    let own = || EngineId::new(Silu::NAME);
    let set = |name: &str, value| Knobs::default().set(own(), name, value);
    let said = error(&|o| o.knobs = set("threads", 48));
    assert!(said.contains("threads = 48") && said.contains("32, 64, 128, 256"), "{said}");
    let said = error(&|o| o.knobs = set("rows", 2));
    assert!(said.contains("\"rows\"") && said.contains("it has threads"), "{said}");
    for change in [
        &|o: &mut Options| o.block = vec![EngineId::new("no.such")],
        &|o: &mut Options| o.preferred = vec![EngineId::new("no.such")],
        &|o: &mut Options| o.force = vec![force("gate", "no.such")],
        &|o: &mut Options| o.knobs = Knobs::default().set(EngineId::new("no.such"), "x", 1),
    ] as [&dyn Fn(&mut Options); 4]
    {
        assert!(error(change).contains("no engine \"no.such\" is registered"));
    }
    let said = error(&|o| o.force = vec![force("gate", Silu::NAME)]);
    assert!(said.contains("\"gate\": no such node"), "{said}");
    let said = error(&|o| {
        let id = EngineId::new("catalogue.argmax");
        o.force = vec![(Selector::Operation("silu".into()), id)];
    });
    assert!(said.contains("catalogue.argmax is forced for silu"), "{said}");
    let all: Vec<EngineId> = registry.engines().iter().map(|e| e.id().clone()).collect();
    let said = error(&|o| o.block = all.clone());
    assert!(said.contains("acme.silu: blocked by the caller"), "{said}");
}

/// Knobs reach the built-in kernels; earlier knobs bound later ones.
#[test]
fn knobs_change_kernels() {
    let mut g = Graph::new("product");
    let x = g.input("x", Shape::new([8, 512]), DType::F32);
    let w = g.weight("w", Shape::new([512, 512]), Format::Q4K);
    let y = g.add(Op::linear(), &[x, w]).unwrap();
    g.output("y", y).unwrap();
    let (floor, registry) = (profile("browser-floor"), Registry::builtin());
    let with = |name: &str, values: &[(&str, u32)]| {
        let mut options = Options::new(&registry);
        let id = EngineId::new(name.to_string());
        for (knob, value) in values {
            options.knobs = options.knobs.set(id.clone(), *knob, *value);
        }
        options.preferred = vec![id];
        plan(&g, &floor, &options).map(|plan| plan.steps[0].kernel.to_string())
    };
    let kernel = with("wgsl.matvec.q4_k", &[("threads", 32), ("rows", 8)]).unwrap();
    assert!(kernel.contains("(M=8,ROWS=8,WG=32)"), "{kernel}");
    let kernel = with("wgsl.matmul.q4_k", &[("tile_m", 16), ("tile_n", 128)]).unwrap();
    assert!(kernel.contains("(BM=16,BN=128)"), "{kernel}");
    let error = with("wgsl.matvec.q4_k", &[("threads", 256), ("rows", 4)]).unwrap_err();
    assert!(error.to_string().contains("rows = 4 is not one of 1, 2"), "{error}");
    let error = with("wgsl.matmul.q4_k", &[("tile_m", 128), ("tile_n", 128)]).unwrap_err();
    assert!(error.to_string().contains("tile_n = 128"), "{error}");
}

/// An engine's workspace is known before a plan is made.
#[test]
fn the_workspace_is_reported() {
    let mut g = Graph::new("gather");
    let x = g.input("x", Shape::new([16, 24]), DType::F32);
    let ids = g.input("ids", Shape::new([3]), DType::I32);
    let t = g.add(Op::Transpose(vec![1, 0]), &[x]).unwrap();
    let y = g.add(Op::Gather { axis: 1 }, &[t, ids]).unwrap();
    g.output("y", y).unwrap();
    let registry = Registry::builtin();
    let options = Options::new(&registry);
    let found = candidates(&g, &ShapeClass::new(), &profile("radeon-rx-7900-xtx"), &options);
    let [piece] = &found.unwrap()[..] else { panic!("one piece") };
    assert_eq!(piece.can[0].workspace, 16 * 24 * 4, "{piece:?}");
}

fn numbers() -> Vec<f32> {
    (0..SHAPE[0] * SHAPE[1]).map(|i| (i % 41) as f32 * 0.37 - 7.0).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// On every device of this machine: WGSL runs it correctly, alone and split from a chain, with each
/// value of its knob; the CPU refuses it with its reason.
#[test]
fn an_engine_from_outside_runs() {
    let (silu, chain) = (silu_graph(), chain_graph());
    for (label, mut runtime) in devices::every(true) {
        runtime.registry_mut().unwrap().add(Silu::new(0.1)).unwrap();
        for (graph, threads) in [(&silu, 32), (&silu, 256), (&chain, 64)] {
            let mut options = runtime.plan_options();
            options.force = vec![(Selector::Operation("silu".into()), EngineId::new(Silu::NAME))];
            options.knobs = Knobs::default().set(EngineId::new(Silu::NAME), "threads", threads);
            let plan = plan(graph, runtime.device().profile(), &options);
            if runtime.device().profile().provider == "cpu" {
                let error: Error = plan.unwrap_err();
                assert!(error.to_string().contains("the device does not run WGSL"), "{error}");
                continue;
            }
            let plan = plan.unwrap();
            assert!(engines(&plan).contains(&Silu::NAME), "{label}");
            let mut resident = DeviceTensors::new();
            let instance = Instance::new(&runtime, plan, &mut resident).unwrap();
            let x = numbers();
            let got = instance.read(SymbolValues::new(), vec![bytes(&x)]).unwrap();
            let is_chain = graph.name == "chain";
            for (i, (x, y)) in x.iter().zip(got[0].chunks_exact(4)).enumerate() {
                let y = f64::from(f32::from_le_bytes(y.try_into().unwrap()));
                let of = |v: f64| v / (1.0 + (-v).exp());
                let x = f64::from(*x);
                let want = if is_chain { of(2.0 * x) * x } else { of(x) };
                assert!((y - want).abs() <= 1e-5 * want.abs() + 1e-6, "{label} {i}: {y} {want}");
            }
        }
    }
}
