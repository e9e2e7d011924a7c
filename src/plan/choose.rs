//! An engine for each group, and how much is fused around an anchor.

use super::draft::{Draft, NodeChoice};
use super::group::{self, Fused, Group};
use crate::engine::{Choice, Query, View, choose as rank};
use crate::error::Result;
use crate::ir::OpClass;

pub(super) fn choose(draft: &mut Draft) -> Result<()> {
    if draft.groups.is_empty() {
        group::singles(draft);
    }
    let mut groups = Vec::with_capacity(draft.groups.len());
    let mut cut = false;
    for group in draft.groups.clone() {
        match &group.fused {
            None => groups.push(group),
            Some(fused) => {
                let kept = best_cut(draft, &group, fused)?;
                cut |= kept.len() > 1;
                groups.extend(kept);
            }
        }
    }
    draft.groups = if cut { group::in_order(draft, groups) } else { groups };
    for group in &draft.groups {
        let (node, label) = (group.root, draft.describe_all(&group.nodes, group.root));
        if is_copy(draft, group) {
            let why = "strides cannot say this view".into();
            draft.choices.push(NodeChoice {
                node,
                label,
                engine: None,
                seconds: 0.0,
                why,
                candidates: Vec::new(),
            });
            continue;
        }
        let choice = chosen(draft, group, &label)?;
        draft.choices.push(NodeChoice {
            node,
            engine: Some(choice.engine),
            seconds: choice.seconds,
            why: choice.why,
            candidates: choice.candidates,
            label,
        });
    }
    Ok(())
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
    let x = group.fused.as_ref().and_then(|fused| fused.x.clone());
    if let (Some(x), Some(first)) = (x, views.first_mut()) {
        *first = x;
    }
    views
}

fn chosen(draft: &Draft, group: &Group, label: &str) -> Result<Choice> {
    let operands = operands(draft, group);
    let query = query(draft, group, label, &operands);
    let options = draft.options;
    let engines = options.registry.engines().iter().map(|engine| engine.as_ref());
    rank(engines, options.heuristic, &options.preferred, &query)
        .map(|(_, choice)| choice)
        .map_err(|e| e.context(label))
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
    }
}

/// The groups in the place of an anchor's that cost least: all that is proposed around it, or
/// less, down to the anchor alone.
fn best_cut(draft: &mut Draft, group: &Group, fused: &Fused) -> Result<Vec<Group>> {
    let without_before = Fused {
        around: crate::engine::Around {
            norm: None,
            prologue: None,
            segments: fused.around.segments.clone(),
        },
        x: None,
        before: Vec::new(),
        after: fused.after.clone(),
    };
    let without_after = Fused {
        around: crate::engine::Around { segments: Vec::new(), ..fused.around.clone() },
        after: Vec::new(),
        ..fused.clone()
    };
    let mut cuts = vec![Some(fused.clone())];
    if !fused.before.is_empty() && !fused.after.is_empty() {
        cuts.extend([Some(without_before), Some(without_after)]);
    }
    cuts.push(None);
    let mut best: Option<(f64, Vec<Group>)> = None;
    let mut first_error = None;
    for cut in cuts {
        let groups = match &cut {
            Some(f)
                if f.before.len() == fused.before.len() && f.after.len() == fused.after.len() =>
            {
                vec![group.clone()]
            }
            _ => group::cut(draft, group, cut),
        };
        let seconds: Result<f64> =
            groups.iter().map(|g| Ok(chosen(draft, g, &draft.describe(g.root))?.seconds)).sum();
        match seconds {
            Ok(seconds) if best.as_ref().is_none_or(|(least, _)| seconds < *least) => {
                best = Some((seconds, groups));
            }
            Ok(_) => {}
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    match (best, first_error) {
        (Some((_, groups)), _) => Ok(groups),
        (None, Some(error)) => Err(error),
        (None, None) => Ok(vec![group.clone()]),
    }
}
