//! Runs a pack's kernel on a device through a plan, with guard zones and poisoned memory.

use std::collections::BTreeMap;

use super::{Job, Outcome, Row};
use warploom::graph::{Custom, Graph, NodeId, Op};
use warploom::runtime::{RunOptions, Runtime, run_graph_async};
use warploom::{Error, Result};
use warploom_cases::compare;
use warploom_core::base::SymbolValues;
use warploom_core::reference::Tensor;

/// Blocking version of [`on_device_async`].
#[cfg(not(target_arch = "wasm32"))]
pub fn on_device(job: &Job, runtime: &Runtime) -> Row {
    warploom_core::base::platform::block_on(on_device_async(job, runtime))
}

/// Runs a job on a device.
pub async fn on_device_async(job: &Job, runtime: &Runtime) -> Row {
    let profile = runtime.device().profile();
    let twin = job.custom.twin(&profile.provider);
    let place = twin.map_or(profile.id(), |twin| format!("{} {}", profile.id(), twin.file));
    let outcome = match run(job, runtime).await {
        Ok(outcome) => outcome,
        Err(error) if error.is_unsupported() => Outcome::Unsupported { why: error.to_string() },
        Err(error) => Outcome::Wrong { what: error.to_string() },
    };
    Row { case: job.name.clone(), place, outcome }
}

/// Returns the job as a graph, and the bytes of its operands by name.
pub(super) fn graph_of(job: &Job) -> Result<(Graph, BTreeMap<String, Vec<u8>>)> {
    let custom = &job.custom;
    let mut graph = Graph::new(&custom.name);
    let mut operands: Vec<NodeId> = Vec::new();
    let mut bindings = BTreeMap::new();
    for (i, ((shape, dtype), words)) in custom.inputs.iter().zip(&job.inputs).enumerate() {
        let name = format!("operand {i}");
        operands.push(graph.input(&name, shape.clone(), *dtype));
        bindings.insert(name, words.iter().flat_map(|word| word.to_le_bytes()).collect());
    }
    for output in 0..custom.outputs.len() as u32 {
        let op = Op::Custom(Box::new(Custom { output, ..custom.clone() }));
        let node = graph.add(op, &operands)?;
        graph.output(format!("output {output}"), node)?;
    }
    Ok((graph, bindings))
}

async fn run(job: &Job, runtime: &Runtime) -> Result<Outcome> {
    let custom = &job.custom;
    let (graph, bindings) = graph_of(job)?;
    let options = RunOptions { guard: true, ..RunOptions::default() };
    let found = run_graph_async(runtime, &graph, &SymbolValues::new(), &bindings, &options).await?;
    let (mut elements, mut max_error) = (0, 0.0_f64);
    for (output, want) in job.expected.iter().enumerate() {
        let name = format!("output {output}");
        let lost = || Error::device(format!("kernel {:?}: {name} is missing", custom.name));
        let bytes = found.get(&name).ok_or_else(lost)?;
        let have = Tensor::from_bytes(want.shape.clone(), want.dtype(), bytes)?;
        let label = custom.bindings.iter().find(|b| b.tensor.output() == Some(output as u32));
        match compare(want, &have, &job.tolerance) {
            Ok(report) => {
                elements += report.elements;
                max_error = max_error.max(report.max_error);
            }
            Err(mismatch) => {
                let label = label.map_or("output", |binding| &binding.name);
                return Ok(Outcome::Wrong { what: format!("{label}: {mismatch}") });
            }
        }
    }
    Ok(Outcome::Right { elements, max_error })
}
