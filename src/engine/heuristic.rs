//! Which of the engines that apply is best, without running one.

use serde::{Deserialize, Serialize};

use super::{Cost, Engine, EngineId, OTHER_OPERATION, Query};
use crate::error::{Error, Result};
use crate::provider::{DeviceKind, DeviceProfile};

/// Why an engine was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The engine.
    pub engine: EngineId,
    /// Estimated seconds.
    pub seconds: f64,
    /// In words.
    pub why: String,
    /// Every engine that was meant for the operation, in the order of the registry.
    pub candidates: Vec<Candidate>,
}

/// An engine that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The engine.
    pub engine: EngineId,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of looking at an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It applies, and takes so many seconds by estimate.
    Seconds(f64),
    /// It does not apply, and why.
    Refused(String),
}

/// The speeds that estimates are made with: the profile's where it tells them, else round figures
/// of its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Bytes that device memory gives and takes, a second.
    pub bytes_per_s: f64,
    /// Floating-point operations a second.
    pub flops_per_s: f64,
    /// Seconds of one kernel launch.
    pub launch_s: f64,
}

impl Peaks {
    /// Those of a device.
    pub fn of(profile: &DeviceProfile) -> Peaks {
        let (bytes_per_s, flops_per_s, launch_s) = match profile.kind {
            DeviceKind::Discrete => (1e12, 3e13, 2e-6),
            DeviceKind::Integrated => (1e11, 3e12, 5e-6),
            DeviceKind::Software => (1e10, 3e10, 5e-5),
            DeviceKind::Cpu => (2e10, 1e11, 1e-6),
            DeviceKind::Null => (1e12, 3e13, 2e-6),
        };
        let bytes_per_s = match profile.local_bandwidth {
            0 => bytes_per_s,
            told => told as f64,
        };
        Peaks { bytes_per_s, flops_per_s, launch_s }
    }

    /// The least seconds that work can take.
    pub fn floor(&self, cost: &Cost) -> f64 {
        (cost.bytes / self.bytes_per_s).max(cost.flops / self.flops_per_s)
    }
}

/// A ranking that needs no samples.
pub trait Heuristic: Send + Sync {
    /// Estimated seconds of an engine for a piece.
    fn seconds(&self, profile: &DeviceProfile, cost: &Cost) -> f64;
}

/// Time = launches, and the longer of moving the bytes and doing the arithmetic, at the share of
/// the device's speed that the engine reaches.
///
/// Where a profile does not tell a speed, a round figure of its kind stands in: rankings compare
/// engines on one device, so only proportions matter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roofline;

impl Heuristic for Roofline {
    fn seconds(&self, profile: &DeviceProfile, cost: &Cost) -> f64 {
        let peaks = Peaks::of(profile);
        cost.dispatches * peaks.launch_s + peaks.floor(cost) / cost.efficiency.max(1e-3)
    }
}

/// The best engine that applies; a preferred one that applies wins whatever it costs.
///
/// # Errors
/// Unsupported, with each engine's reason, where none applies.
pub fn choose<'e>(
    engines: impl Iterator<Item = &'e dyn Engine>,
    heuristic: &dyn Heuristic,
    preferred: &[EngineId],
    query: &Query,
) -> Result<(&'e dyn Engine, Choice)> {
    let mut best: Option<(&dyn Engine, f64)> = None;
    let mut forced: Option<(&dyn Engine, f64)> = None;
    let mut candidates: Vec<Candidate> = Vec::new();
    for engine in engines {
        let fuses = |()| if query.is_fused() { engine.fuses(query) } else { Ok(()) };
        let verdict = match engine.applies(query).and_then(fuses) {
            Err(reason) if reason == OTHER_OPERATION => continue,
            Err(reason) => Verdict::Refused(reason),
            Ok(()) => {
                let seconds = heuristic.seconds(query.profile, &engine.cost(query));
                if forced.is_none() && preferred.contains(engine.id()) {
                    forced = Some((engine, seconds));
                }
                if best.as_ref().is_none_or(|(_, least)| seconds < *least) {
                    best = Some((engine, seconds));
                }
                Verdict::Seconds(seconds)
            }
        };
        candidates.push(Candidate { engine: engine.id().clone(), verdict });
    }
    let Some((engine, seconds)) = forced.or(best) else {
        let shapes: Vec<String> = query.operands.iter().map(|v| v.shape.to_string()).collect();
        let reasons: Vec<String> = candidates
            .iter()
            .map(|candidate| match &candidate.verdict {
                Verdict::Refused(reason) => format!("{}: {reason}", candidate.engine),
                Verdict::Seconds(_) => candidate.engine.to_string(),
            })
            .collect();
        return Err(Error::unsupported(format!(
            "no engine executes {} {} on {}: {}",
            query.op.name(),
            shapes.join(" "),
            query.profile.id(),
            reasons.join("; ")
        )));
    };
    let id = engine.id().clone();
    let applies = |c: &&Candidate| matches!(c.verdict, Verdict::Seconds(_));
    let why = match (forced, candidates.iter().filter(applies).count()) {
        (Some(_), _) => "preferred by the caller".into(),
        (None, 1) => "the only one that applies".into(),
        (None, count) => format!("the least of {count} by estimate, {:.1} us", seconds * 1e6),
    };
    Ok((engine, Choice { engine: id, seconds, why, candidates }))
}
