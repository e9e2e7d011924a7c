//! Tests a pack that implements a known operation with the conformance table, against the
//! operation's reference.

use super::{Outcome, Row, elements, interpreter};
use crate::conformance::{Conformance, Verdict};
use warploom::engine::PackEngine;
use warploom::graph::NodeId;
use warploom::kernel::pack::Pack;
use warploom::runtime::Runtime;
use warploom::{Error, Result};
use warploom_cases::Case;
use warploom_cases::worse;
use warploom_cases::{Report, compare_product};
use warploom_core::base::ShapeClass;
use warploom_core::reference::{self, Evaluation, Tensor};

/// Maximum number of nodes that run in the interpreter.
const MOST_NODES: usize = 24;
/// Maximum number of elements of a result in the interpreter.
const MOST_ELEMENTS: u64 = 1 << 14;

/// Returns the cases of the table that contain the operation.
pub fn cases_of(operation: &str) -> Vec<Case> {
    let has = |case: &Case| case.graph.nodes().iter().any(|node| node.op.name() == operation);
    super::super::cases().into_iter().filter(has).collect()
}

/// Runs the nodes of these cases that a pack implements, in the interpreter with its checks, and
/// compares the results with the operation's reference. Only small nodes run, and at most a few
/// dozen. The outcome is wrong if none ran.
pub fn operation_in_interpreter(pack: &Pack, cases: &[Case]) -> Row {
    let (place, operation) = ("interpreter".to_string(), pack.operation().unwrap_or("none"));
    let (mut count, mut total, mut refused) = (0, Report::default(), String::new());
    for case in cases {
        match in_case(pack, case, MOST_NODES - count) {
            Ok((nodes, report, reason)) => {
                count += nodes;
                total = worse(total, report);
                refused = reason.unwrap_or(refused);
            }
            Err(error) => {
                let what = error.to_string();
                return Row { case: case.name.clone(), place, outcome: Outcome::Wrong { what } };
            }
        }
    }
    let Report { elements, max_error, .. } = total;
    let outcome = match elements {
        0 => Outcome::Wrong {
            what: format!("no case of the table has a {operation} that it executes: {refused}"),
        },
        _ => Outcome::Right { elements, max_error },
    };
    Row { case: format!("{count} of {operation}"), place, outcome }
}

/// Runs up to `most` nodes of a case; returns how many ran, their accuracy, and the pack's last
/// reason for refusing one, if any.
fn in_case(pack: &Pack, case: &Case, most: usize) -> Result<(usize, Report, Option<String>)> {
    let (graph, symbols) = (&case.graph, &case.symbols);
    let tensors = case.tensors();
    let (mut nodes, mut total, mut refused) = (0, Report::default(), None);
    let own = |id: &NodeId| Some(graph.node(*id).op.name()) == pack.operation();
    let found: Vec<NodeId> = graph.ids().filter(own).take(most).collect();
    if found.is_empty() {
        return Ok((nodes, total, refused));
    }
    let expected = reference::eval(graph, symbols, &tensors)?;
    for id in found {
        let node = graph.node(id);
        let want = expected.value(id);
        let values: Vec<&Tensor> = node.inputs.iter().map(|input| expected.value(*input)).collect();
        let shape = |tensor: &Tensor| tensor.shape.iter().copied().collect();
        let operands: Vec<_> = values.iter().map(|t| (shape(t), t.dtype())).collect();
        let made = (&shape(want), want.dtype());
        let custom = match pack.implement("", &node.op, &operands, made, &ShapeClass::new()) {
            Ok((custom, _)) => custom,
            Err(reason) => {
                refused = Some(reason);
                continue;
            }
        };
        if elements(made.0)? > MOST_ELEMENTS {
            continue;
        }
        let words = |tensor: &&Tensor| -> Vec<u32> {
            let bytes = tensor.to_bytes();
            let word = |word: &[u8]| u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            bytes.chunks_exact(4).map(word).collect()
        };
        let inputs: Vec<Vec<u32>> = values.iter().map(words).collect();
        let found = interpreter::checked(pack, &custom, &inputs)?;
        let bytes: Vec<u8> = found.iter().flatten().flat_map(|w| w.to_le_bytes()).collect();
        let have = Tensor::from_bytes(want.shape.clone(), want.dtype(), &bytes)?;
        let magnitude = magnitude(case, id, &expected)?;
        let report = compare_product(want, &have, magnitude.as_ref(), &case.tolerance)
            .map_err(|e| Error::invalid(format!("{}: {e}", pack.shader().0)))?;
        total = worse(total, report);
        nodes += 1;
    }
    Ok((nodes, total, refused))
}

fn magnitude(case: &Case, id: NodeId, expected: &Evaluation<'_>) -> Result<Option<Tensor>> {
    match case.tolerance.eps_count {
        0.0 => Ok(None),
        _ => reference::magnitude(&case.graph, id, expected, &case.symbols),
    }
}

/// Blocking version of [`operation_on_device_async`].
///
/// # Errors
/// Same as [`operation_on_device_async`].
#[cfg(not(target_arch = "wasm32"))]
pub fn operation_on_device(pack: &Pack, cases: &[Case], runtime: &Runtime) -> Result<Row> {
    warploom_core::base::platform::block_on(operation_on_device_async(pack, cases, runtime))
}

/// Runs these cases on a device with the pack's engine wherever it applies.
///
/// # Errors
/// Invalid if the pack implements no operation, or the runtime already has its engine.
pub async fn operation_on_device_async(
    pack: &Pack,
    cases: &[Case],
    runtime: &Runtime,
) -> Result<Row> {
    let engine = PackEngine::new(pack.clone())?;
    let mut suite = Conformance::new().cases(cases.to_vec()).engine(engine);
    let report = suite.run_async(runtime).await?;
    let profile = runtime.device().profile();
    let twin = pack.twins().iter().find(|twin| twin.language.provider() == profile.provider);
    let place = twin.map_or(profile.id(), |twin| format!("{} {}", profile.id(), twin.file));
    let (used, mut total) = (report.devices.iter().flat_map(|device| &device.engines), 0);
    let mut refused = String::new();
    for used in used {
        total += used.cases;
        refused = used.refused.keys().cloned().collect::<Vec<String>>().join("; ");
    }
    let case = format!("{total} of {}", pack.operation().unwrap_or("none"));
    let wrong = report.wrong();
    let outcome = match (total, wrong.first()) {
        (0, _) => Outcome::Unsupported { why: refused },
        (_, Some(first)) => Outcome::Wrong {
            what: match wrong.len() {
                1 => first.clone(),
                count => format!("{first}; {count} runs are wrong"),
            },
        },
        (_, None) => {
            let rows = report.devices.iter().flat_map(|device| &device.rows);
            let all = rows.filter_map(|row| match row.verdict {
                Verdict::Pass(report) => Some(report),
                _ => None,
            });
            let Report { elements, max_error, .. } = all.fold(Report::default(), worse);
            Outcome::Right { elements, max_error }
        }
    };
    Ok(Row { case, place, outcome })
}
