//! Fused activation quantisation: rows between f16 products, stored as the next one reads them.

use std::sync::Arc;

use warploom::engine::{DriverKey, EngineId, KnobValues, Registry, Tuned, TunedChoices};
use warploom::graph::{BinaryOp, Graph, NodeId, Op, UnaryOp};
use warploom::kernel::{AssetSpec, KernelSpec, QuantEpilogue};
use warploom::plan::{Options, Plan, tasks};
use warploom::provider::DeviceProfile;
use warploom_core::base::{ComputeMode, DType, Format, Shape, ShapeClass};

/// Gate and up of F16, their product, and the next product; with `read` also the intermediate.
fn gated(mode: ComputeMode, rows: i64, read: bool) -> Graph {
    let mut g = Graph::new("gated");
    let x = g.input("x", Shape::new([rows, 2048]), DType::F32);
    let product = |g: &mut Graph, name: &str, x: NodeId, [n, k]: [i64; 2]| {
        let w = g.weight(name, Shape::new([n, k]), Format::Plain(DType::F16));
        g.add(Op::Linear { mode }, &[x, w]).unwrap()
    };
    let [gate, up] = ["gate", "up"].map(|name| product(&mut g, name, x, [8192, 2048]));
    let gate = g.add(Op::Unary(UnaryOp::Silu), &[gate]).unwrap();
    let y = g.add(Op::Binary(BinaryOp::Mul), &[gate, up]).unwrap();
    let down = product(&mut g, "down", y, [2048, 8192]);
    g.output("down", down).unwrap();
    if read {
        g.output("y", y).unwrap();
    }
    g
}

fn plan(graph: &Graph, tuned: Vec<Arc<TunedChoices>>) -> Plan {
    let profile = DeviceProfile::known("nvidia-h200").unwrap();
    let registry = Registry::builtin();
    let options = Options { tuned, ..Options::new(&registry) };
    let plan = Plan::new(graph, &ShapeClass::new(), &profile, &options).unwrap();
    plan.verify().unwrap();
    assert_eq!(Plan::load(&plan.save().unwrap()).unwrap(), plan);
    plan
}

fn assets(plan: &Plan) -> Vec<&AssetSpec> {
    let assets = plan.steps.iter().map(|step| match &step.kernel {
        KernelSpec::Asset(asset) => asset,
        other => panic!("{other}"),
    });
    assets.collect()
}

fn handed(asset: &AssetSpec) -> Option<&QuantEpilogue> {
    asset.fusion.as_ref()?.quant_epilogue.as_ref()
}

/// The steps, and the layout of rows between them.
fn steps(plan: &Plan) -> Vec<String> {
    let name = |asset: &&AssetSpec| match handed(asset) {
        Some(hand) => format!("{} {:?} kept: {}", asset.name, hand.form, hand.kept),
        None => asset.name.clone(),
    };
    assets(plan).iter().map(name).collect()
}

#[test]
fn rows_between_f16_products_are_stored_as_f16() {
    let handed = "split_k_reduce Halves(F16Layout { rounded: false, plain: false }) kept: ";
    // Rows without other readers are not stored unquantised.
    for (read, kept) in [(false, "false"), (true, "true")] {
        let found = steps(&plan(&gated(ComputeMode::F16, 512, read), Vec::new()));
        let last = format!("{handed}{kept}");
        let wanted =
            ["quantize_to_f16", "matmul_f16_coop", &last, "matmul_f16_coop", "split_k_reduce"];
        assert_eq!(found, wanted, "{read}");
    }
    for (mode, rows) in [(ComputeMode::F32, 512), (ComputeMode::F16, 1)] {
        let found = steps(&plan(&gated(mode, rows, false), Vec::new()));
        assert!(found.iter().all(|name| !name.contains("Halves")), "{found:?}");
    }
}

/// No kernel quantises for the first product of a chain, so a separate launch does, and the product
/// has a quant epilogue.
#[test]
fn the_first_product_of_a_chain_has_a_quant_epilogue() {
    let mut g = Graph::new("chain");
    let mut x = g.input("x", Shape::new([1, 4096]), DType::F32);
    for name in ["a", "b", "c"] {
        let w = g.weight(name, Shape::new([4096, 4096]), Format::Q4K);
        x = g.add(Op::Linear { mode: ComputeMode::Int8 }, &[x, w]).unwrap();
    }
    g.output("y", x).unwrap();
    let found = plan(&g, Vec::new());
    let names: Vec<&str> = assets(&found).iter().map(|asset| asset.name.as_str()).collect();
    let product = "matvec_prequant_q4_k";
    assert_eq!(names, ["quantize_activations", product, product, product]);
    let handing = assets(&found).iter().filter(|asset| handed(asset).is_some()).count();
    assert_eq!(handing, 2);
    // A small one quantises in its workgroups.
    let mut g = Graph::new("one");
    let x = g.input("x", Shape::new([1, 4096]), DType::F32);
    let w = g.weight("w", Shape::new([1024, 4096]), Format::Q4K);
    let y = g.add(Op::Linear { mode: ComputeMode::Int8 }, &[x, w]).unwrap();
    g.output("y", y).unwrap();
    let found = plan(&g, Vec::new());
    let names: Vec<&str> = assets(&found).iter().map(|asset| asset.name.as_str()).collect();
    assert_eq!(names, ["matvec_int8_q4_k"]);
}

/// The tuner measures such products alone, and its results apply to those with f16 operands.
#[test]
fn measurements_of_a_product_alone_hold_with_quantised_rows() {
    let graph = gated(ComputeMode::F16, 512, false);
    let (registry, class) = (Registry::builtin(), ShapeClass::new());
    let profile = DeviceProfile::known("nvidia-h200").unwrap();
    let found = tasks(&graph, &class, &profile, &Options::new(&registry)).unwrap();
    assert_eq!(found.len(), 2, "gate with up, and down");
    let of = |engine: &'static str, knobs: KnobValues| {
        let id = EngineId::new(engine);
        let mut choices = TunedChoices::new(DriverKey::of(&profile));
        for task in &found {
            let tuned = Tuned {
                engine: id.clone(),
                engine_version: registry.get(&id).unwrap().version(),
                knobs: knobs.clone(),
                seconds: 1e-6,
                against: id.clone(),
                against_seconds: 2e-6,
            };
            choices.choices.insert(task.key.clone(), tuned);
        }
        plan(&graph, vec![Arc::new(choices)])
    };
    let small = KnobValues::default().with("tile_m", 64).with("tile_n", 64);
    let tuned = of("wgsl.matmul_f16_coop.f16", small);
    let found = assets(&tuned);
    let tiles: Vec<Option<u32>> =
        found.iter().filter(|a| a.name == "matmul_f16_coop").map(|a| a.get_u32("TI")).collect();
    assert_eq!(tiles, [Some(2), Some(2)]);
    assert_eq!(found.iter().filter(|asset| handed(asset).is_some()).count(), 1);
    assert!(tuned.choices.iter().all(|choice| choice.tuned.is_some()));
    // Another engine takes unconverted rows.
    let floor = of("wgsl.matmul.f16", KnobValues::default());
    assert!(
        assets(&floor).iter().all(|asset| handed(asset).is_none() && asset.name == "matmul_f16")
    );
}
