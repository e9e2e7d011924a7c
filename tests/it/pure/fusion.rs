//! Requirements on operator and epilogue fusion, checked on plans without a device.

use warploom::engine::Registry;
use warploom::graph::{BinaryOp, Graph, NodeId, Op, ReduceOp, UnaryOp};
use warploom::plan::{Options, Plan};
use warploom::provider::{DeviceProfile, NullProvider, OpenOptions};
use warploom_core::base::{DType, Dim, Format, Shape, ShapeClass, Symbol};
use warploom_llm::config::{Architecture, Window};
use warploom_llm::{DecoderOutput, Model, PAST, SEQ};
use warploom_models::gguf::Access;

use crate::gguf_files::find_model;
use crate::tell;

const MODEL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../models/warploom-tiny-llama-Q4_K_M.gguf");

fn gpu() -> DeviceProfile {
    NullProvider::device(&OpenOptions::default()).profile().clone()
}

fn plan_for(graph: &Graph, class: &ShapeClass, without: &[&str]) -> Plan {
    let registry = Registry::builtin();
    let mut options = Options::new(&registry);
    options.without = without.iter().map(|name| name.to_string()).collect();
    Plan::new(graph, class, &gpu(), &options).unwrap_or_else(|e| panic!("{e}\n{graph}"))
}

fn plan(graph: &Graph) -> Plan {
    plan_for(graph, &ShapeClass::new(), &[])
}

fn dispatches(graph: &Graph) -> usize {
    plan(graph).steps.len()
}

fn unary(g: &mut Graph, op: UnaryOp, x: NodeId) -> NodeId {
    g.add(Op::Unary(op), &[x]).unwrap()
}

fn binary(g: &mut Graph, op: BinaryOp, a: NodeId, b: NodeId) -> NodeId {
    g.add(Op::Binary(op), &[a, b]).unwrap()
}

fn mean(g: &mut Graph, x: NodeId) -> NodeId {
    let last = g.node(x).shape.rank() - 1;
    g.add(Op::Reduce { op: ReduceOp::Mean, axes: vec![last], keep: true }, &[x]).unwrap()
}

/// `linear -> silu -> mul -> linear`, the feed-forward of a llama.
fn feed_forward(tokens: Dim) -> Graph {
    let mut g = Graph::new("feed forward");
    let x = g.input("x", Shape::new([tokens, 256.into()]), DType::F32);
    let gate = g.weight("gate", Shape::new([768, 256]), Format::Q4K);
    let up = g.weight("up", Shape::new([768, 256]), Format::Q4K);
    let down = g.weight("down", Shape::new([256, 768]), Format::Q6K);
    let gate = g.add(Op::linear(), &[x, gate]).unwrap();
    let up = g.add(Op::linear(), &[x, up]).unwrap();
    let gate = unary(&mut g, UnaryOp::Silu, gate);
    let y = binary(&mut g, BinaryOp::Mul, gate, up);
    let y = g.add(Op::linear(), &[y, down]).unwrap();
    g.output("y", y).unwrap();
    g
}

#[test]
fn a_feed_forward_is_two_dispatches_in_decode_and_at_most_three_in_prefill() {
    let s = Symbol::new("s");
    let graph = feed_forward(s.into());
    let of = |low, high| plan_for(&graph, &ShapeClass::new().with(s, low, high), &[]);
    assert_eq!(of(1, 1).steps.len(), 2, "{}", of(1, 1).explain());
    assert_eq!(of(2, 8).steps.len(), 2, "{}", of(2, 8).explain());
    assert!(of(65, 512).steps.len() <= 3, "{}", of(65, 512).explain());
}

#[test]
fn a_norm_of_primitives_is_one_dispatch() {
    let mut g = Graph::new("norm");
    let x = g.input("x", Shape::new([5, 512]), DType::F32);
    let w = g.weight("w", Shape::new([512]), Format::F32);
    let eps = g.constant_f32(Shape::new([1]), &[1e-5]);
    let square = binary(&mut g, BinaryOp::Mul, x, x);
    let mean = mean(&mut g, square);
    let sum = binary(&mut g, BinaryOp::Add, mean, eps);
    let factor = unary(&mut g, UnaryOp::Rsqrt, sum);
    let normal = binary(&mut g, BinaryOp::Mul, x, factor);
    let y = binary(&mut g, BinaryOp::Mul, w, normal);
    g.output("y", y).unwrap();
    assert_eq!(dispatches(&g), 1, "{}", plan(&g).explain());
    let loops = plan_for(&g, &ShapeClass::new(), &["pattern"]);
    assert_eq!(loops.steps.len(), 1, "without the pattern: {}", loops.explain());
    assert!(plan_for(&g, &ShapeClass::new(), &["pattern", "fuse"]).steps.len() >= 5);
}

#[test]
fn scale_mask_and_softmax_are_one_dispatch() {
    let mut g = Graph::new("softmax");
    let x = g.input("x", Shape::new([2, 9, 40]), DType::F32);
    let mask = g.input("mask", Shape::new([9, 40]), DType::F32);
    let scale = g.constant_f32(Shape::new([1]), &[0.125]);
    let x = binary(&mut g, BinaryOp::Mul, x, scale);
    let x = binary(&mut g, BinaryOp::Add, x, mask);
    let y = g.add(Op::Softmax, &[x]).unwrap();
    g.output("y", y).unwrap();
    assert_eq!(dispatches(&g), 1, "{}", plan(&g).explain());
}

#[test]
fn a_residual_goes_into_the_norm_and_both_are_written() {
    let mut g = Graph::new("residual");
    let x = g.input("x", Shape::new([64, 512]), DType::F32);
    let r = g.input("r", Shape::new([64, 512]), DType::F32);
    let w = g.weight("w", Shape::new([512]), Format::F32);
    let sum = binary(&mut g, BinaryOp::Add, x, r);
    let y = g.add(Op::RmsNorm { eps: 1e-5 }, &[sum, w]).unwrap();
    g.output("sum", sum).unwrap();
    g.output("y", y).unwrap();
    assert_eq!(dispatches(&g), 1, "{}", plan(&g).explain());
}

#[test]
fn views_between_elementwise_nodes_cost_nothing() {
    let mut g = Graph::new("views");
    let x = g.input("x", Shape::new([6, 8]), DType::F32);
    let a = unary(&mut g, UnaryOp::Exp, x);
    let t = g.add(Op::Transpose(vec![1, 0]), &[a]).unwrap();
    let part = Op::Slice { axis: 0, start: Dim::new(2), len: Dim::new(3), step: 2 };
    let part = g.add(part, &[t]).unwrap();
    let row = g.input("row", Shape::new([6]), DType::F32);
    let y = binary(&mut g, BinaryOp::Add, part, row);
    let y = g.add(Op::Reshape(Shape::new([18])), &[y]).unwrap();
    let y = unary(&mut g, UnaryOp::Neg, y);
    g.output("y", y).unwrap();
    assert_eq!(dispatches(&g), 1, "{}", plan(&g).explain());
}

/// A model's decode needs at most six dispatches a layer, and four for the rest: embedding, last
/// norm with the output, and the choice of a token in two.
#[test]
fn a_layer_of_a_decoder_is_at_most_six_dispatches() {
    let mut models = vec![Model::open(MODEL, Access::Mmap).unwrap()];
    if let Some(file) = find_model("SmolLM2-135M-Instruct.Q4_1.gguf") {
        models.push(Model::open(file, Access::Mmap).unwrap());
    }
    for model in models {
        let layers = model.config().layers;
        let graph = model.graph(512, DecoderOutput::Greedy).unwrap();
        let class = ShapeClass::new().with(SEQ, 1, 1).with(PAST, 0, 511);
        let plan = plan_for(&graph, &class, &[]);
        assert!(plan.steps.len() <= 6 * layers + 4, "{}", plan.explain());
    }
}

/// Kernels of a layer of each architecture for one token: biases are part of their product. A norm
/// of each head of q and k takes two kernels, and so do their rotations, which then wait for it; a
/// norm of a product's result is one kernel with the residual.
#[test]
fn what_differs_between_architectures_costs_no_more_than_it_must() {
    let most = [
        ("llama", 6),
        ("qwen2", 6),
        ("qwen3", 10),
        ("gemma2", 8),
        ("gemma3", 12),
        ("gemma4", 13),
        ("lfm2", 10),
        ("mistral3", 6),
        ("phi3", 6),
        ("bitnet", 6),
        ("bitnet-b1.58", 6),
        // Those of experts and of delta nets have a plain network or attention here.
        ("qwen3moe", 10),
        ("qwen35", 14),
        ("qwen35moe", 14),
        ("gpt-oss", 6),
        ("ernie4_5", 6),
        ("ernie4_5-moe", 6),
        ("glm4moe", 6),
        ("smollm3", 6),
        ("seed_oss", 6),
        ("olmo2", 14),
        ("exaone4", 14),
        ("granite", 8),
    ];
    // At WebGPU's floor of eight buffers a product holds fewer biases.
    let profile = DeviceProfile::known("nvidia-h200").unwrap();
    let count = |architecture: &'static Architecture, layers: usize| {
        let local = architecture.local_rope_base;
        let mut config = warploom_llm::shapes::smollm2_135m();
        (config.architecture, config.layers) = (architecture, layers);
        config.window = local.map(|_| Window::new(128, Some(6)));
        config.local_rope_base = local;
        let graph = config.graph(Format::Q8_0, 512, DecoderOutput::Greedy).unwrap();
        let class = ShapeClass::new().with(SEQ, 1, 1).with(PAST, 0, 511);
        let registry = Registry::builtin();
        Plan::new(&graph, &class, &profile, &Options::new(&registry)).unwrap()
    };
    let mut beyond = String::new();
    // Encoders have no such graph.
    let decoders = Architecture::names().filter_map(Architecture::of).filter(|row| !row.encodes);
    for architecture in decoders {
        let name = architecture.name;
        let plan = count(architecture, 7);
        let steps = plan.steps.len() - count(architecture, 1).steps.len();
        tell(&format!("fusion: a layer of {name}: {} dispatches", steps as f64 / 6.0));
        let most = most.iter().find(|row| name == row.0).unwrap().1;
        if steps > 6 * most {
            beyond += &format!("{name}: more than {most}\n{}", plan.explain());
        }
    }
    assert!(beyond.is_empty(), "{beyond}");
}

/// Each product could consume a result of the other: both would wait for each other.
#[test]
fn two_products_that_need_each_other_are_not_fused_in_a_circle() {
    let mut g = Graph::new("circle");
    let x = g.input("x", Shape::new([3, 63]), DType::F32);
    let mut scaled = |name: &str| {
        let w = g.weight(name, Shape::new([31, 63]), Format::F32);
        let y = g.add(Op::linear(), &[x, w]).unwrap();
        let c = g.constant_f32(Shape::new([1]), &[0.0625]);
        binary(&mut g, BinaryOp::Mul, y, c)
    };
    let (a, b) = (scaled("a"), scaled("b"));
    let both = binary(&mut g, BinaryOp::Mul, a, b);
    let sum = g.add(Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep: false }, &[both]).unwrap();
    let weights = g.add(Op::Softmax, &[a]).unwrap();
    let y = binary(&mut g, BinaryOp::Mul, weights, b);
    g.output("sum", sum).unwrap();
    g.output("y", y).unwrap();
    assert!(dispatches(&g) <= 5, "{}", plan(&g).explain());
}
