//! The tuner's choices against those of the estimates, for 40 shapes of GEMM, GEMV, norms, softmax
//! and attention on the best device.
//!
//! Each shape is tuned. Then the estimated and the tuned choice alternate for 30 rounds, timed by
//! device timestamps if available, after 500 ms of work that raises the clock. Before that both are
//! checked against each other, and small shapes against the reference. At the end a second runtime
//! with the same cache must find nothing to search. If one of these checks fails, so does the
//! benchmark.
//!
//! `cargo bench --bench tune` runs all shapes, `-- --shapes 6` about six of them; `-- --seconds 4`
//! limits the search for each. Without `--bench` a few small shapes run, as a test.

use std::collections::BTreeMap;
use std::time::Duration;

use warploom::graph::{Graph, Op};
use warploom::plan::{Task, tasks};
use warploom::provider::DeviceKind;
use warploom::runtime::{
    RunOptions, Runtime, RuntimeBuilder, Timing, TuneCache, TuneMode, TuneOptions, run_graph,
};
use warploom::{Error, Result};
use warploom_core::base::{ComputeMode, DType, Dim, Format, Shape, ShapeClass, SymbolValues};
use warploom_core::quant;
use warploom_core::reference::{Data, Tensor};
use warploom_testkit::{Binding, Case, Outcome, Tolerance, run_case};

/// Rounds of the comparison.
const ROUNDS: usize = 30;
/// Maximum time of the tuned choice relative to the estimate's.
const TUNED: f64 = 1.03;
/// Maximum time of the estimate's choice relative to the tuned one.
const ESTIMATED: f64 = 1.25;
/// Maximum multiplications of a shape that is checked against the reference, which is slow.
const SMALL: usize = 1 << 22;

/// An operation and its sizes.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// m, n, k: `[m, k]` times the transpose of stored weights `[n, k]`.
    Linear(usize, usize, usize, Format, ComputeMode),
    /// b, m, n, k: `[b, m, k]` times `[b, k, n]`, in f32.
    MatMul(usize, usize, usize, usize),
    /// Rows and columns.
    RmsNorm(usize, usize),
    LayerNorm(usize, usize),
    Softmax(usize, usize),
    /// Tokens, heads, KV heads, head size, keys.
    Attention(usize, usize, usize, usize, usize),
}

use Work::{Attention, LayerNorm, Linear, MatMul, RmsNorm, Softmax};

const F32: ComputeMode = ComputeMode::F32;
const INT8: ComputeMode = ComputeMode::Int8;
const F16: Format = Format::Plain(DType::F16);

const SHAPES: [Work; 40] = [
    Linear(1, 576, 576, Format::Q4_0, F32),
    Linear(1, 1536, 576, Format::Q4_1, F32),
    Linear(1, 4096, 4096, F16, F32),
    Linear(1, 4096, 4096, Format::Q4_0, F32),
    Linear(1, 4096, 4096, Format::Q4K, F32),
    Linear(1, 4096, 4096, Format::Q6K, F32),
    Linear(1, 4096, 4096, Format::Q8_0, F32),
    Linear(1, 14336, 4096, Format::Q4K, F32),
    Linear(1, 14336, 4096, Format::Q5K, F32),
    Linear(1, 4096, 14336, Format::Q4K, F32),
    Linear(1, 4096, 14336, Format::Q6K, F32),
    Linear(1, 49152, 576, Format::Q8_0, F32),
    Linear(1, 128256, 2048, Format::Q6K, F32),
    Linear(1, 4096, 4096, Format::Q4K, INT8),
    Linear(1, 14336, 4096, Format::Q4_0, INT8),
    Linear(2, 4096, 4096, Format::Q8_0, F32),
    Linear(4, 4096, 4096, Format::Q4K, F32),
    Linear(8, 4096, 4096, Format::Q4_0, F32),
    Linear(8, 14336, 4096, Format::Q6K, F32),
    Linear(16, 4096, 4096, Format::Q4K, F32),
    Linear(64, 4096, 4096, Format::Q4K, F32),
    Linear(64, 576, 1536, Format::Q8_0, F32),
    Linear(128, 4096, 14336, Format::Q4K, F32),
    Linear(512, 576, 576, Format::Q4_0, F32),
    Linear(512, 4096, 4096, F16, F32),
    Linear(512, 4096, 4096, Format::Q4K, F32),
    Linear(512, 14336, 4096, Format::Q4K, F32),
    RmsNorm(1, 576),
    RmsNorm(1, 4096),
    RmsNorm(512, 576),
    RmsNorm(512, 4096),
    LayerNorm(512, 1024),
    Softmax(512, 4096),
    Softmax(8, 128256),
    Attention(1, 9, 3, 64, 512),
    Attention(1, 32, 8, 128, 128),
    Attention(1, 32, 8, 128, 1024),
    Attention(1, 32, 8, 128, 4096),
    Attention(64, 32, 8, 128, 512),
    Attention(512, 32, 8, 128, 512),
];

/// The shapes of a run without `--bench`.
const FEW: [Work; 6] = [
    Linear(1, 64, 256, Format::Q4K, F32),
    Linear(33, 64, 256, Format::Q8_0, F32),
    MatMul(2, 32, 16, 24),
    RmsNorm(4, 96),
    Softmax(8, 70),
    Attention(1, 4, 2, 16, 40),
];

impl Work {
    fn name(self) -> String {
        match self {
            Linear(m, n, k, format, mode) => format!("linear {m} x {n} x {k} {format} {mode}"),
            MatMul(b, m, n, k) => format!("matmul {b} x {m} x {n} x {k}"),
            RmsNorm(rows, cols) => format!("rms_norm {rows} x {cols}"),
            LayerNorm(rows, cols) => format!("layer_norm {rows} x {cols}"),
            Softmax(rows, cols) => format!("softmax {rows} x {cols}"),
            Attention(tokens, heads, kv, head, keys) => {
                format!("attention {tokens} x {heads}/{kv} x {head}, {keys} keys")
            }
        }
    }

    /// Multiplications, or elements if there are none.
    fn size(self) -> usize {
        match self {
            Linear(m, n, k, ..) => m * n * k,
            MatMul(b, m, n, k) => b * m * n * k,
            RmsNorm(rows, cols) | LayerNorm(rows, cols) | Softmax(rows, cols) => rows * cols,
            Attention(tokens, heads, _, head, keys) => 2 * tokens * heads * head * keys,
        }
    }

    /// The graph. Operands are inputs, except for the weights of `Linear` and the KV cache.
    fn graph(self) -> Result<Graph> {
        let mut g = Graph::new(self.name());
        let mut input = |name: &str, dims: &[usize]| {
            g.input(name, Shape::new(dims.iter().copied()), DType::F32)
        };
        let y = match self {
            Linear(m, n, k, format, mode) => {
                let x = input("x", &[m, k]);
                let w = g.weight("w", Shape::new([n, k]), format);
                g.add(Op::Linear { mode }, &[x, w])?
            }
            MatMul(b, m, n, k) => {
                let operands = [input("x", &[b, m, k]), input("w", &[b, k, n])];
                g.add(Op::MatMul, &operands)?
            }
            RmsNorm(rows, cols) => {
                let operands = [input("x", &[rows, cols]), input("w", &[cols])];
                g.add(Op::RmsNorm { eps: 1e-5 }, &operands)?
            }
            LayerNorm(rows, cols) => {
                let operands =
                    [input("x", &[rows, cols]), input("w", &[cols]), input("b", &[cols])];
                g.add(Op::LayerNorm { eps: 1e-5 }, &operands)?
            }
            Softmax(rows, cols) => {
                let x = input("x", &[rows, cols]);
                g.add(Op::Softmax, &[x])?
            }
            Attention(tokens, heads, kv, head, keys) => {
                let q = input("q", &[tokens, heads, head]);
                // The KV cache is on the device, as in a session.
                let cache = Shape::new([keys, kv, head]);
                let k = g.state("k", cache.clone(), DType::F32);
                let v = g.state("v", cache, DType::F32);
                let op = Op::attention(
                    (head as f32).sqrt().recip(),
                    true,
                    None,
                    Dim::from(keys - tokens),
                );
                g.add(op, &[q, k, v])?
            }
        };
        g.output("y", y)?;
        Ok(g)
    }

    fn tolerance(self) -> Tolerance {
        match self {
            Linear(_, _, k, ..) | MatMul(.., k) => Tolerance::product(k as u64),
            RmsNorm(..) | LayerNorm(..) | Softmax(..) | Attention(..) => Tolerance::absolute(2e-4),
        }
    }

    /// The graph with pseudorandom values for all operands, for a comparison with the reference.
    fn case(self) -> Result<Case> {
        let graph = self.graph()?;
        let mut bindings = BTreeMap::new();
        for (seed, node) in graph.nodes().iter().enumerate() {
            let sizes = node.shape.eval(&SymbolValues::new())?;
            let mut values = numbers(sizes.iter().product::<u64>() as usize, seed as u64);
            let format = node.op.stored().unwrap_or(Format::F32);
            for name in node.op.bound_names() {
                let bytes = quant::encode(format, &values)?;
                quant::decode(format, &bytes, &mut values)?;
                let tensor = Tensor::new(sizes.clone(), Data::F32(values.clone()))?;
                bindings.insert(name.to_string(), Binding { bytes, tensor });
            }
        }
        Ok(Case {
            name: self.name(),
            graph,
            symbols: SymbolValues::new(),
            bindings,
            tolerance: self.tolerance(),
            note: "",
        })
    }
}

/// Pseudorandom values from -1 to 1.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed + 1;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// The value of a command-line option.
fn option(name: &str) -> Option<f64> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1).and_then(|value| value.parse().ok())
}

fn main() -> Result<()> {
    let timed = std::env::args().any(|argument| argument == "--bench");
    let shapes: Vec<Work> = if timed { SHAPES.to_vec() } else { FEW.to_vec() };
    let wanted = option("--shapes").map_or(shapes.len(), |count| count as usize).max(1);
    let shapes: Vec<Work> = shapes.iter().step_by(shapes.len().div_ceil(wanted)).copied().collect();
    let folder = std::env::temp_dir().join(format!("warploom-bench-tune-{}", std::process::id()));
    let start = || -> RuntimeBuilder {
        Runtime::builder().tune(TuneMode::Cached).tune_cache(TuneCache::at(&folder))
    };
    let done = all(&start, &shapes, timed);
    // Also after a failure.
    let _ = std::fs::remove_dir_all(&folder);
    done
}

fn all(start: &dyn Fn() -> RuntimeBuilder, shapes: &[Work], timed: bool) -> Result<()> {
    let runtime = start().build()?;
    let profile = runtime.device().profile();
    println!("{} {} {}", profile.id(), profile.name, profile.driver);
    let mut options =
        TuneOptions { seconds: option("--seconds").unwrap_or(8.0), ..TuneOptions::default() };
    if !timed {
        options.rotate_bytes = 0;
        (options.seconds, options.rounds, options.warm_up) = (0.2, 5, Duration::ZERO);
    }
    if !timed || !matches!(profile.kind, DeviceKind::Discrete | DeviceKind::Integrated) {
        println!("times mean little here: the device is no GPU, or little was run");
    }
    println!(
        "us: median of {ROUNDS} rounds in turn; ratio: median over rounds of tuned / estimate"
    );
    let (mut found, mut ratios, mut candidates) = (Vec::new(), Vec::new(), 0);
    for work in shapes {
        let graph = work.graph()?;
        let all = tasks(&graph, &ShapeClass::new(), profile, &runtime.plan_options())?;
        let [task] = &all[..] else {
            println!("{:44}  one way only", work.name());
            continue;
        };
        candidates += runtime.tune(&all, &options, &mut |_| {})?.measured;
        let (line, ratio) = compared(&runtime, *work, task, &options)?;
        println!("{line}");
        ratios.push(ratio);
        found.push(task.clone());
    }
    let second = start().build()?;
    let again = second.tune(&found, &options, &mut |_| {})?;
    println!(
        "{candidates} candidates measured; a second start knows {} of {} tasks and measures {}",
        again.known,
        found.len(),
        again.measured
    );
    let worst = |list: &[f64]| list.iter().copied().fold(0.0, f64::max);
    let times: Vec<f64> = ratios.iter().map(|ratio| ratio.recip()).collect();
    for (what, list, most) in
        [("tuned / estimate", &ratios, TUNED), ("estimate / tuned", &times, ESTIMATED)]
    {
        let fine = list.iter().filter(|ratio| **ratio <= most).count();
        let (all, worst) = (list.len(), worst(list));
        println!("{what} <= {most}: {fine} of {all}, the worst {worst:.3}");
    }
    match (again.known, again.measured) == (found.len(), 0) {
        true => Ok(()),
        false => Err(Error::invalid("a second start searched again")),
    }
}

/// Compares the tuned choice of a task with the estimated one. Returns the line to print and the
/// ratio of tuned to estimated time, which is 1 if both choices are the same.
///
/// # Errors
/// If a result is wrong, or the device fails.
fn compared(
    runtime: &Runtime,
    work: Work,
    task: &Task,
    options: &TuneOptions,
) -> Result<(String, f64)> {
    let choices = runtime.tuned();
    let tuned = choices.choices.get(&task.key);
    let tuned = tuned.ok_or_else(|| Error::invalid(format!("{}: not tuned", work.name())))?;
    let held = match work.size() <= SMALL {
        true => {
            let run = |graph: &Graph, symbols: &SymbolValues, bytes: &_| {
                run_graph(runtime, graph, symbols, bytes, &RunOptions::default())
            };
            match run_case(&work.case()?, &run) {
                Outcome::Pass(_) => "reference",
                other => return Err(Error::invalid(format!("{}: {other:?}", work.name()))),
            }
        }
        false => "each other",
    };
    let estimate = (task.engines[0].clone(), Default::default());
    let ways = [estimate.clone(), (tuned.engine.clone(), tuned.knobs.clone())];
    let timings = runtime.compare(task, &ways, ROUNDS, options)?;
    if let Some(wrong) = timings.iter().find_map(|timing| timing.wrong.as_ref()) {
        return Err(Error::invalid(format!("{}: {wrong}", work.name())));
    }
    let pairs = timings[0].rounds.iter().zip(&timings[1].rounds);
    let ratio = median(pairs.map(|(a, b)| b[0] / a[0]).collect());
    let us = |timing: &Timing| 1e6 * median(timing.rounds.iter().map(|round| round[0]).collect());
    let same = ways[0] == ways[1];
    let choice = match same {
        true => "the same".into(),
        false => format!("{} {}", tuned.engine, tuned.knobs),
    };
    let mark = match ratio {
        _ if same => "",
        ratio if ratio > TUNED => " SLOWER",
        ratio if ratio.recip() > ESTIMATED => " ESTIMATE FAR OFF",
        _ => "",
    };
    let line = format!(
        "{:44} {:>9.1} -> {:>9.1} us  {ratio:.3}  held to {held:10}  {} -> {choice}{mark}",
        work.name(),
        us(&timings[0]),
        us(&timings[1]),
        estimate.0,
    );
    Ok((line, if same { 1.0 } else { ratio }))
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}
