//! The plan of a token as text and as data, and the time of its kernels.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use warploom::Result;
use warploom::runtime::AnalyzeOptions;
use warploom_llm::{DecoderOutput, Session};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::error::to_js;
use crate::model::{Model, State};
use crate::options;
use crate::pace::paced;

/// Options of `Model.explain`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Explain {
    /// Number of timed runs; 0 times nothing.
    runs: usize,
}

#[wasm_bindgen]
impl Model {
    /// Explains the run of one token. `options` is JSON: `{runs?: number}`; with runs, every kernel
    /// is timed on the device. Resolves to JSON: `{text, report}`, the plan as text for people and
    /// with the names of the library's report. The next answer computes its conversation again.
    ///
    /// # Errors
    /// Invalid if a text is being generated; errors of planning and of the device.
    pub async fn explain(&self, options: String) -> Result<String, JsValue> {
        let explain = async {
            let _busy = self.begin()?;
            let options: Explain = options::parse("options of the report", &options)?;
            let mut session = self.take(None).await?.into_session();
            let report = report(&mut session, options.runs).await;
            self.give_back(State::Text(session));
            report
        };
        paced(explain).await.map_err(to_js)
    }
}

async fn report(session: &mut Session, runs: usize) -> Result<String> {
    // The run writes the position behind the cache's tokens, which the next text overwrites.
    let past = session.past().min(session.context().saturating_sub(1));
    session.truncate(past)?;
    let (plan, symbols) = session.plan_for(1, past, DecoderOutput::Greedy)?;
    let mut report = plan.report();
    if runs > 0 {
        let mut inputs = Vec::with_capacity(plan.inputs.len());
        for input in &plan.inputs {
            let bytes = input.shape.elements().eval_size(&symbols)? * input.dtype.bytes();
            inputs.push(vec![0; bytes as usize]);
        }
        let options = AnalyzeOptions { runs, warm_up: Duration::from_millis(100) };
        let runtime = session.runtime().clone();
        let resident = session.device_tensors();
        let analysis = runtime.analyze_async(&plan, resident, &symbols, &inputs, &options).await?;
        report = report.measured(analysis);
    }
    let text = report.text(&warploom::plan::TextOptions { why: runs == 0, ..Default::default() });
    Ok(json!({ "text": text, "report": report.json() }).to_string())
}
