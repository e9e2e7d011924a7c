//! Products as calls of a vendor's library: their plans, and their results on a host that
//! implements the calls. `cuda_products::library_products_are_right` runs them on the library.

use warploom::Tensor;
use warploom::engine::{EngineId, KnobValues, Registry, Verdict};
use warploom::graph::{BinaryOp, Graph, NodeId, Op, UnaryOp};
use warploom::kernel::{Epilogue, Gemm, KernelSpec, Routine};
use warploom::plan::{Bound, Options, Plan, Selector, tasks};
use warploom::provider::{DeviceProfile, NullProvider, OpenOptions, Word};
use warploom::runtime::{RunOptions, Runtime, SyncMode, run_graph};
use warploom_core::base::{DType, Dim, Format, Shape, ShapeClass, Symbol};
use warploom_testkit::{Conformance, Outcome, RandomLimits, random_case, run_case};

use crate::interpret_device::Checked;
use crate::tell;

pub(crate) const ENGINE: &str = "cuda.cublaslt.matmul";

/// Name prefixes of cases with products that the library may compute.
pub(crate) const CASES: [&str; 5] =
    ["library/", "matmul/", "linear/", "half_precision/f16/", "half_precision/bf16/"];

/// A large GPU with the library.
pub(crate) fn gpu() -> DeviceProfile {
    let null = NullProvider::device(&OpenOptions::default()).profile().clone();
    null.with(|p| {
        p.provider = "cuda".into();
        p.has_gemm_library = true;
        p.compute_units = 132;
        p.local_bandwidth = 4_800_000_000_000;
    })
    .with_cuda_features()
}

fn plan_on(graph: &Graph, profile: &DeviceProfile, with: impl FnOnce(&mut Options)) -> Plan {
    let registry = Registry::builtin();
    let mut options = Options::new(&registry);
    with(&mut options);
    let class = ShapeClass::new().with(ROWS, 1, 4096);
    Plan::new(graph, &class, profile, &options).unwrap_or_else(|e| panic!("{e}\n{graph}"))
}

fn plan(graph: &Graph) -> Plan {
    plan_on(graph, &gpu(), |_| {})
}

/// The calls of a plan, and the number of its other launches.
fn calls(plan: &Plan) -> (Vec<Gemm>, usize) {
    let gemm = |kernel: &KernelSpec| match kernel {
        KernelSpec::Routine(Routine::Gemm(gemm)) => Some(*gemm),
        _ => None,
    };
    let calls: Vec<Gemm> = plan.steps.iter().filter_map(|step| gemm(&step.kernel)).collect();
    let others = plan.steps.len() - calls.len();
    (calls, others)
}

const ROWS: Symbol = Symbol::new("rows");

fn matrix(g: &mut Graph, name: &str, dims: [u64; 2], dtype: DType) -> NodeId {
    g.input(name, Shape::new(dims), dtype)
}

fn product(dtype: DType, [m, k, n]: [u64; 3]) -> Graph {
    let mut g = Graph::new("product");
    let a = matrix(&mut g, "a", [m, k], dtype);
    let b = matrix(&mut g, "b", [k, n], dtype);
    let y = g.add(Op::MatMul, &[a, b]).unwrap();
    g.output("y", y).unwrap();
    g
}

#[test]
fn a_large_product_is_one_call() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let plan = plan(&product(dtype, [2048, 1024, 512]));
        let (calls, others) = calls(&plan);
        assert_eq!((calls.len(), others), (1, 0), "{}", plan.explain());
        assert_eq!((calls[0].operands, calls[0].result), (dtype, dtype));
        assert_eq!(calls[0].epilogue, Epilogue::None);
        let step = &plan.steps[0];
        // batch, m, n, k, then offset, distance of rows and of matrices of a, b and d.
        let words = [1, 2048, 512, 1024, 0, 1024, 0, 0, 512, 0, 0, 512];
        assert_eq!(step.params[..12], words.map(Word::Bits), "{dtype}");
        assert!(plan.explain().contains(ENGINE));
        // A written file is read back.
        assert_eq!(Plan::load(&plan.save().unwrap()).unwrap(), plan);
    }
    // As lazy tensors plan it, with buffers for operands and results.
    let graph = product(DType::F16, [1024, 1024, 1024]);
    let plan_of_tensors = plan_on(&graph, &gpu(), |options| options.bound = Bound::all(&graph));
    assert_eq!(calls(&plan_of_tensors).0.len(), plan_of_tensors.steps.len());
    // Wider results of narrow operands, in one call as well.
    let mut g = Graph::new("wide");
    let a = matrix(&mut g, "a", [512, 256], DType::BF16);
    let b = matrix(&mut g, "b", [1024, 256], DType::BF16);
    let b = g.add(Op::Transpose(vec![1, 0]), &[b]).unwrap();
    let [a, b] = [a, b].map(|x| g.add(Op::Cast(DType::F32), &[x]).unwrap());
    let y = g.add(Op::MatMul, &[a, b]).unwrap();
    g.output("y", y).unwrap();
    let (calls, others) = calls(&plan(&g));
    assert_eq!((calls.len(), others), (1, 0));
    assert_eq!((calls[0].operands, calls[0].result), (DType::BF16, DType::F32));
    assert!(!calls[0].a_transposed && calls[0].b_transposed);
}

/// As measured on an H200 (`docs/performance/nvidia-h200.md`): up to 512 our f16 tiles are as fast
/// as a library call, which is bound by its launch; f32 tiles are slower from 256 on.
#[test]
fn the_library_is_called_from_the_size_that_pays() {
    let known = DeviceProfile::known("nvidia-h200").unwrap();
    let profile = known
        .with(|p| {
            p.provider = "cuda".into();
            p.has_gemm_library = true;
        })
        .with_cuda_features();
    let engine = |dtype, size| {
        let plan = plan_on(&product(dtype, [size; 3]), &profile, |_| {});
        let taken = plan.choices.iter().filter_map(|choice| choice.engine.as_ref());
        taken.map(EngineId::to_string).find(|id| !id.starts_with("fused."))
    };
    let of = |dtype, sizes: [u64; 5]| sizes.map(|size| engine(dtype, size).unwrap_or_default());
    let coop = "wgsl.matmul_batched_coop";
    let sizes = [256, 512, 768, 1024, 2048];
    assert_eq!(of(DType::F16, sizes), [coop, coop, ENGINE, ENGINE, ENGINE]);
    let elements = "catalogue.matmul_batched";
    let sizes = [64, 128, 256, 512, 2048];
    assert_eq!(of(DType::F32, sizes), [elements, elements, ENGINE, ENGINE, ENGINE]);
}

#[test]
fn one_product_on_another_reads_what_that_stored() {
    let mut g = Graph::new("chain");
    let a = matrix(&mut g, "a", [512, 512], DType::F16);
    let b = matrix(&mut g, "b", [512, 512], DType::F16);
    let y = g.add(Op::MatMul, &[a, b]).unwrap();
    let y = g.add(Op::MatMul, &[y, b]).unwrap();
    g.output("y", y).unwrap();
    let plan = plan(&g);
    let (calls, others) = calls(&plan);
    assert_eq!((calls.len(), others), (2, 0), "{}", plan.explain());
    assert!(calls.iter().all(|call| call.result == DType::F16));
}

/// A conversion that two products elide is done for the one with another engine, and the other does
/// not wait for it.
#[test]
fn either_product_of_a_chain_may_be_another_engines() {
    let mut g = Graph::new("chain");
    let b = matrix(&mut g, "b", [512, 512], DType::F16);
    let h = g.add(Op::MatMul, &[b, b]).unwrap();
    g.label(h, "first");
    let y = g.add(Op::MatMul, &[h, b]).unwrap();
    g.label(y, "second");
    g.output("y", y).unwrap();
    for label in ["first", "second"] {
        let other = EngineId::new("catalogue.matmul_batched");
        let force = vec![(Selector::Label(label.into()), other)];
        let plan = plan_on(&g, &gpu(), |options| options.force = force);
        assert_eq!(calls(&plan).0.len(), 1, "{label}\n{}", plan.explain());
    }
}

/// A state is read before it is written, so its conversion stays.
#[test]
fn a_state_is_converted_before_it_is_written() {
    let mut g = Graph::new("state");
    let state = g.state("s", Shape::new([64, 64]), DType::F16);
    let rows = matrix(&mut g, "rows", [64, 64], DType::F16);
    let old = g.add(Op::Cast(DType::F32), &[state]).unwrap();
    let new = g.add(Op::Update { at: Dim::new(0) }, &[state, rows]).unwrap();
    let new = g.add(Op::Cast(DType::F32), &[new]).unwrap();
    let y = g.add(Op::MatMul, &[old, new]).unwrap();
    g.output("y", y).unwrap();
    let halves = |gemm: &Gemm| gemm.operands != DType::F32;
    assert!(!calls(&plan(&g)).0.iter().any(halves));
}

/// A bias added after rounding is not part of the call, whose stored result is already rounded.
#[test]
fn work_behind_rounding_is_one_loop_on_what_is_rounded() {
    let mut g = Graph::new("behind");
    let a = matrix(&mut g, "a", [1024, 512], DType::BF16);
    let b = matrix(&mut g, "b", [512, 1024], DType::BF16);
    let bias = g.input("bias", Shape::new([1024]), DType::BF16);
    let y = g.add(Op::MatMul, &[a, b]).unwrap();
    let y = g.add(Op::Binary(BinaryOp::Add), &[y, bias]).unwrap();
    let y = g.add(Op::Unary(UnaryOp::Relu), &[y]).unwrap();
    g.output("y", y).unwrap();
    let plan = plan(&g);
    let (calls, others) = calls(&plan);
    // A separate launch converts the bias to f32.
    assert_eq!((calls.len(), others), (1, 2), "{}", plan.explain());
    assert_eq!(calls[0].result, DType::BF16);
}

/// The tuner also measures it.
#[test]
fn it_is_among_what_a_tuner_measures() {
    let (registry, class) = (Registry::builtin(), ShapeClass::new());
    let graph = product(DType::F16, [256, 256, 256]);
    let found = tasks(&graph, &class, &gpu(), &Options::new(&registry)).unwrap();
    let engine = EngineId::new(ENGINE);
    // Products of stored f16 have only one candidate; others read f32.
    assert!(found.iter().all(|task| !task.engines.contains(&engine)));
    let graph = product(DType::F32, [256, 256, 256]);
    let found = tasks(&graph, &class, &gpu(), &Options::new(&registry)).unwrap();
    let task = found.iter().find(|task| task.engines.contains(&engine)).unwrap();
    let trial = task.trial(&registry, &engine, KnobValues::NONE).unwrap();
    assert_eq!(trial.workspace(), 0);
}

#[test]
fn what_else_is_read_is_converted_once_for_all() {
    let mut g = product(DType::F16, [512, 512, 512]);
    let a = g.ids().next().unwrap();
    let wide = g.add(Op::Cast(DType::F32), &[a]).unwrap();
    let b = g.input("c", Shape::new([512, 512]), DType::F32);
    let y = g.add(Op::MatMul, &[wide, b]).unwrap();
    g.output("z", y).unwrap();
    let plan = plan(&g);
    let (calls, _) = calls(&plan);
    // The other product needs the conversion, so both read f32.
    assert!(calls.iter().all(|call| call.operands == DType::F32), "{}", plan.explain());
}

/// `epilogue(x w^T)` with a weight of this format.
fn linear(format: Format, after: &[&str]) -> Graph {
    let mut g = Graph::new("linear");
    let x = g.input("x", Shape::new([Dim::symbol(ROWS), Dim::new(1024)]), DType::F32);
    let w = g.weight("w", Shape::new([2048, 1024]), format);
    let mut y = g.add(Op::linear(), &[x, w]).unwrap();
    for name in after {
        y = match *name {
            "bias" => {
                let bias = g.weight("bias", Shape::new([2048]), Format::F32);
                g.add(Op::Binary(BinaryOp::Add), &[y, bias]).unwrap()
            }
            // A part of a longer one, from this element on.
            part if part.starts_with("bias from ") => {
                let from = part.rsplit(' ').next().unwrap().parse().unwrap();
                let long = g.weight("bias", Shape::new([4096]), Format::F32);
                let (start, len) = (Dim::new(from), Dim::new(2048));
                let bias = g.add(Op::Slice { axis: 0, start, len, step: 1 }, &[long]).unwrap();
                g.add(Op::Binary(BinaryOp::Add), &[y, bias]).unwrap()
            }
            "relu" => g.add(Op::Unary(UnaryOp::Relu), &[y]).unwrap(),
            _ => g.add(Op::Unary(UnaryOp::Gelu), &[y]).unwrap(),
        };
    }
    g.output("y", y).unwrap();
    g
}

#[test]
fn a_bias_and_relu_are_done_by_the_call() {
    let cases: [(&[&str], Epilogue, usize); 8] = [
        (&[], Epilogue::None, 0),
        (&["bias"], Epilogue::Bias, 0),
        (&["relu"], Epilogue::Relu, 0),
        (&["bias", "relu"], Epilogue::BiasRelu, 0),
        // Its address must be a multiple of 16 bytes.
        (&["bias from 8"], Epilogue::Bias, 0),
        (&["bias from 1"], Epilogue::None, 1),
        (&["bias from 6", "relu"], Epilogue::None, 1),
        // Libraries do not say which formula theirs is.
        (&["gelu"], Epilogue::None, 1),
    ];
    for (after, epilogue, launches) in cases {
        let plan = plan(&linear(Format::F32, after));
        let (calls, others) = calls(&plan);
        assert_eq!((calls.len(), others), (1, launches), "{after:?}: {}", plan.explain());
        assert_eq!(calls[0].epilogue, epilogue);
        // Rows are a symbol, which the parameters keep.
        assert_eq!(plan.steps[0].params[1], Word::Dim(Dim::symbol(ROWS)));
    }
    // A narrow weight before a wide operand is converted by a launch.
    let force = |options: &mut Options| {
        options.force.push((Selector::Operation("linear".into()), EngineId::new(ENGINE)));
    };
    let plan = plan_on(&linear(Format::Plain(DType::F16), &[]), &gpu(), force);
    let (calls, others) = calls(&plan);
    assert_eq!((calls.len(), others), (1, 1), "{}", plan.explain());
    assert_eq!((calls[0].operands, calls[0].result), (DType::F32, DType::F32));
}

/// The state of the engine in a plan; `None` if it was not considered.
fn verdict(plan: &Plan) -> Option<Verdict> {
    let all = plan.choices.iter().flat_map(|choice| &choice.candidates);
    let mut own = all.filter(|candidate| candidate.engine == EngineId::new(ENGINE));
    own.next().map(|candidate| candidate.verdict.clone())
}

#[test]
fn where_it_is_not_taken_plans_say_why() {
    let graph = product(DType::F16, [2048, 2048, 2048]);
    let reported = |plan: &Plan| {
        assert_eq!(calls(plan).0, []);
        match verdict(plan) {
            Some(Verdict::Refused(reason)) => reason,
            other => format!("{other:?}"),
        }
    };
    let without = gpu().with(|p| p.has_gemm_library = false);
    let missing = plan_on(&graph, &without, |_| {});
    assert_eq!(reported(&missing), "not here: cuBLASLt is missing");
    assert!(missing.explain().contains("cuBLASLt is missing"), "{}", missing.explain());
    let deterministic = plan_on(&graph, &gpu(), |options| options.deterministic = true);
    assert!(reported(&deterministic).contains("depends on sizes"), "{}", reported(&deterministic));
    let block = |options: &mut Options| options.block.push(EngineId::new(ENGINE));
    let singles = product(DType::F32, [2048, 2048, 2048]);
    assert_eq!(reported(&plan_on(&singles, &gpu(), block)), "blocked by the caller");
    // Elsewhere it is not even looked at.
    let other = gpu().with(|p| {
        p.provider = "webgpu".into();
        p.has_gemm_library = false;
        p.supports_gemm_library = false;
    });
    assert_eq!(verdict(&plan_on(&graph, &other, |_| {})), None);
    // A small product is not worth a call.
    assert_eq!(calls(&plan(&product(DType::F32, [4, 16, 8]))).0, []);
}

/// Every case, with the engine forced wherever it applies.
#[test]
fn calls_mean_what_the_reference_says() {
    let device = Checked::with_library();
    let runtime = Runtime::on(device.clone(), SyncMode::Lazy, None).unwrap();
    let mut suite = Conformance::new().registered(EngineId::new(ENGINE)).complete(true);
    for beginning in CASES {
        suite = suite.only(beginning);
    }
    let report = suite.run(&runtime).unwrap();
    tell(&format!("library: {report}"));
    report.assert_passed();
    let called: Vec<KernelSpec> =
        device.ran().into_iter().filter(|spec| matches!(spec, KernelSpec::Routine(_))).collect();
    assert!(called.len() >= 12, "{called:?}");
}

/// The same through tensors, whose operands and results stay on the device.
#[test]
fn products_of_lazy_tensors_are_calls() {
    let device = Checked::with_library();
    let runtime = Runtime::on(device.clone(), SyncMode::Lazy, None).unwrap();
    let size = 224;
    let numbers = |seed| Tensor::rand(&runtime, [size, size], seed).cast(DType::F16);
    let (a, b) = (numbers(1), numbers(2));
    Tensor::eval(&[&a, &b]).unwrap();
    let y = a.matmul(&b).matmul(b.t());
    assert_eq!(y.to_bytes().unwrap().len(), 2 * size * size);
    let ran = device.ran();
    let called: Vec<String> = ran.iter().map(ToString::to_string).collect();
    assert!(called.iter().any(|name| name == "gemm f16 a*b -> f16"), "{called:?}");
    assert!(called.iter().any(|name| name == "gemm f16 a*b^T -> f16"), "{called:?}");
    assert!(!called.iter().any(|name| name.contains("matmul")), "{called:?}");
}

/// Conversions that were proposed for elision and then restored run once.
#[test]
fn what_is_not_left_out_after_all_is_done_once() {
    let mut g = Graph::new("shared");
    let x = matrix(&mut g, "x", [32, 32], DType::F16);
    for name in ["q", "k", "v"] {
        let w = matrix(&mut g, name, [32, 32], DType::F16);
        let y = g.add(Op::MatMul, &[x, w]).unwrap();
        g.output(format!("{name}_out"), y).unwrap();
    }
    let block = |options: &mut Options| options.block.push(EngineId::new(ENGINE));
    let (with, without) = (gpu(), gpu().with(|p| p.has_gemm_library = false));
    let [with, without] = [with, without].map(|profile| plan_on(&g, &profile, block));
    assert_eq!(calls(&with), (Vec::new(), without.steps.len()), "{}", with.explain());
}

/// Random graphs, with the engine wherever it applies: elided conversions, and ones that are
/// restored.
#[test]
fn random_graphs_with_calls_are_right() {
    const GRAPHS: u64 = 400;
    let device = Checked::with_library();
    let runtime = Runtime::on(device.clone(), SyncMode::Lazy, None).unwrap();
    let preferred = vec![EngineId::new(ENGINE)];
    let options = RunOptions { guard: true, preferred, ..RunOptions::default() };
    for seed in 0..GRAPHS {
        let case = random_case(seed, 0, &RandomLimits::default());
        let outcome = run_case(&case, &|graph, symbols, bindings| {
            run_graph(&runtime, graph, symbols, bindings, &options)
        });
        assert!(matches!(outcome, Outcome::Pass(_)), "seed {seed}: {outcome:?}\n{}", case.graph);
    }
    let ran = device.ran();
    let called = ran.iter().filter(|spec| matches!(spec, KernelSpec::Routine(_))).count();
    tell(&format!("library: {GRAPHS} random graphs, {called} kinds of calls"));
    assert!(called > 0);
}
