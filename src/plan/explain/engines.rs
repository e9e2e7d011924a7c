//! Steps aggregated by engine: a profile of the time of a run.

use serde::Serialize;

use super::{StepReport, per};

/// The steps of one engine, added up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineReport {
    /// The engine.
    pub engine: String,
    /// Number of steps that the engine executes.
    pub steps: usize,
    /// Total seconds: the sum of the medians if measured, else of the estimates.
    pub seconds: f64,
    /// Fraction of the seconds of all steps.
    pub share: f64,
    /// Bytes that the steps move, per second.
    pub bytes_per_s: f64,
    /// Floating-point operations of the steps, per second.
    pub flops_per_s: f64,
    /// If measured, the bandwidth as a fraction of a copy's; otherwise the estimated fraction of
    /// the device's roofline: of peak bandwidth or of peak arithmetic, whichever is closer to its
    /// limit.
    pub roof: f64,
}

/// Aggregates steps by engine, the most expensive first. `bandwidth` is that of a copy in bytes per
/// second, if measured.
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
