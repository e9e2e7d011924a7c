//! Planning time on one core, without compiling kernels, for each shape class of a model with the
//! shapes of SmolLM2-135M.
//!
//! `cargo bench --bench plan` fails if the plan of one token takes longer than the goal. Without
//! `--bench` each plan is made once, as a test.

use std::time::Instant;

use warploom::engine::Registry;
use warploom::plan::{Options, Plan};
use warploom::provider::NullProvider;
use warploom::{Error, Result};
use warploom_core::base::Format;
use warploom_llm::shapes::smollm2_135m;
use warploom_llm::{DecoderOutput, classes};

/// Positions of the KV cache.
const CONTEXT: usize = 2048;
/// Maximum median time of planning a run of one token, in ms.
const GOAL: f64 = 50.0;

fn main() -> Result<()> {
    let timed = std::env::args().any(|argument| argument == "--bench");
    let runs = if timed { 21 } else { 1 };
    let graph = smollm2_135m().graph(Format::Q8_0, CONTEXT, DecoderOutput::Greedy)?;
    let (registry, profile) = (Registry::builtin(), NullProvider::profile());
    println!("planning SmolLM2-135M, {} nodes (goal for one token {GOAL} ms)", graph.nodes().len());
    let mut medians = Vec::new();
    for class in classes(CONTEXT) {
        let mut times = Vec::with_capacity(runs);
        let mut dispatches = 0;
        for _ in 0..runs {
            let start = Instant::now();
            let plan = Plan::new(&graph, &class, &profile, &Options::new(&registry))?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            dispatches = plan.steps.len();
        }
        times.sort_by(f64::total_cmp);
        let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
        println!("  {class}: {median:.1} ms, at most {most:.1} ms, {dispatches} dispatches");
        medians.push(median);
    }
    match medians.first() {
        Some(decode) if timed && *decode > GOAL => {
            Err(Error::device(format!("planning one token takes {decode:.1} ms, not {GOAL}")))
        }
        _ => Ok(()),
    }
}
