//! The state that passes work on: the plan under construction.

use serde::{Deserialize, Serialize};

use super::fusion::{Deps, Group};
use super::{Options, PASSES, Pass, Plan, PlanInput, PlanOutput, SlotRole};
use crate::base::ShapeClass;
use crate::engine::{Candidate, EngineId, KnobValues, Step, Tensor, TensorId, Tuned, View};
use crate::error::{Error, Result};
use crate::ir::{Graph, NodeId};
use crate::provider::{DeviceProfile, Recording};

/// The engine chosen for a group, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeChoice {
    /// The node that represents the group: the anchor, or the last node.
    pub node: NodeId,
    /// Operation and label, for display.
    pub label: String,
    /// The engine; `None` for the copy of a view.
    pub engine: Option<EngineId>,
    /// Estimated seconds; for a tuned choice, the estimate of the engine that it replaces.
    pub seconds: f64,
    /// The reason for the choice, as text.
    pub why: String,
    /// The tuned choice, if it was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuned: Option<Tuned>,
    /// Every engine that was considered.
    pub candidates: Vec<Candidate>,
}

impl NodeChoice {
    /// Returns the knob values of the engine: the tuned ones, else those that the caller set.
    pub(super) fn knobs<'k>(&'k self, options: &'k Options) -> &'k KnobValues {
        match (&self.tuned, &self.engine) {
            (Some(tuned), _) => &tuned.knobs,
            (None, Some(engine)) => options.knobs.of(engine),
            (None, None) => KnobValues::NONE,
        }
    }
}

/// Location of a tensor: a slot of the recording and the byte offset in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) slot: u32,
    pub(super) offset: u64,
}

/// A plan under construction.
pub struct PlanBuilder<'a> {
    pub(super) class: &'a ShapeClass,
    pub(super) profile: &'a DeviceProfile,
    pub(super) options: &'a Options<'a>,
    /// After `infer`: the graph with the class's constants substituted.
    pub(super) graph: Graph,
    pub(super) passes: Vec<String>,
    /// After `alias`: the view of each node's result.
    pub(super) views: Vec<View>,
    /// After `alias`: alias nodes that need a copy after all.
    pub(super) copies: Vec<NodeId>,
    /// After `alias`: nodes without a step, whose work another node does.
    pub(super) absorbed: Vec<NodeId>,
    /// The dependency graph, computed on first use.
    pub(super) deps: Option<std::rc::Rc<Deps>>,
    /// After `fuse`: groups of fused nodes, in a valid order.
    pub(super) groups: Vec<Group>,
    /// After `choose`: the choice for each group, in the same order.
    pub(super) choices: Vec<NodeChoice>,
    pub(super) tensors: Vec<Tensor>,
    pub(super) steps: Vec<Step>,
    /// After `lower`: downloaded outputs, each with a view without gaps.
    pub(super) output_views: Vec<(String, View)>,
    /// After `lower`: outputs bound to buffers, with the tensor that each covers entirely.
    pub(super) bound_outputs: Vec<(String, TensorId)>,
    /// After `memory`: the location of each tensor.
    pub(super) places: Vec<Place>,
    pub(super) slots: Vec<SlotRole>,
    pub(super) recording: Recording,
    pub(super) inputs: Vec<PlanInput>,
    pub(super) outputs: Vec<PlanOutput>,
}

impl<'a> PlanBuilder<'a> {
    pub(super) fn new(
        graph: &Graph,
        class: &'a ShapeClass,
        profile: &'a DeviceProfile,
        options: &'a Options<'a>,
    ) -> PlanBuilder<'a> {
        PlanBuilder {
            class,
            profile,
            options,
            graph: graph.clone(),
            passes: Vec::new(),
            views: Vec::new(),
            copies: Vec::new(),
            absorbed: Vec::new(),
            deps: None,
            groups: Vec::new(),
            choices: Vec::new(),
            tensors: Vec::new(),
            steps: Vec::new(),
            output_views: Vec::new(),
            bound_outputs: Vec::new(),
            places: Vec::new(),
            slots: Vec::new(),
            recording: Recording { label: graph.name.clone(), ..Recording::default() },
            inputs: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// Runs a pass, unless it is disabled.
    pub(super) fn pass(&mut self, pass: &Pass) -> Result<()> {
        if pass.optional && self.options.without.iter().any(|name| name == pass.name) {
            return Ok(());
        }
        let name = self.recording.label.clone();
        (pass.run)(self)
            .map_err(|e| e.context(format_args!("planning {name}, pass {}", pass.name)))?;
        self.passes.push(pass.name.into());
        tracing::trace!("after pass {}:\n{}", pass.name, self.graph);
        Ok(())
    }

    /// Runs every pass up to and including `pass`.
    ///
    /// # Errors
    /// Invalid for a pass that does not exist. Otherwise, the error of the pass that fails.
    pub(super) fn after(mut self, pass: &str) -> Result<PlanBuilder<'a>> {
        let last = PASSES.iter().position(|known| known.name == pass);
        let last = last.ok_or_else(|| Error::invalid(format!("no pass {pass:?}")))?;
        for pass in &PASSES[..=last] {
            self.pass(pass)?;
        }
        Ok(self)
    }

    pub(super) fn finish(self) -> Plan {
        Plan {
            name: self.graph.name,
            class: self.class.clone(),
            profile: self.profile.clone(),
            passes: self.passes,
            deterministic: self.options.deterministic,
            choices: self.choices,
            tensors: self.tensors,
            steps: self.steps,
            recording: self.recording,
            slots: self.slots,
            inputs: self.inputs,
            outputs: self.outputs,
        }
    }

    /// Describes a group for display: the label of each node, or its operation if it has none, in
    /// order.
    pub(super) fn describe_all(&self, nodes: &[NodeId], root: NodeId) -> String {
        const MOST: usize = 6;
        if nodes.len() == 1 {
            return self.describe(root);
        }
        let short = |id: &NodeId| {
            let node = self.graph.node(*id);
            if node.label.is_empty() { node.op.name().to_string() } else { node.label.clone() }
        };
        let mut text = nodes.iter().take(MOST).map(short).collect::<Vec<_>>().join(" + ");
        if nodes.len() > MOST {
            text.push_str(&format!(" + {} more", nodes.len() - MOST));
        }
        text
    }

    /// Describes a node for display: its operation and label.
    pub(super) fn describe(&self, id: NodeId) -> String {
        describe(&self.graph, id)
    }
}

/// Describes a node for display: its operation and label.
pub(super) fn describe(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    match node.label.as_str() {
        "" => format!("{id} {}", node.op.name()),
        label => format!("{label} ({})", node.op.name()),
    }
}
