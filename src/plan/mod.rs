//! Planning: turns a graph into a plan by a list of named passes.
//!
//! A [`Plan`] is made for one graph, one [`ShapeClass`] (shape bucket) and one [`DeviceProfile`],
//! without a device, and ends in a [`Recording`]: kernels, parameters, buffers by slot. It is built
//! once per class and replayed; between runs only symbols, inputs and bound buffers change.
//!
//! Passes run in the order of [`PASSES`] on the [`PlanBuilder`]. Optional ones can be disabled by
//! name without changing the results.

mod alias;
mod analysis;
mod bindings;
mod builder;
mod candidates;
mod choose;
mod estimate;
mod explain;
mod file;
mod fused_quant;
mod fusion;
mod group_query;
mod kv_readiness;
mod legalize_f16;
mod lower;
mod measurement;
mod memory;
mod overlap;
mod partition;
mod pattern;
mod perfetto;
mod piece;
mod rules;
mod schedule;
mod simplify;
mod split;
mod tuning_task;
mod verify;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use analysis::{Analysis, Spread, StepClock};
pub use bindings::Bindings;
pub use builder::{NodeChoice, PlanBuilder};
pub use candidates::{Candidates, Offer, candidates};
pub use explain::{
    ArenaBuffer, EngineReport, Memory, Placed, Report, StepMeasure, StepReport, Target,
    TextOptions, Totals,
};
pub use measurement::{Content, Fill, Measurement};
pub use partition::{Action, PartitionedPlan, Passed, Placement, Segment};
pub use pattern::merged_weights;
pub use tuning_task::{Task, tasks};

use crate::base::{DType, Shape, ShapeClass, SymbolValues};
use crate::engine::{
    Block, EngineId, Heuristic, Knobs, Registry, Roofline, Step, Tensor, TunedChoices,
};
use crate::error::Result;
use crate::ir::{Graph, NodeId, Op};
use crate::provider::{DeviceProfile, Recording};

/// A pass of planning.
#[derive(Debug)]
pub struct Pass {
    /// Name of the pass, for [`Options::without`] and [`Plan::graph_after`].
    pub name: &'static str,
    /// Effect of the pass, in one line.
    pub doc: &'static str,
    /// Whether the plan is correct without it.
    pub optional: bool,
    run: fn(&mut PlanBuilder) -> Result<()>,
}

/// Every pass, in order.
pub static PASSES: &[Pass] = &[
    Pass {
        name: "infer",
        doc: "substitutes the symbols that are numbers in this shape bucket, infers shapes, verifies",
        optional: false,
        run: simplify::infer,
    },
    Pass {
        name: "legalize",
        doc: "computes f16 and bf16 arithmetic in f32, between conversions",
        optional: false,
        run: legalize_f16::legalize,
    },
    Pass {
        name: "simplify",
        doc: "merges equal nodes, folds identities, views and constants, removes dead nodes",
        optional: true,
        run: simplify::simplify,
    },
    Pass {
        name: "pattern",
        doc: "recognises composite operations in primitive ones and merges products with a \
              common operand",
        optional: true,
        run: pattern::pattern,
    },
    Pass {
        name: "alias",
        doc: "assigns memory to results, and none to views that strides can express",
        optional: false,
        run: alias::alias,
    },
    Pass {
        name: "fuse",
        doc: "proposes which nodes become one kernel: loops, and what is fused around anchors",
        optional: true,
        run: fusion::fuse,
    },
    Pass {
        name: "split",
        doc: "splits off what costs less in kernels of its own, by estimated cost",
        optional: false,
        run: split::split,
    },
    Pass {
        name: "choose",
        doc: "chooses an engine for each group",
        optional: false,
        run: choose::choose,
    },
    Pass {
        name: "fuse_quant",
        doc: "lets the kernel before a matrix product quantise its operand",
        optional: true,
        run: fused_quant::fuse_quant,
    },
    Pass {
        name: "lower",
        doc: "lowers nodes to steps: kernels with parameters and tensors",
        optional: false,
        run: lower::lower,
    },
    Pass {
        name: "memory",
        doc: "lays intermediates out in a few buffers, so that no step reads and writes the same one",
        optional: false,
        run: memory::memory,
    },
    Pass {
        name: "overlap",
        doc: "lets a launch overlap with the previous one if they share no buffer that either \
              writes",
        optional: true,
        run: overlap::overlap,
    },
    Pass {
        name: "schedule",
        doc: "writes the recording: uploads, dispatches, downloads",
        optional: false,
        run: schedule::schedule,
    },
];

/// Planning options, in addition to the graph, shape class and device profile.
#[derive(Clone)]
pub struct Options<'a> {
    /// The engines to choose from.
    pub registry: &'a Registry,
    /// The cost model that ranks engines.
    pub heuristic: &'a dyn Heuristic,
    /// Engines to prefer whenever they apply, whatever their estimated cost.
    pub preferred: Vec<EngineId>,
    /// Engines that the selected nodes must have. Fusion with such a node is dropped if its engine
    /// does not support it; if the engine cannot execute the node even without fusion, planning
    /// fails with the reason.
    pub force: Vec<(Selector, EngineId)>,
    /// Engines never to use.
    pub block: Vec<EngineId>,
    /// Engines known to be wrong on a device (errata), never used there.
    pub known_wrong: Vec<Block>,
    /// Knob values that the caller sets, by engine.
    pub knobs: Knobs,
    /// Tuned choices of each device that plans are made for, used unless another option overrides
    /// them.
    pub tuned: Vec<Arc<TunedChoices>>,
    /// Names of optional passes to disable.
    pub without: Vec<String>,
    /// Whether the bits of each result must depend on its own inputs alone; see
    /// [`crate::engine::ReductionOrder`]. Planning fails if no engine for an operation guarantees
    /// this.
    pub deterministic: bool,
    /// Whether products of two `f16` matrices with an `f16` result may be accumulated in `f16`, if
    /// a device is faster at that and `deterministic` is not set. A sum of `k` products is then off
    /// by up to `k / 16 * 2^-11` of the sum of their absolute values if the device rounds to
    /// nearest, and overflows if a partial sum is beyond 65,504.
    pub f16_accumulate: bool,
    /// Inputs and outputs that are device buffers instead of host bytes.
    pub bound: Bound,
}

crate::base::debug_as!(Options<'a>, |this| preferred: this.preferred, force: this.force, block: this.block);

/// Inputs and outputs that each run binds to device buffers. All others are uploaded and
/// downloaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Names of the bound inputs.
    pub inputs: BTreeSet<String>,
    /// Names of the bound outputs.
    pub outputs: BTreeSet<String>,
    /// Whether each weight is also bound at each run, to a separate buffer; then none are merged.
    pub weights: bool,
}

impl Bound {
    /// Binds every input, output and weight of a graph.
    pub fn all(graph: &Graph) -> Bound {
        let inputs = graph.nodes().iter().filter_map(|node| match &node.op {
            Op::Input { name } => Some(name.clone()),
            _ => None,
        });
        let outputs = graph.outputs().iter().map(|(name, _)| name.clone());
        Bound { inputs: inputs.collect(), outputs: outputs.collect(), weights: true }
    }
}

impl<'a> Options<'a> {
    /// Creates default options with these engines.
    pub fn new(registry: &'a Registry) -> Options<'a> {
        Options {
            registry,
            heuristic: &Roofline,
            preferred: Vec::new(),
            force: Vec::new(),
            block: Vec::new(),
            known_wrong: Vec::new(),
            knobs: Knobs::default(),
            tuned: Vec::new(),
            without: Vec::new(),
            deterministic: false,
            f16_accumulate: false,
            bound: Bound::default(),
        }
    }
}

/// Selects nodes of a plan's graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// One node, by its index in the graph after the passes before `choose`, as it appears in
    /// [`candidates`] and in reports.
    Node(NodeId),
    /// Every node with this label.
    Label(String),
    /// Every node of an operation, by its name: `linear`, `softmax`.
    Operation(String),
}

impl Selector {
    /// Returns whether this selector matches node `id` of `graph`.
    pub fn selects(&self, graph: &Graph, id: NodeId) -> bool {
        let node = graph.node(id);
        match self {
            Selector::Node(wanted) => *wanted == id,
            Selector::Label(label) => node.label == *label,
            Selector::Operation(name) => node.op.name() == name,
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Node(id) => write!(f, "{id}"),
            Selector::Label(label) => write!(f, "{label:?}"),
            Selector::Operation(name) => write!(f, "every {name}"),
        }
    }
}

/// A graph compiled for one shape class on one kind of device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the graph.
    pub name: String,
    /// The ranges of symbols that it is valid for.
    pub class: ShapeClass,
    /// Profile of the device that it was made for.
    pub profile: DeviceProfile,
    /// Names of the passes that ran.
    pub passes: Vec<String>,
    /// Whether results are batch invariant; see [`Options::deterministic`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deterministic: bool,
    /// The engine chosen for each group, and why.
    pub choices: Vec<NodeChoice>,
    /// Every tensor.
    pub tensors: Vec<Tensor>,
    /// Every kernel launch, in order.
    pub steps: Vec<Step>,
    /// The commands for a device.
    pub recording: Recording,
    /// The role of each slot of the recording.
    pub slots: Vec<SlotRole>,
    /// Uploaded inputs of each run, in the order of the recording's uploads.
    pub inputs: Vec<PlanInput>,
    /// Downloaded outputs of each run, in the order of the recording's downloads.
    pub outputs: Vec<PlanOutput>,
}

/// Role of a slot of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotRole {
    /// An arena buffer of intermediates, by index.
    Arena(u32),
    /// Uploaded inputs, written at each run.
    Inputs,
    /// Constants of the graph, written once with these bytes.
    Constants(Vec<u8>),
    /// Counter words, zero before and after a run.
    Counters,
    /// A weight, by name.
    Weight(String),
    /// Several weights by name, concatenated in this order.
    Merged(Vec<String>),
    /// A state, by name.
    State(String),
    /// An input that each run binds to a buffer, by name.
    Input(String),
    /// An output that each run binds to a buffer, by name.
    Output(String),
}

/// An input tensor that is uploaded at each run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanInput {
    /// Name in the graph.
    pub name: String,
    /// Size of each dimension.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

/// An output tensor that is downloaded after each run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanOutput {
    /// Name in the graph.
    pub name: String,
    /// Size of each dimension.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

impl Plan {
    /// Plans a graph for a shape class and a device.
    ///
    /// # Errors
    /// Invalid for a graph that does not verify, a symbol that the class does not bound, or an
    /// invalid option. Unsupported, naming the node, if no engine executes it on such a device.
    pub fn new(
        graph: &Graph,
        class: &ShapeClass,
        profile: &DeviceProfile,
        options: &Options,
    ) -> Result<Plan> {
        let mut builder = PlanBuilder::new(graph, class, profile, options);
        for pass in PASSES {
            builder.pass(pass)?;
        }
        Ok(builder.finish())
    }

    /// Returns the graph after a pass and every pass before it, for inspection.
    ///
    /// # Errors
    /// Same as [`Plan::new`], and invalid for a pass that does not exist.
    pub fn graph_after(
        graph: &Graph,
        class: &ShapeClass,
        profile: &DeviceProfile,
        options: &Options,
        pass: &str,
    ) -> Result<Graph> {
        let builder = PlanBuilder::new(graph, class, profile, options);
        builder.after(pass).map(|builder| builder.graph)
    }

    /// Trims the downloads of a run with these symbols to the bytes of its outputs, since a
    /// download consists of whole words.
    ///
    /// # Errors
    /// Invalid for a symbol without a value.
    pub(crate) fn cut_downloads(
        &self,
        symbols: &SymbolValues,
        downloads: &mut [Vec<u8>],
    ) -> Result<()> {
        for (output, bytes) in self.outputs.iter().zip(downloads) {
            if output.dtype.is_half() {
                let size = output.shape.elements().eval_size(symbols)? * output.dtype.bytes();
                bytes.truncate(size as usize);
            }
        }
        Ok(())
    }

    /// Returns the total bytes of the arena buffers.
    pub fn arena_bytes(&self) -> u64 {
        let slots = self.slots.iter().zip(&self.recording.slots);
        slots.filter(|(role, _)| matches!(role, SlotRole::Arena(_))).map(|(_, s)| s.bytes).sum()
    }
}
