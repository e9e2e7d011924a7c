//! The pass `split`: decides how much of each proposed group stays fused. Parts that are estimated
//! to cost less in separate kernels are split off.

use super::builder::PlanBuilder;
use super::choose::estimated;
use super::fusion::{self, Fused, Group};
use super::group_query::{forced, is_copy};
use crate::engine::Fusion;
use crate::error::Result;
use crate::ir::NodeId;

/// Replaces each proposed group with its cheapest form. Without proposals, each node is a group.
pub(super) fn split(builder: &mut PlanBuilder) -> Result<()> {
    super::choose::check_names(builder)?;
    if builder.groups.is_empty() {
        fusion::singles(builder);
    }
    let mut groups: Vec<Group> = Vec::with_capacity(builder.groups.len());
    let mut changed = false;
    for group in builder.groups.clone() {
        let whole = group.fused.is_none() && matches!(forced(builder, &group), Ok(None));
        let parts = if whole { vec![group] } else { best(builder, &group)?.1 };
        changed |= parts.len() > 1;
        for part in parts {
            // A node that several anchors would have fused, and now none does, is computed once.
            let again = part.fused.is_none() && groups.iter().any(|g| g.nodes == part.nodes);
            if !again {
                groups.push(part);
            }
        }
    }
    builder.groups = if changed { fusion::in_order(builder, groups) } else { groups };
    Ok(())
}

/// Returns the groups that replace a group most cheaply, with their estimated seconds.
fn best(builder: &mut PlanBuilder, group: &Group) -> Result<(f64, Vec<Group>)> {
    match &group.fused {
        Some(fused) => best_fusion(builder, group, fused),
        None if is_copy(builder, group) => Ok((0.0, vec![group.clone()])),
        None => best_loop(builder, group),
    }
}

/// Same as [`best`], for a pointwise fusion: it is split if a node is forced to an engine that does
/// not execute all of it.
fn best_loop(builder: &mut PlanBuilder, group: &Group) -> Result<(f64, Vec<Group>)> {
    let mut refused = match estimated(builder, group, &builder.describe(group.root)) {
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

/// Replaces each group with its cheapest form. Returns the total estimated seconds and the groups.
fn total(builder: &mut PlanBuilder, groups: &[Group]) -> Result<(f64, Vec<Group>)> {
    let (mut seconds, mut all) = (0.0, Vec::new());
    for group in groups {
        let (more, parts) = best(builder, group)?;
        seconds += more;
        all.extend(parts);
    }
    Ok((seconds, all))
}

/// Returns the forms of the fusion around an anchor: everything proposed, the epilogue or the
/// prologue alone, the casts alone, and no fusion (`None`).
fn forms(builder: &mut PlanBuilder, group: &Group, fused: &Fused) -> Vec<Option<Fused>> {
    let mut forms = vec![Some(fused.clone())];
    if !fused.before.is_empty() && !fused.after.is_empty() {
        let segments = fused.fusion.segments.clone();
        forms.push(Some(Fused {
            fusion: Fusion { segments, ..Fusion::default() },
            operands: [None, None],
            before: Vec::new(),
            after: fused.after.clone(),
        }));
        forms.push(Some(Fused {
            fusion: Fusion { segments: Vec::new(), ..fused.fusion.clone() },
            after: Vec::new(),
            ..fused.clone()
        }));
    }
    forms.extend(fusion::casts_only(builder, group).map(Some));
    forms.push(None);
    forms
}

/// Same as [`best`], for an anchor with fusion: its cheapest form, and pointwise fusions that
/// compute the rest.
fn best_fusion(
    builder: &mut PlanBuilder,
    group: &Group,
    fused: &Fused,
) -> Result<(f64, Vec<Group>)> {
    let mut best: Option<(bool, f64, Vec<Group>)> = None;
    let mut refused = None;
    for (i, form) in forms(builder, group, fused).into_iter().enumerate() {
        let parts = match i {
            0 => vec![group.clone()],
            _ => fusion::shrink(builder, group, form),
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

/// Returns whether a preferred engine executes any of these groups, and their total estimated
/// seconds.
fn anchored(builder: &PlanBuilder, anchors: &[Group]) -> Result<(bool, f64)> {
    let (mut wanted, mut seconds) = (false, 0.0);
    for part in anchors {
        let choice = estimated(builder, part, &builder.describe(part.root))?;
        wanted |= builder.options.preferred.contains(&choice.engine);
        seconds += choice.seconds;
    }
    Ok((wanted, seconds))
}
