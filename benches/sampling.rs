//! The cost of sampling a token: from a row of logits, and during decoding.
//!
//! First one token is sampled on the device (timestamps) and on the host from the same logits, with
//! the command's default settings and without limits. Before that, the tokens of some positions are
//! compared. Then the tokens per second of the embedded model are measured: with logits read back
//! for sampling on the host, with sampling on the device, and with run-ahead decoding of eight
//! tokens. `cargo bench --bench sampling` uses the device of `WARPLOOM_DEVICE`, or the best;
//! without `--bench` it runs briefly, as a test.

use std::time::{Duration, Instant};

use warploom::graph::{Graph, Op};
use warploom::plan::Plan;
use warploom::runtime::{
    AnalyzeOptions, DeviceTensors, RunOptions, Runtime, WeightSource, run_graph,
};
use warploom::{Error, Result};
use warploom_core::base::{DType, Dim, Format, Shape, ShapeClass, SymbolValues};
use warploom_core::sampling::SampleParams;
use warploom_llm::{Model, Output, Sampler, Sampling, Session, StepRequest};
use warploom_models::gguf::Access;

const MODEL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../models/warploom-tiny-llama-Q4_K_M.gguf");
/// Logits per row: the vocabularies of SmolLM2 and Qwen2.5.
const VOCABULARIES: [usize; 2] = [49_152, 151_936];
/// Number of tokens of one run-ahead request.
const AHEAD: usize = 8;
const CONTEXT: usize = 512;
/// Number of texts generated in each way; the median is printed.
const ROUNDS: usize = 5;

fn main() -> Result<()> {
    let timed = std::env::args().any(|argument| argument == "--bench");
    let runtime = Runtime::auto()?;
    println!("{} {}", runtime.device().profile().id(), runtime.device().profile().name);
    let open = Sampling::default().top_k(0).top_p(1.0).min_p(0.0);
    for vocabulary in VOCABULARIES {
        for (name, sampling) in [("usual", Sampling::default()), ("no limits", open.clone())] {
            one_draw(&runtime, vocabulary, name, &sampling, timed)?;
        }
    }
    decoding(&runtime, if timed { 256 } else { 8 })
}

/// Pseudorandom values distributed like logits: most near the middle, few far above it.
fn logits(count: usize) -> Vec<f32> {
    let mut state = 1u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    (0..count).map(|_| 6.0 * ((0..6).map(|_| next()).sum::<f32>() - 3.0)).collect()
}

fn bytes(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// A graph that samples a token from each of `rows` equal rows. The tokens are a state, so that
/// nothing is downloaded.
fn graph(vocabulary: usize, rows: usize) -> Result<Graph> {
    let mut g = Graph::new("draw");
    let x = g.weight("x", Shape::new([1, vocabulary]), Format::F32);
    let x = g.add(Op::Expand(Shape::new([rows, vocabulary])), &[x])?;
    let draws = g.input("draws", Shape::new([rows, SampleParams::WORDS]), DType::U32);
    let y = g.add(Op::Sample, &[x, draws])?;
    let to = g.state("to", Shape::new([rows]), DType::U32);
    g.add(Op::Update { at: Dim::new(0) }, &[to, y])?;
    Ok(g)
}

fn one_draw(
    runtime: &Runtime,
    vocabulary: usize,
    name: &str,
    sampling: &Sampling,
    timed: bool,
) -> Result<()> {
    let logits = logits(vocabulary);
    let x = bytes(logits.iter().map(|l| l.to_bits()));
    let mut sampler = Sampler::new(sampling.clone())?;
    // Tokens of some positions, to compare device and host.
    let text = [0; 16];
    let draws = bytes((0..text.len()).flat_map(|position| sampling.params(position).words()));
    let bound = [("x".to_string(), x.clone()), ("draws".to_string(), draws)].into();
    let symbols = SymbolValues::new();
    let several = graph(vocabulary, text.len())?;
    let options = RunOptions::default();
    let run = run_graph(runtime, &several, &symbols, &bound, &options);
    let mut want = Vec::new();
    let mut host = Vec::new();
    for position in 0..text.len() {
        let mut logits = logits.clone();
        let begin = Instant::now();
        want.push(sampler.sample(&mut logits, &text[..position])?);
        host.push(begin.elapsed().as_secs_f64());
    }
    let made = run?;
    if made.get("to") != Some(&bytes(want)) {
        return Err(Error::device(format!("{name} of {vocabulary}: not the host's tokens")));
    }
    let plan = Plan::new(
        &graph(vocabulary, 1)?,
        &ShapeClass::new(),
        runtime.device().profile(),
        &runtime.plan_options(),
    )?;
    let (pool, device) = (runtime.pool(), &**runtime.device());
    let mut resident = DeviceTensors::new();
    resident.upload(pool, device, &[WeightSource { name: "x", bytes: &x }], &mut |_| {})?;
    resident.state(pool, device, "to", 4)?;
    let words = [bytes(sampling.params(0).words())];
    let options = match timed {
        true => AnalyzeOptions::default(),
        false => AnalyzeOptions { runs: 1, warm_up: Duration::ZERO },
    };
    let analysis = runtime.analyze(&plan, &mut resident, &symbols, &words, &options)?;
    let steps = plan.steps.iter().zip(&analysis.steps);
    let draws = steps.filter(|(step, _)| step.engine.as_str() == "catalogue.sample");
    let seconds: f64 = draws.map(|(_, spread)| spread.median).sum();
    host.sort_by(f64::total_cmp);
    println!(
        "one of {vocabulary:6}, {name:9}: {:8.1} us on the device, {:8.1} us on the host",
        seconds * 1e6,
        host[host.len() / 2] * 1e6,
    );
    Ok(())
}

/// Where tokens are sampled.
#[derive(Clone, Copy)]
enum Way {
    Host,
    Device,
    Ahead,
}

fn decoding(runtime: &Runtime, count: usize) -> Result<()> {
    let model = Model::open(MODEL, Access::Mmap)?;
    let mut session = Session::builder(model).runtime(runtime.clone()).context(CONTEXT).build()?;
    let sampling = Sampling::default().seed(3);
    let mut ways = [
        ("logits to the host", Way::Host, Vec::new()),
        ("drawn on the device", Way::Device, Vec::new()),
        ("drawn eight ahead", Way::Ahead, Vec::new()),
    ];
    // The first round makes the plans. Ways alternate, so that other load affects all of them.
    for round in 0..=ROUNDS {
        for (_, way, rates) in &mut ways {
            let begin = Instant::now();
            let tokens = text(&mut session, &sampling, *way, count)?;
            if round > 0 {
                rates.push(tokens as f64 / begin.elapsed().as_secs_f64());
            }
        }
    }
    for (name, _, mut rates) in ways {
        rates.sort_by(f64::total_cmp);
        let (least, most) = (rates[0], rates[ROUNDS - 1]);
        println!("decode, {name:20}: {:8.1} tokens/s ({least:.1} to {most:.1})", rates[ROUNDS / 2]);
    }
    Ok(())
}

/// Generates at least `count` tokens from an empty cache; returns their number.
fn text(session: &mut Session, sampling: &Sampling, way: Way, count: usize) -> Result<usize> {
    session.truncate(0)?;
    let mut sampler = Sampler::new(sampling.clone())?;
    let mut seen = vec![1];
    if let Way::Ahead = way {
        let params = [sampling.params(1)];
        let output = Output::Sample(&params);
        seen.push(session.step(StepRequest::tokens(0, &[1], output))?.token()?);
    }
    while seen.len() <= count {
        let (at, last) = (seen.len(), [seen[seen.len() - 1]]);
        match way {
            Way::Host => {
                let mut out = session.step(StepRequest::tokens(0, &last, Output::Logits))?;
                let row = out.rows_mut().next().unwrap_or_default();
                seen.push(sampler.sample(row, &seen)?);
            }
            Way::Device => {
                let params = [sampling.params(at)];
                let output = Output::Sample(&params);
                seen.push(session.step(StepRequest::tokens(0, &last, output))?.token()?);
            }
            Way::Ahead => {
                let params: Vec<_> = (at..at + AHEAD).map(|at| sampling.params(at)).collect();
                let output = Output::Sample(&params);
                let out = session.step(StepRequest::run_ahead(&[0], AHEAD, output))?;
                seen.extend(out.tokens()?);
            }
        }
    }
    Ok(seen.len() - 1)
}
