//! Each kernel of language models through two providers, alternating, with the same knobs and
//! memory: WGSL through wgpu, and its translation. Both must have the same results.
//!
//! `cargo bench --bench translated` times the tasks of a 1B and an 8B model (decode and prefill,
//! Q4_K and Q6_K, `F32` and `Int8`) from plans for the first device, on `-a webgpu` and `-b cuda`,
//! or OpenCL without CUDA, each by the engine with the best estimate that both devices can run. It
//! prints them in order of the time ratio, and how many are above 1.25. `--engines 2` also runs the
//! next best engine, `--model 1b` only one model, `--seconds 300` limits the time, `--json FILE`
//! writes the list. The benchmark fails if results differ or a kernel does not run. Without
//! `--bench` a tiny model runs for some seconds, as a test.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;
use warploom::engine::{EngineId, KnobValues};
use warploom::graph::computing_in;
use warploom::plan::{Task, tasks};
use warploom::provider::{DeviceKind, Support, support};
use warploom::runtime::{Runtime, TuneMode, TuneOptions};
use warploom::{Error, Result};
use warploom_core::base::{ComputeMode, Format};
use warploom_llm::config::Config;
use warploom_llm::shapes::smollm2_135m;
use warploom_llm::{DecoderOutput, class_of};

/// Maximum time relative to the same kernel on the first device.
const GOAL: f64 = 1.25;
/// Positions of the KV cache.
const CONTEXT: usize = 2048;

/// The value of a command-line option.
fn option(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

fn number(name: &str, otherwise: f64) -> Result<f64> {
    let Some(text) = option(name) else { return Ok(otherwise) };
    text.parse().map_err(|_| Error::invalid(format!("{name} {text:?} is not a number")))
}

/// Names and configurations of the models. Two layers are enough: further ones have equal tasks.
fn models(timed: bool) -> Vec<(&'static str, Config)> {
    let layers = 2;
    if !timed {
        let mut tiny = smollm2_135m();
        (tiny.layers, tiny.width, tiny.feed_forward, tiny.vocabulary) = (layers, 256, 512, 512);
        (tiny.heads, tiny.kv_heads, tiny.head_dim, tiny.rope_dim) = (4, 2, 64, 64);
        return vec![("tiny", tiny)];
    }
    let mut small = smollm2_135m();
    (small.layers, small.vocabulary, small.rope_base) = (layers, 128_256, 500_000.0);
    (small.width, small.feed_forward, small.heads, small.kv_heads) = (2048, 8192, 32, 8);
    let mut large = small.clone();
    (large.width, large.feed_forward, large.tied_output) = (4096, 14_336, false);
    (large.head_dim, large.rope_dim, large.attention_scale) = (128, 128, 128f32.sqrt().recip());
    let all = vec![("1b", small), ("8b", large)];
    let wanted = option("--model");
    all.into_iter()
        .filter(|(name, _)| wanted.as_ref().is_none_or(|wanted| wanted == name))
        .collect()
}

/// A task and an engine to time it with.
struct Row {
    /// Model, phase, format and mode, such as `8b decode q4_k int8`.
    of: String,
    task: Task,
    engine: EngineId,
}

/// The reason why the second device cannot run a kernel of a row, or `None` if it can.
fn refused(row: &Row, [a, b]: [&Runtime; 2]) -> Result<Option<String>> {
    let trial = row.task.trial(a.registry(), &row.engine, &KnobValues::default())?;
    let (recording, _) = trial.recording(&row.task.contents, (1, 1), false);
    let profile = b.device().profile();
    Ok(recording.kernels.iter().find_map(|spec| match support(profile, spec) {
        Support::No(reason) => Some(reason),
        Support::Yes => None,
    }))
}

/// The distinct tasks of the first device's plans, each with up to `engines` engines that both
/// devices can run, best estimate first. Why the second device cannot run others is recorded.
fn rows(both: [&Runtime; 2], timed: bool, engines: usize, found: &mut Found) -> Result<Vec<Row>> {
    let runtime = both[0];
    let (mut rows, mut known) = (Vec::new(), BTreeSet::new());
    let context = if timed { CONTEXT } else { 64 };
    let phases =
        if timed { [("decode", 1), ("prefill", 512)] } else { [("decode", 1), ("prefill", 16)] };
    for (model, config) in models(timed) {
        for format in [Format::Q4K, Format::Q6K] {
            let graph = config.graph(format, context, DecoderOutput::Greedy)?;
            for mode in [ComputeMode::F32, ComputeMode::Int8] {
                let graph = computing_in(&graph, mode)?;
                for (phase, tokens) in phases {
                    let class = class_of(tokens, context)?;
                    let profile = runtime.device().profile();
                    for task in tasks(&graph, &class, profile, &runtime.plan_options())? {
                        if !known.insert(task.key.clone()) {
                            continue;
                        }
                        let mut taken = 0;
                        for engine in &task.engines {
                            let of = format!("{model} {phase} {format} {mode}");
                            let row = Row { of, task: task.clone(), engine: engine.clone() };
                            match refused(&row, both)? {
                                _ if taken == engines => break,
                                Some(reason) => found.unsupported.push(reason),
                                None => {
                                    taken += 1;
                                    rows.push(row);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    Ok(rows)
}

fn open(device: &str) -> Result<Runtime> {
    Runtime::builder().device(device).trusting(true).tune(TuneMode::Off).build()
}

fn main() -> Result<()> {
    let timed = std::env::args().any(|argument| argument == "--bench");
    let (rounds, seconds) = (if timed { 15 } else { 2 }, if timed { 3600.0 } else { 3.0 });
    let (rounds, seconds) = (number("--rounds", rounds as f64)?, number("--seconds", seconds)?);
    let engines = number("--engines", 1.0)?.max(1.0) as usize;
    let first = open(&option("-a").unwrap_or_else(|| "webgpu".into()));
    let second = match option("-b") {
        Some(device) => open(&device),
        None => open("cuda").or_else(|_| open("opencl")),
    };
    let (a, b) = match (first, second) {
        (Ok(a), Ok(b)) => (a, b),
        // As a test it may run on a machine with one device or none.
        (Err(error), _) | (_, Err(error)) if !timed => {
            println!("skipped: {error}");
            return Ok(());
        }
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    for runtime in [&a, &b] {
        let profile = runtime.device().profile();
        println!("{} {} {}", profile.id(), profile.name, profile.driver);
        if !timed || !matches!(profile.kind, DeviceKind::Discrete | DeviceKind::Integrated) {
            println!("times mean little here: the device is no GPU, or little was run");
        }
    }
    let options = TuneOptions {
        warm_up: Duration::from_millis(if timed { 60 } else { 0 }),
        rotate_bytes: if timed { 128 << 20 } else { 0 },
        ..TuneOptions::default()
    };
    let mut found = Found::default();
    let rows = rows([&a, &b], timed, engines, &mut found)?;
    if rows.is_empty() {
        return Err(Error::invalid("there is no task to time; models are 1b and 8b"));
    }
    let begin = Instant::now();
    for (done, row) in rows.iter().enumerate() {
        if begin.elapsed().as_secs_f64() > seconds && done > 0 {
            found.left = rows.len() - done;
            break;
        }
        found.add(row, &a, &b, rounds.max(1.0) as usize, &options)?;
    }
    found.print();
    if let Some(path) = option("--json") {
        found.write(&path, [&a, &b])?;
    }
    match found.failed.len() {
        0 => Ok(()),
        count => Err(Error::invalid(format!("{count} of {} are wrong or do not run", rows.len()))),
    }
}

/// The results of all rows.
#[derive(Default)]
struct Found {
    timed: Vec<Timed>,
    /// Reasons why the second device cannot run an engine of the first.
    unsupported: Vec<String>,
    /// Rows that failed: with the error, or with the first wrong result.
    failed: Vec<String>,
    /// Number of rows that were skipped for lack of time.
    left: usize,
}

/// A row with its times.
struct Timed {
    of: String,
    label: String,
    shapes: String,
    engine: EngineId,
    kernels: Vec<String>,
    /// Median microseconds on each device, at the first of [`Task::points`].
    us: [f64; 2],
    /// The second device's time divided by the first's: the median over rounds and points.
    ratio: f64,
}

impl Found {
    fn add(
        &mut self,
        row: &Row,
        a: &Runtime,
        b: &Runtime,
        rounds: usize,
        options: &TuneOptions,
    ) -> Result<()> {
        let Row { of, task, engine } = row;
        let what = format!("{of}: {} {} by {engine}", task.label, task.shapes);
        let way = (engine.clone(), KnobValues::default());
        let timings = match a.compare_on(b, task, &way, rounds, options) {
            Ok(timings) => timings,
            Err(error) if error.is_device_lost() => return Err(error.context(what)),
            Err(error) => {
                self.failed.push(format!("{what}: {error}"));
                return Ok(());
            }
        };
        if let Some(wrong) = &timings[1].wrong {
            self.failed.push(format!("{what}: {wrong}"));
            return Ok(());
        }
        let trial = task.trial(a.registry(), engine, &way.1)?;
        let (recording, _) = trial.recording(&task.contents, (1, 1), false);
        let pairs = timings[0].rounds.iter().zip(&timings[1].rounds);
        let ratios = pairs.flat_map(|(a, b)| a.iter().zip(b).map(|(a, b)| b / a));
        let us = |i: usize| 1e6 * median(timings[i].rounds.iter().map(|round| round[0]).collect());
        self.timed.push(Timed {
            of: of.clone(),
            label: task.label.clone(),
            shapes: task.shapes.clone(),
            engine: engine.clone(),
            kernels: recording.kernels.iter().map(ToString::to_string).collect(),
            us: [us(0), us(1)],
            ratio: median(ratios.collect()),
        });
        Ok(())
    }

    fn print(&mut self) {
        self.timed.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
        println!("ratio: second / first, the median over rounds in turn; us: medians of both");
        for Timed { of, label, shapes, engine, us: [a, b], ratio, .. } in &self.timed {
            let mark = if *ratio > GOAL { " ABOVE" } else { "" };
            println!("{ratio:6.3} {a:9.1} {b:9.1}  {engine}  {of}: {label} {shapes}{mark}");
        }
        self.failed.iter().for_each(|line| println!("FAILED: {line}"));
        println!(
            "{} timed, {} above {GOAL}; {} that the second cannot run were passed over, {} failed, {} left out \
             for time",
            self.timed.len(),
            self.timed.iter().filter(|row| row.ratio > GOAL).count(),
            self.unsupported.len(),
            self.failed.len(),
            self.left
        );
    }

    fn write(&self, path: &str, devices: [&Runtime; 2]) -> Result<()> {
        let row = |row: &Timed| {
            let Timed { of, label, shapes, engine, kernels, us, ratio } = row;
            json!({ "of": of, "label": label, "shapes": shapes, "engine": engine.as_str(),
                    "kernels": kernels, "us": us, "ratio": ratio })
        };
        let devices = devices.map(|runtime| {
            let profile = runtime.device().profile();
            json!({ "id": profile.id(), "name": profile.name, "driver": profile.driver })
        });
        let all = json!({
            "devices": devices, "goal": GOAL,
            "above": self.timed.iter().filter(|row| row.ratio > GOAL).count(),
            "rows": self.timed.iter().map(row).collect::<Vec<_>>(),
            "unsupported": self.unsupported, "failed": self.failed, "left": self.left,
        });
        let failed = |error: std::io::Error| Error::invalid(format!("{path}: {error}"));
        std::fs::write(path, format!("{all:#}\n")).map_err(failed)
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}
