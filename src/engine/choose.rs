//! The choice among the engines that apply.

use serde::{Deserialize, Serialize};

use super::{
    Block, Engine, EngineId, Heuristic, KnobValues, Knobs, OTHER_OPERATION, Order, Query, Tuned,
};
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

/// In deterministic mode only engines of one order are looked at: the first that any of them has, those that the
/// caller prefers coming first. Of these, the forced engine; or else a preferred one that applies; or else the tuned one, where it still
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
    let mut able: Vec<Able> = Vec::new();
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut tuned = wishes.tuned.map(|tuned| (tuned, Err("it is not there".to_string())));
    for engine in engines {
        let id = engine.id();
        if let Some((tuned, found)) = tuned.as_mut().filter(|(tuned, _)| tuned.engine == *id) {
            *found = holds(engine, wishes, tuned, query).map(|order| (engine, order));
        }
        let query = Query { knobs: wishes.knobs.of(id), ..*query };
        let verdict = match can(engine, wishes, &query) {
            Err(reason) if reason == OTHER_OPERATION => continue,
            Err(reason) => Verdict::Refused(reason),
            Ok(order) => {
                query.check_knobs(engine)?;
                let seconds = wishes.heuristic.seconds(query.profile, &engine.cost(&query));
                if wishes.forced.is_none_or(|forced| forced == id) {
                    let preferred = wishes.preferred.contains(id);
                    able.push(Able { engine, seconds, preferred, order });
                }
                Verdict::Seconds(seconds)
            }
        };
        candidates.push(Candidate { engine: id.clone(), verdict });
    }
    // In deterministic mode the order is chosen first, and only then by cost.
    let order = able.iter().map(|able| (!able.preferred, &able.order)).min();
    let order = order.and_then(|(_, order)| order.clone());
    able.retain(|able| able.order == order);
    let preferred = able.iter().find(|able| able.preferred);
    let least = able.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let Some(best) = preferred.or(least) else {
        return Err(none(wishes, query, &candidates));
    };
    let (mut engine, mut taken, mut stale) = (best.engine, None, String::new());
    if let (None, None, Some((tuned, found))) = (wishes.forced, preferred, tuned) {
        match found {
            Ok((measured, its)) if its == order => {
                (engine, taken) = (measured, Some(tuned.clone()));
            }
            Ok(_) => stale = format!("; tuned {} is left out: another order", tuned.engine),
            Err(reason) => stale = format!("; tuned {} is left out: {reason}", tuned.engine),
        }
    }
    let why = match (wishes.forced, preferred) {
        (Some(_), _) => "forced by the caller".into(),
        (None, Some(_)) => "preferred by the caller".into(),
        (None, None) if taken.is_some() => taken.iter().map(Tuned::why).collect(),
        (None, None) => {
            let applies = |c: &&Candidate| matches!(c.verdict, Verdict::Seconds(_));
            match (candidates.iter().filter(applies).count(), &order) {
                (1, _) => format!("the only one that applies{stale}"),
                (_, Some(order)) => format!("the first order: {}{stale}", order.name()),
                (count, None) => {
                    let us = best.seconds * 1e6;
                    format!("the least of {count} by estimate, {us:.1} us{stale}")
                }
            }
        }
    };
    let (engine_id, seconds) = (engine.id().clone(), best.seconds);
    Ok((engine, Choice { engine: engine_id, seconds, why, tuned: taken, candidates }))
}

/// An engine that may execute a piece.
struct Able<'e> {
    engine: &'e dyn Engine,
    seconds: f64,
    preferred: bool,
    /// In deterministic mode.
    order: Option<Order>,
}

/// Whether a tuned choice may be taken for a piece, with the reason where not.
fn holds(
    engine: &dyn Engine,
    wishes: &Wishes,
    tuned: &Tuned,
    query: &Query,
) -> Result<Option<Order>, String> {
    if wishes.knobs.of(&tuned.engine) != KnobValues::NONE {
        return Err("the caller sets its knobs".into());
    }
    let query = Query { knobs: &tuned.knobs, ..*query };
    let order = can(engine, wishes, &query)?;
    tuned.holds(engine, &query).map(|()| order)
}

/// Whether an engine may execute a piece, with the reason where not; in deterministic mode, in which order it does.
fn can(engine: &dyn Engine, wishes: &Wishes, query: &Query) -> Result<Option<Order>, String> {
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
        None if query.deterministic => match engine.order(query) {
            Ok(order) => Ok(Some(order)),
            Err(reason) => Err(format!("not deterministic: {reason}")),
        },
        None => Ok(None),
    }
}

/// Why no engine was chosen.
fn none(wishes: &Wishes, query: &Query, candidates: &[Candidate]) -> Error {
    let shapes: Vec<String> = query.operands.iter().map(|v| v.shape.to_string()).collect();
    let mode = if query.deterministic { " in deterministic mode" } else { "" };
    let device = query.profile.id();
    let what = format!("{} {} on {device}{mode}", query.op.name(), shapes.join(" "));
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
