//! Steps of one engine together: where the time of a run goes.

use serde::Serialize;

use super::{StepReport, per};

/// The steps of one engine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineReport {
    /// Which engine.
    pub engine: String,
    /// How many steps it made.
    pub steps: usize,
    /// Seconds of all of them: the sum of their medians where they were measured, else of the
    /// estimates.
    pub seconds: f64,
    /// Share of the seconds of all steps.
    pub share: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Floating-point operations a second.
    pub flops_per_s: f64,
    /// Share of the bytes a second that a copy reaches where it was measured; else of the
    /// device's bytes or operations a second, whichever is nearer, by estimate.
    pub roof: f64,
}

/// Those that take the most time first. `bandwidth` is the bytes a second of a copy, where it
/// was measured.
pub(super) fn of(steps: &[StepReport], bandwidth: Option<f64>) -> Vec<EngineReport> {
    let seconds = |step: &StepReport| step.measured.as_ref().map_or(step.seconds, |m| m.median);
    let all: f64 = steps.iter().map(seconds).sum();
    let mut names: Vec<&str> = steps.iter().map(|step| step.engine.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let report = |engine: &str| {
        let of = || steps.iter().filter(|step| step.engine == engine);
        let total = of().map(seconds).sum();
        let bytes_per_s = per(of().map(|step| step.bytes).sum(), total);
        EngineReport {
            engine: engine.to_owned(),
            steps: of().count(),
            seconds: total,
            share: per(total, all),
            bytes_per_s,
            flops_per_s: per(of().map(|step| step.flops).sum(), total),
            roof: match bandwidth {
                Some(copy) => per(bytes_per_s, copy),
                None => per(of().map(|step| step.roof * step.seconds).sum(), total),
            },
        }
    };
    let mut engines: Vec<EngineReport> = names.into_iter().map(report).collect();
    engines.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    engines
}
