//! Which of the engines that apply is best, without running one.

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
        let (bytes_per_s, flops_per_s, launch) = match profile.kind {
            DeviceKind::Discrete => (1e12, 3e13, 2e-6),
            DeviceKind::Integrated => (1e11, 3e12, 5e-6),
            DeviceKind::Software => (1e10, 3e10, 5e-5),
            DeviceKind::Cpu => (2e10, 1e11, 1e-6),
            DeviceKind::Null => (1e12, 3e13, 2e-6),
        };
        let bytes_per_s = match profile.local_bandwidth {
            0 => bytes_per_s,
            measured => measured as f64,
        };
        let work = (cost.bytes / bytes_per_s).max(cost.flops / flops_per_s);
        cost.dispatches * launch + work / cost.efficiency.max(1e-3)
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
    let mut best: Option<(&dyn Engine, Choice)> = None;
    let mut others: Vec<(EngineId, f64)> = Vec::new();
    let mut reasons: Vec<String> = Vec::new();
    for engine in engines {
        let fuses = |()| if query.is_fused() { engine.fuses(query) } else { Ok(()) };
        if let Err(reason) = engine.applies(query).and_then(fuses) {
            if reason != OTHER_OPERATION {
                reasons.push(format!("{}: {reason}", engine.id()));
            }
            continue;
        }
        let seconds = heuristic.seconds(query.profile, &engine.cost(query));
        let engine_id = engine.id().clone();
        if preferred.contains(&engine_id) {
            let why = "preferred by the caller".into();
            return Ok((engine, Choice { engine: engine_id, seconds, why }));
        }
        others.push((engine_id.clone(), seconds));
        if best.as_ref().is_none_or(|(_, b)| seconds < b.seconds) {
            best = Some((engine, Choice { engine: engine_id, seconds, why: String::new() }));
        }
    }
    let Some((engine, mut choice)) = best else {
        let shapes: Vec<String> = query.operands.iter().map(|v| v.shape.to_string()).collect();
        return Err(Error::unsupported(format!(
            "no engine executes {} {} on {}: {}",
            query.op.name(),
            shapes.join(" "),
            query.profile.id(),
            reasons.join("; ")
        )));
    };
    others.retain(|(id, _)| *id != choice.engine);
    others.sort_by(|a, b| a.1.total_cmp(&b.1));
    choice.why = match others.first() {
        None => "the only one that applies".into(),
        Some((id, seconds)) => {
            format!("estimated {:.1} us, {id} {:.1} us", choice.seconds * 1e6, seconds * 1e6)
        }
    };
    Ok((engine, choice))
}
