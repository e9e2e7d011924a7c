//! GEMV: one row of activations times weight matrices. Prints GB/s of weights and microseconds per
//! product, for independent products and for a chain in which each consumes the previous result.
//!
//! ```text
//! cargo bench --bench matvec -- -d cuda -d webgpu
//! cargo bench --bench matvec -- -d cuda --formats q4_k,f16 --json FILE
//! cargo bench --bench matvec -- -d cuda --formats q8_0 \
//!     --knob wgsl.matvec_prequant.q8_0x8.subgroup:threads=256
//! ```
//!
//! The weights of a format are square matrices (`--size`, 8,192) of 2 GB in total, more than a
//! cache holds, in the weight layout of the device ([`Format::kept`]). Independent products read
//! the same row and write separate results. The time includes activation quantisation
//! (`ComputeMode::Int8`), except for F16. The products with the first and the last matrix are
//! checked against the reference in double precision. The device is kept busy for half a second,
//! then formats alternate; the medians of the rounds are printed with their spread. Without
//! `--bench` small matrices run once, as a test.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use warploom::engine::{EngineId, Knobs};
use warploom::graph::{Graph, Op};
use warploom::plan::Plan;
use warploom::provider::DeviceKind;
use warploom::runtime::{DeviceTensors, Instance, Runtime, WeightSource};
use warploom::{Error, Result};
use warploom_core::base::{ComputeMode, DType, Dim, Format, Shape, ShapeClass, SymbolValues};
use warploom_core::quant;
use warploom_core::reference::{self, Data, Tensor};

/// Time that the device is kept busy before the first measurement.
const WARM_UP: Duration = Duration::from_millis(500);
/// Minimum duration of a measurement of one row.
const STRETCH: Duration = Duration::from_millis(100);
/// Rounds over all formats.
const ROUNDS: usize = 7;
/// Maximum bytes of the weights of a graph.
const WEIGHTS: u64 = 2 << 30;
/// Maximum number of matrices of a graph.
const MOST: u64 = 128;
/// Maximum error of an element relative to the root mean square of all. The reference rounds in
/// `Int8` too, so errors come mainly from the order of sums.
const LIMIT: f64 = 1e-2;

/// Command-line options.
struct Asked {
    devices: Vec<String>,
    formats: Vec<Format>,
    size: u64,
    knobs: Knobs,
    json: Option<String>,
    timed: bool,
}

/// A kind of product: one row times `n` x `k` weights. If `dependent`, the next product reads the
/// result.
#[derive(Clone, Copy)]
struct Kind {
    format: Format,
    dependent: bool,
    n: u64,
    k: u64,
}

/// Many products of a kind on a device, with their times.
struct Row {
    kind: Kind,
    instance: Instance,
    /// Bytes of a matrix.
    bytes: u64,
    /// Number of matrices, which is that of products.
    count: u64,
    engines: String,
    /// Number of runs in a measurement.
    runs: usize,
    /// Seconds per product in each round.
    seconds: Vec<f64>,
}

fn main() -> Result<()> {
    let asked = Asked::read()?;
    let mut reports = Vec::new();
    for device in &asked.devices {
        let runtime = Runtime::builder().device(device).build()?;
        let profile = runtime.device().profile();
        println!("{} {} ({})", profile.id(), profile.name, profile.driver);
        let mut rows = Vec::new();
        for format in &asked.formats {
            for dependent in [false, true] {
                rows.push(Row::new(&runtime, *format, dependent, &asked)?);
            }
        }
        if asked.timed {
            time(&mut rows)?;
            tell(&rows);
            reports.push(in_json(&runtime, &rows));
        }
    }
    let Some(path) = &asked.json else { return Ok(()) };
    let json = serde_json::json!({ "program": "warploom", "devices": reports });
    std::fs::write(path, format!("{json:#}\n")).map_err(|error| Error::io(path, error))
}

impl Asked {
    fn read() -> Result<Asked> {
        let usual = [Format::Q4K, Format::Q4_0, Format::Q8_0, Format::Q6K, Format::TQ2_0];
        let mut asked = Asked {
            devices: Vec::new(),
            formats: usual.into_iter().chain([Format::Plain(DType::F16)]).collect(),
            size: 0,
            knobs: Knobs::default(),
            json: None,
            timed: false,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let mut value = || {
                let missing = || Error::invalid(format!("{name} needs a value"));
                arguments.next().ok_or_else(missing)
            };
            match name.as_str() {
                "--bench" => asked.timed = true,
                "-d" | "--device" => asked.devices.push(value()?),
                "--formats" => {
                    asked.formats = value()?.split(',').map(format).collect::<Result<_>>()?;
                }
                "--size" => {
                    let (text, wrong) = (value()?, "is not a multiple of 256 above 0");
                    let size = text.parse().ok().filter(|n: &u64| *n > 0 && n.is_multiple_of(256));
                    asked.size = size.ok_or_else(|| Error::invalid(format!("{text:?} {wrong}")))?;
                }
                "--knob" => asked.knobs = knob(asked.knobs, &value()?)?,
                "--json" => asked.json = Some(value()?),
                other => return Err(Error::invalid(format!("unknown argument {other:?}"))),
            }
        }
        if asked.size == 0 {
            asked.size = if asked.timed { 8192 } else { 2048 };
        }
        if asked.devices.is_empty() {
            asked.devices.push("auto".into());
        }
        Ok(asked)
    }
}

fn format(text: &str) -> Result<Format> {
    let found = Format::ALL.into_iter().find(|format| format.name() == text.trim());
    found.ok_or_else(|| Error::invalid(format!("{text:?} is not a format")))
}

/// Parses `ENGINE:NAME=VALUE`, as in `warploom explain --knob`.
fn knob(knobs: Knobs, text: &str) -> Result<Knobs> {
    let parts = text.split_once(':').and_then(|(engine, rest)| {
        let (name, value) = rest.split_once('=')?;
        Some((engine, name, value.parse().ok()?))
    });
    let wrong = || Error::invalid(format!("{text:?} is not ENGINE:NAME=VALUE"));
    let (engine, name, value) = parts.ok_or_else(wrong)?;
    Ok(knobs.set(EngineId::new(engine.to_owned()), name, value))
}

/// The graph of `count` products: independent ones with a state for each result, or a chain with a
/// state for its end. With `with_ends`, the first and the last result are outputs, and of a chain
/// the last product's operand too.
fn graph(row: &Kind, count: u64, with_ends: bool) -> Result<Graph> {
    let (mut g, Kind { format, dependent, n, k }) = (Graph::new("matvec"), *row);
    let mode = if format.is_quantised() { ComputeMode::Int8 } else { ComputeMode::F32 };
    let mut x = g.weight("x", Shape::new([1, k]), Format::F32);
    for i in 0..count {
        let w = g.weight(&format!("w{i}"), Shape::new([n, k]), format);
        let y = g.add(Op::Linear { mode }, &[x, w])?;
        if with_ends && i == 0 {
            g.output("first", y)?;
        }
        if with_ends && i == count - 1 {
            if dependent {
                g.output("before", x)?;
            }
            g.output("last", y)?;
        }
        if !dependent || i == count - 1 {
            let to = g.state(&format!("to{i}"), Shape::new([1, n]), DType::F32);
            g.add(Op::Update { at: Dim::new(0) }, &[to, y])?;
        }
        x = if dependent { y } else { x };
    }
    Ok(g)
}

/// Pseudorandom values from `-scale` to `scale`.
fn numbers(count: u64, seed: u64, scale: f32) -> Vec<f32> {
    let mut state = seed + 1;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| scale * next()).collect()
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

impl Row {
    /// Uploads the weights and verifies the first product and the last.
    fn new(runtime: &Runtime, format: Format, dependent: bool, asked: &Asked) -> Result<Row> {
        let timed = asked.timed;
        let [n, k] = [asked.size; 2];
        let on_cpu = runtime.device().profile().kind == DeviceKind::Cpu;
        let format = if on_cpu { format } else { format.kept(k, true) };
        let kind = Kind { format, dependent, n, k };
        // Uniform values from -1 to 1 have a variance of a third, so with this scale a sum of k
        // products has the magnitude of its operands.
        let mut weights = numbers(n * k, 7, (3.0 / k as f32).sqrt());
        let encoded = quant::encode(format, &weights)?;
        quant::decode(format, &encoded, &mut weights)?;
        let size = encoded.len() as u64;
        let count = if timed { (WEIGHTS / size).clamp(2, MOST) } else { 3 };
        let (pool, device) = (runtime.pool(), &**runtime.device());
        let mut resident = DeviceTensors::new();
        let mut upload = |name: &str, bytes: &[u8]| {
            resident.upload(pool, device, &[WeightSource { name, bytes }], &mut |_| {})
        };
        for i in 0..count {
            upload(&format!("w{i}"), &encoded)?;
        }
        let x = numbers(k, 100, 1.0);
        upload("x", &bytes(&x))?;
        for i in 0..count {
            // Separate states, so that no dependency orders the products.
            resident.state(pool, device, &format!("to{i}"), 4 * n)?;
        }
        let mut instance = |with_ends: bool| {
            let (class, mut options) = (ShapeClass::new(), runtime.plan_options());
            options.knobs = asked.knobs.clone();
            let graph = graph(&kind, count, with_ends)?;
            let plan = Plan::new(&graph, &class, device.profile(), &options)?;
            Instance::new(runtime, plan, &mut resident)
        };
        let checked = instance(true)?;
        let names = checked.plan().outputs.iter().map(|output| output.name.clone());
        let made = checked.read(SymbolValues::new(), Vec::new())?;
        let made: BTreeMap<String, Vec<f32>> =
            names.zip(made.iter().map(|bytes| floats(bytes))).collect();
        kind.verify(&weights, &x, &made["first"])?;
        kind.verify(&weights, made.get("before").unwrap_or(&x), &made["last"])?;
        let instance = instance(false)?;
        let steps = &instance.plan().steps;
        let mut engines: Vec<String> = steps.iter().map(|step| step.engine.to_string()).collect();
        engines.sort();
        engines.dedup();
        let engines = engines.join(" ");
        let (runs, seconds) = (1, Vec::new());
        let mut row = Row { kind, instance, bytes: size, count, engines, runs, seconds };
        row.run(1)?;
        Ok(row)
    }

    /// Seconds of `runs` runs with one wait at the end.
    fn run(&mut self, runs: usize) -> Result<f64> {
        let begin = Instant::now();
        let start = || self.instance.begin(SymbolValues::new(), Vec::new());
        let mut last = start()?;
        for _ in 1..runs {
            last = start()?;
        }
        self.instance.end(last)?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Finds the number of runs that take at least [`STRETCH`].
    fn fit(&mut self) -> Result<()> {
        loop {
            let seconds = self.run(self.runs)?;
            if seconds >= STRETCH.as_secs_f64() {
                return Ok(());
            }
            let wanted = STRETCH.as_secs_f64() / seconds.max(1e-6) * 1.1;
            self.runs = (self.runs as f64 * wanted.clamp(1.5, 64.0)).ceil() as usize;
        }
    }

    /// The median of the rounds, and the largest deviation from it in percent.
    fn summary(&self) -> (f64, f64) {
        let mut seconds = self.seconds.clone();
        seconds.sort_by(f64::total_cmp);
        let median = seconds[seconds.len() / 2];
        let (least, most) = (seconds[0], seconds[seconds.len() - 1]);
        (median, 100.0 * (most - median).max(median - least) / median)
    }

    fn way(&self) -> &'static str {
        if self.kind.dependent { "dependent" } else { "independent" }
    }
}

impl Kind {
    /// Compares a product with the reference, which rounds activations in the same way.
    fn verify(&self, weights: &[f32], x: &[f32], made: &[f32]) -> Result<()> {
        let Kind { format, n, k, .. } = *self;
        let single = Kind { dependent: true, ..*self };
        let (g, tensor) = (graph(&single, 1, true)?, |shape: [u64; 2], numbers: &[f32]| {
            Tensor::new(shape.to_vec(), Data::F32(numbers.to_vec()))
        });
        let bound = [
            ("x".to_string(), tensor([1, k], x)?),
            ("w0".to_string(), tensor([n, k], weights)?),
            ("to0".to_string(), tensor([1, n], &vec![0.0; n as usize])?),
        ];
        let bound = bound.into();
        let evaluated = reference::eval(&g, &SymbolValues::new(), &bound)?;
        let Data::F32(wanted) = &evaluated.states["to0"].data else {
            return Err(Error::invalid("the reference made other numbers than f32"));
        };
        let squares: f64 = wanted.iter().map(|y| f64::from(*y).powi(2)).sum();
        let most = LIMIT * (squares / n as f64).sqrt();
        for (i, (got, want)) in made.iter().zip(wanted).enumerate() {
            let off = (f64::from(*got) - f64::from(*want)).abs();
            if off.is_nan() || off > most {
                let text =
                    format!("{format} {n} x {k}: row {i} is {got}, not {want} within {most:.1e}");
                return Err(Error::device(text));
            }
        }
        Ok(())
    }
}

fn time(rows: &mut [Row]) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < WARM_UP {
        rows.iter_mut().try_for_each(|row| row.run(1).map(|_| ()))?;
    }
    rows.iter_mut().try_for_each(Row::fit)?;
    for _ in 0..ROUNDS {
        for row in rows.iter_mut() {
            let seconds = row.run(row.runs)?;
            row.seconds.push(seconds / (row.runs as f64 * row.count as f64));
        }
    }
    Ok(())
}

fn tell(rows: &[Row]) {
    println!("format   way          matrices       MB   us each    GB/s  spread  engines");
    for row in rows {
        let (seconds, spread) = row.summary();
        let (format, way, bytes) = (row.kind.format.name(), row.way(), row.bytes as f64);
        println!(
            "{format:8} {way:11}  {:8} {:8.1}  {:8.2}  {:6.0}  {spread:4.1} %  {}",
            row.count,
            bytes / 1e6,
            seconds * 1e6,
            bytes / seconds / 1e9,
            row.engines
        );
    }
}

fn in_json(runtime: &Runtime, rows: &[Row]) -> serde_json::Value {
    let profile = runtime.device().profile();
    let row = |row: &Row| {
        let (seconds, spread) = row.summary();
        serde_json::json!({
            "format": row.kind.format.name(),
            "way": row.way(),
            "matrices": row.count,
            "bytes": row.bytes,
            "seconds": seconds,
            "spread_percent": spread,
            "engines": row.engines,
        })
    };
    let rows: Vec<serde_json::Value> = rows.iter().map(row).collect();
    serde_json::json!({ "device": profile.id(), "name": profile.name, "driver": profile.driver, "rows": rows })
}
