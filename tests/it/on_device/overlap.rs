//! Overlapping steps give the same bits as steps that wait for each other.

use warploom::engine::{EngineId, Registry};
use warploom::graph::{BinaryOp, Graph, Op};
use warploom::plan::{Options, Plan};
use warploom::provider::DeviceProfile;
use warploom::runtime::{DeviceTensors, Instance, Runtime, WeightSource};
use warploom_core::base::{ComputeMode, DType, Format, Shape, ShapeClass, SymbolValues};

use crate::{devices, tell};

const SIDE: u64 = 32;
const COLUMNS: u64 = SIDE * SIDE;
const LAYERS: usize = 24;
/// Runs on CUDA; from the second on they are graphs. Elsewhere launches do not overlap, and two
/// runs suffice.
const RUNS: usize = 300;

/// Layers of two products of one normalised row, in formats that are not merged, and their product
/// as matrices.
fn graph() -> Graph {
    let mut g = Graph::new("beside");
    let row = Shape::new([1, COLUMNS]);
    let mut x = g.input("x", row.clone(), DType::F32);
    let gain = g.weight("gain", Shape::new([COLUMNS]), Format::F32);
    let weights = [0, 1].map(|turn| {
        [("a", Format::Q8_0), ("b", Format::Q4_0)].map(|(name, format)| {
            g.weight(&format!("{name}{turn}"), Shape::new([COLUMNS, COLUMNS]), format)
        })
    });
    for layer in 0..LAYERS {
        let normed = g.add(Op::RmsNorm { eps: 1e-5 }, &[x, gain]).unwrap();
        let sides = weights[layer % 2].map(|w| {
            let y = g.add(Op::linear(), &[normed, w]).unwrap();
            g.add(Op::Reshape(Shape::new([SIDE, SIDE])), &[y]).unwrap()
        });
        let product = g.add(Op::MatMul, &sides).unwrap();
        x = g.add(Op::Reshape(row.clone()), &[product]).unwrap();
    }
    g.output("y", x).unwrap();
    g
}

fn plan(profile: &DeviceProfile, without: &[&str]) -> Plan {
    plan_of(&graph(), profile, without)
}

fn plan_of(graph: &Graph, profile: &DeviceProfile, without: &[&str]) -> Plan {
    let registry = Registry::builtin();
    let without = without.iter().map(ToString::to_string).collect();
    let options = Options { without, ..Options::new(&registry) };
    Plan::new(graph, &ShapeClass::new(), profile, &options).unwrap()
}

fn overlapping(plan: &Plan) -> usize {
    let known = plan.steps.iter().filter_map(|step| step.kernel.known());
    known.filter(|known| known.overlaps_previous).count()
}

/// Values between -1 and 1 with a period longer than the tensor.
fn numbers(count: u64, seed: u64) -> Vec<f32> {
    let number = |i: u64| (i * 7919 + seed * 104_729) % 65_537;
    (0..count).map(|i| number(i * i + i) as f32 / 32_768.0 - 1.0).collect()
}

fn instance(runtime: &Runtime, plan: Plan) -> (Instance, DeviceTensors) {
    let (pool, device) = (runtime.pool(), &**runtime.device());
    let mut resident = DeviceTensors::new();
    let mut upload = |name: &str, format: Format, values: &[f32]| {
        let bytes = warploom_core::quant::encode(format, values).unwrap();
        let source = WeightSource { name, bytes: &bytes };
        resident.upload(pool, device, &[source], &mut |_| {}).unwrap();
    };
    upload("gain", Format::F32, &numbers(COLUMNS, 3));
    for layer in 0..2u64 {
        let values = |seed| numbers(COLUMNS * COLUMNS, seed + layer);
        upload(&format!("a{layer}"), Format::Q8_0, &values(11));
        upload(&format!("b{layer}"), Format::Q4_0, &values(23));
    }
    (Instance::new(runtime, plan, &mut resident).unwrap(), resident)
}

fn h200() -> DeviceProfile {
    let profile = DeviceProfile::known("nvidia-h200").unwrap();
    profile.with(|p| p.provider = "cuda".into()).with_cuda_features()
}

/// Integer products of the sizes of an 8B layer; the kernel before quantises for both.
#[test]
fn products_of_quantised_rows_overlap() {
    const INT8: Op = Op::Linear { mode: ComputeMode::Int8 };
    let mut g = Graph::new("handed");
    let row = Shape::new([1, 4096]);
    let x = g.input("x", row.clone(), DType::F32);
    let base = g.input("base", row, DType::F32);
    let gain = g.weight("gain", Shape::new([4096]), Format::F32);
    let product = |g: &mut Graph, name: &str, x, rows: u64, format| {
        let w = g.weight(name, Shape::new([rows, 4096]), format);
        let y = g.add(INT8, &[x, w]).unwrap();
        g.label(y, name)
    };
    let first = product(&mut g, "first", x, 4096, Format::Q4K);
    let sum = g.add(Op::Binary(BinaryOp::Add), &[base, first]).unwrap();
    let normed = g.add(Op::RmsNorm { eps: 1e-5 }, &[sum, gain]).unwrap();
    let q = product(&mut g, "q", normed, 5120, Format::Q4K);
    let v = product(&mut g, "v", normed, 1024, Format::Q6Kx8);
    for (name, y) in [("sum", sum), ("q", q), ("v", v)] {
        g.output(name, y).unwrap();
    }
    let registry = Registry::builtin();
    let preferred = ["q4_k", "q6_kx8"]
        .map(|format| EngineId::new(format!("wgsl.matvec_prequant.{format}.subgroup")));
    let options = Options { preferred: preferred.to_vec(), ..Options::new(&registry) };
    let plan = Plan::new(&g, &ShapeClass::new(), &h200(), &options).unwrap();
    plan.verify().unwrap();
    let [.., q, v] = &plan.steps[..] else { panic!("{}", plan.outline()) };
    let known = [q, v].map(|step| step.kernel.known().cloned().unwrap_or_default());
    let products = [q, v].iter().all(|step| step.kernel.name().starts_with("matvec_prequant_"));
    assert!(
        products && known[0].allows_overlap && known[1].overlaps_previous,
        "{}",
        plan.outline()
    );
}

#[test]
fn two_at_once_give_the_bits_of_one_after_the_other() {
    assert_eq!(
        (overlapping(&plan(&h200(), &[])), overlapping(&plan(&h200(), &["overlap"]))),
        (LAYERS, 0)
    );
    for (label, runtime) in devices::every(true) {
        let profile = runtime.device().profile();
        let runs = if profile.provider == "cuda" { RUNS } else { 2 };
        let (together, _kept) = instance(&runtime, plan(profile, &[]));
        let (apart, _also) = instance(&runtime, plan(profile, &["overlap"]));
        for run in 0..runs {
            let x: Vec<u8> =
                numbers(COLUMNS, run as u64).iter().flat_map(|v| v.to_le_bytes()).collect();
            let read = |instance: &Instance| {
                instance.read(SymbolValues::new(), vec![x.clone()]).unwrap().remove(0)
            };
            let (got, want) = (read(&together), read(&apart));
            let first = f32::from_le_bytes(want[..4].try_into().unwrap());
            assert!(first.is_finite() && first != 0.0, "{label}: {first}");
            assert!(got == want, "{label}: run {run} differs");
        }
        let pairs = overlapping(together.plan());
        tell(&format!("overlapping launches: {label}, {pairs} pairs in each of {runs} runs"));
    }
}
