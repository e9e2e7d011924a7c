//! Formats measurements as a trace for Perfetto and Chrome.

use serde_json::{Value, json};

use super::Plan;
use super::analysis::Analysis;

/// Id of the host track.
const HOST: u32 = 1;
/// Id of the device track.
const DEVICE: u32 = 2;

impl Plan {
    /// Returns one run in the trace event format: a host and a device track, with times in
    /// microseconds. The two clocks are not synchronised: the first step is placed at the end of
    /// the submit, or earlier so that the last step ends with the run.
    pub fn trace(&self, analysis: &Analysis) -> Value {
        let micros = |seconds: f64| seconds * 1e6;
        let event = |track: u32, name: &str, from: f64, to: f64, args: Value| {
            let (ts, dur) = (micros(from), micros((to - from).max(0.0)));
            json!({"ph": "X", "pid": 1, "tid": track, "name": name, "ts": ts, "dur": dur, "args": args})
        };
        let named = |track: u32, what: &str, name: String| json!({"ph": "M", "pid": 1, "tid": track, "name": what, "args": {"name": name}});
        let device = format!("{} {}", analysis.device, self.profile.name);
        let mut events = vec![
            named(HOST, "process_name", format!("{} {}", self.name, self.class)),
            named(HOST, "thread_name", "host".into()),
            named(DEVICE, "thread_name", format!("{device} ({})", analysis.clock.describe())),
        ];
        let (host, run) = (analysis.host.median, analysis.run.median);
        events.push(event(HOST, "record and submit", 0.0, host, json!({})));
        events.push(event(HOST, "wait", host, run, json!({"submits": analysis.submits})));
        // A device that works during the submit, such as the CPU, ends with the run.
        let last = analysis.spans.last().map_or(0.0, |(_, end)| *end);
        let start = host.min((run - last).max(0.0));
        for (step, (begin, end)) in self.steps.iter().zip(&analysis.spans) {
            let cost = &step.estimate.cost;
            let rate = |amount: f64| if end > begin { amount / (end - begin) * 1e-9 } else { 0.0 };
            let args = json!({
                "engine": step.engine.as_str(),
                "kernel": step.kernel.to_string(),
                "shapes": step.estimate.shapes,
                "bytes": cost.bytes,
                "flops": cost.flops,
                "GB/s": rate(cost.bytes),
                "GFLOP/s": rate(cost.flops),
            });
            events.push(event(DEVICE, &step.label, start + begin, start + end, args));
        }
        json!({"displayTimeUnit": "ns", "traceEvents": events})
    }
}
