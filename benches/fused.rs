//! Bandwidth of generated kernels relative to a copy: `silu(x) * y * 0.5`, softmax and
//! LayerNorm of 8192 x 8192 floats on the best device.
//!
//! Eight rows are computed with the same engine and knobs and checked against plain loops. Then the
//! kernels and a copy are timed by device timestamps. `cargo bench --bench fused` uses the
//! engines with the best estimates; `-- --sweep` also tries every engine and knob value. Without
//! `--bench` small sizes run once, as a test.

use std::collections::BTreeMap;
use std::time::Duration;

use warploom::engine::{EngineId, Knobs};
use warploom::graph::{BinaryOp, Graph, Op, UnaryOp};
use warploom::plan::{Plan, candidates};
use warploom::runtime::{
    AnalyzeOptions, DeviceTensors, RunOptions, Runtime, WeightSource, run_graph,
};
use warploom::{Error, Result};
use warploom_core::base::{DType, Dim, Format, Shape, ShapeClass, SymbolValues};

/// Number of rows and of columns that are timed.
const SIZE: usize = 8192;

/// A way to execute a workload: an engine with knobs, or `None` for the choice of the planner.
type Way = Option<(EngineId, Values)>;
/// Names and values of knobs.
type Values = Vec<(&'static str, u32)>;

/// A computation by rows, whose result is a state.
#[derive(Clone, Copy)]
enum Workload {
    Elementwise,
    Softmax,
    LayerNorm,
}

impl Workload {
    const ALL: [Workload; 3] = [Workload::Elementwise, Workload::Softmax, Workload::LayerNorm];

    fn name(self) -> &'static str {
        match self {
            Workload::Elementwise => "silu(x) * y * 0.5",
            Workload::Softmax => "softmax",
            Workload::LayerNorm => "LayerNorm",
        }
    }

    /// Number of tensors of full size that are read or written.
    fn tensors(self) -> usize {
        if matches!(self, Workload::Elementwise) { 3 } else { 2 }
    }

    /// The graph. Operands are weights and the result is a state, so that runs upload and download
    /// nothing.
    fn graph(self, rows: usize, cols: usize) -> Result<Graph> {
        let mut g = Graph::new(self.name());
        let whole = Shape::new([rows, cols]);
        let x = g.weight("x", whole.clone(), Format::F32);
        let result = match self {
            Workload::Elementwise => {
                let y = g.weight("y", whole.clone(), Format::F32);
                let half = g.constant_f32(Shape::new([1]), &[0.5]);
                let silu = g.add(Op::Unary(UnaryOp::Silu), &[x])?;
                let gated = g.add(Op::Binary(BinaryOp::Mul), &[silu, y])?;
                g.add(Op::Binary(BinaryOp::Mul), &[gated, half])?
            }
            Workload::Softmax => g.add(Op::Softmax, &[x])?,
            Workload::LayerNorm => {
                let gain = g.weight("gain", Shape::new([cols]), Format::F32);
                let bias = g.weight("bias", Shape::new([cols]), Format::F32);
                g.add(Op::LayerNorm { eps: 1e-5 }, &[x, gain, bias])?
            }
        };
        let to = g.state("to", whole, DType::F32);
        g.add(Op::Update { at: Dim::new(0) }, &[to, result])?;
        Ok(g)
    }
}

fn main() -> Result<()> {
    let flag = |name: &str| std::env::args().any(|argument| argument == name);
    let timed = flag("--bench");
    let size = if timed { SIZE } else { 64 };
    let runtime = Runtime::auto()?;
    println!("{} {}", runtime.device().profile().id(), runtime.device().profile().name);
    for workload in Workload::ALL {
        let mut ways: Vec<Way> = vec![None];
        if flag("--sweep") {
            ways.extend(all_ways(&runtime, workload, size)?.into_iter().map(Some));
        }
        for way in &ways {
            one(&runtime, workload, size, way, timed)?;
        }
    }
    Ok(())
}

/// Every engine for a workload, with every combination of its knobs' values.
fn all_ways(runtime: &Runtime, workload: Workload, size: usize) -> Result<Vec<(EngineId, Values)>> {
    let graph = workload.graph(size, size)?;
    let mut ways = Vec::new();
    let found = |engine: Option<&EngineId>, knobs: Knobs| {
        let mut options = runtime.plan_options();
        options.preferred.extend(engine.cloned());
        options.knobs = knobs;
        candidates(&graph, &ShapeClass::new(), runtime.device().profile(), &options)
    };
    for offer in &found(None, Knobs::default())?[0].can {
        // The values of a knob depend on earlier knobs, so those are set first.
        let mut open = vec![Vec::new()];
        while let Some(set) = open.pop() {
            let knobs = set.iter().fold(Knobs::default(), |knobs, (name, value)| {
                knobs.set(offer.engine.clone(), *name, *value)
            });
            let all = found(Some(&offer.engine), knobs)?;
            let offered = all[0].can.iter().find(|other| other.engine == offer.engine);
            match offered.and_then(|other| other.knobs.get(set.len())) {
                Some(next) => open.extend(next.values.iter().rev().map(|value| {
                    let mut set = set.clone();
                    set.push((next.name, *value));
                    set
                })),
                None => ways.push((offer.engine.clone(), set)),
            }
        }
    }
    Ok(ways)
}

fn engine_and_knobs(way: &Way) -> (Vec<EngineId>, Knobs) {
    let Some((engine, values)) = way else { return (Vec::new(), Knobs::default()) };
    let knobs = values
        .iter()
        .fold(Knobs::default(), |knobs, (name, value)| knobs.set(engine.clone(), *name, *value));
    (vec![engine.clone()], knobs)
}

/// Pseudorandom values from -4 to 4, as large as activations.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| 4.0 * next()).collect()
}

/// Pseudorandom values for the weights of a graph, by name.
fn operands(graph: &Graph) -> Result<BTreeMap<String, Vec<f32>>> {
    let mut all = BTreeMap::new();
    for (seed, node) in graph.nodes().iter().enumerate() {
        if let Op::Weight { name, .. } = &node.op {
            let count = node.shape.elements().eval_size(&SymbolValues::new())? as usize;
            all.insert(name.clone(), numbers(count, seed as u64));
        }
    }
    Ok(all)
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn one(runtime: &Runtime, workload: Workload, size: usize, way: &Way, timed: bool) -> Result<()> {
    verify(runtime, workload, size, way)?;
    let graph = workload.graph(size, size)?;
    let (engine, knobs) = engine_and_knobs(way);
    let mut options = runtime.plan_options();
    options.preferred.splice(0..0, engine);
    options.knobs = knobs;
    let plan = Plan::new(&graph, &ShapeClass::new(), runtime.device().profile(), &options)?;
    let (pool, device) = (runtime.pool(), &**runtime.device());
    let mut resident = DeviceTensors::new();
    for (name, numbers) in operands(&graph)? {
        let source = [WeightSource { name: &name, bytes: &bytes(&numbers) }];
        resident.upload(pool, device, &source, &mut |_| {})?;
    }
    resident.state(pool, device, "to", (4 * size * size) as u64)?;
    let options = match timed {
        true => AnalyzeOptions::default(),
        false => AnalyzeOptions { runs: 1, warm_up: Duration::ZERO },
    };
    let analysis = runtime.analyze(&plan, &mut resident, &SymbolValues::new(), &[], &options)?;
    let seconds: f64 = analysis.steps.iter().map(|step| step.median).sum();
    let rate = (4 * size * size * workload.tensors()) as f64 / seconds;
    let steps: Vec<String> = plan.steps.iter().map(|step| step.engine.to_string()).collect();
    let values = way.iter().flat_map(|(_, values)| values);
    let values: Vec<String> = values.map(|(name, value)| format!("{name}={value}")).collect();
    println!(
        "{:18} {:8.1} us  {:7.0} GB/s  {:5.1} % of a copy at {:.0} GB/s  {} {}",
        workload.name(),
        seconds * 1e6,
        rate / 1e9,
        100.0 * rate / analysis.bandwidth as f64,
        analysis.bandwidth as f64 / 1e9,
        steps.join(" "),
        values.join(" "),
    );
    Ok(())
}

/// Checks a few rows against plain loops in double precision.
fn verify(runtime: &Runtime, workload: Workload, cols: usize, way: &Way) -> Result<()> {
    let rows = 8;
    let graph = workload.graph(rows, cols)?;
    let operands = operands(&graph)?;
    let bound = operands.iter().map(|(name, numbers)| (name.clone(), bytes(numbers))).collect();
    let (preferred, knobs) = engine_and_knobs(way);
    let options = RunOptions { preferred, knobs, ..RunOptions::default() };
    let made = run_graph(runtime, &graph, &SymbolValues::new(), &bound, &options)?;
    let made = made["to"].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let at = |name: &str, i: usize| f64::from(operands[name][i]);
    let mut want = Vec::with_capacity(rows * cols);
    for row in 0..rows {
        let x: Vec<f64> = (0..cols).map(|c| at("x", row * cols + c)).collect();
        let mean = x.iter().sum::<f64>() / cols as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / cols as f64;
        let exponents: f64 = x.iter().map(|x| x.exp()).sum();
        want.extend((0..cols).map(|c| match workload {
            Workload::Elementwise => x[c] / (1.0 + (-x[c]).exp()) * at("y", row * cols + c) * 0.5,
            Workload::Softmax => x[c].exp() / exponents,
            Workload::LayerNorm => {
                (x[c] - mean) / (variance + 1e-5).sqrt() * at("gain", c) + at("bias", c)
            }
        }));
    }
    for (i, (got, want)) in made.zip(&want).enumerate() {
        // A few units in the last place of sums of 8,192 values.
        let close =
            (f64::from(got) - want).abs() <= 1e-5 * want.abs() + 1e-6 * (want.abs().min(1.0));
        let near = (f64::from(got) - want).abs() <= 2e-5;
        let right = if matches!(workload, Workload::Softmax) { close } else { near };
        if !right {
            let name = workload.name();
            return Err(Error::device(format!("{name}: element {i} is {got}, not {want}")));
        }
    }
    Ok(())
}
