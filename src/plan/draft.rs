//! What the passes work on: the plan so far.

use serde::{Deserialize, Serialize};

use super::group::{Deps, Group};
use super::{Options, PASSES, Pass, Plan, PlanInput, PlanOutput, SlotRole};
use crate::base::ShapeClass;
use crate::engine::{Candidate, EngineId, KnobValues, Step, Tensor, TensorId, Tuned, View};
use crate::error::{Error, Result};
use crate::ir::{Graph, NodeId};
use crate::provider::{DeviceProfile, Recording};

/// Which engine a node got, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeChoice {
    /// The node of the plan's graph.
    pub node: NodeId,
    /// Its operation and label, for people.
    pub label: String,
    /// The engine; `None` for a copy that a view needed.
    pub engine: Option<EngineId>,
    /// Estimated seconds; of a tuned choice, those of the engine that it was measured against.
    pub seconds: f64,
    /// Why, in words.
    pub why: String,
    /// The choice that was measured, where it was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuned: Option<Tuned>,
    /// Every engine that was meant for the operation.
    pub candidates: Vec<Candidate>,
}

impl NodeChoice {
    /// How the engine is set: as it was measured, else as the caller wants.
    pub(super) fn knobs<'k>(&'k self, options: &'k Options) -> &'k KnobValues {
        match (&self.tuned, &self.engine) {
            (Some(tuned), _) => &tuned.knobs,
            (None, Some(engine)) => options.knobs.of(engine),
            (None, None) => KnobValues::NONE,
        }
    }
}

/// Where a tensor lies: slot of the recording and first byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) slot: u32,
    pub(super) offset: u64,
}

/// A plan under construction.
pub struct Draft<'a> {
    pub(super) class: &'a ShapeClass,
    pub(super) profile: &'a DeviceProfile,
    pub(super) options: &'a Options<'a>,
    /// After `infer`: the graph with the class's numbers put in.
    pub(super) graph: Graph,
    pub(super) passes: Vec<String>,
    /// After `alias`: for each node, where its result is seen.
    pub(super) views: Vec<View>,
    /// After `alias`: alias nodes that need a copy after all.
    pub(super) copies: Vec<NodeId>,
    /// After `alias`: nodes that need no step, since another one does their work.
    pub(super) absorbed: Vec<NodeId>,
    /// Who waits for whom, once it was asked for.
    pub(super) deps: Option<std::rc::Rc<Deps>>,
    /// After `group`: what is executed together, in an order that works.
    pub(super) groups: Vec<Group>,
    /// After `choose`: in the order of the nodes that execute.
    pub(super) choices: Vec<NodeChoice>,
    pub(super) tensors: Vec<Tensor>,
    pub(super) steps: Vec<Step>,
    /// After `lower`: outputs, each without gaps.
    pub(super) output_views: Vec<(String, View)>,
    /// After `lower`: outputs that are bound to buffers, by the tensor that each is the whole of.
    pub(super) bound_outputs: Vec<(String, TensorId)>,
    /// After `memory`: for each tensor.
    pub(super) places: Vec<Place>,
    pub(super) slots: Vec<SlotRole>,
    pub(super) recording: Recording,
    pub(super) inputs: Vec<PlanInput>,
    pub(super) outputs: Vec<PlanOutput>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(
        graph: &Graph,
        class: &'a ShapeClass,
        profile: &'a DeviceProfile,
        options: &'a Options<'a>,
    ) -> Draft<'a> {
        Draft {
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

    /// Runs a pass, unless it is switched off.
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
    /// Invalid, for a pass that does not exist; what the passes say.
    pub(super) fn after(mut self, pass: &str) -> Result<Draft<'a>> {
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

    /// What a group does, for people: its labels and the operations without one, in order.
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

    /// Operation and label of a node, for people.
    pub(super) fn describe(&self, id: NodeId) -> String {
        describe(&self.graph, id)
    }
}

/// Operation and label of a node, for people.
pub(super) fn describe(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    match node.label.as_str() {
        "" => format!("{id} {}", node.op.name()),
        label => format!("{label} ({})", node.op.name()),
    }
}
