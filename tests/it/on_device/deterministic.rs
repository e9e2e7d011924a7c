//! Deterministic mode: each row has the same bits alone and in any batch, on every device.

use std::collections::BTreeMap;

use warploom::graph::{BinaryOp, Conv2d, Graph, NodeId, Op, Pool2d, PoolKind, ReduceOp, UnaryOp};
use warploom::runtime::{RunOptions, Runtime, run_graph};
use warploom_core::base::{
    ComputeMode, DType, Dim, Format, Shape, ShapeClass, Symbol, SymbolValues,
};
use warploom_core::quant;
use warploom_testkit::{self, Outcome};

use crate::{devices, tell};

const N: Symbol = Symbol::new("n");
/// Distinct rows; row `i` is row `i % ROWS`.
const ROWS: usize = 8;
/// Numbers of rows, and the range of a plan for more than one number.
const COUNTS: [(usize, (u64, u64)); 11] = [
    (1, (1, 8)),
    (2, (2, 8)),
    (3, (1, 3)),
    (4, (1, 8)),
    (5, (5, 64)),
    (6, (6, 6)),
    (7, (1, 512)),
    (8, (2, 8)),
    (9, (9, 64)),
    (65, (65, 512)),
    (131, (65, 512)),
];

type Bytes = BTreeMap<String, Vec<u8>>;

/// A graph of `n` rows: row inputs with their sizes, shared inputs, and output rows.
pub(crate) struct Case {
    name: String,
    graph: Graph,
    /// Inputs whose first axis is `n`, with the numbers of a row.
    rows: Vec<(String, usize)>,
    shared: Bytes,
    /// The axis of `x` and `y` along which rows lie: the first, or the last.
    last: bool,
}

/// Values of all magnitudes, so that the order of their sum is visible.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    (0..count)
        .map(|_| {
            let bits = next();
            let value = (bits >> 8) as f32 / 8_388_608.0 - 1.0;
            value * [1.0, 0.125, 3.0, 0.01][(bits & 3) as usize]
        })
        .collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

impl Case {
    fn new(name: impl Into<String>) -> Case {
        let name = name.into();
        let graph = Graph::new(name.clone());
        Case { name, graph, rows: Vec::new(), shared: Bytes::new(), last: false }
    }

    /// An input of `n` rows of these sizes.
    fn x(&mut self, name: &str, sizes: &[u64]) -> NodeId {
        self.rows.push((name.into(), sizes.iter().product::<u64>() as usize));
        let dims = [Dim::symbol(N)].into_iter().chain(sizes.iter().map(|s| Dim::from(*s)));
        self.graph.input(name, Shape::new(dims), DType::F32)
    }

    /// An input that all rows share.
    fn given(&mut self, name: &str, sizes: &[u64]) -> NodeId {
        let count = sizes.iter().product::<u64>() as usize;
        self.shared.insert(name.into(), bytes(&numbers(count, 77)));
        self.graph.input(name, Shape::new(sizes.iter().copied()), DType::F32)
    }

    fn weight(&mut self, name: &str, sizes: [u64; 2], format: Format) -> NodeId {
        let values = numbers((sizes[0] * sizes[1]) as usize, 5);
        self.shared.insert(name.into(), quant::encode(format, &values).unwrap());
        self.graph.weight(name, Shape::new(sizes), format)
    }

    fn op(&mut self, op: Op, inputs: &[NodeId]) -> NodeId {
        self.graph.add(op, inputs).unwrap()
    }

    fn done(mut self, y: NodeId) -> Case {
        self.graph.output("y", y).unwrap();
        self
    }

    /// The inputs of these rows.
    fn bindings(&self, rows: &[usize]) -> Bytes {
        let mut all = self.shared.clone();
        for (i, (name, len)) in self.rows.iter().enumerate() {
            let row = |row: &usize| numbers(*len, 1000 * (i as u32 + 1) + *row as u32);
            let rows: Vec<Vec<f32>> = rows.iter().map(row).collect();
            let values = match self.last {
                false => rows.concat(),
                true => (0..*len).flat_map(|c| rows.iter().map(move |row| row[c])).collect(),
            };
            all.insert(name.clone(), bytes(&values));
        }
        all
    }

    /// The words of each row of the result.
    fn run(
        &self,
        runtime: &Runtime,
        rows: &[usize],
        range: Option<(u64, u64)>,
        options: &RunOptions,
    ) -> warploom::Result<Vec<Vec<u32>>> {
        let symbols = SymbolValues::new().with(N, rows.len() as u64);
        let class = range.map(|(low, high)| ShapeClass::new().with(N, low, high));
        let options = RunOptions { class, ..options.clone() };
        let bindings = self.bindings(rows);
        let done = run_graph(runtime, &self.graph, &symbols, &bindings, &options)?;
        let words: Vec<u32> = bytemuck::pod_collect_to_vec(&done["y"]);
        let len = words.len() / rows.len();
        let row = |i: usize| match self.last {
            false => words[i * len..][..len].to_vec(),
            true => words.iter().skip(i).step_by(rows.len()).copied().collect(),
        };
        Ok((0..rows.len()).map(row).collect())
    }
}

/// The first row whose bits differ from those of the row alone, if any.
pub(crate) fn differs(
    runtime: &Runtime,
    case: &Case,
    options: &RunOptions,
) -> warploom::Result<Option<String>> {
    let mut alone = Vec::new();
    for row in 0..ROWS {
        alone.extend(case.run(runtime, &[row], None, options)?);
    }
    assert!(alone.iter().any(|row| row != &alone[0]), "{}: rows are alike", case.name);
    for (count, range) in COUNTS {
        let rows: Vec<usize> = (0..count).map(|i| i % ROWS).collect();
        for range in [None, Some(range)] {
            let have = case.run(runtime, &rows, range, options)?;
            for (i, row) in have.iter().enumerate() {
                let want = &alone[i % ROWS];
                assert_eq!(row.len(), want.len(), "{}", case.name);
                if let Some(at) = (0..row.len()).find(|at| row[*at] != want[*at]) {
                    let [have, want] = [row[at], want[at]].map(f32::from_bits);
                    return Ok(Some(format!(
                        "{}: row {i} of {count}, planned for {range:?}, has {have:e} at {at}, alone {want:e}",
                        case.name
                    )));
                }
            }
        }
    }
    Ok(None)
}

fn linear(format: Format, mode: ComputeMode, n: u64, blocks: u64) -> Case {
    let mut case = Case::new(format!("linear/{format}/{mode}/{n}x{blocks}"));
    let k = format.block_len().max(32) * blocks;
    let x = case.x("x", &[k]);
    let w = case.weight("w", [n, k], format);
    let y = case.op(Op::Linear { mode }, &[x, w]);
    case.done(y)
}

pub(crate) fn along(name: &str, op: Op, sizes: &[u64], weights: usize) -> Case {
    let mut case = Case::new(format!("{name}/{sizes:?}"));
    let mut inputs = vec![case.x("x", sizes)];
    let len = sizes[sizes.len() - 1];
    inputs.extend((0..weights).map(|i| case.given(&format!("w{i}"), &[len])));
    let y = case.op(op, &inputs);
    case.done(y)
}

/// Reduces the first axis: rows are along the last.
fn columns(op: ReduceOp) -> Case {
    let mut case = Case::new(format!("reduce_{}/columns", op.name()));
    case.last = true;
    case.rows.push(("x".into(), 203));
    let shape = Shape::new([Dim::new(203), Dim::symbol(N)]);
    let x = case.graph.input("x", shape, DType::F32);
    let y = case.op(Op::Reduce { op, axes: vec![0], keep: false }, &[x]);
    case.done(y)
}

/// The feed-forward part of a layer, with its norm and residual.
pub(crate) fn feed_forward(format: Format, mode: ComputeMode) -> Case {
    let mut case = Case::new(format!("feed_forward/{format}/{mode}"));
    let x = case.x("x", &[256]);
    let gain = case.given("gain", &[256]);
    let norm = case.op(Op::RmsNorm { eps: 1e-5 }, &[x, gain]);
    let gate = case.weight("gate", [512, 256], format);
    let up = case.weight("up", [512, 256], format);
    let down = case.weight("down", [256, 512], format);
    let gate = case.op(Op::Linear { mode }, &[norm, gate]);
    let up = case.op(Op::Linear { mode }, &[norm, up]);
    let gate = case.op(Op::Unary(UnaryOp::Silu), &[gate]);
    let both = case.op(Op::Binary(BinaryOp::Mul), &[gate, up]);
    let y = case.op(Op::Linear { mode }, &[both, down]);
    let y = case.op(Op::Binary(BinaryOp::Add), &[x, y]);
    case.done(y)
}

/// Elementwise work around a softmax, which other modes make one kernel.
fn chain() -> Case {
    let mut case = Case::new("chain");
    let x = case.x("x", &[3, 70]);
    let (w, b) = (case.given("w", &[70]), case.given("b", &[70]));
    let y = case.op(Op::Binary(BinaryOp::Mul), &[x, w]);
    let y = case.op(Op::Binary(BinaryOp::Add), &[y, b]);
    let y = case.op(Op::Unary(UnaryOp::Gelu), &[y]);
    let y = case.op(Op::Softmax, &[y]);
    let y = case.op(Op::Binary(BinaryOp::Mul), &[y, w]);
    let y = case.op(Op::Binary(BinaryOp::Add), &[y, x]);
    case.done(y)
}

/// Rows of `a` times one matrix, and matrices of rows times matrices of rows.
fn matmuls() -> [Case; 3] {
    let mut rows = Case::new("matmul/rows");
    let (x, b) = (rows.x("x", &[77]), rows.given("b", &[77, 45]));
    let y = rows.op(Op::MatMul, &[x, b]);
    let mut batch = Case::new("matmul/batch");
    let (x, b) = (batch.x("x", &[5, 40]), batch.x("b", &[40, 9]));
    let z = batch.op(Op::MatMul, &[x, b]);
    let mut turned = Case::new("matmul/turned");
    let (x, b) = (turned.x("x", &[5, 64]), turned.x("b", &[9, 64]));
    let b = turned.op(Op::Transpose(vec![0, 2, 1]), &[b]);
    let t = turned.op(Op::MatMul, &[x, b]);
    [rows.done(y), batch.done(z), turned.done(t)]
}

fn images() -> [Case; 2] {
    let mut conv = Case::new("conv2d");
    let (x, w) = (conv.x("x", &[3, 9, 8]), conv.given("w", &[4, 3, 3, 3]));
    let shape = Conv2d { pad_before: (1, 1), pad_after: (1, 1), ..Conv2d::default() };
    let y = conv.op(Op::Conv2d(shape), &[x, w]);
    let mut pool = Case::new("pool2d");
    let x = pool.x("x", &[3, 9, 8]);
    let z = pool.op(Op::Pool2d(Pool2d::new(PoolKind::Mean, (2, 2))), &[x]);
    [conv.done(y), pool.done(z)]
}

/// Every sequence has its span of one table of keys; equal rows see equal spans of it.
fn spans(window: Option<u32>, half: bool) -> Case {
    let mut case = Case::new(format!("attention/spans/{window:?}/half {half}"));
    let q = case.x("q", &[6, 64]);
    let [k, v] = ["k", "v"].map(|name| {
        let kept = case.given(name, &[700, 2, 64]);
        if half { case.op(Op::Cast(DType::F16), &[kept]) } else { kept }
    });
    // Fixed content: the inputs of a row depend only on its number.
    let table: Vec<i32> = (0..ROWS as i32).flat_map(|i| [41 * i, 41 * i + 37 * (i + 1)]).collect();
    let table = case.graph.constant_i32(Shape::new([ROWS, 2]), &table);
    let pick = case.x("pick", &[1]);
    let pick = case.op(Op::Reshape(Shape::new([Dim::symbol(N)])), &[pick]);
    let scaled = case.graph.constant_f32(Shape::new([0u64; 0]), &[3.99]);
    let pick = case.op(Op::Unary(UnaryOp::Abs), &[pick]);
    let pick = case.op(Op::Binary(BinaryOp::Mul), &[pick, scaled]);
    let most = case.graph.constant_f32(Shape::new([0u64; 0]), &[7.0]);
    let pick = case.op(Op::Binary(BinaryOp::Min), &[pick, most]);
    let pick = case.op(Op::Cast(DType::I32), &[pick]);
    let spans = case.op(Op::Gather { axis: 0 }, &[table, pick]);
    let op = Op::attention(0.125, false, window, Dim::new(0));
    let y = case.op(op, &[q, k, v, spans]);
    case.done(y)
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for format in Format::ALL {
        cases.push(linear(format, ComputeMode::F32, 37, 3));
        if format.is_quantised() {
            cases.push(linear(format, ComputeMode::Int8, 37, 3));
        }
    }
    cases.push(linear(Format::Q4K, ComputeMode::F32, 300, 8));
    cases.push(linear(Format::Q8_0, ComputeMode::Int8, 4100, 9));
    cases.push(linear(Format::Plain(DType::F16), ComputeMode::F32, 5, 129));
    for sizes in [&[70][..], &[3, 257], &[1500]] {
        cases.push(along("norm_rms", Op::RmsNorm { eps: 1e-5 }, sizes, 1));
        cases.push(along("norm_layer", Op::LayerNorm { eps: 1e-5 }, sizes, 2));
        cases.push(along("softmax", Op::Softmax, sizes, 0));
        cases.push(along("argmax", Op::ArgMax, sizes, 0));
        cases.push(along("greedy", Op::Greedy, sizes, 0));
    }
    for op in ReduceOp::ALL {
        let reduce = |axes: &[usize]| Op::Reduce { op, axes: axes.to_vec(), keep: false };
        cases.push(along(op.name(), reduce(&[1]), &[301], 0));
        cases.push(along(op.name(), reduce(&[1]), &[83, 6], 0));
        cases.push(along(op.name(), reduce(&[1, 3]), &[9, 2, 11], 0));
        cases.push(columns(op));
    }
    cases.extend(matmuls());
    cases.extend(images());
    cases.push(chain());
    for (format, mode) in [(Format::Q4K, ComputeMode::F32), (Format::Q4K, ComputeMode::Int8)] {
        cases.push(feed_forward(format, mode));
    }
    for (window, half) in [(None, false), (Some(50), true)] {
        cases.push(spans(window, half));
    }
    cases
}

/// A runtime in deterministic mode.
pub(crate) fn mode() -> RunOptions {
    RunOptions { deterministic: true, ..RunOptions::default() }
}

#[test]
fn each_row_has_the_bits_that_it_has_alone() {
    let cases = cases();
    let mut wrong = Vec::new();
    for (label, runtime) in devices::every(true) {
        let profile = runtime.device().profile();
        // Kernels of a software device compile slowly: formats represent each other there.
        let step = devices::sample(profile, 16).max(devices::sample_software(profile, 6));
        let begin = std::time::Instant::now();
        let cases: Vec<&Case> = cases.iter().step_by(step).collect();
        for case in &cases {
            match differs(&runtime, case, &mode()) {
                Ok(None) => {}
                Ok(Some(text)) => wrong.push(format!("{label}: {text}")),
                Err(error) => wrong.push(format!("{label}: {}: {error}", case.name)),
            }
        }
        tell(&format!(
            "deterministic: {label}: {} cases of {} numbers of rows, {:.1} s",
            cases.len(),
            COUNTS.len(),
            begin.elapsed().as_secs_f64()
        ));
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The case table has the same results in this mode, and every case has an engine.
#[test]
fn every_case_is_right_in_deterministic_mode() {
    let cases = warploom_testkit::cases();
    let mut wrong = Vec::new();
    for (label, runtime) in devices::every(false) {
        let profile = runtime.device().profile();
        let step = devices::sample(profile, 16).max(devices::sample_software(profile, 14));
        let (mut right, mut refused) = (0, 0);
        for case in cases.iter().step_by(step).filter(|case| case.is_for(profile.kind)) {
            let case = &*case.on(profile);
            let outcome = warploom_testkit::run_case(case, &|graph, symbols, bindings| {
                run_graph(&runtime, graph, symbols, bindings, &mode())
            });
            match outcome {
                Outcome::Pass(_) => right += 1,
                Outcome::Unsupported(text) => {
                    refused += 1;
                    wrong.push(format!("{label}: {}: {text}", case.name));
                }
                other => wrong.push(format!("{label}: {}: {other:?}", case.name)),
            }
        }
        tell(&format!("deterministic: {label}: {right} cases right, {refused} without an engine"));
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Tokens of one text: each sees the keys up to its own, or the last of them, as it does alone.
#[test]
fn each_token_attends_as_it_does_alone() {
    let past = Symbol::new("past");
    for (label, runtime) in devices::every(false) {
        for window in [None, Some(50), Some(131)] {
            let mut case = Case::new(format!("attention/{window:?}"));
            let q = case.x("q", &[6, 64]);
            let [k, v] = ["k", "v"].map(|name| case.given(name, &[300, 2, 64]));
            let at = Dim::symbol(past);
            let op = Op::attention(0.125, true, window, at);
            let y = case.op(op, &[q, k, v]);
            let case = case.done(y);
            let run = |first: usize, count: usize| -> Vec<u32> {
                let class = ShapeClass::new().with(N, 1.max(count as u64 / 2), count as u64);
                let class = class.with(past, 0, 250);
                let options = RunOptions { class: Some(class), ..mode() };
                let symbols = SymbolValues::new().with(N, count as u64);
                let symbols = symbols.with(past, 100 + first as u64);
                let bindings = case.bindings(&(first..first + count).collect::<Vec<_>>());
                let run = run_graph(&runtime, &case.graph, &symbols, &bindings, &options);
                bytemuck::pod_collect_to_vec(&run.unwrap()["y"])
            };
            let tokens = 70;
            let alone: Vec<u32> = (0..tokens).flat_map(|token| run(token, 1)).collect();
            let len = alone.len() / tokens;
            for (first, count) in [(0, 70), (3, 9), (60, 5), (1, 33)] {
                let have = run(first, count);
                let want = &alone[first * len..][..count * len];
                assert!(have == want, "{label}: window {window:?}, tokens {first} and {count} on");
            }
        }
    }
}
