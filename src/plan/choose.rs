//! The pass `choose`: selects the engine of each group.

use std::sync::Arc;

use super::Options;
use super::builder::{NodeChoice, PlanBuilder};
use super::fusion::{self, Group};
use super::group_query::{GroupQuery, forced, is_copy};
use crate::engine::{Choice, Lowering, Query, TunedChoices, Wishes, choose as rank};
use crate::error::{Error, Result};
use crate::ir::NodeId;

/// Chooses an engine for each group: the one that the caller forces or prefers, else the fastest by
/// measurement, else the best estimate.
pub(super) fn choose(builder: &mut PlanBuilder) -> Result<()> {
    let mut choices = Vec::with_capacity(builder.groups.len());
    for group in &builder.groups {
        let (node, label) = (group.root, builder.describe_all(&group.nodes, group.root));
        choices.push(match is_copy(builder, group) {
            true => NodeChoice {
                node,
                label,
                engine: None,
                seconds: 0.0,
                why: "strides cannot express this view".into(),
                tuned: None,
                candidates: Vec::new(),
            },
            false => chosen(node, choice(builder, group, &label, tuned(builder))?, label),
        });
    }
    builder.choices = choices;
    Ok(())
}

/// Converts the choice of an engine for a group to the form that a plan stores.
pub(super) fn chosen(node: NodeId, choice: Choice, label: String) -> NodeChoice {
    NodeChoice {
        node,
        label,
        engine: Some(choice.engine),
        seconds: choice.seconds,
        why: choice.why,
        tuned: choice.tuned,
        candidates: choice.candidates,
    }
}

/// Returns the tuned choices for the plan's device, if there are any.
fn tuned<'o>(builder: &PlanBuilder<'o>) -> Option<&'o Arc<TunedChoices>> {
    let tuned = builder.options.tuned.iter().find(|tuned| tuned.device.is(builder.profile));
    tuned.filter(|tuned| !tuned.choices.is_empty())
}

/// Chooses an engine for a group as [`choose`] does, but without tuned choices.
///
/// # Errors
/// Unsupported if no engine can execute the group, or the forced one cannot.
pub(super) fn estimated(builder: &PlanBuilder, group: &Group, label: &str) -> Result<Choice> {
    choice(builder, group, label, None)
}

fn choice(
    builder: &PlanBuilder,
    group: &Group,
    label: &str,
    tuned: Option<&Arc<TunedChoices>>,
) -> Result<Choice> {
    let seen = GroupQuery::new(builder, group, label);
    let options = builder.options;
    let tuned = tuned.and_then(|tuned| tuned.choices.get(&seen.key()));
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
    rank(engines, &wishes, &seen.query()).map(|(_, choice)| choice).map_err(|e| e.context(label))
}

/// Checks that every engine and node named in the options exists.
///
/// # Errors
/// Invalid, naming the engine or the selector.
pub(super) fn check_names(builder: &PlanBuilder) -> Result<()> {
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

/// Returns the nodes that no engine can execute on their own, with the reason. The pass `alias`
/// must have run.
///
/// # Errors
/// Any error other than unsupported, such as an invalid option.
pub(super) fn refused_alone(builder: &mut PlanBuilder) -> Result<Vec<(NodeId, String)>> {
    fusion::singles(builder);
    let (mut refused, mut tensors) = (Vec::new(), builder.tensors.clone());
    for group in builder.groups.iter().filter(|group| !is_copy(builder, group)) {
        let label = builder.describe(group.root);
        let fits = estimated(builder, group, &label).and_then(|choice| {
            let seen = GroupQuery::new(builder, group, &label);
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
            engine.lower(&Query { knobs, ..seen.query() }, &mut out)
        });
        match fits {
            Ok(()) => {}
            Err(error) if error.is_unsupported() => refused.push((group.root, error.to_string())),
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}
