//! From a graph to a plan: named passes in one list.
//!
//! A [`Plan`] is made for one graph, one [`ShapeClass`] and one [`DeviceProfile`], with no device
//! in sight, and ends in a [`Recording`]: kernels, parameters, buffers by slot. It is built once
//! for each class and replayed; from run to run only symbols, inputs and bound buffers change.
//!
//! Passes run in the order of [`PASSES`], each on the [`Draft`] that the one before left. Those
//! marked optional can be switched off by name, with the same numbers in the end.

mod alias;
mod analysis;
mod beside;
mod bindings;
mod candidates;
mod choose;
mod draft;
mod estimate;
mod explain;
mod file;
mod fold;
mod group;
mod handing;
mod lower;
mod memory;
mod partition;
mod pattern;
mod schedule;
mod settled;
mod simplify;
mod task;
mod trace;
mod trial;
mod verify;
mod widen;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use analysis::{Analysis, Spread, StepClock};
pub use bindings::Bindings;
pub use candidates::{Candidates, Offer, candidates};
pub use draft::{Draft, NodeChoice};
pub use explain::{
    ArenaBuffer, EngineReport, Memory, Placed, Report, StepMeasure, StepReport, Target,
    TextOptions, Totals,
};
pub use partition::{Action, PartitionedPlan, Passed, Placement, Segment};
pub use pattern::merged_weights;
pub use task::{Task, tasks};
pub use trial::{Content, Fill, Trial};

use crate::base::{DType, Shape, ShapeClass, SymbolValues};
use crate::engine::{
    Block, EngineId, Heuristic, Knobs, Registry, Roofline, Step, Tensor, TunedChoices,
};
use crate::error::Result;
use crate::ir::{Graph, NodeId, Op};
use crate::provider::{DeviceProfile, Recording};

/// One pass.
#[derive(Debug)]
pub struct Pass {
    /// Its name, by which it can be dumped and switched off.
    pub name: &'static str,
    /// What it does, in one line.
    pub doc: &'static str,
    /// Whether the plan is right without it.
    pub optional: bool,
    run: fn(&mut Draft) -> Result<()>,
}

/// Every pass, in order.
pub static PASSES: &[Pass] = &[
    Pass {
        name: "infer",
        doc: "puts in the symbols that are numbers in this class, infers shapes, verifies",
        optional: false,
        run: simplify::infer,
    },
    Pass {
        name: "widen",
        doc: "puts arithmetic on f16 and bf16 between conversions from and to f32",
        optional: false,
        run: widen::widen,
    },
    Pass {
        name: "simplify",
        doc: "merges equal nodes, folds identities, views and constants, drops what nothing needs",
        optional: true,
        run: simplify::simplify,
    },
    Pass {
        name: "pattern",
        doc: "finds composite operations in primitive ones and merges products of one operand",
        optional: true,
        run: pattern::pattern,
    },
    Pass {
        name: "alias",
        doc: "gives memory to results, and none to views that strides can say",
        optional: false,
        run: alias::alias,
    },
    Pass {
        name: "group",
        doc: "proposes which nodes become one kernel: loops, and what is fused around anchors",
        optional: true,
        run: group::group,
    },
    Pass {
        name: "choose",
        doc: "chooses an engine for each group, and what of it is cut off, by estimated cost",
        optional: false,
        run: choose::choose,
    },
    Pass {
        name: "lower",
        doc: "turns nodes into steps: kernels with parameters and tensors",
        optional: false,
        run: lower::lower,
    },
    Pass {
        name: "memory",
        doc: "lays intermediates out in a few buffers, so that no step reads and writes one",
        optional: false,
        run: memory::memory,
    },
    Pass {
        name: "beside",
        doc: "lets a step run beside the one before it, where they share nothing that either writes",
        optional: true,
        run: beside::beside,
    },
    Pass {
        name: "schedule",
        doc: "writes the recording: uploads, dispatches, downloads",
        optional: false,
        run: schedule::schedule,
    },
];

/// What a plan is made with, besides graph, class and profile.
#[derive(Clone)]
pub struct Options<'a> {
    /// The engines to choose from.
    pub registry: &'a Registry,
    /// The ranking.
    pub heuristic: &'a dyn Heuristic,
    /// Engines to take wherever they apply, whatever they cost.
    pub preferred: Vec<EngineId>,
    /// Engines that nodes must have. What is fused with such a node is cut off where its engine
    /// cannot do that too; an engine that cannot do the node alone is an error with its reason.
    pub force: Vec<(Selector, EngineId)>,
    /// Engines never to take.
    pub block: Vec<EngineId>,
    /// Engines that are known to be wrong on a device, and are never taken there.
    pub known_wrong: Vec<Block>,
    /// Values of engines' knobs.
    pub knobs: Knobs,
    /// What was measured, of each device that plans are made for: taken for a piece where nothing above
    /// says otherwise.
    pub tuned: Vec<Arc<TunedChoices>>,
    /// Names of optional passes to leave out.
    pub without: Vec<String>,
    /// Whether the bits of a result may depend on nothing but what it is made of, as
    /// [`crate::engine::Order`] says: an operation without an engine for that is an error.
    pub deterministic: bool,
    /// Whether products of two matrices of `f16` with a result in `f16` may be summed in `f16`, where a device is faster
    /// at that and `deterministic` is not set. A sum of `k` products is then off by up to `k / 16 * 2^-11` of the sum of
    /// their absolute values where a device rounds to the nearest, and overflows where a part of it is beyond 65,504.
    pub half_sums: bool,
    /// Which inputs and outputs are buffers on the device instead of bytes of the host.
    pub bound: Bound,
}

crate::base::debug_as!(Options<'a>, |this| preferred: this.preferred, force: this.force, block: this.block);

/// Inputs and outputs that each run binds to buffers on the device. All others are uploaded and
/// downloaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Names of inputs.
    pub inputs: BTreeSet<String>,
    /// Names of outputs.
    pub outputs: BTreeSet<String>,
    /// Whether weights are bound at each run too, each to a buffer of its own: then none are read
    /// as one.
    pub weights: bool,
}

impl Bound {
    /// Every input, output and weight of a graph.
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
    /// The usual ranking over these engines.
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
            half_sums: false,
            bound: Bound::default(),
        }
    }
}

/// Which nodes of a plan's graph are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// One node, by its place in the graph after the passes before `choose`, as [`candidates`] and
    /// reports name it.
    Node(NodeId),
    /// Every node with this label.
    Label(String),
    /// Every node of an operation, by its name: `linear`, `softmax`.
    Operation(String),
}

impl Selector {
    /// Whether a node of a graph is meant.
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

/// A graph made ready for one class of shapes on one kind of device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the graph.
    pub name: String,
    /// The ranges of symbols it is good for.
    pub class: ShapeClass,
    /// The device it was made for.
    pub profile: DeviceProfile,
    /// Names of the passes that ran.
    pub passes: Vec<String>,
    /// Whether bits depend on nothing but what they are made of: [`Options::deterministic`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deterministic: bool,
    /// Which engine each node got, and why.
    pub choices: Vec<NodeChoice>,
    /// Every piece of memory.
    pub tensors: Vec<Tensor>,
    /// Every kernel launch, in order.
    pub steps: Vec<Step>,
    /// What to tell a device.
    pub recording: Recording,
    /// What each slot of the recording is.
    pub slots: Vec<SlotRole>,
    /// What to give at each run, in the order of the recording's uploads.
    pub inputs: Vec<PlanInput>,
    /// What each run gives, in the order of the recording's downloads.
    pub outputs: Vec<PlanOutput>,
}

/// What a slot of the recording is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotRole {
    /// One of the buffers of intermediates.
    Arena(u32),
    /// Inputs, written at each run.
    Inputs,
    /// Numbers of the graph, written once with these bytes.
    Constants(Vec<u8>),
    /// Words that are zero before a run and after it.
    Counters,
    /// A weight, by name.
    Weight(String),
    /// Several weights one after another, by name.
    Merged(Vec<String>),
    /// A state, by name.
    State(String),
    /// An input that each run binds to a buffer, by name.
    Input(String),
    /// An output that each run binds to a buffer, by name.
    Output(String),
}

/// A tensor that each run is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanInput {
    /// Name in the graph.
    pub name: String,
    /// Sizes.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

/// A tensor that each run gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanOutput {
    /// Name in the graph.
    pub name: String,
    /// Sizes.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

impl Plan {
    /// Makes a plan.
    ///
    /// # Errors
    /// Invalid, for a graph that does not verify or a symbol that the class does not bound;
    /// unsupported, naming the node, where no engine executes it on such a device.
    pub fn new(
        graph: &Graph,
        class: &ShapeClass,
        profile: &DeviceProfile,
        options: &Options,
    ) -> Result<Plan> {
        let mut draft = Draft::new(graph, class, profile, options);
        for pass in PASSES {
            draft.pass(pass)?;
        }
        Ok(draft.finish())
    }

    /// The graph as a pass left it, with every pass before it run; to look at.
    ///
    /// # Errors
    /// As [`Plan::new`]; invalid, for a pass that does not exist.
    pub fn graph_after(
        graph: &Graph,
        class: &ShapeClass,
        profile: &DeviceProfile,
        options: &Options,
        pass: &str,
    ) -> Result<Graph> {
        let draft = Draft::new(graph, class, profile, options);
        draft.after(pass).map(|draft| draft.graph)
    }

    /// Cuts what a run with these symbols downloaded to the bytes of its outputs: a download is of
    /// whole words.
    ///
    /// # Errors
    /// Invalid, for a symbol without a value.
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

    /// Bytes of the buffers of intermediates.
    pub fn arena_bytes(&self) -> u64 {
        let slots = self.slots.iter().zip(&self.recording.slots);
        slots.filter(|(role, _)| matches!(role, SlotRole::Arena(_))).map(|(_, s)| s.bytes).sum()
    }
}
