//! Runs a case with the reference and with an implementation, and compares the results.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::build::Case;
use crate::compare::{Mismatch, Report, compare_product};
use warploom_core::base::SymbolValues;
use warploom_core::error::{Error, Result};
use warploom_core::ir::{Graph, NodeId};
use warploom_core::reference::{self, Evaluation, Tensor};

/// Tensor bytes by name, little-endian, as in device memory.
pub type NamedBytes = BTreeMap<String, Vec<u8>>;

/// The result of a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Every output and state is correct; holds the worst deviations.
    Pass(Report),
    /// An output or state is wrong, or the run failed.
    Fail(Failure),
    /// The implementation does not support the case, with the reason.
    Unsupported(String),
    /// The case fails as declared, for this reason.
    KnownToFail(String),
}

/// Description of a failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Failure {
    /// The wrong output or state; `None` if the run failed.
    pub tensor: Option<String>,
    /// Row-major index of the first wrong element; `None` if the tensor as a whole is wrong.
    pub index: Option<usize>,
    /// The expected value; `null` in JSON if not finite (`what` contains it).
    pub expected: Option<f64>,
    /// The actual value; `null` in JSON if not finite (`what` contains it).
    pub got: Option<f64>,
    /// The message, with the case, the index along each axis, both values, error, limit and number
    /// of wrong elements.
    pub what: String,
}

impl Failure {
    /// Creates a failure without values.
    pub fn new(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), ..Failure::default() }
    }

    fn of(case: &Case, wrong: Wrong) -> Failure {
        let what = format!("{}: {wrong}", case.name);
        let values = wrong.mismatch.values;
        Failure {
            tensor: Some(wrong.tensor),
            index: wrong.mismatch.first_bad,
            expected: values.map(|values| values[0]),
            got: values.map(|values| values[1]),
            what,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// Runs one case.
///
/// `run` receives the graph, its symbols, and by name the bytes of its inputs, weights and
/// initially non-zero states. It returns the bytes of every output by name and of every state after
/// the run, under the state's name. Other entries are ignored.
pub fn run_case(
    case: &Case,
    run: &dyn Fn(&Graph, &SymbolValues, &NamedBytes) -> Result<NamedBytes>,
) -> Outcome {
    let tensors = case.tensors();
    match reference::eval(&case.graph, &case.symbols, &tensors) {
        Ok(expected) => judge(case, &expected, run(&case.graph, &case.symbols, &case.bytes())),
        Err(error) => Outcome::Fail(Failure::new(format!("{}: the reference: {error}", case.name))),
    }
}

/// Compares the result of an implementation with that of the reference.
pub fn judge(case: &Case, expected: &Evaluation<'_>, actual: Result<NamedBytes>) -> Outcome {
    let actual = match actual {
        Ok(actual) => actual,
        Err(error) if error.is_unsupported() => return Outcome::Unsupported(error.to_string()),
        Err(error) => return Outcome::Fail(Failure::new(format!("{}: {error}", case.name))),
    };
    match agree(case, expected, &actual) {
        Ok(worst) => Outcome::Pass(worst),
        Err(wrong) => Outcome::Fail(Failure::of(case, wrong)),
    }
}

/// A wrong output or state.
#[derive(Clone, Debug, PartialEq)]
pub struct Wrong {
    /// Name of the output or state.
    pub tensor: String,
    /// Difference from the reference.
    pub mismatch: Mismatch,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.tensor, self.mismatch)
    }
}

/// Compares every output and state with the reference; returns the worst deviations.
///
/// # Errors
/// The first wrong output or state.
pub fn agree(case: &Case, expected: &Evaluation<'_>, actual: &NamedBytes) -> Result<Report, Wrong> {
    let mut worst = Report::default();
    let outputs = case
        .graph
        .outputs()
        .iter()
        .map(|(name, id)| (name, expected.value(*id), magnitude(case, *id, expected)));
    let states = expected.states.iter().map(|(name, value)| (name, value, Ok(None)));
    for (name, value, magnitude) in outputs.chain(states) {
        let whole = |e: Error| Mismatch::whole(e.to_string());
        let report = magnitude.map_err(whole).and_then(|magnitude| {
            let missing = || Mismatch::whole("is missing".into());
            let bytes = actual.get(name).ok_or_else(missing)?;
            let tensor =
                Tensor::from_bytes(value.shape.clone(), value.dtype(), bytes).map_err(whole)?;
            compare_product(value, &tensor, magnitude.as_ref(), &case.tolerance)
        });
        let report = report.map_err(|mismatch| Wrong { tensor: name.clone(), mismatch })?;
        worst = worse(worst, report);
    }
    Ok(worst)
}

fn magnitude(case: &Case, id: NodeId, expected: &Evaluation<'_>) -> Result<Option<Tensor>> {
    if case.tolerance.eps_count == 0.0 {
        return Ok(None);
    }
    reference::magnitude(&case.graph, id, expected, &case.symbols)
}

/// Combines two reports: adds their elements, and takes the larger of each deviation.
pub fn worse(a: Report, b: Report) -> Report {
    Report {
        elements: a.elements + b.elements,
        max_error: a.max_error.max(b.max_error),
        worst_share: a.worst_share.max(b.worst_share),
        nmse: a.nmse.max(b.nmse),
    }
}

/// A case that is known to fail on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFailure {
    /// Part of the device name; empty matches every device.
    pub device: &'static str,
    /// Part of the driver name or version; empty matches every driver.
    pub driver: &'static str,
    /// Prefix of the case names.
    pub case: &'static str,
    /// Why the device or its driver is at fault, with a link if there is one.
    pub reason: &'static str,
}

/// Applies declared failures: the failure of a declared case becomes [`Outcome::KnownToFail`], and
/// a declared case that passes becomes a failure.
pub fn declared(
    table: &[KnownFailure],
    device: &str,
    driver: &str,
    case: &Case,
    outcome: Outcome,
) -> Outcome {
    let row = table.iter().find(|row| {
        device.contains(row.device)
            && driver.contains(row.driver)
            && case.name.starts_with(row.case)
    });
    match (row, outcome) {
        (Some(row), Outcome::Fail(_)) => Outcome::KnownToFail(row.reason.into()),
        (Some(row), Outcome::Pass(_)) => Outcome::Fail(Failure::new(format!(
            "{}: passes on {device} ({driver}) but is declared to fail: {}; take the declaration \
             away",
            case.name, row.reason
        ))),
        (_, outcome) => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tolerance;
    use crate::build::Build;
    use warploom_core::base::{Dim, Format};
    use warploom_core::ir::{BinaryOp, Op};

    /// Returns a case with a product written into a state.
    fn case() -> Case {
        let mut b = Build::new("test/product").within(Tolerance::product(64));
        let x = b.f32("x", [3, 64]);
        let w = b.weight("w", &[2, 64], Format::Q8_0);
        let state = b.state("rows", &[4, 2]);
        let y = b.op(Op::linear(), &[x, w]);
        b.op(Op::Update { at: Dim::new(1) }, &[state, y]);
        b.done(y)
    }

    /// Runs the reference and modifies its result.
    fn run(case: &Case, change: impl Fn(&mut NamedBytes)) -> Outcome {
        run_case(case, &|graph, symbols, _| -> Result<NamedBytes> {
            let tensors = case.tensors();
            let run = reference::eval(graph, symbols, &tensors)?;
            let outputs = graph.outputs().iter().map(|(n, id)| (n, run.value(*id)));
            let mut bytes: NamedBytes = outputs
                .chain(&run.states)
                .map(|(name, value)| (name.clone(), value.to_bytes()))
                .collect();
            change(&mut bytes);
            Ok(bytes)
        })
    }

    fn failure(outcome: Outcome) -> String {
        match outcome {
            Outcome::Fail(failure) => failure.what,
            other => panic!("a planted fault gave {other:?}"),
        }
    }

    /// Adds `what` to one element of one tensor.
    fn add(bytes: &mut NamedBytes, name: &str, element: usize, what: f32) {
        let at = &mut bytes.get_mut(name).unwrap()[element * 4..][..4];
        let value = f32::from_le_bytes([at[0], at[1], at[2], at[3]]);
        at.copy_from_slice(&(value + what).to_le_bytes());
    }

    #[test]
    fn the_reference_agrees_with_itself() {
        let Outcome::Pass(report) = run(&case(), |_| {}) else { panic!("not itself") };
        assert_eq!(report.elements, 6 + 8);
    }

    #[test]
    fn planted_faults_are_found() {
        let Outcome::Fail(found) = run(&case(), |bytes| add(bytes, "y", 5, 1e-3)) else {
            panic!("a planted fault passed");
        };
        assert_eq!((found.tensor.as_deref(), found.index), (Some("y"), Some(5)));
        let off = found.got.unwrap() - found.expected.unwrap();
        assert!((off - 1e-3).abs() < 1e-5, "{found:?}");
        let text = found.to_string();
        assert!(text.contains("test/product: \"y\": element 5 [2, 1]"), "{text}");
        let text = failure(run(&case(), |bytes| add(bytes, "rows", 0, 1e-3)));
        assert!(text.contains("\"rows\": element 0"), "{text}");
        let text = failure(run(&case(), |bytes| add(bytes, "y", 0, f32::NAN)));
        assert!(text.contains("NaN"), "{text}");
        let text = failure(run(&case(), |bytes| bytes.get_mut("y").unwrap().truncate(20)));
        assert!(text.contains("20 bytes"), "{text}");
        let text = failure(run(&case(), |bytes| drop(bytes.remove("rows"))));
        assert!(text.contains("\"rows\": is missing"), "{text}");
    }

    #[test]
    fn errors_are_failures_and_unsupported_is_an_answer() {
        let case = case();
        let outcome = run_case(&case, &|_, _, _| Err(Error::unsupported("no such kernel")));
        assert_eq!(outcome, Outcome::Unsupported("no such kernel".into()));
        let text = failure(run_case(&case, &|_, _, _| Err(Error::device_lost("gone"))));
        assert!(text.contains("gone"), "{text}");
        let mut b = Build::new("test/unbound");
        let x = b.f32("x", [3]);
        let y = b.op(Op::Binary(BinaryOp::Add), &[x, x]);
        let mut case = b.done(y);
        case.bindings.clear();
        let text = failure(run_case(&case, &|_, _, _| Ok(BTreeMap::new())));
        assert!(text.contains("the reference"), "{text}");
    }

    #[test]
    fn a_declaration_fails_when_the_case_passes() {
        let row = KnownFailure {
            device: "llvmpipe",
            driver: "23.",
            case: "test/",
            reason: "rounds the wrong way",
        };
        let judge = |device: &str, driver: &str, outcome: Outcome| {
            declared(&[row], device, driver, &case(), outcome)
        };
        let (fail, pass) = (Outcome::Fail(Failure::new("x")), Outcome::Pass(Report::default()));
        let known = Outcome::KnownToFail("rounds the wrong way".into());
        assert_eq!(judge("llvmpipe (LLVM 20)", "Mesa 23.1", fail.clone()), known);
        let text = failure(judge("llvmpipe", "Mesa 23.1", pass.clone()));
        assert!(text.contains("declared to fail"), "{text}");
        assert_eq!(judge("H200", "Mesa 23.1", fail.clone()), fail);
        assert_eq!(judge("llvmpipe", "Mesa 24.0", pass.clone()), pass);
    }
}
