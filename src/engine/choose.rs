//! The choice among the engines that apply.

use serde::{Deserialize, Serialize};

use super::{Block, Engine, EngineId, Heuristic, KnobValues, Knobs, OTHER_OPERATION, Query, Tuned};
use crate::error::{Error, Result};

/// What a caller wants of a choice.
pub struct Wishes<'a> {
    /// The ranking.
    pub heuristic: &'a dyn Heuristic,
    /// Engines to take wherever they apply, whatever they cost.
    pub preferred: &'a [EngineId],
    /// The only engine to take.
    pub forced: Option<&'a EngineId>,
    /// Engines never to take.
    pub blocked: &'a [EngineId],
    /// Engines that are known to be wrong, each on its device.
    pub blocks: &'a [Block],
    /// Values of their knobs.
    pub knobs: &'a Knobs,
    /// What was measured to be the best, to take where the caller wants nothing else.
    pub tuned: Option<&'a Tuned>,
}

/// Why an engine was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The engine.
    pub engine: EngineId,
    /// Estimated seconds; of a tuned choice, those of the engine that it was measured against.
    pub seconds: f64,
    /// In words.
    pub why: String,
    /// The choice that was measured, where it was taken.
    pub tuned: Option<Tuned>,
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

/// The forced engine; or else a preferred one that applies; or else the tuned one, where it still
/// may be taken; or else the one that takes least by estimate.
///
/// # Errors
/// Unsupported, with each engine's reason, where none applies or the forced one does not; invalid,
/// for a knob's value that an engine which applies does not take.
pub fn choose<'e>(
    engines: impl Iterator<Item = &'e dyn Engine>,
    wishes: &Wishes,
    query: &Query,
) -> Result<(&'e dyn Engine, Choice)> {
    let mut best: Option<(&dyn Engine, f64)> = None;
    let mut preferred: Option<(&dyn Engine, f64)> = None;
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut tuned = wishes.tuned.map(|tuned| (tuned, Err("it is not there".to_string())));
    for engine in engines {
        let id = engine.id();
        if let Some((tuned, found)) = tuned.as_mut().filter(|(tuned, _)| tuned.engine == *id) {
            *found = holds(engine, wishes, tuned, query).map(|()| engine);
        }
        let query = Query { knobs: wishes.knobs.of(id), ..*query };
        let verdict = match can(engine, wishes, &query) {
            Err(reason) if reason == OTHER_OPERATION => continue,
            Err(reason) => Verdict::Refused(reason),
            Ok(()) => {
                query.check_knobs(engine)?;
                let seconds = wishes.heuristic.seconds(query.profile, &engine.cost(&query));
                let allowed = wishes.forced.is_none_or(|forced| forced == id);
                if allowed && preferred.is_none() && wishes.preferred.contains(id) {
                    preferred = Some((engine, seconds));
                }
                if allowed && best.as_ref().is_none_or(|(_, least)| seconds < *least) {
                    best = Some((engine, seconds));
                }
                Verdict::Seconds(seconds)
            }
        };
        candidates.push(Candidate { engine: id.clone(), verdict });
    }
    let Some((engine, seconds)) = preferred.or(best) else {
        return Err(none(wishes, query, &candidates));
    };
    let (mut engine, mut taken, mut stale) = (engine, None, String::new());
    if let (None, None, Some((tuned, found))) = (wishes.forced, preferred, tuned) {
        match found {
            Ok(best) => (engine, taken) = (best, Some(tuned.clone())),
            Err(reason) => stale = format!("; tuned {} is left out: {reason}", tuned.engine),
        }
    }
    let engine_id = engine.id().clone();
    let why = match (wishes.forced, preferred) {
        (Some(_), _) => "forced by the caller".into(),
        (None, Some(_)) => "preferred by the caller".into(),
        (None, None) if taken.is_some() => taken.iter().map(Tuned::why).collect(),
        (None, None) => {
            let applies = |c: &&Candidate| matches!(c.verdict, Verdict::Seconds(_));
            match candidates.iter().filter(applies).count() {
                1 => format!("the only one that applies{stale}"),
                count => {
                    format!("the least of {count} by estimate, {:.1} us{stale}", seconds * 1e6)
                }
            }
        }
    };
    Ok((engine, Choice { engine: engine_id, seconds, why, tuned: taken, candidates }))
}

/// Whether a tuned choice may be taken for a piece, with the reason where not.
fn holds(engine: &dyn Engine, wishes: &Wishes, tuned: &Tuned, query: &Query) -> Result<(), String> {
    if wishes.knobs.of(&tuned.engine) != KnobValues::NONE {
        return Err("the caller sets its knobs".into());
    }
    let query = Query { knobs: &tuned.knobs, ..*query };
    can(engine, wishes, &query)?;
    tuned.holds(engine, &query)
}

/// Whether an engine may execute a piece, with the reason where not.
fn can(engine: &dyn Engine, wishes: &Wishes, query: &Query) -> Result<(), String> {
    engine.applies(query)?;
    if query.is_fused() {
        engine.fuses(query)?;
    }
    if wishes.blocked.contains(engine.id()) {
        return Err("blocked by the caller".into());
    }
    let known = |block: &&Block| block.engine == *engine.id() && block.device.is(query.profile);
    match wishes.blocks.iter().find(known) {
        Some(block) => Err(block.reason.clone()),
        None => Ok(()),
    }
}

/// Why no engine was chosen.
fn none(wishes: &Wishes, query: &Query, candidates: &[Candidate]) -> Error {
    let shapes: Vec<String> = query.operands.iter().map(|v| v.shape.to_string()).collect();
    let what = format!("{} {} on {}", query.op.name(), shapes.join(" "), query.profile.id());
    if let Some(forced) = wishes.forced {
        let own = candidates.iter().find(|candidate| candidate.engine == *forced);
        let reason = match own.map(|candidate| &candidate.verdict) {
            Some(Verdict::Refused(reason)) => reason,
            _ => OTHER_OPERATION,
        };
        return Error::unsupported(format!("engine {forced} is forced for {what}: {reason}"));
    }
    let reasons: Vec<String> = candidates
        .iter()
        .map(|candidate| match &candidate.verdict {
            Verdict::Refused(reason) => format!("{}: {reason}", candidate.engine),
            Verdict::Seconds(_) => candidate.engine.to_string(),
        })
        .collect();
    Error::unsupported(format!("no engine executes {what}: {}", reasons.join("; ")))
}
