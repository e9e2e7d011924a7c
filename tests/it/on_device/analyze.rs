//! Timing of plans on the devices of this machine.

use std::time::Duration;

use warploom::engine::Registry;
use warploom::plan::{Analysis, Options, Plan, Spread, StepClock, TextOptions};
use warploom::provider::{NullProvider, OpenOptions};
use warploom::runtime::{AnalyzeOptions, DeviceTensors, Runtime, SyncMode};
use warploom_core::base::SymbolValues;
use warploom_llm::{DecoderOutput, PAST, SEQ, class_of};

use crate::devices;
use crate::plans::embedded;

const CONTEXT: usize = 64;
const RUNS: usize = 3;

fn analyze(runtime: &Runtime) -> warploom::Result<(Plan, Analysis)> {
    let registry = Registry::builtin();
    let graph = embedded().graph(CONTEXT, DecoderOutput::Greedy)?;
    let class = class_of(1, CONTEXT)?;
    let profile = runtime.device().profile();
    let plan = Plan::new(&graph, &class, profile, &Options::new(&registry))?;
    let mut resident = DeviceTensors::zeros(runtime.pool(), &**runtime.device(), &plan)?;
    let symbols = SymbolValues::new().with(SEQ, 1).with(PAST, CONTEXT as u64 - 1);
    let inputs = [vec![0; 4], vec![0; 4]];
    let options = AnalyzeOptions { runs: RUNS, warm_up: Duration::ZERO };
    let analysis = runtime.analyze(&plan, &mut resident, &symbols, &inputs, &options)?;
    Ok((plan, analysis))
}

#[test]
fn every_step_is_timed_on_every_device() {
    for (label, runtime) in devices::every(true) {
        let (plan, analysis) = analyze(&runtime).unwrap();
        let stamps = runtime.device().profile().has_timestamps;
        let clock = if stamps { StepClock::Device } else { StepClock::Host };
        assert_eq!(analysis.clock, clock, "{label}");
        let counts = (analysis.dispatches, analysis.submits, analysis.waits);
        assert_eq!(counts, (plan.steps.len() as u64, 1, 1), "{label}");
        let lengths = (analysis.steps.len(), analysis.spans.len());
        assert_eq!(lengths, (plan.steps.len(), plan.steps.len()), "{label}");
        for Spread { median, min, max } in analysis.steps.iter().chain([&analysis.run]) {
            assert!(*min >= 0.0 && min <= median && median <= max, "{label}");
        }
        let spans = &analysis.spans;
        assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0 && w[1].0 <= w[1].1), "{label}");
        let sum: f64 = analysis.steps.iter().map(|step| step.median).sum();
        assert!(sum > 0.0 && analysis.run.min > 0.0 && analysis.bandwidth > 0, "{label}");
        assert!(analysis.host.median <= analysis.run.max, "{label}");

        trace(&plan, &analysis);
        let report = plan.report().measured(analysis);
        let text = report.text(&TextOptions::default());
        let words = if stamps { "device timestamps" } else { "host clock, one step at a time" };
        assert!(text.contains(words) && text.contains("of copy"), "{label}: {text}");
        let json = report.json();
        assert_eq!(json["analysis"]["runs"], RUNS);
        assert!(json["steps"][1]["measured"]["median"].is_number(), "{label}");
        let steps = |engine: &serde_json::Value| engine["steps"].as_u64().unwrap() as usize;
        let by_engine: usize = json["engines"].as_array().unwrap().iter().map(steps).sum();
        assert_eq!(by_engine, plan.steps.len(), "{label}");
    }
}

/// What Perfetto and Chrome ask of a trace: an array of events with phase, process, track and name,
/// and begin and duration of complete ones in microseconds.
fn trace(plan: &Plan, analysis: &Analysis) {
    let trace = plan.trace(analysis);
    let events = trace["traceEvents"].as_array().unwrap();
    let mut steps = 0;
    for event in events {
        assert!(event["name"].is_string() && event["pid"].is_u64() && event["tid"].is_u64());
        match event["ph"].as_str() {
            Some("M") => assert!(event["args"]["name"].is_string(), "{event}"),
            Some("X") => {
                let (ts, dur) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
                assert!(ts >= 0.0 && dur >= 0.0 && ts.is_finite() && dur.is_finite(), "{event}");
                let is_step = event["tid"] == 2;
                steps += usize::from(is_step);
                let args = &event["args"];
                let reported = args["bytes"].is_number() && args["engine"].is_string();
                assert!(!is_step || (reported && args["flops"].is_number()), "{event}");
            }
            other => panic!("phase {other:?}"),
        }
    }
    assert_eq!(steps, plan.steps.len());
    let text = serde_json::to_string(&trace).unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
}

#[test]
fn a_device_that_executes_nothing_is_not_timed() {
    let device = NullProvider::device(&OpenOptions::default());
    let runtime = Runtime::on(device, SyncMode::Lazy, None).unwrap();
    let error = analyze(&runtime).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("null:0"), "{error}");
}
