//! Products that may accumulate in `f16`: the option, the ranking, and the results.

use std::collections::BTreeSet;

use warploom::DType;
use warploom::engine::{EngineId, Knobs, Registry};
use warploom::graph::{Graph, Op};
use warploom::kernel::KernelSpec;
use warploom::plan::{Options, Plan, tasks};
use warploom::provider::DeviceProfile;
use warploom::runtime::{RunOptions, Runtime, SyncMode, run_graph};
use warploom_core::base::{Format, Shape, ShapeClass};
use warploom_testkit::{self, Case, Outcome};

use crate::interpret_device::Checked;

const ENGINE: &str = "wgsl.matmul_batched_coop.f16_accumulate";

/// The product of square f16 matrices, stored as f16.
fn product(size: u64, to: DType) -> Graph {
    let mut g = Graph::new("product");
    let mut operand =
        |name: &str| g.weight(name, Shape::new([size, size]), Format::Plain(DType::F16));
    let operands = ["a", "b"].map(&mut operand);
    let wide = operands.map(|x| g.add(Op::Cast(DType::F32), &[x]).unwrap());
    let y = g.add(Op::MatMul, &wide).unwrap();
    let y = g.add(Op::Cast(to), &[y]).unwrap();
    g.output("y", y).unwrap();
    g
}

/// An H200 with the kernels of wgpu.
fn card() -> DeviceProfile {
    let known = DeviceProfile::known("nvidia-h200").unwrap();
    known.with(|p| {
        p.has_matrix_hw = true;
        p.has_f16_accumulate = true;
        p.has_f16 = true;
    })
}

fn engine(graph: &Graph, profile: &DeviceProfile, change: impl Fn(&mut Options)) -> String {
    let registry = Registry::builtin();
    let mut options = Options::new(&registry);
    change(&mut options);
    let plan = Plan::new(graph, &ShapeClass::new(), profile, &options).unwrap();
    let products = plan.steps.iter().filter(|step| step.engine.as_str().contains("matmul_batched"));
    products.map(|step| step.engine.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn f16_sums_are_used_if_enabled_and_the_result_is_f16() {
    let asked = |options: &mut Options| options.f16_accumulate = true;
    let large = product(4096, DType::F16);
    assert_eq!(engine(&large, &card(), asked), ENGINE);
    assert_eq!(engine(&large, &card(), |_| ()), "wgsl.matmul_batched_coop");
    assert_eq!(engine(&product(4096, DType::F32), &card(), asked), "wgsl.matmul_batched_coop");
    let other = card().with(|p| p.has_f16_accumulate = false);
    assert_eq!(engine(&large, &other, asked), "wgsl.matmul_batched_coop");
    // The summation order of tensor cores is unknown.
    let both =
        |options: &mut Options| (options.f16_accumulate, options.deterministic) = (true, true);
    assert!(!engine(&large, &card(), both).contains("coop"));
    // Where CUDA's library sums in f32 it is the faster.
    let cuda = card()
        .with(|p| {
            p.provider = "cuda".into();
            p.has_gemm_library = true;
        })
        .with_cuda_features();
    let taken = engine(&large, &cuda, asked);
    assert!(!taken.contains("f16_accumulate"), "{taken}");
}

/// Large tiles if there is work for the whole device and memory for them.
#[test]
fn tiles_follow_the_work_and_the_memory() {
    let shape = |size: u64, profile: &DeviceProfile| {
        let registry = Registry::builtin();
        let options = Options { f16_accumulate: true, ..Options::new(&registry) };
        let class = ShapeClass::new();
        let plan = Plan::new(&product(size, DType::F16), &class, profile, &options).unwrap();
        let found = plan.steps.iter().find_map(|step| match &step.kernel {
            KernelSpec::Asset(asset) if asset.name == "matmul_batched_coop" => {
                Some(["TI", "TH", "WI", "WJ"].map(|name| asset.get_u32(name).unwrap()))
            }
            _ => None,
        });
        found.unwrap_or_else(|| panic!("no product in {:?}", plan.steps))
    };
    assert_eq!(shape(8192, &card()), [8, 2, 2, 4]);
    assert_eq!(shape(4096, &card()), [8, 2, 2, 4]);
    assert_eq!(shape(2048, &card()), [8, 2, 1, 4]);
    assert_eq!(shape(512, &card()), [2, 1, 2, 2]);
    let small = card().with(|p| p.workgroup_memory_bytes = 32 << 10);
    assert_eq!(shape(4096, &small), [8, 2, 1, 4]);
    let smaller = card().with(|p| p.workgroup_memory_bytes = 24 << 10);
    assert_eq!(shape(4096, &smaller), [4, 2, 2, 2]);
}

/// Measurements with f16 sums do not apply to products without.
#[test]
fn measurements_are_kept_apart() {
    let registry = Registry::builtin();
    let of = |f16_accumulate| {
        let options = Options { f16_accumulate, ..Options::new(&registry) };
        let graph = product(2048, DType::F16);
        let found = tasks(&graph, &ShapeClass::new(), &card(), &options).unwrap();
        found
            .into_iter()
            .find(|task| task.engines.iter().any(|e| e.as_str().contains("coop")))
            .unwrap()
    };
    let (with, without) = (of(true), of(false));
    assert_ne!(with.key, without.key);
    let listed = |engines: &[EngineId]| engines.contains(&EngineId::new(ENGINE));
    assert_eq!((listed(&with.engines), listed(&without.engines)), (true, false));
}

/// Every tile on the checked device: within the error of f16 sums, and outside that of `f32` sums.
#[test]
fn every_tile_sums_in_f16_correctly_and_without_a_fault() {
    let cases = warploom_testkit::cases();
    let is_one = |case: &&Case| {
        case.name.starts_with("library/f16/")
            && case.name.ends_with("_f16")
            && ["40x192x72", "150x96x204"].iter().any(|size| case.name.contains(size))
    };
    let chosen: Vec<&Case> = cases.iter().filter(is_one).collect();
    assert_eq!(chosen.len(), 2);
    let device = Checked::with_f16_accumulate();
    let runtime = Runtime::on(device.clone(), SyncMode::Lazy, None).unwrap();
    let mut shapes = BTreeSet::new();
    for (rows, columns) in [(64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 256)] {
        let id = EngineId::new(ENGINE);
        let knobs = Knobs::default().set(id.clone(), "tile_m", rows);
        let knobs = knobs.set(id.clone(), "tile_n", columns);
        let half = RunOptions {
            knobs,
            preferred: vec![id],
            guard: true,
            f16_accumulate: true,
            ..RunOptions::default()
        };
        let exact = RunOptions {
            preferred: vec![EngineId::new("wgsl.matmul_batched_coop")],
            ..RunOptions::default()
        };
        for case in &chosen {
            let run = |options: &RunOptions| {
                run_graph(&runtime, &case.graph, &case.symbols, &case.bytes(), options)
            };
            let held = case.with_f16_accumulate();
            let outcome = warploom_testkit::run_case(&held, &|_, _, _| run(&half));
            assert!(
                matches!(outcome, Outcome::Pass(_)),
                "{rows} x {columns}: {}: {outcome:?}",
                case.name
            );
            assert_ne!(
                run(&half).unwrap(),
                run(&exact).unwrap(),
                "{rows} x {columns}: {}",
                case.name
            );
        }
    }
    for spec in device.ran() {
        let KernelSpec::Asset(asset) = spec else { continue };
        if asset.defines.iter().any(|define| define == "f16_accumulate") {
            shapes.insert(["TI", "TH", "WI", "WJ"].map(|name| asset.get_u32(name).unwrap()));
        }
    }
    let wanted =
        [[2, 1, 2, 2], [2, 2, 2, 2], [4, 1, 2, 2], [4, 2, 2, 2], [8, 2, 1, 4], [8, 2, 2, 4]];
    assert_eq!(shapes, wanted.into());
}

/// The option reaches plans from the builder, and is reported.
#[test]
fn a_runtime_reports_that_it_allows_f16_sums() {
    let runtime = Runtime::builder().device("cpu").f16_accumulate(true).build().unwrap();
    assert!(runtime.f16_accumulate() && runtime.plan_options().f16_accumulate);
    assert!(runtime.startup_line().contains(" f16_accumulate"), "{}", runtime.startup_line());
    let other = Runtime::builder().device("cpu").f16_accumulate(false).build().unwrap();
    assert!(
        !other.plan_options().f16_accumulate && !other.startup_line().contains("f16_accumulate")
    );
}
