//! Device assignment: the slot that each node executes on.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::{Placement, rebuilt};
use crate::base::ShapeClass;
use crate::error::{Error, Result};
use crate::ir::{Graph, NodeId, Op, OpClass};
use crate::plan::builder::{PlanBuilder, describe};
use crate::plan::{Options, Selector, choose};
use crate::provider::DeviceProfile;

/// The slots of all nodes and states.
pub(super) struct Assigned {
    /// The slot of each node; arbitrary for nodes that every segment rebuilds.
    pub(super) slots: Vec<usize>,
    /// For each node: the reason, if it is not on the slot that it would have by default.
    pub(super) why: Vec<Option<String>>,
    /// The slot of each state, by name.
    pub(super) states: Vec<(String, usize)>,
}

/// For each slot and node: why the slot's device has no engine for the node; `None` if it has one.
type Refusals = Vec<Vec<Option<String>>>;
/// For each node: the slot that the caller requests, and the selector that does.
type Wanted<'p> = Vec<Option<(usize, &'p Selector)>>;

pub(super) fn assign(
    graph: &Graph,
    class: &ShapeClass,
    devices: &[DeviceProfile],
    placement: &Placement,
    options: &Options,
) -> Result<Assigned> {
    let wanted = wanted(graph, devices.len(), placement)?;
    let refusals: Refusals = devices
        .iter()
        .map(|profile| refusals(graph, class, profile, options))
        .collect::<Result<_>>()?;
    let touched = touched(graph);
    let states = states(graph, &wanted, &refusals, &touched)?;
    let mut slots = vec![0; graph.nodes().len()];
    let mut why = vec![None; graph.nodes().len()];
    for (id, node) in graph.ids().zip(graph.nodes()) {
        let i = id.index();
        let state = touched[i].and_then(|state| Some((state, *states.get(&state)?)));
        let slot = match (state, wanted[i]) {
            (Some((state, slot)), Some((other, by))) if slot != other => {
                return Err(Error::invalid(format!(
                    "{} is placed on slot {other} ({by}), but it touches {}, which is on slot {slot}",
                    describe(graph, id),
                    describe(graph, state)
                )));
            }
            (Some((_, slot)), _) | (None, Some((slot, _))) => {
                if let Some(reason) = &refusals[slot][i] {
                    return Err(Error::unsupported(format!("placed on slot {slot}: {reason}")));
                }
                slot
            }
            // A view is on the slot of its operand. Everything else is on the first slot that can
            // execute it: a transfer costs more than a better engine gains.
            (None, None) if node.op.class() == OpClass::Alias => slots[node.inputs[0].index()],
            (None, None) => first(graph, id, &refusals)?,
        };
        slots[i] = slot;
        why[i] = match (wanted[i], &refusals[0][i]) {
            (Some((_, by)), _) => Some(format!("{}: placed by {by}", describe(graph, id))),
            (None, Some(reason)) => Some(format!("not on slot 0: {reason}")),
            (None, None) => None,
        };
    }
    let name = |id: NodeId| match &graph.node(id).op {
        Op::State { name } => Some(name.clone()),
        _ => None,
    };
    let states = states.iter().filter_map(|(id, slot)| Some((name(*id)?, *slot))).collect();
    Ok(Assigned { slots, why, states })
}

/// Returns the first slot with an engine for a node.
fn first(graph: &Graph, id: NodeId, refusals: &Refusals) -> Result<usize> {
    let able = refusals.iter().position(|slot| slot[id.index()].is_none());
    able.ok_or_else(|| {
        let each = refusals.iter().enumerate();
        let each = each.filter_map(|(slot, of)| Some((slot, of[id.index()].as_ref()?)));
        let reasons: Vec<String> = each.map(|(slot, why)| format!("slot {slot}: {why}")).collect();
        Error::unsupported(format!("{}: {}", describe(graph, id), reasons.join("; ")))
    })
}

/// Returns the slot that the caller requests for each node.
fn wanted<'p>(graph: &Graph, slots: usize, placement: &'p Placement) -> Result<Wanted<'p>> {
    let (mut wanted, rebuilt) = (vec![None; graph.nodes().len()], rebuilt(graph));
    for (selector, slot) in placement {
        if *slot >= slots {
            return Err(Error::invalid(format!("{selector} on slot {slot}: there are {slots}")));
        }
        let mut any = false;
        for id in graph.ids().filter(|id| selector.selects(graph, *id)) {
            any = true;
            let is_state = matches!(graph.node(id).op, Op::State { .. });
            if is_state || !rebuilt[id.index()] {
                wanted[id.index()] = Some((*slot, selector));
            }
        }
        if !any {
            return Err(Error::invalid(format!("{selector} on slot {slot}: no such node")));
        }
    }
    Ok(wanted)
}

/// Returns the state of each node that reads or updates one, directly or after an update. If a node
/// touches several states, one of them represents all.
fn touched(graph: &Graph) -> Vec<Option<NodeId>> {
    // States whose memory a node's value is in, or is read from.
    let mut lies: Vec<Option<NodeId>> = vec![None; graph.nodes().len()];
    let mut stands: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    let mut touched: Vec<Option<NodeId>> = vec![None; graph.nodes().len()];
    for (id, node) in graph.ids().zip(graph.nodes()) {
        let is_state = matches!(node.op, Op::State { .. });
        let all: SmallVec<[NodeId; 2]> = match is_state {
            true => [id].into_iter().collect(),
            false => node.inputs.iter().filter_map(|input| lies[input.index()]).collect(),
        };
        touched[id.index()] = all.first().copied();
        for pair in all.windows(2) {
            let (a, b) = (standing(&stands, pair[0]), standing(&stands, pair[1]));
            if a != b {
                stands.insert(a.max(b), a.min(b));
            }
        }
        let stays = node.op.overwrites() || node.op.class() == OpClass::Alias;
        lies[id.index()] = match node.inputs.first() {
            _ if is_state => Some(id),
            Some(first) if stays => lies[first.index()],
            _ => None,
        };
    }
    touched.into_iter().map(|state| state.map(|state| standing(&stands, state))).collect()
}

fn standing(stands: &BTreeMap<NodeId, NodeId>, mut state: NodeId) -> NodeId {
    while let Some(other) = stands.get(&state) {
        state = *other;
    }
    state
}

/// Returns the slot of each state: the one where the caller places a node that touches the state,
/// else the first that can execute all such nodes.
fn states(
    graph: &Graph,
    wanted: &Wanted<'_>,
    refusals: &Refusals,
    touched: &[Option<NodeId>],
) -> Result<BTreeMap<NodeId, usize>> {
    let mut states = BTreeMap::new();
    for id in graph.ids().filter(|id| matches!(graph.node(*id).op, Op::State { .. })) {
        let state = touched[id.index()].unwrap_or(id);
        let by = || graph.ids().filter(|id| touched[id.index()] == Some(state));
        let placed = by().find_map(|id| wanted[id.index()]).map(|(slot, _)| slot);
        let able = |slot: &usize| by().all(|id| refusals[*slot][id.index()].is_none());
        let slot = placed.or_else(|| (0..refusals.len()).find(able)).ok_or_else(|| {
            let reasons = refusals.iter().enumerate().filter_map(|(slot, of)| {
                let why = by().find_map(|id| of[id.index()].as_ref())?;
                Some(format!("slot {slot}: {why}"))
            });
            let reasons: Vec<String> = reasons.collect();
            let what = describe(graph, id);
            Error::unsupported(format!("no slot does all with {what}: {}", reasons.join("; ")))
        })?;
        states.insert(id, slot);
    }
    Ok(states)
}

/// Returns, for each node, why a device has no engine for it on its own.
fn refusals(
    graph: &Graph,
    class: &ShapeClass,
    profile: &DeviceProfile,
    options: &Options,
) -> Result<Vec<Option<String>>> {
    let mut own = options.clone();
    // Nodes stay as they are; later passes only derive equivalent ones from them.
    own.without = ["simplify", "pattern", "fuse"].map(String::from).to_vec();
    let mut builder = PlanBuilder::new(graph, class, profile, &own).after("alias")?;
    let mut refusals = vec![None; graph.nodes().len()];
    for (id, why) in choose::refused_alone(&mut builder)? {
        refusals[id.index()] = Some(why);
    }
    Ok(refusals)
}
