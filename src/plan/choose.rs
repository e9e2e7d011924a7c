//! Engine selection for each group, and how much is fused around each anchor.

use std::sync::Arc;

use super::builder::{NodeChoice, PlanBuilder};
use super::fused_quant;
use super::fusion::{self, Fused, Group};
use super::tuning_task::Piece;
use super::{Options, Selector};
use crate::engine::{
    Choice, EngineId, Fusion, KnobValues, Lowering, PreparedCodes, PreparedLayout, PreparedOperand,
    Query, TensorId, TunedChoices, View, Wishes, choose as rank,
};
use crate::error::{Error, Result};
use crate::ir::{NodeId, OpClass};

pub(super) fn choose(builder: &mut PlanBuilder) -> Result<()> {
    known(builder)?;
    if builder.groups.is_empty() {
        fusion::singles(builder);
    }
    let mut groups: Vec<Group> = Vec::with_capacity(builder.groups.len());
    let mut cut = false;
    for group in builder.groups.clone() {
        let whole = group.fused.is_none() && matches!(forced(builder, &group), Ok(None));
        let kept = if whole { vec![group] } else { best(builder, &group)?.1 };
        cut |= kept.len() > 1;
        for part in kept {
            // A node that several anchors would have fused, and now none does, is computed once.
            let again = part.fused.is_none() && groups.iter().any(|g| g.nodes == part.nodes);
            if !again {
                groups.push(part);
            }
        }
    }
    builder.groups = if cut { fusion::in_order(builder, groups) } else { groups };
    for at in 0..builder.groups.len() {
        let group = &builder.groups[at];
        let (node, label) = (group.root, builder.describe_all(&group.nodes, group.root));
        if is_copy(builder, group) {
            let why = "strides cannot express this view".into();
            builder.choices.push(NodeChoice {
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
        let choice = taken(builder, at, &label)?;
        builder.choices.push(NodeChoice {
            node,
            engine: Some(choice.engine),
            seconds: choice.seconds,
            why: choice.why,
            tuned: choice.tuned,
            candidates: choice.candidates,
            label,
        });
    }
    fused_quant::leave_out(builder);
    Ok(())
}

/// The nodes that no engine can execute on their own, after `alias`, and why.
///
/// # Errors
/// Any error in the options, for whatever node.
pub(super) fn refused_alone(builder: &mut PlanBuilder) -> Result<Vec<(NodeId, String)>> {
    fusion::singles(builder);
    let (mut refused, mut tensors) = (Vec::new(), builder.tensors.clone());
    for group in builder.groups.iter().filter(|group| !is_copy(builder, group)) {
        let label = builder.describe(group.root);
        let operands = operands(builder, group);
        let fits = chosen(builder, group, &label).and_then(|choice| {
            let query = query(builder, group, &label, &operands);
            let knobs = builder.options.knobs.of(&choice.engine);
            let Some(engine) = builder.options.registry.get(&choice.engine) else { return Ok(()) };
            // A tensor larger than a binding shows only in lowering.
            let mut out = Lowering {
                profile: builder.profile,
                class: builder.class,
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
pub(super) fn is_copy(builder: &PlanBuilder, group: &Group) -> bool {
    builder.graph.node(group.root).op.class() == OpClass::Alias
}

/// The operands of a group's root as engines see them.
pub(super) fn operands(builder: &PlanBuilder, group: &Group) -> Vec<View> {
    let inputs = &builder.graph.node(group.root).inputs;
    let mut views: Vec<View> =
        inputs.iter().map(|input| builder.views[input.index()].clone()).collect();
    let read = group.fused.iter().flat_map(|fused| &fused.operands);
    for (view, read) in views.iter_mut().zip(read) {
        if let Some(read) = read {
            view.clone_from(read);
        }
    }
    views
}

/// The engine with the best estimate, which decides how groups are split.
fn chosen(builder: &PlanBuilder, group: &Group, label: &str) -> Result<Choice> {
    choice(builder, group, label, None)
}

/// The engine that the plan uses. If the kernel before can quantise the first operand, the engine
/// that reads it quantised and has the best estimate; else the measured best for exactly this
/// group; else the best estimate. The last two accept an f16 operand too.
fn taken(builder: &mut PlanBuilder, at: usize, label: &str) -> Result<Choice> {
    let tuned = builder.options.tuned.iter().find(|tuned| tuned.device.is(builder.profile));
    let tuned = tuned.filter(|tuned| !tuned.choices.is_empty());
    let Some(offer) = fused_quant::offer(builder, at) else {
        return choice(builder, &builder.groups[at], label, tuned);
    };
    let codes = PreparedCodes { codes: TensorId(u32::MAX), at: 0, words: 0 };
    let group = Group { given: Some(PreparedOperand::Codes(codes)), ..builder.groups[at].clone() };
    let taken = |builder: &PlanBuilder, choice: &Choice| {
        let operands = operands(builder, &group);
        let query = query(builder, &group, label, &operands);
        builder.options.registry.get(&choice.engine).and_then(|engine| engine.takes(&query))
    };
    let mut found = choice(builder, &group, label, None)?;
    let mut takes = taken(builder, &found);
    if tuned.is_some() && !matches!(takes, Some(PreparedLayout::Codes(_))) {
        let own = choice(builder, &builder.groups[at], label, tuned)?;
        if own.tuned.is_some() {
            takes = taken(builder, &own);
            if !matches!(takes, Some(PreparedLayout::Halves(_))) {
                return Ok(own);
            }
            found = own;
        }
    }
    if let Some(takes) = takes
        && let Some(given) = fused_quant::accept(builder, &offer, takes)?
    {
        builder.groups[at].given = Some(given);
        return Ok(found);
    }
    choice(builder, &builder.groups[at], label, tuned)
}

fn choice(
    builder: &PlanBuilder,
    group: &Group,
    label: &str,
    tuned: Option<&Arc<TunedChoices>>,
) -> Result<Choice> {
    let operands = operands(builder, group);
    let query = query(builder, group, label, &operands);
    let options = builder.options;
    let tuned = tuned.and_then(|tuned| tuned.choices.get(&Piece::of(&query).key()));
    let wishes = Wishes {
        heuristic: options.heuristic,
        preferred: &options.preferred,
        forced: forced(builder, group)?,
        blocked: &options.block,
        blocks: &options.known_wrong,
        knobs: &options.knobs,
        tuned,
    };
    let engines = options.registry.engines().iter().map(|engine| engine.as_ref());
    rank(engines, &wishes, &query).map(|(_, choice)| choice).map_err(|e| e.context(label))
}

/// Checks that every engine and node named in the options exists.
fn known(builder: &PlanBuilder) -> Result<()> {
    let Options { registry, preferred, force, block, knobs, .. } = builder.options;
    let named = preferred.iter().chain(block).chain(force.iter().map(|(_, id)| id));
    if let Some(id) = named.chain(knobs.engines()).find(|id| registry.get(id).is_none()) {
        return Err(registry.unknown(id));
    }
    for (selector, id) in force {
        if !builder.graph.ids().any(|node| selector.selects(&builder.graph, node)) {
            return Err(Error::invalid(format!(
                "engine {id} is forced for {selector}: no such node"
            )));
        }
    }
    Ok(())
}

/// The engine that a group must have because one of its nodes is forced.
pub(super) fn forced<'o>(builder: &PlanBuilder<'o>, group: &Group) -> Result<Option<&'o EngineId>> {
    let options = builder.options;
    let mut found: Option<(&Selector, &EngineId)> = None;
    for (selector, id) in &options.force {
        if !group.nodes.iter().any(|node| selector.selects(&builder.graph, *node)) {
            continue;
        }
        match found {
            Some((other, first)) if first != id => {
                // Two forced engines cannot share a group; split it if possible.
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
    builder: &'q PlanBuilder,
    group: &'q Group,
    label: &'q str,
    operands: &'q [View],
) -> Query<'q> {
    Query {
        op: &builder.graph.node(group.root).op,
        label,
        operands,
        output: &builder.views[group.root.index()],
        body: group.body.as_ref(),
        fused: group.nodes.len(),
        fusion: group.fused.as_ref().map(|fused| &fused.fusion),
        profile: builder.profile,
        class: builder.class,
        knobs: KnobValues::NONE,
        deterministic: builder.options.deterministic,
        f16_accumulate: builder.options.f16_accumulate,
        siblings: &[],
        past_kv_is_final: super::kv_readiness::rows_before(&builder.graph, group.root),
        given: group.given,
    }
}

/// The cheapest replacement of a group, with its estimated seconds.
fn best(builder: &mut PlanBuilder, group: &Group) -> Result<(f64, Vec<Group>)> {
    match &group.fused {
        Some(fused) => best_cut(builder, group, fused),
        None if is_copy(builder, group) => Ok((0.0, vec![group.clone()])),
        None => best_split(builder, group),
    }
}

/// A loop; split if a node is forced to an engine that does not execute all of it.
fn best_split(builder: &mut PlanBuilder, group: &Group) -> Result<(f64, Vec<Group>)> {
    let mut refused = match chosen(builder, group, &builder.describe(group.root)) {
        Err(error) if error.is_unsupported() && group.nodes.len() > 1 => error,
        whole => return whole.map(|choice| (choice.seconds, vec![group.clone()])),
    };
    let force = &builder.options.force;
    let wanted =
        |id: &NodeId| force.iter().any(|(selector, _)| selector.selects(&builder.graph, *id));
    let alone: Vec<NodeId> = group.nodes.iter().copied().filter(wanted).collect();
    for id in alone {
        let parts = fusion::split(builder, group, id);
        match total(builder, &parts) {
            Err(error) if error.is_unsupported() => refused = error,
            parts => return parts,
        }
    }
    Err(refused)
}

/// Total seconds of groups, each replaced by its best form.
fn total(builder: &mut PlanBuilder, groups: &[Group]) -> Result<(f64, Vec<Group>)> {
    let (mut seconds, mut all) = (0.0, Vec::new());
    for group in groups {
        let (more, parts) = best(builder, group)?;
        seconds += more;
        all.extend(parts);
    }
    Ok((seconds, all))
}

/// An anchor with everything proposed around it, or with less, down to the anchor alone.
fn best_cut(builder: &mut PlanBuilder, group: &Group, fused: &Fused) -> Result<(f64, Vec<Group>)> {
    let mut cuts = vec![Some(fused.clone())];
    if !fused.before.is_empty() && !fused.after.is_empty() {
        let segments = fused.fusion.segments.clone();
        cuts.push(Some(Fused {
            fusion: Fusion { segments, ..Fusion::default() },
            operands: [None, None],
            before: Vec::new(),
            after: fused.after.clone(),
        }));
        cuts.push(Some(Fused {
            fusion: Fusion { segments: Vec::new(), ..fused.fusion.clone() },
            after: Vec::new(),
            ..fused.clone()
        }));
    }
    cuts.extend(fusion::rounded(builder, group).map(Some));
    cuts.push(None);
    let mut best: Option<(bool, f64, Vec<Group>)> = None;
    let mut refused = None;
    for (i, cut) in cuts.into_iter().enumerate() {
        let parts = match i {
            0 => vec![group.clone()],
            _ => fusion::cut(builder, group, cut),
        };
        let (mut anchors, loops): (Vec<Group>, Vec<Group>) =
            parts.into_iter().partition(|part| part.root == group.root);
        match anchored(builder, &anchors).and_then(|found| Ok((found, total(builder, &loops)?))) {
            Ok(((wanted, anchor), (rest, parts))) => {
                let seconds = anchor + rest;
                // A forced or preferred engine wins at any cost.
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

/// Whether a preferred engine executes the anchor of a group, and the estimated seconds of its
/// parts.
fn anchored(builder: &PlanBuilder, anchors: &[Group]) -> Result<(bool, f64)> {
    let (mut wanted, mut seconds) = (false, 0.0);
    for part in anchors {
        let choice = chosen(builder, part, &builder.describe(part.root))?;
        wanted |= builder.options.preferred.contains(&choice.engine);
        seconds += choice.seconds;
    }
    Ok((wanted, seconds))
}
