//! Choices of the ranking from a profile alone, for machines of every kind.

use warploom::engine::Registry;
use warploom::graph::{BinaryOp, Graph, NodeId, Op, ReduceOp, UnaryOp, computing_in};
use warploom::kernel::KernelSpec;
use warploom::plan::{Options, Plan};
use warploom::provider::{DeviceKind, DeviceProfile};
use warploom_core::base::{ComputeMode, DType, Dim, Format, Shape, ShapeClass};

fn engines(graph: &Graph, profile: &DeviceProfile) -> Vec<String> {
    let registry = Registry::builtin();
    let plan = Plan::new(graph, &ShapeClass::new(), profile, &Options::new(&registry)).unwrap();
    plan.steps.iter().map(|step| step.engine.to_string()).collect()
}

/// The kinds, by what their machines should choose.
const DISCRETE: [&str; 2] = ["nvidia-h200", "radeon-rx-7900-xtx"];
const INTEGRATED: [&str; 3] = ["apple-m2", "intel-iris-xe", "adreno-740"];

#[test]
fn profiles_of_every_kind_are_there() {
    for (names, kind) in
        [(&DISCRETE[..], DeviceKind::Discrete), (&INTEGRATED[..], DeviceKind::Integrated)]
    {
        for name in names {
            assert_eq!(DeviceProfile::known(name).unwrap().kind, kind, "{name}");
        }
    }
    assert_eq!(DeviceProfile::known("lavapipe").unwrap().kind, DeviceKind::Software);
    assert_eq!(DeviceProfile::known("cpu-avx512").unwrap().kind, DeviceKind::Cpu);
}

/// One operation on a tensor of this shape, and for each machine a beginning that the id of the
/// engine must have.
fn check(what: &str, graph: &Graph, wanted: impl Fn(&str, &DeviceProfile) -> String) {
    for name in DeviceProfile::known_names() {
        let profile = DeviceProfile::known(name).unwrap();
        let is = engines(graph, &profile);
        let (first, want) = (&is[0], wanted(name, &profile));
        assert!(is.len() == 1 && first.starts_with(&want), "{what} on {name}: {is:?}, not {want}");
    }
}

fn product(m: i64, n: i64, k: i64, format: Format) -> Graph {
    let mut g = Graph::new("product");
    let x = g.input("x", Shape::new([m, k]), DType::F32);
    let w = g.weight("w", Shape::new([n, k]), format);
    let y = g.add(Op::linear(), &[x, w]).unwrap();
    g.output("y", y).unwrap();
    g
}

/// On tensor cores, the launch that quantises rows of x also normalises them for the only product
/// that reads them.
#[test]
fn a_norm_is_done_as_rows_are_rounded_for_the_only_product_that_reads_it() {
    let kernels = |products: usize, mode: ComputeMode, deterministic: bool| {
        let mut g = Graph::new("normed");
        let x = g.input("x", Shape::new([512i64, 2048]), DType::F32);
        let gain = g.weight("gain", Shape::new([2048i64]), Format::F32);
        let x = g.add(Op::RmsNorm { eps: 1e-5 }, &[x, gain]).unwrap();
        for i in 0..products {
            let format = [Format::Q4K, Format::Q6K][i];
            let w = g.weight(&format!("w{i}"), Shape::new([4096i64, 2048]), format);
            let y = g.add(Op::Linear { mode }, &[x, w]).unwrap();
            g.output(format!("y{i}"), y).unwrap();
        }
        let profile = DeviceProfile::known("nvidia-h200").unwrap();
        let registry = Registry::builtin();
        let options = Options { deterministic, ..Options::new(&registry) };
        let plan = Plan::new(&g, &ShapeClass::new(), &profile, &options).unwrap();
        let normed = |kernel: &KernelSpec| match kernel {
            KernelSpec::Asset(a) => a.fusion.as_ref().is_some_and(|a| a.norm.is_some()),
            _ => false,
        };
        let name = |kernel: &KernelSpec| match normed(kernel) {
            true => format!("{} with a norm", kernel.name()),
            false => kernel.name().to_string(),
        };
        plan.steps.iter().map(|step| name(&step.kernel)).collect::<Vec<String>>()
    };
    let one = kernels(1, ComputeMode::Int8, false);
    assert_eq!(one[0], "quantize_to_f16 with a norm", "{one:?}");
    assert_eq!(one.len(), 4, "{one:?}");
    for (products, mode, deterministic) in
        [(2, ComputeMode::Int8, false), (1, ComputeMode::F32, false), (1, ComputeMode::Int8, true)]
    {
        let found = kernels(products, mode, deterministic);
        assert!(found.iter().all(|name| !name.ends_with("a norm")), "{found:?}");
    }
}

#[test]
fn products_of_few_rows_read_weights_once_and_of_many_work_in_tiles() {
    let formats = [
        Format::F32,
        Format::Plain(DType::F16),
        Format::Q4_0,
        Format::Q8_0,
        Format::Q4K,
        Format::Q6K,
    ];
    for format in formats {
        for m in [1, 4, 32, 512] {
            for (n, k) in [(576, 1536), (4096, 4096), (2048, 8192)] {
                let what = format!("{m} rows of {k} by {n} in {format}");
                check(&what, &product(m, n, k, format), |_, profile| {
                    // Of 32 rows some devices have too few tiles.
                    if m == 32 && profile.kind != DeviceKind::Cpu {
                        return "wgsl.mat".into();
                    }
                    let family = if m <= 4 { "matvec" } else { "matmul" };
                    let place = if profile.kind == DeviceKind::Cpu { "cpu" } else { "wgsl" };
                    let subgroup = family == "matvec" && profile.has_subgroups;
                    let tail = if subgroup { ".subgroup" } else { "" };
                    format!("{place}.{family}.{format}{tail}")
                });
            }
        }
    }
}

/// Heads of large vocabularies in two bytes a weight, for one token: products on matrix hardware
/// read them slower.
#[test]
fn f16_heads_use_a_matrix_vector_product() {
    let reported = DeviceProfile::known("nvidia-h200").unwrap();
    let bandwidths = [reported.local_bandwidth, 0];
    for (provider, bandwidth) in
        ["webgpu", "cuda"].into_iter().flat_map(|p| bandwidths.map(|b| (p, b)))
    {
        let mut profile = reported.clone();
        (profile.provider, profile.local_bandwidth) = (provider.into(), bandwidth);
        profile.has_gemm_library = provider == "cuda";
        for (n, k) in [(32_000, 2048), (128_256, 2048), (128_256, 2560), (151_936, 3584)] {
            let mode = ComputeMode::F16;
            let mut g = Graph::new("head");
            let x = g.input("x", Shape::new([1, k]), DType::F32);
            let gain = g.weight("gain", Shape::new([k]), Format::F32);
            let x = g.add(Op::RmsNorm { eps: 1e-5 }, &[x, gain]).unwrap();
            let w = g.weight("w", Shape::new([n, k]), Format::Plain(DType::F16));
            let y = g.add(Op::Linear { mode }, &[x, w]).unwrap();
            g.output("y", y).unwrap();
            let is = engines(&g, &profile);
            assert_eq!(is, ["wgsl.matvec.f16.subgroup"], "{n} x {k} through {provider}");
        }
    }
}

fn one(op: Op, shape: [i64; 2]) -> Graph {
    let mut g = Graph::new(op.name());
    let x = g.input("x", Shape::new(shape), DType::F32);
    let y = g.add(op, &[x]).unwrap();
    g.output("y", y).unwrap();
    g
}

#[test]
fn rows_are_shared_by_threads_where_barriers_are_cheap() {
    for shape in [[4096, 64], [64, 8192], [1024, 2048]] {
        let what = format!("softmax of {shape:?}");
        check(&what, &one(Op::Softmax, shape), |_, profile| {
            String::from(match (profile.kind, profile.has_subgroups) {
                (DeviceKind::Cpu, _) => "catalogue.softmax",
                (DeviceKind::Software, _) => "fused.rows.thread",
                (_, true) => "fused.rows.subgroup",
                (_, false) => "fused.rows",
            })
        });
    }
    // One short row is a launch and little else.
    check("softmax of one row", &one(Op::Softmax, [1, 32]), |_, profile| {
        let cpu = profile.kind == DeviceKind::Cpu;
        if cpu { "catalogue.softmax".into() } else { "fused.rows".into() }
    });
}

/// Neighbouring results of a sum over an outer axis are neighbours in memory, so each is a
/// thread's; along the rows threads read neighbours together.
#[test]
fn reductions_read_neighbours_together() {
    let sum = |axis| Op::Reduce { op: ReduceOp::Sum, axes: vec![axis], keep: false };
    check("sum over an outer axis", &one(sum(0), [64, 65_536]), |_, profile| {
        let cpu = profile.kind == DeviceKind::Cpu;
        if cpu { "catalogue.reduce".into() } else { "fused.rows.thread".into() }
    });
    check("sum along rows", &one(sum(1), [4096, 1024]), |_, profile| {
        String::from(match (profile.kind, profile.has_subgroups) {
            (DeviceKind::Cpu, _) => "catalogue.reduce",
            (DeviceKind::Software, _) => "fused.rows.thread",
            (_, true) => "fused.rows.subgroup",
            (_, false) => "fused.rows",
        })
    });
}

#[test]
fn attention_has_kernels_for_few_tokens_and_for_many() {
    for (tokens, keys, family) in
        [(1, 512, "decode"), (4, 2048, "decode"), (64, 512, "prefill"), (512, 512, "prefill")]
    {
        let mut g = Graph::new("attention");
        let q = g.input("q", Shape::new([tokens, 9, 64]), DType::F32);
        let k = g.input("k", Shape::new([keys, 3, 64]), DType::F32);
        let v = g.input("v", Shape::new([keys, 3, 64]), DType::F32);
        let past = Dim::new(keys - tokens);
        let op = Op::attention(0.125, true, None, past);
        let y = g.add(op, &[q, k, v]).unwrap();
        g.output("y", y).unwrap();
        for name in DeviceProfile::known_names() {
            let profile = DeviceProfile::known(name).unwrap();
            let is = engines(&g, &profile);
            // Nine tiles of 64 tokens leave most of a large device idle.
            let few = tokens == 64 && profile.kind == DeviceKind::Discrete;
            let fits = is.iter().all(|id| match family {
                _ if few => id.contains("attn_decode") || id.contains("attn_subgroup"),
                "decode" => {
                    ["attn_decode", "attn_split_kv", "attn_subgroup", "attn_split_kv_fused"]
                        .iter()
                        .any(|kernel| id.contains(kernel))
                }
                _ => id.contains("attn_prefill"),
            });
            assert!(fits, "{tokens} tokens, {keys} keys on {name}: {is:?}");
        }
    }
}

/// Tokens of eight sequences have separate keys: nothing is gained by reading them again from a
/// cache.
#[test]
fn attention_of_several_sequences_asks_for_keys_ahead_where_it_can() {
    let mut g = Graph::new("attention");
    let q = g.input("q", Shape::new([8, 32, 128]), DType::F32);
    let [k, v] = ["k", "v"].map(|name| g.input(name, Shape::new([8192, 8, 128]), DType::F16));
    let spans = g.input("spans", Shape::new([8, 2]), DType::I32);
    let op = Op::attention(0.088, false, None, Dim::new(0));
    let y = g.add(op, &[q, k, v, spans]).unwrap();
    g.output("y", y).unwrap();
    let vulkan = DeviceProfile::known("nvidia-h200").unwrap();
    assert_eq!(engines(&g, &vulkan), ["wgsl.attn_subgroup"]);
    let cuda = vulkan.with(|p| p.provider = "cuda".into()).with_cuda_features();
    assert_eq!(engines(&g, &cuda), ["wgsl.attn_split_kv_fused"]);
    // Together they read each key once.
    let registry = Registry::builtin();
    let plan = Plan::new(&g, &ShapeClass::new(), &cuda, &Options::new(&registry)).unwrap();
    let whole = 2 * 8192 * 8 * 128 * 2;
    let bytes = plan.steps[0].estimate.cost.bytes;
    assert!((1.0..1.1).contains(&(bytes / f64::from(whole))), "{bytes} of {whole}");
}

/// If it may round, and the device has tensor cores.
#[test]
fn attention_of_many_tokens_is_on_matrices_where_it_may_be() {
    let of = |tokens: i64, dtype, mode| {
        let mut g = Graph::new("attention");
        let q = g.input("q", Shape::new([tokens, 32, 128]), DType::F32);
        let [k, v] = ["k", "v"].map(|name| g.input(name, Shape::new([512, 8, 128]), dtype));
        let op = Op::attention(0.088, true, None, Dim::new(512 - tokens));
        let y = g.add(op, &[q, k, v]).unwrap();
        g.output("y", y).unwrap();
        computing_in(&g, mode).unwrap()
    };
    for name in DeviceProfile::known_names() {
        let has_matrix_hw = name == "nvidia-h200";
        let profile = DeviceProfile::known(name).unwrap().with(|p| p.has_matrix_hw = has_matrix_hw);
        let is = |tokens, dtype, mode| {
            let is = engines(&of(tokens, dtype, mode), &profile);
            is.iter().any(|id| id == "wgsl.attn_coop")
        };
        assert!(!is(512, DType::F32, ComputeMode::F16), "{name}");
        assert!(!is(512, DType::F16, ComputeMode::F32), "{name}");
        for tokens in [1, 4, 8] {
            assert!(!is(tokens, DType::F16, ComputeMode::F16), "{tokens} tokens on {name}");
        }
        let many = is(512, DType::F16, ComputeMode::F16);
        assert_eq!(many, has_matrix_hw, "{name}");
    }
}

fn unary(g: &mut Graph, op: UnaryOp, x: NodeId) -> NodeId {
    g.add(Op::Unary(op), &[x]).unwrap()
}

/// Work is fused around a product only if that is cheaper.
#[test]
fn cuts_pay() {
    for name in DeviceProfile::known_names() {
        let profile = DeviceProfile::known(name).unwrap();
        // A norm of one row is found again by every workgroup for less than a launch.
        let mut g = Graph::new("norm and product");
        let x = g.input("x", Shape::new([1, 576]), DType::F32);
        let gain = g.weight("gain", Shape::new([576]), Format::F32);
        let w = g.weight("w", Shape::new([1536, 576]), Format::Q8_0);
        let norm = g.add(Op::RmsNorm { eps: 1e-5 }, &[x, gain]).unwrap();
        let y = g.add(Op::linear(), &[norm, w]).unwrap();
        g.output("y", y).unwrap();
        assert_eq!(engines(&g, &profile).len(), 1, "norm and product on {name}");

        // A function of five million elements is not found again for each tile of a product; the
        // CPU finds it once for all of them.
        let mut g = Graph::new("function and product");
        let x = g.input("x", Shape::new([512, 11_008]), DType::F32);
        let w = g.weight("w", Shape::new([4096, 11_008]), Format::Q4_0);
        let gelu = unary(&mut g, UnaryOp::Gelu, x);
        let y = g.add(Op::linear(), &[gelu, w]).unwrap();
        g.output("y", y).unwrap();
        let steps = if profile.kind == DeviceKind::Cpu { 1 } else { 2 };
        assert_eq!(engines(&g, &profile).len(), steps, "function and product on {name}");

        // An operation after the product is fused into its store.
        for m in [1, 512] {
            let mut g = Graph::new("product and function");
            let x = g.input("x", Shape::new([m, 4096]), DType::F32);
            let w = g.weight("w", Shape::new([4096, 4096]), Format::Q4_0);
            let residual = g.input("residual", Shape::new([m, 4096]), DType::F32);
            let y = g.add(Op::linear(), &[x, w]).unwrap();
            let y = unary(&mut g, UnaryOp::Gelu, y);
            let y = g.add(Op::Binary(BinaryOp::Add), &[y, residual]).unwrap();
            g.output("y", y).unwrap();
            assert_eq!(engines(&g, &profile).len(), 1, "product of {m} rows on {name}");
        }
    }
}
