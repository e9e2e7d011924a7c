//! GEMM: products of square lazy tensors, with results left on the device. Prints TFLOP/s and the
//! engine for each size and type.
//!
//! ```text
//! python3 benches/products_torch.py --json torch.json
//! cargo bench --bench products -- -d cuda --sizes 1024,2048,4096,8192 \
//!     --types f16,bf16,f32 --beside torch.json
//! cargo bench --bench products -- -d webgpu --types f16 --f16-accumulate   # may accumulate in f16
//! ```
//!
//! The benchmark times chains of `x = x * b` (`--chain`, 16 products), many in sequence with one
//! wait at the end; `products_torch.py` does exactly the same. Before that, elements of the last
//! product are compared with sums in double precision. The device is kept busy for half a second,
//! then sizes and types alternate, and the medians of the rounds are printed with their spread.
//! Without `--bench` a small size runs once, as a test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warploom::graph::{Graph, Op};
use warploom::plan::Plan;
use warploom::{DType, Error, Result, Runtime, Tensor};
use warploom_core::base::Shape;

/// Time that the device is kept busy before the first measurement.
const WARM_UP: Duration = Duration::from_millis(500);
/// Minimum duration of a measurement of one size and type.
const STRETCH: Duration = Duration::from_millis(200);
/// Rounds over all sizes and types.
const ROUNDS: usize = 9;

/// Command-line options.
struct Asked {
    device: String,
    sizes: Vec<usize>,
    types: Vec<DType>,
    chain: usize,
    beside: Option<String>,
    json: Option<String>,
    f16_accumulate: bool,
    timed: bool,
}

/// A size and a type, with its operands on the device.
struct Row {
    dtype: DType,
    size: usize,
    a: Tensor,
    b: Tensor,
    engine: String,
    /// Number of chains in a measurement.
    chains: usize,
    /// TFLOP/s of each round.
    rates: Vec<f64>,
}

fn main() -> Result<()> {
    let asked = Asked::read()?;
    let runtime = Arc::new(
        Runtime::builder().device(&asked.device).f16_accumulate(asked.f16_accumulate).build()?,
    );
    let profile = runtime.device().profile();
    println!("{} {} ({})", profile.id(), profile.name, profile.driver);
    let mut rows = Vec::new();
    for dtype in &asked.types {
        for size in &asked.sizes {
            rows.push(Row::new(&runtime, *dtype, *size, asked.chain)?);
        }
    }
    if !asked.timed {
        return Ok(());
    }
    let begin = Instant::now();
    while begin.elapsed() < WARM_UP {
        rows.iter_mut().try_for_each(|row| row.stretch(asked.chain, 1).map(|_| ()))?;
    }
    for row in &mut rows {
        row.fit(asked.chain)?;
    }
    for _ in 0..ROUNDS {
        for row in &mut rows {
            let chains = row.chains;
            let seconds = row.stretch(asked.chain, chains)?;
            let products = (chains * asked.chain) as f64;
            row.rates.push(products * 2.0 * (row.size as f64).powi(3) / seconds / 1e12);
        }
    }
    tell(&rows, asked.beside.as_deref())?;
    match &asked.json {
        Some(path) => save(&rows, path),
        None => Ok(()),
    }
}

impl Asked {
    fn read() -> Result<Asked> {
        let timed = std::env::args().any(|argument| argument == "--bench");
        let mut asked = Asked {
            device: "auto".into(),
            sizes: if timed { vec![1024, 2048, 4096, 8192] } else { vec![64] },
            types: vec![DType::F16, DType::BF16, DType::F32],
            chain: if timed { 16 } else { 2 },
            beside: None,
            json: None,
            f16_accumulate: false,
            timed,
        };
        let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
        while let Some(name) = arguments.next() {
            let mut value = || {
                let missing = || Error::invalid(format!("{name} needs a value"));
                arguments.next().ok_or_else(missing)
            };
            match name.as_str() {
                "-d" | "--device" => asked.device = value()?,
                "--sizes" => {
                    asked.sizes = value()?.split(',').map(number).collect::<Result<_>>()?;
                }
                "--types" => {
                    asked.types = value()?.split(',').map(dtype).collect::<Result<_>>()?;
                }
                "--chain" => asked.chain = number(&value()?)?,
                "--beside" => asked.beside = Some(value()?),
                "--json" => asked.json = Some(value()?),
                "--f16-accumulate" => asked.f16_accumulate = true,
                other => return Err(Error::invalid(format!("unknown argument {other:?}"))),
            }
        }
        Ok(asked)
    }
}

fn number(text: &str) -> Result<usize> {
    let parsed = text.trim().parse().ok().filter(|number| *number > 0);
    parsed.ok_or_else(|| Error::invalid(format!("{text:?} is not a number above 0")))
}

fn dtype(text: &str) -> Result<DType> {
    let all = [DType::F32, DType::F16, DType::BF16];
    let found = all.into_iter().find(|dtype| dtype.name() == text.trim());
    found.ok_or_else(|| Error::invalid(format!("{text:?} is not f32, f16 or bf16")))
}

impl Row {
    /// Puts the operands on the device and verifies the last product of a chain.
    fn new(runtime: &Runtime, dtype: DType, size: usize, chain: usize) -> Result<Row> {
        // With such values a product has the variance of its operand, however long the chain is.
        let even = (12.0 / size as f32).sqrt();
        let a = ((Tensor::rand(runtime, [size, size], 1) - 0.5) * 3.4).cast(dtype);
        let b = ((Tensor::rand(runtime, [size, size], 2) - 0.5) * even).cast(dtype);
        Tensor::eval(&[&a, &b])?;
        let engine = engine(runtime, dtype, size)?;
        let row = Row { dtype, size, a, b, engine, chains: 1, rates: Vec::new() };
        let before = row.chain(chain - 1);
        before.realize()?;
        let last = row.chain(chain);
        last.realize()?;
        row.verify(&before, &last)?;
        Ok(row)
    }

    fn chain(&self, length: usize) -> Tensor {
        (0..length).fold(self.a.clone(), |x, _| x.matmul(&self.b))
    }

    /// Seconds of `chains` chains of `length` products, with one wait at the end.
    fn stretch(&self, length: usize, chains: usize) -> Result<f64> {
        let begin = Instant::now();
        let enqueued = || {
            let last = self.chain(length);
            last.realize()?;
            // Otherwise the batcher would submit only after 1,024 dispatches.
            self.a.runtime().batcher().flush().map(|()| last)
        };
        let mut last = enqueued()?;
        for _ in 1..chains {
            last = enqueued()?;
        }
        corner(&last, [0, 0], [1, 1])?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Finds the number of chains that take at least [`STRETCH`].
    fn fit(&mut self, length: usize) -> Result<()> {
        loop {
            let seconds = self.stretch(length, self.chains)?;
            if seconds >= STRETCH.as_secs_f64() {
                return Ok(());
            }
            let wanted = STRETCH.as_secs_f64() / seconds.max(1e-6) * 1.1;
            self.chains = (self.chains as f64 * wanted.clamp(1.5, 64.0)).ceil() as usize;
        }
    }

    /// Compares elements of `y = x * b` with sums in double precision.
    fn verify(&self, x: &Tensor, y: &Tensor) -> Result<()> {
        let n = self.size;
        let places = [0, 1, n / 3, n / 2 + 1, n - 1];
        let rounding = match self.dtype {
            DType::F16 => 2f64.powi(-11),
            DType::BF16 => 2f64.powi(-8),
            _ => 0.0,
        };
        // The error of a sum grows with the square root of its number of roundings; sums in f16
        // round once per 16 products.
        let sums = match self.engine.contains(".f16_accumulate") {
            true => 2f64.powi(-11) * (1.0 + (n as f64 / 16.0).sqrt()),
            false => f64::from(f32::EPSILON) * (16.0 + (n as f64).sqrt()),
        };
        for i in places {
            let row = corner(x, [i, 0], [1, n])?;
            for j in places {
                let column = corner(&self.b, [0, j], [n, 1])?;
                let products =
                    || row.iter().zip(&column).map(|(x, b)| f64::from(*x) * f64::from(*b));
                let (want, size): (f64, f64) = (products().sum(), products().map(f64::abs).sum());
                let got = f64::from(corner(y, [i, j], [1, 1])?[0]);
                // The stored result is the inexact sum, rounded to nearest.
                let most = 1.01 * rounding * want.abs() + sums * size + 1e-7;
                let off = (got - want).abs();
                if off.is_nan() || off > most {
                    let dtype = self.dtype;
                    return Err(Error::device(format!(
                        "{dtype} of {n}: element [{i}, {j}] is {got}, not {want} within {most:.1e}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// The median of the rounds, and the largest deviation from it in percent.
    fn summary(&self) -> (f64, f64) {
        let mut rates = self.rates.clone();
        rates.sort_by(f64::total_cmp);
        let median = rates[rates.len() / 2];
        let (least, most) = (rates[0], rates[rates.len() - 1]);
        (median, 100.0 * (most - median).max(median - least) / median)
    }
}

/// Reads `rows` x `columns` elements of a matrix, from element `[i, j]` on.
fn corner(x: &Tensor, [i, j]: [usize; 2], [rows, columns]: [usize; 2]) -> Result<Vec<f32>> {
    x.narrow(0, i..i + rows).narrow(1, j..j + columns).cast(DType::F32).to_vec()
}

/// The ids of the engines that execute a product of this size.
fn engine(runtime: &Runtime, dtype: DType, size: usize) -> Result<String> {
    let mut graph = Graph::new("product");
    let a = graph.input("a", Shape::new([size, size]), dtype);
    let b = graph.input("b", Shape::new([size, size]), dtype);
    let y = graph.add(Op::MatMul, &[a, b])?;
    graph.output("y", y)?;
    let profile = runtime.device().profile();
    let plan = Plan::new(&graph, &Default::default(), profile, &runtime.plan_options())?;
    let engines: Vec<&str> = plan.steps.iter().map(|step| step.engine.as_str()).collect();
    Ok(engines.join(" "))
}

fn tell(rows: &[Row], beside: Option<&str>) -> Result<()> {
    let other = beside.map(load).transpose()?;
    let title = other.as_ref().map_or(String::new(), |(title, _)| format!("  {title}  ratio"));
    println!("type   size  TFLOP/s  spread{title}  engine");
    for row in rows {
        let ((rate, spread), key) = (row.summary(), (row.dtype.name().to_owned(), row.size));
        let ratio = match &other {
            Some((title, rates)) => {
                let wide = title.len();
                match rates.get(&key) {
                    Some(theirs) => format!("  {theirs:>wide$.1}  {:5.3}", rate / theirs),
                    None => format!("  {:>wide$}      -", "-"),
                }
            }
            None => String::new(),
        };
        let (dtype, size, engine) = (row.dtype.name(), row.size, &row.engine);
        println!("{dtype:5} {size:5}  {rate:7.1}  {spread:4.1} %{ratio}  {engine}");
    }
    Ok(())
}

/// TFLOP/s by type and size.
type Rates = BTreeMap<(String, usize), f64>;

/// Reads the results of a different program: its name and its rates.
fn load(path: &str) -> Result<(String, Rates)> {
    let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
    let wrong = |what: &str| Error::bad_file(format!("{path}: {what}"));
    let json: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|error| wrong(&error.to_string()))?;
    let title = json["program"].as_str().ok_or_else(|| wrong("no program is named"))?;
    let mut rates = Rates::new();
    for row in json["rows"].as_array().ok_or_else(|| wrong("it has no rows"))? {
        let (Some(dtype), Some(size), Some(rate)) =
            (row["type"].as_str(), row["size"].as_u64(), row["tflops"].as_f64())
        else {
            return Err(wrong(&format!("a row is {row}")));
        };
        rates.insert((dtype.to_owned(), size as usize), rate);
    }
    Ok((title.to_owned(), rates))
}

fn save(rows: &[Row], path: &str) -> Result<()> {
    let row = |row: &Row| {
        let (rate, spread) = row.summary();
        serde_json::json!({
            "type": row.dtype.name(),
            "size": row.size,
            "tflops": rate,
            "spread_percent": spread,
            "engine": row.engine,
        })
    };
    let rows: Vec<serde_json::Value> = rows.iter().map(row).collect();
    let json = serde_json::json!({ "program": "warploom", "rows": rows });
    std::fs::write(path, format!("{json:#}\n")).map_err(|error| Error::io(path, error))
}
