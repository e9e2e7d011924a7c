//! Selection of an engine among those that apply: forced, preferred, tuned, or cheapest by
//! estimate.

use serde::{Deserialize, Serialize};

use super::{
    Block, Engine, EngineId, Heuristic, KnobValues, Knobs, OTHER_OPERATION, Query, ReductionOrder,
    Tuned,
};
use crate::error::{Error, Result};

/// The caller's settings for a choice: the cost model, and constraints.
pub struct Wishes<'a> {
    /// The cost model that ranks engines.
    pub heuristic: &'a dyn Heuristic,
    /// Engines to prefer whenever they apply, whatever their estimated cost.
    pub preferred: &'a [EngineId],
    /// The only engine to use, if one is forced.
    pub forced: Option<&'a EngineId>,
    /// Engines never to use.
    pub blocked: &'a [EngineId],
    /// Engines known to be wrong, each on one device (errata).
    pub blocks: &'a [Block],
    /// Knob values that the caller sets, by engine.
    pub knobs: &'a Knobs,
    /// The choice that was the fastest when measured, used unless the caller forces or prefers an
    /// engine or sets its knobs.
    pub tuned: Option<&'a Tuned>,
}

/// The chosen engine, with the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The engine.
    pub engine: EngineId,
    /// Estimated seconds; for a tuned choice, the estimate of the engine that it replaces.
    pub seconds: f64,
    /// The reason for the choice, as text.
    pub why: String,
    /// The measured choice, if it was used.
    pub tuned: Option<Tuned>,
    /// Every engine that was considered, in registry order.
    pub candidates: Vec<Candidate>,
}

/// An engine that was considered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The engine.
    pub engine: EngineId,
    /// The engine's estimate, or the reason why it does not apply.
    pub verdict: Verdict,
}

/// Whether an engine applies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It applies, with this estimate in seconds.
    Seconds(f64),
    /// It does not apply, with the reason.
    Refused(String),
}

/// Chooses an engine: the forced one; else a preferred one that applies; else the tuned one, if it
/// is still valid; else the one with the lowest estimate. In deterministic mode, all candidates
/// have the same reduction order: the lowest order among preferred engines that apply, else the
/// lowest order among all engines that apply.
///
/// # Errors
/// Unsupported, with each engine's reason, if none applies or the forced one does not. Invalid for
/// a knob value that an applicable engine does not accept.
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
    // Deterministic mode chooses the reduction order first, and only then by cost.
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

/// An engine that can execute the query.
struct Able<'e> {
    engine: &'e dyn Engine,
    seconds: f64,
    preferred: bool,
    /// The reduction order; set in deterministic mode only.
    order: Option<ReductionOrder>,
}

/// Checks that a tuned choice is valid for a query. Returns its reduction order in deterministic
/// mode, or the reason why it is not valid.
fn holds(
    engine: &dyn Engine,
    wishes: &Wishes,
    tuned: &Tuned,
    query: &Query,
) -> Result<Option<ReductionOrder>, String> {
    if wishes.knobs.of(&tuned.engine) != KnobValues::NONE {
        return Err("the caller sets its knobs".into());
    }
    let query = Query { knobs: &tuned.knobs, ..*query };
    let order = can(engine, wishes, &query)?;
    tuned.holds(engine, &query).map(|()| order)
}

/// Checks that an engine can execute a query. Returns its reduction order in deterministic mode, or
/// the reason why it cannot.
fn can(
    engine: &dyn Engine,
    wishes: &Wishes,
    query: &Query,
) -> Result<Option<ReductionOrder>, String> {
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

/// Builds the error for a query that no engine executes, or not the forced one.
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
