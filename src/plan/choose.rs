//! An engine for each group, and how much is fused around an anchor.

use std::sync::Arc;

use super::draft::{Draft, NodeChoice};
use super::group::{self, Fused, Group};
use super::handing;
use super::task::Piece;
use super::{Options, Selector};
use crate::engine::{
    Around, Choice, EngineId, Given, GivenCodes, KnobValues, Lowering, Query, Taken, TensorId,
    TunedChoices, View, Wishes, choose as rank,
};
use crate::error::{Error, Result};
use crate::ir::{NodeId, OpClass};

pub(super) fn choose(draft: &mut Draft) -> Result<()> {
    known(draft)?;
    if draft.groups.is_empty() {
        group::singles(draft);
    }
    let mut groups: Vec<Group> = Vec::with_capacity(draft.groups.len());
    let mut cut = false;
    for group in draft.groups.clone() {
        let whole = group.fused.is_none() && matches!(forced(draft, &group), Ok(None));
        let kept = if whole { vec![group] } else { best(draft, &group)?.1 };
        cut |= kept.len() > 1;
        for part in kept {
            // What several anchors would have done for themselves, and now none does, is done once.
            let again = part.fused.is_none() && groups.iter().any(|g| g.nodes == part.nodes);
            if !again {
                groups.push(part);
            }
        }
    }
    draft.groups = if cut { group::in_order(draft, groups) } else { groups };
    for at in 0..draft.groups.len() {
        let group = &draft.groups[at];
        let (node, label) = (group.root, draft.describe_all(&group.nodes, group.root));
        if is_copy(draft, group) {
            let why = "strides cannot say this view".into();
            draft.choices.push(NodeChoice {
                node,
                label,
                engine: None,
                seconds: 0.0,
                why,
                tuned: None,
                candidates: Vec::new(),
            });
            continue;
        }
        let choice = taken(draft, at, &label)?;
        draft.choices.push(NodeChoice {
            node,
            engine: Some(choice.engine),
            seconds: choice.seconds,
            why: choice.why,
            tuned: choice.tuned,
            candidates: choice.candidates,
            label,
        });
    }
    handing::leave_out(draft);
    Ok(())
}

/// The nodes that no engine executes by themselves, after `alias`, and why.
///
/// # Errors
/// What is wrong with the options, whatever the node.
pub(super) fn refused_alone(draft: &mut Draft) -> Result<Vec<(NodeId, String)>> {
    group::singles(draft);
    let (mut refused, mut tensors) = (Vec::new(), draft.tensors.clone());
    for group in draft.groups.iter().filter(|group| !is_copy(draft, group)) {
        let label = draft.describe(group.root);
        let operands = operands(draft, group);
        let fits = chosen(draft, group, &label).and_then(|choice| {
            let query = query(draft, group, &label, &operands);
            let knobs = draft.options.knobs.of(&choice.engine);
            let Some(engine) = draft.options.registry.get(&choice.engine) else { return Ok(()) };
            // What no binding holds shows as it is lowered.
            let mut out = Lowering {
                profile: draft.profile,
                class: draft.class,
                engine: choice.engine,
                label: label.clone(),
                tensors: &mut tensors,
                steps: &mut Vec::new(),
            };
            engine.lower(&Query { knobs, ..query }, &mut out)
        });
        match fits {
            Ok(()) => {}
            Err(error) if error.is_unsupported() => refused.push((group.root, error.to_string())),
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}

/// Whether a group is one view that needs a copy.
pub(super) fn is_copy(draft: &Draft, group: &Group) -> bool {
    draft.graph.node(group.root).op.class() == OpClass::Alias
}

/// The operands of a group's root as engines see them, and where its result goes.
pub(super) fn operands(draft: &Draft, group: &Group) -> Vec<View> {
    let inputs = &draft.graph.node(group.root).inputs;
    let mut views: Vec<View> =
        inputs.iter().map(|input| draft.views[input.index()].clone()).collect();
    let read = group.fused.iter().flat_map(|fused| &fused.operands);
    for (view, read) in views.iter_mut().zip(read) {
        if let Some(read) = read {
            view.clone_from(read);
        }
    }
    views
}

/// The engine that estimates choose: by it groups are cut.
fn chosen(draft: &Draft, group: &Group, label: &str) -> Result<Choice> {
    choice(draft, group, label, None)
}

/// The engine that the plan takes: one that takes the first operand as codes, where what comes before hands them on and
/// estimates choose it; or the one that was measured to be the best for just this group; else the one that estimates
/// choose. What is handed on as halves the last two take as well.
fn taken(draft: &mut Draft, at: usize, label: &str) -> Result<Choice> {
    let tuned = draft.options.tuned.iter().find(|tuned| tuned.device.is(draft.profile));
    let tuned = tuned.filter(|tuned| !tuned.choices.is_empty());
    let Some(offer) = handing::offer(draft, at) else {
        return choice(draft, &draft.groups[at], label, tuned);
    };
    let codes = GivenCodes { codes: TensorId(u32::MAX), at: 0, words: 0 };
    let group = Group { given: Some(Given::Codes(codes)), ..draft.groups[at].clone() };
    let taken = |draft: &Draft, choice: &Choice| {
        let operands = operands(draft, &group);
        let query = query(draft, &group, label, &operands);
        draft.options.registry.get(&choice.engine).and_then(|engine| engine.takes(&query))
    };
    let mut found = choice(draft, &group, label, None)?;
    let mut takes = taken(draft, &found);
    if tuned.is_some() && !matches!(takes, Some(Taken::Codes(_))) {
        let own = choice(draft, &draft.groups[at], label, tuned)?;
        if own.tuned.is_some() {
            takes = taken(draft, &own);
            if !matches!(takes, Some(Taken::Halves(_))) {
                return Ok(own);
            }
            found = own;
        }
    }
    if let Some(takes) = takes
        && let Some(given) = handing::accept(draft, &offer, takes)?
    {
        draft.groups[at].given = Some(given);
        return Ok(found);
    }
    choice(draft, &draft.groups[at], label, tuned)
}

fn choice(
    draft: &Draft,
    group: &Group,
    label: &str,
    tuned: Option<&Arc<TunedChoices>>,
) -> Result<Choice> {
    let operands = operands(draft, group);
    let query = query(draft, group, label, &operands);
    let options = draft.options;
    let tuned = tuned.and_then(|tuned| tuned.choices.get(&Piece::of(&query).key()));
    let wishes = Wishes {
        heuristic: options.heuristic,
        preferred: &options.preferred,
        forced: forced(draft, group)?,
        blocked: &options.block,
        blocks: &options.known_wrong,
        knobs: &options.knobs,
        tuned,
    };
    let engines = options.registry.engines().iter().map(|engine| engine.as_ref());
    rank(engines, &wishes, &query).map(|(_, choice)| choice).map_err(|e| e.context(label))
}

/// Checks that every engine and node that the options name exists.
fn known(draft: &Draft) -> Result<()> {
    let Options { registry, preferred, force, block, knobs, .. } = draft.options;
    let named = preferred.iter().chain(block).chain(force.iter().map(|(_, id)| id));
    if let Some(id) = named.chain(knobs.engines()).find(|id| registry.get(id).is_none()) {
        return Err(registry.unknown(id));
    }
    for (selector, id) in force {
        if !draft.graph.ids().any(|node| selector.selects(&draft.graph, node)) {
            return Err(Error::invalid(format!(
                "engine {id} is forced for {selector}: no such node"
            )));
        }
    }
    Ok(())
}

/// The engine that a group must have, for the sake of one of its nodes.
pub(super) fn forced<'o>(draft: &Draft<'o>, group: &Group) -> Result<Option<&'o EngineId>> {
    let options = draft.options;
    let mut found: Option<(&Selector, &EngineId)> = None;
    for (selector, id) in &options.force {
        if !group.nodes.iter().any(|node| selector.selects(&draft.graph, *node)) {
            continue;
        }
        match found {
            Some((other, first)) if first != id => {
                // Not with each other in one group: then apart, if that can be.
                return Err(Error::unsupported(format!(
                    "engine {first} is forced for {other} and engine {id} for {selector}, which \
                     are one kernel"
                )));
            }
            _ => found = Some((selector, id)),
        }
    }
    Ok(found.map(|(_, id)| id))
}

/// A group as engines see it.
pub(super) fn query<'q>(
    draft: &'q Draft,
    group: &'q Group,
    label: &'q str,
    operands: &'q [View],
) -> Query<'q> {
    Query {
        op: &draft.graph.node(group.root).op,
        label,
        operands,
        output: &draft.views[group.root.index()],
        body: group.body.as_ref(),
        fused: group.nodes.len(),
        around: group.fused.as_ref().map(|fused| &fused.around),
        profile: draft.profile,
        class: draft.class,
        knobs: KnobValues::NONE,
        deterministic: draft.options.deterministic,
        half_sums: draft.options.half_sums,
        siblings: &[],
        settled: super::settled::rows_before(&draft.graph, group.root),
        given: group.given,
    }
}

/// The groups in the place of one that cost least, with their estimated seconds.
fn best(draft: &mut Draft, group: &Group) -> Result<(f64, Vec<Group>)> {
    match &group.fused {
        Some(fused) => best_cut(draft, group, fused),
        None if is_copy(draft, group) => Ok((0.0, vec![group.clone()])),
        None => best_split(draft, group),
    }
}

/// A loop; or in parts, where an engine is forced for one of its nodes that does not do all.
fn best_split(draft: &mut Draft, group: &Group) -> Result<(f64, Vec<Group>)> {
    let mut refused = match chosen(draft, group, &draft.describe(group.root)) {
        Err(error) if error.is_unsupported() && group.nodes.len() > 1 => error,
        whole => return whole.map(|choice| (choice.seconds, vec![group.clone()])),
    };
    let force = &draft.options.force;
    let wanted =
        |id: &NodeId| force.iter().any(|(selector, _)| selector.selects(&draft.graph, *id));
    let alone: Vec<NodeId> = group.nodes.iter().copied().filter(wanted).collect();
    for id in alone {
        let parts = group::split(draft, group, id);
        match total(draft, &parts) {
            Err(error) if error.is_unsupported() => refused = error,
            parts => return parts,
        }
    }
    Err(refused)
}

/// What groups take together, each as best it can be.
fn total(draft: &mut Draft, groups: &[Group]) -> Result<(f64, Vec<Group>)> {
    let (mut seconds, mut all) = (0.0, Vec::new());
    for group in groups {
        let (more, parts) = best(draft, group)?;
        seconds += more;
        all.extend(parts);
    }
    Ok((seconds, all))
}

/// An anchor with all that is proposed around it, or with less, down to the anchor alone.
fn best_cut(draft: &mut Draft, group: &Group, fused: &Fused) -> Result<(f64, Vec<Group>)> {
    let mut cuts = vec![Some(fused.clone())];
    if !fused.before.is_empty() && !fused.after.is_empty() {
        let segments = fused.around.segments.clone();
        cuts.push(Some(Fused {
            around: Around { segments, ..Around::default() },
            operands: [None, None],
            before: Vec::new(),
            after: fused.after.clone(),
        }));
        cuts.push(Some(Fused {
            around: Around { segments: Vec::new(), ..fused.around.clone() },
            after: Vec::new(),
            ..fused.clone()
        }));
    }
    cuts.extend(group::rounded(draft, group).map(Some));
    cuts.push(None);
    let mut best: Option<(bool, f64, Vec<Group>)> = None;
    let mut refused = None;
    for (i, cut) in cuts.into_iter().enumerate() {
        let parts = match i {
            0 => vec![group.clone()],
            _ => group::cut(draft, group, cut),
        };
        let (mut anchors, loops): (Vec<Group>, Vec<Group>) =
            parts.into_iter().partition(|part| part.root == group.root);
        match anchored(draft, &anchors).and_then(|found| Ok((found, total(draft, &loops)?))) {
            Ok(((wanted, anchor), (rest, parts))) => {
                let seconds = anchor + rest;
                // A wanted engine is taken whatever it costs.
                let better = |(other, least, _): &(bool, f64, Vec<Group>)| match wanted == *other {
                    true => seconds < *least,
                    false => wanted,
                };
                if best.as_ref().is_none_or(better) {
                    anchors.extend(parts);
                    best = Some((wanted, seconds, anchors));
                }
            }
            Err(error) if error.is_unsupported() => refused = Some(error),
            Err(error) => return Err(error),
        }
    }
    match (best, refused) {
        (Some((_, seconds, parts)), _) => Ok((seconds, parts)),
        (None, Some(error)) => Err(error),
        (None, None) => Ok((0.0, vec![group.clone()])),
    }
}

/// Whether a preferred engine does the anchor of a group, and the estimated seconds of its parts.
fn anchored(draft: &Draft, anchors: &[Group]) -> Result<(bool, f64)> {
    let (mut wanted, mut seconds) = (false, 0.0);
    for part in anchors {
        let choice = chosen(draft, part, &draft.describe(part.root))?;
        wanted |= draft.options.preferred.contains(&choice.engine);
        seconds += choice.seconds;
    }
    Ok((wanted, seconds))
}
