//! Candidate engines for each group of a graph, with cost, notes and knobs.

use super::Options;
use super::builder::{NodeChoice, PlanBuilder};
use super::fusion::Group;
use super::group_query::{GroupQuery, is_copy};
use crate::base::ShapeClass;
use crate::broken_invariant;
use crate::engine::{Cost, EngineId, Knob, Notes, Query, Verdict, WeightLayout};
use crate::error::Result;
use crate::ir::{Graph, NodeId};
use crate::provider::DeviceProfile;

/// A group of nodes that one engine executes, with the candidate engines.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidates {
    /// The node that represents the group: the anchor, or the last node.
    pub node: NodeId,
    /// All nodes of the group.
    pub nodes: Vec<NodeId>,
    /// Labels or operations of its nodes, for display.
    pub label: String,
    /// The engine that a plan chooses; `None` for the copy of a view.
    pub engine: Option<EngineId>,
    /// The reason for that choice, as text.
    pub why: String,
    /// Engines that can execute the group, best estimate first.
    pub can: Vec<Offer>,
    /// Engines that execute the operation but not this group, each with the reason.
    pub cannot: Vec<(EngineId, String)>,
}

/// An engine that can execute a group, with its estimate and properties.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The engine.
    pub engine: EngineId,
    /// Estimated seconds.
    pub seconds: f64,
    /// The cost that the estimate is computed from.
    pub cost: Cost,
    /// The engine's properties when it executes the group.
    pub notes: Notes,
    /// The engine's knobs for the group.
    pub knobs: Vec<Knob>,
    /// Size of the engine's temporaries in bytes; part of the plan's workspace.
    pub workspace: u64,
    /// The weight layout that the engine reads.
    pub weight_layout: WeightLayout,
}

/// Returns the groups of a graph's plan in execution order, each with every candidate engine.
///
/// # Errors
/// Same as [`super::Plan::new`].
pub fn candidates(
    graph: &Graph,
    class: &ShapeClass,
    profile: &DeviceProfile,
    options: &Options,
) -> Result<Vec<Candidates>> {
    let builder = PlanBuilder::new(graph, class, profile, options).after("fuse_quant")?;
    builder
        .groups
        .iter()
        .zip(&builder.choices)
        .map(|(group, choice)| of(&builder, group, choice))
        .collect()
}

fn of(builder: &PlanBuilder, group: &Group, choice: &NodeChoice) -> Result<Candidates> {
    let mut found = Candidates {
        node: choice.node,
        nodes: group.nodes.clone(),
        label: choice.label.clone(),
        engine: choice.engine.clone(),
        why: choice.why.clone(),
        can: Vec::new(),
        cannot: Vec::new(),
    };
    if is_copy(builder, group) {
        return Ok(found);
    }
    let seen = GroupQuery::new(builder, group, &choice.label);
    let query = seen.query();
    for candidate in &choice.candidates {
        let id = candidate.engine.clone();
        match &candidate.verdict {
            Verdict::Seconds(seconds) => {
                let taken = choice.engine.as_ref() == Some(&id);
                let knobs = match taken {
                    true => choice.knobs(builder.options),
                    false => builder.options.knobs.of(&id),
                };
                found.can.push(offer(builder, &Query { knobs, ..query }, id, *seconds)?);
            }
            Verdict::Refused(reason) => found.cannot.push((id, reason.clone())),
        }
    }
    found.can.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Ok(found)
}

fn offer(builder: &PlanBuilder, query: &Query, id: EngineId, seconds: f64) -> Result<Offer> {
    let Some(engine) = builder.options.registry.get(&id) else {
        broken_invariant(format_args!("engine {id} was considered but is not registered"));
    };
    Ok(Offer {
        seconds,
        cost: engine.cost(query),
        notes: engine.notes(query),
        knobs: engine.knobs(query),
        workspace: engine.workspace(query)?,
        weight_layout: engine.weight_layout(query),
        engine: id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Registry, TensorRole};
    use crate::plan::PASSES;

    /// In every conformance case, the declared workspace is what lowering allocates.
    #[test]
    fn workspace_is_what_lowering_asks_for() {
        let registry = Registry::builtin();
        let (mut pieces, mut with_memory) = (0, 0);
        for case in warploom_cases::cases() {
            let class = ShapeClass::exact(&case.symbols);
            for name in ["nvidia-h200", "browser-floor", "cpu-avx512"] {
                let profile = DeviceProfile::known(name).unwrap();
                let options = Options::new(&registry);
                let builder = PlanBuilder::new(&case.graph, &class, &profile, &options);
                let Ok(mut builder) = builder.after("fuse_quant") else { continue };
                let before = builder.tensors.len();
                let groups = builder.groups.clone();
                let said: u64 = groups
                    .iter()
                    .zip(&builder.choices)
                    .filter_map(|(group, choice)| {
                        let found = of(&builder, group, choice).unwrap();
                        let taken =
                            found.can.iter().find(|o| Some(&o.engine) == choice.engine.as_ref());
                        taken.map(|offer| offer.workspace)
                    })
                    .sum();
                builder.pass(PASSES.iter().find(|pass| pass.name == "lower").unwrap()).unwrap();
                // Outputs with gaps are copied after every group.
                let is_own = |label: &str| !label.starts_with("output ");
                let new = builder.tensors[before..].iter();
                let new = new.filter(|t| t.role == TensorRole::Intermediate && is_own(&t.name));
                let asked: u64 = new.map(|tensor| tensor.bytes).sum();
                assert_eq!(said, asked, "{} on {name}", case.name);
                pieces += groups.len();
                with_memory += usize::from(asked > 0);
            }
        }
        assert!(pieces > 300 && with_memory > 0, "{pieces} pieces, {with_memory} with memory");
    }
}
