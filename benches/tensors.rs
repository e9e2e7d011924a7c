//! Tensor operations on a device: milliseconds each, and GB/s of the memory that they must move.
//!
//! Each result is compared with numbers computed in f64 before it is timed. `cargo bench --bench tensors
//! -- -d cpu` prints medians; without `--bench` small sizes run once, as a test.

use std::time::Instant;

use warploom::{Result, Runtime, Tensor};

/// A case: a name, the operation, and bytes moved for each element of the input.
struct Case {
    name: &'static str,
    run: fn(&Tensor) -> Tensor,
    /// The value of one element of the result, for a row and a column, from the input.
    want: fn(&Matrix, usize, usize) -> f64,
    bytes: f64,
}

/// The input on the host.
struct Matrix {
    n: usize,
    values: Vec<f32>,
}

impl Matrix {
    fn at(&self, row: usize, column: usize) -> f64 {
        f64::from(self.values[row * self.n + column])
    }

    fn column(&self, column: usize) -> impl Iterator<Item = f64> {
        (0..self.n).map(move |row| self.at(row, column))
    }

    fn row(&self, row: usize) -> impl Iterator<Item = f64> {
        (0..self.n).map(move |column| self.at(row, column))
    }

    fn mean(&self, column: usize) -> f64 {
        self.column(column).sum::<f64>() / self.n as f64
    }
}

/// Returns `e^x` over the sum of all `e^v`.
fn share(x: f64, all: impl Iterator<Item = f64>) -> f64 {
    x.exp() / all.map(f64::exp).sum::<f64>()
}

const CASES: [Case; 14] = [
    Case { name: "x + 1", run: |x| x + 1.0, want: |m, i, j| m.at(i, j) + 1.0, bytes: 8.0 },
    Case { name: "transpose", run: |x| x.t() + 0.0, want: |m, i, j| m.at(j, i), bytes: 8.0 },
    Case { name: "sum(0)", run: |x| x.sum(0), want: |m, _, j| m.column(j).sum(), bytes: 4.0 },
    Case { name: "sum(1)", run: |x| x.sum(1), want: |m, _, j| m.row(j).sum(), bytes: 4.0 },
    Case {
        name: "max(0)",
        run: |x| x.max(0),
        want: |m, _, j| m.column(j).fold(-9.0, f64::max),
        bytes: 4.0,
    },
    Case {
        name: "x - x.mean(0)",
        run: |x| x - x.mean(0),
        want: |m, i, j| m.at(i, j) - m.mean(j),
        bytes: 12.0,
    },
    Case {
        name: "softmax(0)",
        run: |x| x.softmax(0),
        want: |m, i, j| share(m.at(i, j), m.column(j)),
        bytes: 16.0,
    },
    Case {
        name: "softmax(1)",
        run: |x| x.softmax(1),
        want: |m, i, j| share(m.at(i, j), m.row(i)),
        bytes: 8.0,
    },
    Case { name: "exp", run: Tensor::exp, want: |m, i, j| m.at(i, j).exp(), bytes: 8.0 },
    Case { name: "tanh", run: Tensor::tanh, want: |m, i, j| m.at(i, j).tanh(), bytes: 8.0 },
    Case { name: "log", run: |x| x.abs().log(), want: |m, i, j| m.at(i, j).abs().ln(), bytes: 8.0 },
    Case {
        name: "pow",
        run: |x| x.abs().pow(1.7),
        want: |m, i, j| m.at(i, j).abs().powf(1.7),
        bytes: 8.0,
    },
    Case { name: "gelu", run: Tensor::gelu, want: |m, i, j| gelu(m.at(i, j)), bytes: 8.0 },
    Case {
        name: "gelu by tanh",
        run: |x| {
            let inner = (x + x * x * x * 0.044_715) * 0.797_884_6;
            (inner.tanh() + 1.0) * x * 0.5
        },
        want: |m, i, j| gelu(m.at(i, j)),
        bytes: 8.0,
    },
];

/// The approximation of GELU by tanh, which is within 5e-4 of GELU.
fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x.powi(3))).tanh())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let timed = args.iter().any(|arg| arg == "--bench");
    let after = |name: &str| {
        let place = args.iter().position(|arg| arg == name)?;
        args.get(place + 1).cloned()
    };
    let device = after("-d").unwrap_or("cpu".into());
    let wanted = after("-c");
    let n = match after("-n").map(|n| n.parse()) {
        Some(Ok(n)) => n,
        Some(Err(_)) => panic!("-n takes the number of rows and columns"),
        None => {
            if timed {
                4096
            } else {
                96
            }
        }
    };
    let runtime = Runtime::builder().device(device.as_str()).build()?;
    println!("{}, {n} x {n} f32", runtime.startup_line());
    let x = Tensor::randn(&runtime, [n, n], 1);
    let matrix = Matrix { n, values: x.to_vec()? };
    for case in CASES.iter().filter(|case| wanted.as_ref().is_none_or(|name| case.name == name)) {
        verify(case, &x, &matrix)?;
        let run = || {
            let y = (case.run)(&x);
            y.realize()?;
            runtime.synchronize()
        };
        let ms = median(timed, run)?;
        let rate = case.bytes * (n * n) as f64 / ms / 1e6;
        println!("{:<16} {ms:>9.2} ms {rate:>8.1} GB/s", case.name);
    }
    if wanted.is_none() {
        let ms = median(timed, || x.to_vec::<f32>().map(drop))?;
        println!("{:<16} {ms:>9.2} ms", "read");
        let ms = median(timed, || Tensor::randn(&runtime, [n, n], 2).realize().map(|_| ()))?;
        println!("{:<16} {ms:>9.2} ms", "randn");
    }
    Ok(())
}

/// Compares some elements of the result.
fn verify(case: &Case, x: &Tensor, matrix: &Matrix) -> Result<()> {
    let y = (case.run)(x);
    let (shape, values, n) = (y.shape().to_vec(), y.to_vec::<f32>()?, matrix.n);
    for k in 0..17 {
        let (i, j) = (k * 7919 % n, k * 104_729 % n);
        let got = f64::from(if shape.len() == 2 { values[i * n + j] } else { values[j] });
        let want = (case.want)(matrix, i, j);
        assert!(
            (got - want).abs() <= 5e-4 * (1.0 + want.abs()),
            "{}: {got}, not {want}",
            case.name
        );
    }
    Ok(())
}

/// Returns the median time of a run in milliseconds, of at least seven runs if it is timed.
fn median(timed: bool, run: impl Fn() -> Result<()>) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..if timed { 7 } else { 1 } {
        let begin = Instant::now();
        run()?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
