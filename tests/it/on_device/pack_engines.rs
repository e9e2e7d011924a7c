//! Packs that implement a known operation: engines like any other, tested with the case table, with
//! a reason if a plan does not use them.

use std::sync::Arc;

use warploom::engine::{Engine, EngineId, PackEngine, Registry};
use warploom::graph::{Graph, Op};
use warploom::kernel::pack::Pack;
use warploom::plan::{Options, Plan, Selector};
use warploom::provider::DeviceProfile;
use warploom::runtime::Runtime;
use warploom_core::base::{DType, Shape, ShapeClass};
use warploom_testkit::doctor::{Finding, Limits, examine};
use warploom_testkit::pack::{self, Outcome};
use warploom_testkit::{Case, Conformance};

use crate::packs::example;
use crate::{devices, tell};

/// The example, with a change to its manifest or its shader.
fn softmax(file: &str, from: &str, to: &str) -> Result<Pack, String> {
    let mut manifest = include_str!("../../../examples/packs/softmax/pack.toml").to_string();
    let mut shader = include_str!("../../../examples/packs/softmax/softmax.wgsl").to_string();
    let text = if file == "pack.toml" { &mut manifest } else { &mut shader };
    assert!(text.contains(from), "{from:?} is not in {file}");
    *text = text.replacen(from, to, 1);
    let manifest = format!("name = \"softmax\"\n{manifest}");
    let files = [
        ("softmax.wgsl", shader.as_str()),
        ("softmax.cu", include_str!("../../../examples/packs/softmax/softmax.cu")),
        ("softmax.cl", include_str!("../../../examples/packs/softmax/softmax.cl")),
    ];
    Pack::from_sources(&manifest, &files).map_err(|e| e.to_string())
}

#[test]
fn the_example_is_right_on_every_device() {
    let pack = example("softmax");
    let cases = pack::cases_of("softmax");
    let row = pack::operation_in_interpreter(&pack, &cases);
    assert!(matches!(row.outcome, Outcome::Right { elements, .. } if elements > 1000), "{row:?}");
    for (label, runtime) in devices::every(true) {
        let row = pack::operation_on_device(&pack, &cases, &runtime).unwrap();
        tell(&format!("pack.softmax on {label}: {row:?}"));
        assert!(matches!(row.outcome, Outcome::Right { .. }), "{label}: {row:?}");
    }
}

/// A row sum without the last step, a maximum that is not subtracted, an index out of bounds.
#[test]
fn wrong_numbers_are_found() {
    let mut cases = pack::cases_of("softmax");
    // The CPU interprets them.
    cases.retain(|case| !case.name.contains("many"));
    let runtime = Runtime::builder().device("cpu").trusting(true).build().unwrap();
    for (from, to, words) in [
        ("sum = parts[0];", "sum = parts[1];", ["softmax.wgsl", "expected"]),
        ("largest = parts[0];", "largest = 0.0;", ["softmax.wgsl", "expected"]),
        ("x[begin + i] - largest);", "x[begin + i + 1] - largest);", ["softmax.wgsl:", "bounds"]),
    ] {
        let pack = softmax("softmax.wgsl", from, to).unwrap();
        let row = pack::operation_in_interpreter(&pack, &cases);
        let Outcome::Wrong { what } = row.outcome else { panic!("{to} passed") };
        assert!(words.iter().all(|word| what.contains(word)), "{to}: {what}");
        let row = pack::operation_on_device(&pack, &cases, &runtime).unwrap();
        let Outcome::Wrong { what } = row.outcome else { panic!("{to} passed on the CPU") };
        assert!(what.contains("pack.softmax forced"), "{what}");
    }
}

/// An invalid engine manifest is an error with its line.
#[test]
fn broken_manifests_are_errors_with_their_lines() {
    let implements = "implements = \"softmax\"";
    for (from, to, words) in [
        (implements, "implements = \"softmx\"", ":3: implements: \"softmx\" is not an operation"),
        (implements, "implements = \"pool2d\"", "is not an operation that packs execute"),
        (implements, "implements = \"rms_norm\"", ":3: implements: rms_norm has 2 operands"),
        (implements, "implements = \"softmax\"\nwhen = { eps = 1 }", ":4: when: softmax has no"),
        (implements, "", ": is of a pack with `implements`"),
        ("n >= 1", "m >= 1", "where: there is no size m, but [\"n\", \"rows\"]"),
        ("n >= 1", "n = 1", "is not a comparison"),
        ("n >= 1", "n >= (1", "where: size"),
        ("8 * rows * n", "8 * columns", "cost: flops: there is no size columns"),
        ("0.3", "1.5", "efficiency 1.5 is not a share"),
        ("efficiency", "efficency", "unknown field `efficency`"),
    ] {
        let error = softmax("pack.toml", from, to).expect_err(to);
        assert!(error.contains(words) && error.contains("pack.toml:"), "{to}: {error}");
    }
    let field = softmax("softmax.wgsl", "    n: u32,", "    n: u32,\n    scale: f32,").unwrap_err();
    assert!(field.contains("scale of the uniform block is not an attribute of softmax"), "{field}");
    let blur = PackEngine::new(example("blur")).err().unwrap();
    assert!(blur.is_invalid() && blur.to_string().contains("no `implements`"), "{blur}");
}

/// A graph of one softmax of `f32[rows, n]`.
fn graph(rows: u64, n: u64) -> Graph {
    let mut graph = Graph::new("softmax");
    let x = graph.input("x", Shape::new([rows, n]), DType::F32);
    let y = graph.add(Op::Softmax, &[x]).unwrap();
    graph.output("y", y).unwrap();
    graph
}

#[test]
fn plans_take_it_where_it_is_wished_for_and_say_why_not() {
    let mut registry = Registry::builtin();
    let pack = softmax("pack.toml", "n >= 1", "n <= 100").unwrap();
    registry.add(PackEngine::new(pack).unwrap()).unwrap();
    let profile = DeviceProfile::known("apple-m2").unwrap();
    let own = EngineId::new("pack.softmax");
    let plan =
        |graph: &Graph, options: &Options| Plan::new(graph, &ShapeClass::new(), &profile, options);
    let mut options = Options::new(&registry);
    options.preferred = vec![own.clone()];
    let small = plan(&graph(4, 100), &options).unwrap();
    assert_eq!(small.choices[0].engine, Some(own.clone()));
    let large = plan(&graph(4, 101), &options).unwrap();
    assert_ne!(large.choices[0].engine, Some(own.clone()));
    let said = large.explain();
    assert!(said.contains("pack.softmax: not for all sizes here: n <= 100"), "{said}");
    options.force = vec![(Selector::Operation("softmax".into()), own.clone())];
    let error = plan(&graph(4, 101), &options).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("n <= 100"), "{error}");
    // Its cost is the manifest's.
    let engine = registry.get(&own).unwrap();
    let found = warploom::plan::candidates(
        &graph(4, 100),
        &ShapeClass::new(),
        &profile,
        &Options::new(&registry),
    );
    let offer = &found.unwrap()[0].can;
    let offer = offer.iter().find(|offer| offer.engine == *engine.id()).unwrap();
    assert_eq!((offer.cost.flops, offer.cost.bytes), (3200.0, 6400.0));
    assert_eq!((offer.cost.dispatches, offer.cost.efficiency), (1.0, 0.3));
}

/// Attributes reach the kernel by field name, or are fixed; weights and layouts are unchanged.
#[test]
fn attributes_reach_the_kernel_or_are_fixed() {
    const NORM: &str = "
struct Params { rows: u32, n: u32, eps: f32 }
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> w: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) g: vec3<u32>) {
    let row = id.y * g.x * 64u + id.x;
    if (row >= p.rows) { return; }
    var sum = 0.0;
    for (var i = 0u; i < p.n; i++) { sum += x[row * p.n + i] * x[row * p.n + i]; }
    let scale = 1.0 / sqrt(sum / f32(p.n) + p.eps);
    for (var i = 0u; i < p.n; i++) { y[row * p.n + i] = x[row * p.n + i] * scale * w[i]; }
}";
    let manifest = |more: &str| {
        format!(
            "name = \"norm\"\nimplements = \"rms_norm\"\ninputs = [\"x: [rows, n]\", \"w: [n]\"]\n\
             outputs = [\"y: [rows, n]\"]\ngroups = [\"min(ceil(rows / 64), 1000)\", \
             \"ceil(rows / 64000)\"]\nwrites_all = true\n{more}"
        )
    };
    let read = |more: &str, shader: &str| {
        Pack::from_sources(&manifest(more), &[("norm.wgsl", shader)]).map_err(|e| e.to_string())
    };
    let few = |case: &Case| !case.name.contains("many") && case.name.starts_with("rms_norm/");
    let cases: Vec<Case> = pack::cases_of("rms_norm").into_iter().filter(few).collect();
    let runtime = Runtime::builder().device("cpu").trusting(true).build().unwrap();
    let uses = |pack: Pack| {
        let engine = PackEngine::new(pack).unwrap();
        let report = Conformance::new().cases(cases.clone()).engine(engine).run(&runtime).unwrap();
        report.assert_passed();
        report.devices[0].engines[0].clone()
    };
    let all = uses(read("", NORM).unwrap());
    assert!(all.cases > 8, "{all:?}");
    let fixed = uses(read("when = { eps = 1e-5 }\ndefaults = { eps = 1e-5 }", NORM).unwrap());
    assert!(fixed.cases > 2 && fixed.cases < all.cases, "{fixed:?}");
    assert!(fixed.refused.contains_key("eps is 0.1, and it executes 0.00001"), "{fixed:?}");

    let error = read("", &NORM.replace("eps", "small")).unwrap_err();
    assert!(error.contains(":2: implements: rms_norm has the attribute eps, and"), "{error}");
    let error = read("when = { eps = \"small\" }", NORM).unwrap_err();
    assert!(error.contains(":7: when: eps is not a number"), "{error}");

    // A packed weight is not unpacked for it.
    let mut graph = Graph::new("product");
    let x = graph.input("x", Shape::new([2, 64]), DType::F32);
    let w = graph.weight("w", Shape::new([3, 64]), warploom_core::base::Format::Q8_0);
    let y = graph.add(Op::linear(), &[x, w]).unwrap();
    graph.output("y", y).unwrap();
    let linear = Pack::from_sources(
        "name = \"linear\"\nimplements = \"linear\"\nwhen = { mode = \"f32\" }\n\
         inputs = [\"x: [m, k]\", \"w: [n, k]\"]\noutputs = [\"y: [m, n]\"]",
        &[(
            "linear.wgsl",
            "@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> k: u32;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= arrayLength(&y)) { return; }
    let n = arrayLength(&w) / k;
    var sum = 0.0;
    for (var i = 0u; i < k; i++) { sum += x[id.x / n * k + i] * w[id.x % n * k + i]; }
    y[id.x] = sum;
}",
        )],
    );
    let linear = linear.unwrap();
    let row = pack::operation_in_interpreter(&linear, &pack::cases_of("linear"));
    assert!(matches!(row.outcome, Outcome::Right { elements, .. } if elements > 100), "{row:?}");
    let mut registry = Registry::builtin();
    registry.add(PackEngine::new(linear).unwrap()).unwrap();
    let profile = DeviceProfile::known("nvidia-h200").unwrap();
    let plan = Plan::new(&graph, &ShapeClass::new(), &profile, &Options::new(&registry)).unwrap();
    assert!(plan.explain().contains("pack.linear: w is stored as q8_0"), "{}", plan.explain());
}

/// Runtimes accept packs, and `doctor` tests them like any other engine.
#[test]
fn a_runtime_takes_packs_and_doctor_meets_them() {
    let mut cases: Vec<Case> = pack::cases_of("softmax");
    cases.retain(|case| !case.name.contains("many"));
    for (pack, right) in [
        (example("softmax"), true),
        (softmax("softmax.wgsl", "sum = parts[0];", "sum = parts[1];").unwrap(), false),
    ] {
        let version = PackEngine::new(pack.clone()).unwrap().version();
        assert_ne!(version, 1, "the text is the version");
        let builder = Runtime::builder().device("cpu").trusting(true).pack(pack).unwrap();
        let runtime = Arc::new(builder.build().unwrap());
        let id = EngineId::new("pack.softmax");
        assert!(runtime.registry().get(&id).is_some());
        let limits = Limits { seconds: 0.0, first_seconds: f64::INFINITY, cases: 1 };
        let found = examine(&runtime, &cases, &limits, &mut |_, _, _| {}).unwrap();
        let found = found.engines.into_iter().find(|examined| examined.engine == id).unwrap();
        match right {
            true => assert!(matches!(found.finding, Finding::Right { .. }), "{found:?}"),
            false => assert!(matches!(found.finding, Finding::Wrong { .. }), "{found:?}"),
        }
    }
    let twice = Runtime::builder().device("cpu").pack(example("softmax")).unwrap();
    let twice = twice.pack(example("softmax")).unwrap().build();
    assert!(twice.err().unwrap().to_string().contains("pack.softmax is already registered"));
}
