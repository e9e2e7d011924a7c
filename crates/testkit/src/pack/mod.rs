//! Tests kernel packs: in the interpreter, with its checks, and on devices.
//!
//! A case first runs in the interpreter, which finds errors that devices hide: an index out of
//! bounds, a race, a divergent barrier, an endless loop. Its result is checked against the expected
//! values or the reference shader of the manifest, and so is each device's. If the manifest has
//! neither, devices are checked against the interpreter. A pack that implements a known operation
//! is also checked against that operation's reference, with the cases of the conformance table.

mod bench;
mod device;
mod interpreter;
mod operation;

use serde::Serialize;

use warploom::graph::Custom;
use warploom::kernel::pack::{Case, Numbers, Pack};
use warploom::{Error, Result};
use warploom_cases::{Report, Tolerance, compare};
use warploom_core::base::{DType, Shape, SymbolValues};
use warploom_core::reference::Tensor;

#[cfg(not(target_arch = "wasm32"))]
pub use bench::time;
pub use bench::{Timing, time_async};
#[cfg(not(target_arch = "wasm32"))]
pub use device::on_device;
pub use device::on_device_async;
#[cfg(not(target_arch = "wasm32"))]
pub use operation::operation_on_device;
pub use operation::{cases_of, operation_in_interpreter, operation_on_device_async};

/// Default sizes for a pack without cases: one below a workgroup, one that fills it.
const USUAL_SIZES: [u64; 2] = [37, 64];
/// Maximum number of elements in a tensor of a case.
const MAX_ELEMENTS: u64 = 1 << 26;
/// Seed of random inputs.
const SEED: u64 = 7;

/// Result of one case, in the interpreter or on a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the case. For a pack that implements an operation, a count and the operation, such
    /// as `12 of softmax`: the nodes that ran in the interpreter, or the cases that ran on a
    /// device. If a node fails in the interpreter, the name of its case.
    pub case: String,
    /// `interpreter`, or the id of a device, with the file of the native kernel if one ran.
    pub place: String,
    /// The result.
    pub outcome: Outcome,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum Outcome {
    /// Every value is right.
    Right {
        /// Number of values compared.
        elements: usize,
        /// The largest absolute error.
        max_error: f64,
    },
    /// The run failed, or a value is wrong.
    Wrong {
        /// The error, with file and line for a fault in the interpreter; or the first wrong value.
        what: String,
    },
    /// The device cannot run it.
    Unsupported {
        /// The reason.
        why: String,
    },
}

/// A case with its input values and its expected result.
#[derive(Debug)]
pub struct Job {
    /// Readable name.
    pub name: String,
    custom: Custom,
    /// Words of each operand.
    inputs: Vec<Vec<u32>>,
    /// Values of each output: from the manifest, its reference, or the interpreter.
    expected: Vec<Tensor>,
    tolerance: Tolerance,
}

/// Runs a case of a pack in the interpreter with its checks; returns the result and, if it is
/// right, the job for devices.
pub fn in_interpreter(pack: &Pack, case: &Case) -> (Row, Option<Job>) {
    let row = |outcome| Row { case: case.name.clone(), place: "interpreter".into(), outcome };
    match interpret(pack, case) {
        Ok((report, job)) => {
            let Report { elements, max_error, .. } = report;
            (row(Outcome::Right { elements, max_error }), Some(job))
        }
        Err(error) => (row(Outcome::Wrong { what: error.to_string() }), None),
    }
}

/// Returns the cases of a pack. If the manifest has none, they are two of default sizes; for a pack
/// that implements a known operation there are none, since the conformance table tests it.
///
/// # Errors
/// Invalid if the manifest has no cases and the default sizes fit no shape.
pub fn cases(pack: &Pack) -> Result<Vec<Case>> {
    if !pack.cases().is_empty() || pack.operation().is_some() {
        return Ok(pack.cases().to_vec());
    }
    let usual = USUAL_SIZES.map(|size| {
        // Fails here, with a clear reason.
        pack.operands(&Default::default(), Some(size)).map_err(|e| {
            e.context("without a [[case]] in the manifest every size is 37, then 64")
        })?;
        let names = pack.values().into_iter().filter(|name| pack.default(name).is_none());
        let values = names.map(|name| (name.to_string(), size as f64)).collect();
        let name = format!("size {size}");
        Ok(Case { name, values, inputs: Default::default(), outputs: Default::default() })
    });
    usual.into_iter().collect()
}

/// Creates a job without an expected result, for timing.
///
/// # Errors
/// Same as [`Pack::call`]; io or bad file if a file of the case cannot be read.
pub fn unchecked(pack: &Pack, case: &Case) -> Result<Job> {
    let (atol, rtol) = pack.tolerance();
    let tolerance = Tolerance { atol, rtol, eps_count: 0.0, nmse: f64::INFINITY };
    let shapes = pack.operands(&case.values, None)?;
    let custom = pack.call(&shapes, &values(case))?;
    let mut inputs = Vec::new();
    for (i, (spec, (shape, dtype))) in pack.inputs().zip(&shapes).enumerate() {
        let usual = Numbers::usual(*dtype);
        let numbers = case.inputs.get(spec.name).unwrap_or(&usual);
        let words = numbers.words(pack, *dtype, elements(shape)?, SEED + i as u64);
        inputs.push(words.map_err(|e| e.context(format!("input {}", spec.name)))?);
    }
    let name = case.name.clone();
    Ok(Job { name, custom, inputs, expected: Vec::new(), tolerance })
}

fn values(case: &Case) -> Vec<(&str, f64)> {
    case.values.iter().map(|(name, value)| (name.as_str(), *value)).collect()
}

fn interpret(pack: &Pack, case: &Case) -> Result<(Report, Job)> {
    let job = unchecked(pack, case)?;
    let found = interpreter::checked(pack, &job.custom, &job.inputs)?;
    let reference = match pack.reference() {
        Some(reference) => {
            let custom = reference.call(&job.custom.inputs, &values(case))?;
            let words = interpreter::plain(reference, &custom, &job.inputs);
            Some(words.map_err(|e| e.context("the reference"))?)
        }
        None => None,
    };
    let mut total = Report::default();
    let mut expected = Vec::new();
    for (i, (spec, (shape, dtype))) in pack.outputs().zip(&job.custom.outputs).enumerate() {
        let have = tensor(shape, *dtype, &found[i])?;
        let want = match (case.outputs.get(spec.name), &reference) {
            (Some(numbers), _) => {
                let words = numbers.words(pack, *dtype, elements(shape)?, SEED);
                tensor(shape, *dtype, &words.map_err(|e| e.context(spec.name))?)?
            }
            (None, Some(words)) => tensor(shape, *dtype, &words[i])?,
            (None, None) => have.clone(),
        };
        let report = compare(&want, &have, &job.tolerance);
        let report = report
            .map_err(|e| Error::invalid(format!("{}: {}: {e}", pack.shader().0, spec.name)))?;
        total.elements += report.elements;
        total.max_error = total.max_error.max(report.max_error);
        expected.push(want);
    }
    Ok((total, Job { expected, ..job }))
}

/// Returns the number of elements of a tensor, within the limit of a case.
fn elements(shape: &Shape) -> Result<u64> {
    let sizes = shape.eval(&SymbolValues::new())?;
    let elements = sizes.iter().try_fold(1_u64, |all, size| all.checked_mul(*size));
    match elements {
        Some(elements) if elements <= MAX_ELEMENTS => Ok(elements),
        _ => Err(Error::invalid(format!(
            "a tensor of {shape}, and a case has at most {MAX_ELEMENTS} elements in one"
        ))),
    }
}

fn tensor(shape: &Shape, dtype: DType, words: &[u32]) -> Result<Tensor> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Tensor::from_bytes(shape.eval(&SymbolValues::new())?, dtype, &bytes)
}
