//! Plans over several devices (heterogeneous partitioning).
//!
//! Every device has a *slot*: its index in the list of devices. `assign` chooses a slot for each
//! node of a graph: the one on which the caller places it; else, for a view, that of its operand;
//! else the first slot with an engine for it (so a node that a GPU cannot execute falls back to the
//! host). `cut` collects what one slot can execute without waiting for another into a *segment*, a
//! graph with a [`Plan`] of its own. A tensor passed between segments has a buffer on each slot
//! that needs it, and a *transfer* copies it from slot to slot. [`PartitionedPlan::actions`] is the
//! order of execution.
//!
//! Inputs, weights and constants, and views of them, are on every slot that reads them. A state is
//! on one slot, with every node that touches it, so its reads and updates keep their order.

mod assign;
mod cut;
mod verify;

use std::collections::BTreeSet;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::builder::PlanBuilder;
use super::{Bound, Options, Plan, Selector, SlotRole};
use crate::base::{DType, Shape, ShapeClass};
use crate::error::{Error, Result};
use crate::ir::{Graph, OpClass};
use crate::provider::DeviceProfile;

/// Explicit placement of nodes: a slot for the nodes of each selector. The last selector that
/// matches a node wins.
pub type Placement = [(Selector, usize)];

/// A graph split over several devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartitionedPlan {
    /// Name of the graph.
    pub name: String,
    /// The ranges of symbols that it is valid for.
    pub class: ShapeClass,
    /// The device of each slot.
    pub devices: Vec<DeviceProfile>,
    /// The segments, each executed as a whole on one slot.
    pub segments: Vec<Segment>,
    /// Tensors passed between segments.
    pub passed: Vec<Passed>,
    /// Actions of each run, in order.
    pub actions: Vec<Action>,
    /// The slot of each state, by name.
    pub states: Vec<(String, usize)>,
}

/// A part of a graph on one slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// The slot that executes it.
    pub slot: usize,
    /// Why some of its nodes are not on the slot that they would have by default, as text.
    pub why: Vec<String>,
    /// Plan of the segment. Passed tensors are inputs and outputs that are bound to buffers.
    pub plan: Plan,
}

/// A tensor that one segment computes and others read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Passed {
    /// Name in the plans of the segments.
    pub name: String,
    /// Size of each dimension.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
    /// The slots that hold it; the first one computes it.
    pub slots: Vec<usize>,
}

/// An action of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Executes a segment, by index.
    Run(usize),
    /// Copies a passed tensor, by index, from the slot that computes it to another slot.
    Transfer {
        /// Index of the tensor.
        tensor: usize,
        /// The destination slot.
        to: usize,
    },
}

impl PartitionedPlan {
    /// Splits a graph over these devices, the first of which is the default, and plans every
    /// segment.
    ///
    /// # Errors
    /// Invalid for a placement that matches no node, names a missing slot, or splits a state, or
    /// for an engine that is forced for a node by index. Unsupported, naming the node, if no slot
    /// has an engine for it, or the slot where it is placed has none. Otherwise same as
    /// [`Plan::new`].
    pub fn new(
        graph: &Graph,
        class: &ShapeClass,
        devices: &[DeviceProfile],
        placement: &Placement,
        options: &Options,
    ) -> Result<PartitionedPlan> {
        let inner = || {
            let first = devices
                .first()
                .ok_or_else(|| Error::invalid("a plan needs at least one device"))?;
            let simple = match options.without.iter().any(|pass| pass == "simplify") {
                true => "legalize",
                false => "simplify",
            };
            if let Some((node, _)) = options.force.iter().find(|f| matches!(f.0, Selector::Node(_)))
            {
                return Err(Error::invalid(format!(
                    "an engine is forced for {node}: name it by label"
                )));
            }
            let graph = PlanBuilder::new(graph, class, first, options).after(simple)?.graph;
            let assigned = assign::assign(&graph, class, devices, placement, options)?;
            let parts = cut::cut(&graph, &assigned)?;
            PartitionedPlan::of(&graph, class, devices, options, assigned, parts)
        };
        inner().map_err(|e: Error| e.context(format_args!("partitioning {}", graph.name)))
    }

    fn of(
        graph: &Graph,
        class: &ShapeClass,
        devices: &[DeviceProfile],
        options: &Options,
        assigned: assign::Assigned,
        parts: cut::Parts,
    ) -> Result<PartitionedPlan> {
        let names: BTreeSet<String> = parts.passed.iter().map(|p| p.name.clone()).collect();
        let mut segments = Vec::with_capacity(parts.segments.len());
        for part in &parts.segments {
            let mut own = options.clone();
            let all = Bound::all(&part.graph);
            let bound = |all: &BTreeSet<String>, by_caller: &BTreeSet<String>| {
                all.iter()
                    .filter(|n| names.contains(*n) || by_caller.contains(*n))
                    .cloned()
                    .collect()
            };
            own.bound = Bound {
                inputs: bound(&all.inputs, &options.bound.inputs),
                outputs: bound(&all.outputs, &options.bound.outputs),
                weights: options.bound.weights,
            };
            // A node has a different index in the graph of a segment.
            let selects = |(selector, _): &(Selector, _)| {
                part.graph.ids().any(|id| selector.selects(&part.graph, id))
            };
            own.force.retain(selects);
            let plan = Plan::new(&part.graph, class, &devices[part.slot], &own)?;
            let why = part.nodes.iter().filter_map(|id| assigned.why[id.index()].clone());
            segments.push(Segment { slot: part.slot, why: why.collect(), plan });
        }
        Ok(PartitionedPlan {
            name: graph.name.clone(),
            class: class.clone(),
            devices: devices.to_vec(),
            segments,
            passed: parts.passed,
            actions: parts.actions,
            states: assigned.states,
        })
    }

    /// Returns the size in bytes of the buffer for a tensor passed between segments, at the upper
    /// ends of the shape class.
    ///
    /// # Errors
    /// Invalid if a size has no upper bound.
    pub fn passed_bytes(&self, tensor: &Passed) -> Result<u64> {
        let roles = [SlotRole::Output(tensor.name.clone()), SlotRole::Input(tensor.name.clone())];
        let slots = self.segments.iter().flat_map(|s| roles.iter().map(|r| s.plan.slot_bytes(r)));
        let own = self.class.upper(&tensor.shape.elements())? * tensor.dtype.bytes();
        Ok(slots.flatten().chain([own]).max().unwrap_or(own))
    }

    /// Formats the plan as text: the order of actions, and the plan of each segment.
    pub fn explain(&self) -> String {
        let mut text =
            format!("plan {:?} {} over {} slots\n", self.name, self.class, self.devices.len());
        for (slot, device) in self.devices.iter().enumerate() {
            let _ = writeln!(text, "slot {slot}: {} {:?}", device.id(), device.name);
        }
        for action in &self.actions {
            let _ = match *action {
                Action::Run(i) => {
                    let segment = &self.segments[i];
                    let steps = segment.plan.steps.len();
                    writeln!(text, "run segment {i} on slot {}: {steps} steps", segment.slot)
                }
                Action::Transfer { tensor, to } => {
                    let Passed { name, shape, dtype, slots } = &self.passed[tensor];
                    let bytes = self.class.upper(&shape.elements()).unwrap_or(0) * dtype.bytes();
                    let from = slots[0];
                    writeln!(
                        text,
                        "transfer {name:?} {dtype}{shape} from slot {from} to slot {to}: at most \
                         {bytes} bytes"
                    )
                }
            };
        }
        for (i, segment) in self.segments.iter().enumerate() {
            let _ = writeln!(text, "\nsegment {i} on slot {}", segment.slot);
            for why in &segment.why {
                let _ = writeln!(text, "  {why}");
            }
            text.push_str(&segment.plan.explain());
        }
        text
    }
}

/// Returns, for each node, whether every segment that reads it has a copy. This holds for leaves
/// and their views, and for views of updates, which are on the slot of the state.
fn rebuilt(graph: &Graph) -> Vec<bool> {
    let mut rebuilt: Vec<bool> = Vec::with_capacity(graph.nodes().len());
    for node in graph.nodes() {
        let own = match node.op.class() {
            OpClass::Leaf => true,
            OpClass::Alias => {
                let of = node.inputs[0];
                rebuilt[of.index()] || graph.node(of).op.overwrites()
            }
            _ => false,
        };
        rebuilt.push(own);
    }
    rebuilt
}

#[cfg(test)]
mod tests;
