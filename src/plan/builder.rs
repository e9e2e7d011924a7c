//! The state that passes work on: the plan under construction.

use serde::{Deserialize, Serialize};

use super::fusion::{Deps, Group};
use super::{Options, PASSES, Pass, Plan, PlanInput, PlanOutput, SlotRole};
use crate::base::ShapeClass;
use crate::engine::{Candidate, EngineId, KnobValues, Step, Tensor, TensorId, Tuned, View};
use crate::error::{Error, Result};
use crate::ir::{Graph, NodeId};
use crate::provider::{DeviceProfile, Recording};

/// The engine chosen for a node, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeChoice {
    /// The node of the plan's graph.
    pub node: NodeId,
    /// Operation and label, for display.
    pub label: String,
    /// The engine; `None` for the copy of a view.
    pub engine: Option<EngineId>,
    /// Estimated seconds; for a tuned choice, those of the engine it was measured against.
    pub seconds: f64,
    /// The reason in words.
    pub why: String,
    /// The measured choice, if it was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuned: Option<Tuned>,
    /// Every engine for the operation.
    pub candidates: Vec<Candidate>,
}

impl NodeChoice {
    /// Knob values of the engine: as tuned, else as the caller set them.
    pub(super) fn knobs<'k>(&'k self, options: &'k Options) -> &'k KnobValues {
        match (&self.tuned, &self.engine) {
            (Some(tuned), _) => &tuned.knobs,
            (None, Some(engine)) => options.knobs.of(engine),
            (None, None) => KnobValues::NONE,
        }
    }
}

/// Location of a tensor: slot of the recording and first byte.
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
    /// After `choose`: in the order of the nodes that execute.
    pub(super) choices: Vec<NodeChoice>,
    pub(super) tensors: Vec<Tensor>,
    pub(super) steps: Vec<Step>,
    /// After `lower`: outputs, each without gaps.
    pub(super) output_views: Vec<(String, View)>,
    /// After `lower`: outputs bound to buffers, with the tensor that each covers entirely.
    pub(super) bound_outputs: Vec<(String, TensorId)>,
    /// After `memory`: the place of each tensor.
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

    /// Runs every pass up to this one.
    ///
    /// # Errors
    /// Invalid, for a pass that does not exist; else as the passes.
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

    /// Description of a group for display: its labels, and the operations without one, in order.
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

    /// Operation and label of a node, for display.
    pub(super) fn describe(&self, id: NodeId) -> String {
        describe(&self.graph, id)
    }
}

/// Operation and label of a node, for display.
pub(super) fn describe(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    match node.label.as_str() {
        "" => format!("{id} {}", node.op.name()),
        label => format!("{label} ({})", node.op.name()),
    }
}
