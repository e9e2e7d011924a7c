//! The table of the conformance kit, in a browser.

use js_sys::Function;
use serde_json::{Value, json};
use warploom::graph::Node;
use warploom::{Error, Result};
use warploom_testkit::conformance::Verdict;
use warploom_testkit::{Case, Conformance, cases};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::engine::runtime;
use crate::error::to_js;
use crate::options::{self, Open};
use crate::pace::paced;

/// Runs the cases of the conformance table on a device: "webgpu", "webgpu floor" or "cpu". With
/// `elements`, cases in which a tensor has more elements are left out; with `names`, those whose name
/// does not contain it. `progress` receives the
/// number of finished cases, their total and the name of the next. Resolves to JSON: `{device,
/// cases, left_out, passed, failed: [{case, sizes, why}], unsupported: [{case, sizes, why}],
/// problems, seconds}`.
///
/// # Errors
/// Rejects if the device does not exist or does not open. Failures of cases are in the result.
#[wasm_bindgen]
pub async fn conformance(
    device: String,
    elements: Option<f64>,
    names: Option<String>,
    progress: Function,
) -> Result<String, JsValue> {
    let kept = |case: &Case| {
        elements.is_none_or(|elements| !exceeds(case, elements))
            && names.as_ref().is_none_or(|names| case.name.contains(names))
    };
    paced(run(device, kept, progress)).await.map_err(to_js)
}

/// Returns whether a tensor of the case has more elements.
fn exceeds(case: &Case, elements: f64) -> bool {
    let count = |node: &Node| {
        let sizes = node.shape.eval(&case.symbols).unwrap_or_default();
        sizes.iter().map(|size| *size as f64).product::<f64>()
    };
    case.graph.nodes().iter().any(|node| count(node) > elements)
}

async fn run(device: String, keep: impl Fn(&Case) -> bool, progress: Function) -> Result<String> {
    let (name, floor) = match device.strip_suffix(" floor") {
        Some(name) => (name, true),
        None => (device.as_str(), false),
    };
    let open: Open =
        options::parse("the device", &json!({ "device": name, "floor": floor }).to_string())?;
    let (runtime, _) = runtime(open).await?;
    let all = cases();
    let total = all.len();
    let kept: Vec<Case> = all.into_iter().filter(keep).collect();
    if kept.is_empty() {
        return Err(Error::invalid(format!("none of the {total} cases is selected")));
    }
    let left_out = total - kept.len();
    let mut suite = Conformance::new().cases(kept).progress(move |at| {
        let (done, total) = ((at.done as f64).into(), (at.total as f64).into());
        // What it throws changes no result.
        let _ = progress.call3(&JsValue::NULL, &done, &total, &at.case.into());
    });
    let report = suite.run_async(&runtime).await?;
    let (mut cases, mut passed, mut seconds) = (0, 0, 0.0);
    let (mut failed, mut unsupported): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    let mut problems: Vec<Value> = report.problems.iter().map(|p| json!(p)).collect();
    for device in &report.devices {
        cases += device.cases;
        seconds += device.seconds;
        problems.extend(device.problems.iter().map(|problem| json!(problem)));
        for row in &device.rows {
            let case = |why: &str| json!({ "case": row.case, "sizes": row.sizes, "why": why });
            match &row.verdict {
                Verdict::Pass(_) => passed += 1,
                Verdict::Unsupported { reason } => unsupported.push(case(reason)),
                Verdict::KnownToFail { reason } => unsupported.push(case(reason)),
                Verdict::Fail(failure) => failed.push(case(&failure.to_string())),
                other => failed.push(case(&format!("{other:?}"))),
            }
        }
    }
    let report = json!({
        "device": report.devices.first().map(|device| &device.label),
        "cases": cases,
        "left_out": left_out,
        "passed": passed,
        "failed": failed,
        "unsupported": unsupported,
        "problems": problems,
        "seconds": seconds,
    });
    Ok(report.to_string())
}
