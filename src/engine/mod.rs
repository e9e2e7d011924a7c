//! Engines: the ways to execute one piece of a graph.
//!
//! An [`Engine`] has a stable, globally unique [`EngineId`], says whether it applies to a
//! [`Query`] and at what cost, and lowers the piece to [`Step`]s: kernels with parameters and
//! tensors, still without memory. The [`Registry`] holds every engine; the [`Heuristic`] ranks
//! those that apply, from the profile alone.
//!
//! Absent on purpose: devices. An engine sees a [`DeviceProfile`], so a plan can be made for a
//! machine that is not here. Adding an engine touches one file of this folder and the registry.

mod argmax;
mod around;
mod attention;
mod attention_coop;
mod attention_lanes;
mod attention_split;
mod attention_spread;
mod block;
mod body;
mod choose;
mod codes_product;
mod conv;
mod custom;
mod elementwise;
mod heuristic;
mod int8_cost;
mod knobs;
mod library;
mod linear;
mod linear_codes;
mod linear_coop;
mod linear_halves;
mod linear_tiles;
mod lowering;
mod matmul;
mod movement;
mod order;
#[cfg(feature = "packs")]
mod pack;
mod product;
mod product_coop;
mod reduce;
mod registry;
mod rounded;
mod rows;
mod sample;
mod tuned;
mod waves;

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use around::{Around, Attached, Given, GivenCodes, Handing, SegmentBody, Taken};
pub use block::{Block, DriverKey, ERRATA, Erratum, errata};
pub use body::{Body, Merged};
pub use choose::{Candidate, Choice, Verdict, Wishes, choose};
pub use elementwise::copy;
pub use heuristic::{Heuristic, Peaks, Roofline};
pub use knobs::{Knob, KnobValues, Knobs};
pub use lowering::{
    Call, Estimate, Lowering, Step, StepBinding, Tensor, TensorId, TensorRole, View, tensor_bytes,
};
pub use order::Order;
#[cfg(feature = "packs")]
pub use pack::PackEngine;
pub use registry::Registry;
pub use tuned::{TaskKey, Tuned, TunedChoices};

use crate::base::ShapeClass;
use crate::error::Result;
use crate::ir::Op;
use crate::provider::{DeviceKind, DeviceProfile};

/// The name of an engine, unique for ever: `wgsl.matvec.q4_k.subgroup`, `cpu.fused`. A name
/// never changes its meaning, so saved choices stay valid.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EngineId(Cow<'static, str>);

impl EngineId {
    /// An id from a literal or a generated name.
    pub fn new(name: impl Into<Cow<'static, str>>) -> EngineId {
        EngineId(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// In what a product adds up. Operands are exact, or what the graph's [`ComputeMode`](crate::base::ComputeMode) makes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Sums {
    /// 32 bits: `|err| <= k * 2^-24 * sum |a| * |b|`, k the length of the sum.
    #[default]
    F32,
    /// Products of 16 columns at a time added to 16 bits: `|err| <= k / 16 * 2^-11 * sum |a| * |b|`.
    F16,
}

/// What one should know of an engine before choosing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// Same device, same operands, same bits.
    pub deterministic: bool,
    /// In what its products add up.
    pub sums: Sums,
    /// The device's driver compiles its kernels when an instance is made.
    pub needs_compiling: bool,
    /// All it does are launches of kernels, which a device may capture once and replay.
    pub capturable: bool,
}

/// In which layout an engine reads a weight. Every engine of this crate reads the blocks of the
/// weight's format in order, so that one upload serves every plan. Weights that a GPU should read
/// in another order are repacked before that, into a format of their own
/// ([`Format::kept`](crate::base::Format::kept)), which the graph names; all others are uploaded
/// as they lie in the file.
///
/// Another layout would be a variant that names one documented order of bytes, never an engine,
/// so that prefill and decode could share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum WeightLayout {
    /// Blocks one after another by rows, byte for byte as the weight's format says.
    #[default]
    AsStored,
}

/// An estimate of what a piece takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Bytes read and written in device memory.
    pub bytes: f64,
    /// Floating-point operations; a multiply and add are two.
    pub flops: f64,
    /// Kernel launches.
    pub dispatches: f64,
    /// Share of the device's speed that the engine reaches, 0 to 1.
    pub efficiency: f64,
}

/// One piece of a graph, as engines see it.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    /// The operation.
    pub op: &'a Op,
    /// What a person calls it.
    pub label: &'a str,
    /// Its operands. Those of a product have two bytes where a conversion to `f32` before it is fused.
    pub operands: &'a [View],
    /// Where its result goes: without gaps, except for an update, where it is the state.
    pub output: &'a View,
    /// The same as work on elements and rows, where it is that: the operation with all that is
    /// fused with it.
    pub body: Option<&'a Body>,
    /// Operations that the body stands for.
    pub fused: usize,
    /// What is fused around an anchor.
    pub around: Option<&'a Around>,
    /// The device.
    pub profile: &'a DeviceProfile,
    /// The ranges of symbols.
    pub class: &'a ShapeClass,
    /// What the caller set of the knobs of the engine that is asked.
    pub knobs: &'a KnobValues,
    /// Whether bits may depend on nothing but what an element is made of: [`Engine::order`].
    pub deterministic: bool,
    /// Whether a product of halves that is stored as halves may be summed in halves: [`crate::plan::Options::half_sums`].
    pub half_sums: bool,
    /// Where other results of the same kernel of a user go, by their numbers.
    pub siblings: &'a [(u32, View)],
    /// Whether K and V of an attention are states that this run only appends to from `past`, so earlier rows are
    /// already final.
    pub settled: bool,
    /// The first operand as what comes before has rounded it: [`Engine::takes`].
    pub given: Option<Given>,
}

impl Query<'_> {
    /// Greatest size of a dimension in this class.
    ///
    /// # Errors
    /// Invalid, for a symbol without a range.
    pub fn upper(&self, dim: &crate::base::Dim) -> Result<u64> {
        self.class.upper(dim)
    }

    /// Whether there is more to do than the operation itself.
    pub fn is_fused(&self) -> bool {
        self.fused > 1 || self.around.is_some_and(|around| !around.is_empty())
    }

    /// For anchors whose results alone may be worked on: one segment, and buffers for it beside operands and `scratch`
    /// of the kernel's own.
    ///
    /// # Errors
    /// The reason where it is not so.
    pub fn only_a_segment(&self, scratch: usize) -> Result<(), String> {
        let Some(around) = self.around else { return Err(OTHER_OPERATION.into()) };
        if around.norm.is_some() || around.prologue.is_some() || around.segments.len() != 1 {
            return Err("takes work on its result, in one piece".into());
        }
        let own = self.operands.len() + scratch;
        let bindings = own + around.reads().len() + around.writes().len();
        match bindings as u32 > self.profile.max_storage_buffers {
            true => Err(format!(
                "{bindings} storage buffers, the device has {}",
                self.profile.max_storage_buffers
            )),
            false => Ok(()),
        }
    }

    /// Checks the values that are set against the knobs of an engine.
    ///
    /// # Errors
    /// Invalid, naming engine, knob, value and what it may be.
    pub fn check_knobs(&self, engine: &dyn Engine) -> Result<()> {
        match self.knobs == KnobValues::NONE {
            true => Ok(()),
            false => self.knobs.check(engine.id(), &engine.knobs(self)),
        }
    }

    /// Whether the device runs WGSL kernels (or counts them, as the null device does).
    pub fn is_wgsl(&self) -> bool {
        self.profile.kind != DeviceKind::Cpu
    }
}

/// The reason of an engine that is not meant for the operation at all; reports leave it out.
pub const OTHER_OPERATION: &str = "meant for other operations";

/// One way to execute a piece of a graph.
pub trait Engine: Send + Sync {
    /// Its name.
    fn id(&self) -> &EngineId;

    /// Raised when the same query makes it launch something else: what was measured of an older
    /// version no longer counts. What another version of this crate measured never does, so an engine of
    /// the crate is raised between releases alone; one around another has the other's.
    fn version(&self) -> u32 {
        1
    }

    /// What one should know of it before choosing it for this.
    fn notes(&self, query: &Query) -> Notes {
        Notes {
            deterministic: true,
            sums: Sums::F32,
            needs_compiling: query.is_wgsl(),
            capturable: true,
        }
    }

    /// In which order it does the operations of an element, whatever number of them there is: what
    /// deterministic mode asks for. Knobs that are set count.
    ///
    /// # Errors
    /// The reason, where the order may depend on how much there is to do, or is not known.
    fn order(&self, _query: &Query) -> Result<Order, String> {
        Err("the order of its sums is not known".into())
    }

    /// What of it can be set for this, in the order in which one is bounded by those before it.
    /// Values that are set reach it in [`Query::knobs`], checked against these.
    fn knobs(&self, _query: &Query) -> Vec<Knob> {
        Vec::new()
    }

    /// Bytes of memory that it needs for itself while it executes this, at the upper ends of the
    /// class; they are part of the plan's. What [`Engine::lower`] asks for, unless it says better.
    ///
    /// # Errors
    /// As [`Engine::lower`].
    fn workspace(&self, query: &Query) -> Result<u64> {
        Lowering::on_paper(query, self.id(), |out| self.lower(query, out))
    }

    /// In which layout it reads a weight.
    fn weight_layout(&self, _query: &Query) -> WeightLayout {
        WeightLayout::AsStored
    }

    /// Whether it can execute this; the reason where it cannot ([`OTHER_OPERATION`] where it never
    /// could). Asked before everything else.
    fn applies(&self, query: &Query) -> Result<(), String>;

    /// Whether it also does what is fused with the operation: the rest of a loop ([`Query::body`])
    /// or the work around an anchor ([`Query::around`]). Asked only where there is any.
    fn fuses(&self, _query: &Query) -> Result<(), String> {
        Err("executes single operations".into())
    }

    /// Whether it rounds what it stores to codes for the products that follow ([`Around::hand_on`], which the query has).
    /// Asked only where it does all the rest.
    ///
    /// # Errors
    /// The reason where it does not.
    fn hands_on(&self, _query: &Query) -> Result<(), String> {
        Err("hands nothing on".into())
    }

    /// As [`Engine::hands_on`], of halves.
    ///
    /// # Errors
    /// The reason where it does not.
    fn hands_halves_on(&self, _query: &Query) -> Result<(), String> {
        Err("hands no halves on".into())
    }

    /// As what it takes its first operand, where what comes before may hand that on; `None` where it takes it as it is.
    fn takes(&self, _query: &Query) -> Option<Taken> {
        None
    }

    /// What it would take.
    fn cost(&self, query: &Query) -> Cost;

    /// Adds its steps.
    ///
    /// # Errors
    /// Unsupported or invalid, naming the piece, when sizes do not fit the device.
    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()>;
}
