//! Which engines could execute each piece of a graph, and what each of them offers.

use super::Options;
use super::choose::{is_copy, operands, query};
use super::draft::{Draft, NodeChoice};
use super::group::Group;
use crate::base::ShapeClass;
use crate::broken_invariant;
use crate::engine::{Cost, EngineId, Knob, Notes, Query, Verdict, WeightLayout};
use crate::error::Result;
use crate::ir::{Graph, NodeId};
use crate::provider::DeviceProfile;

/// One piece of a graph, which becomes one engine's work, and the engines for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidates {
    /// The node that stands for the piece: the anchor, or the last.
    pub node: NodeId,
    /// Every node of the piece.
    pub nodes: Vec<NodeId>,
    /// Labels and operations, for people.
    pub label: String,
    /// The engine that a plan takes; `None` for the copy that a view needs.
    pub engine: Option<EngineId>,
    /// Why that one, in words.
    pub why: String,
    /// Engines that can execute the piece, the best by estimate first.
    pub can: Vec<Offer>,
    /// Engines that are meant for the operation and cannot, with the reason.
    pub cannot: Vec<(EngineId, String)>,
}

/// What an engine offers for a piece.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The engine.
    pub engine: EngineId,
    /// Estimated seconds.
    pub seconds: f64,
    /// What the estimate is made from.
    pub cost: Cost,
    /// What one should know of it.
    pub notes: Notes,
    /// What can be set.
    pub knobs: Vec<Knob>,
    /// Bytes of memory that it needs for itself, part of the plan's workspace.
    pub workspace: u64,
    /// In which layout it reads a weight.
    pub weight_layout: WeightLayout,
}

/// The pieces that a plan of this graph has, in the order in which they execute, and for each of
/// them every engine that is meant for it.
///
/// # Errors
/// As [`super::Plan::new`].
pub fn candidates(
    graph: &Graph,
    class: &ShapeClass,
    profile: &DeviceProfile,
    options: &Options,
) -> Result<Vec<Candidates>> {
    let draft = Draft::new(graph, class, profile, options).after("choose")?;
    draft
        .groups
        .iter()
        .zip(&draft.choices)
        .map(|(group, choice)| of(&draft, group, choice))
        .collect()
}

fn of(draft: &Draft, group: &Group, choice: &NodeChoice) -> Result<Candidates> {
    let mut found = Candidates {
        node: choice.node,
        nodes: group.nodes.clone(),
        label: choice.label.clone(),
        engine: choice.engine.clone(),
        why: choice.why.clone(),
        can: Vec::new(),
        cannot: Vec::new(),
    };
    if is_copy(draft, group) {
        return Ok(found);
    }
    let operands = operands(draft, group);
    let query = query(draft, group, &choice.label, &operands);
    for candidate in &choice.candidates {
        let id = candidate.engine.clone();
        match &candidate.verdict {
            Verdict::Seconds(seconds) => {
                let taken = choice.engine.as_ref() == Some(&id);
                let knobs = match taken {
                    true => choice.knobs(draft.options),
                    false => draft.options.knobs.of(&id),
                };
                found.can.push(offer(draft, &Query { knobs, ..query }, id, *seconds)?);
            }
            Verdict::Refused(reason) => found.cannot.push((id, reason.clone())),
        }
    }
    found.can.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Ok(found)
}

fn offer(draft: &Draft, query: &Query, id: EngineId, seconds: f64) -> Result<Offer> {
    let Some(engine) = draft.options.registry.get(&id) else {
        broken_invariant(format_args!("engine {id} was looked at and is not registered"));
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

    /// What engines say they need is what they ask for as they lower, in every case of the table.
    #[test]
    fn workspace_is_what_lowering_asks_for() {
        let registry = Registry::builtin();
        let (mut pieces, mut with_memory) = (0, 0);
        for case in warploom_cases::cases() {
            let class = ShapeClass::exact(&case.symbols);
            for name in ["nvidia-h200", "browser-floor", "cpu-avx512"] {
                let profile = DeviceProfile::known(name).unwrap();
                let options = Options::new(&registry);
                let draft = Draft::new(&case.graph, &class, &profile, &options);
                let Ok(mut draft) = draft.after("choose") else { continue };
                let before = draft.tensors.len();
                let groups = draft.groups.clone();
                let said: u64 = groups
                    .iter()
                    .zip(&draft.choices)
                    .filter_map(|(group, choice)| {
                        let found = of(&draft, group, choice).unwrap();
                        let taken =
                            found.can.iter().find(|o| Some(&o.engine) == choice.engine.as_ref());
                        taken.map(|offer| offer.workspace)
                    })
                    .sum();
                draft.pass(PASSES.iter().find(|pass| pass.name == "lower").unwrap()).unwrap();
                // Outputs with gaps are copied after every piece.
                let is_own = |label: &str| !label.starts_with("output ");
                let new = draft.tensors[before..].iter();
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
