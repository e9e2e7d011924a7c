//! Engines: implementations of operations, chosen by estimate or measurement.
//!
//! An [`Engine`] has a stable, globally unique [`EngineId`], says whether it applies to a [`Query`]
//! and at what cost, and lowers it to [`Step`]s: kernels with parameters and tensors that have no
//! memory yet. The [`Registry`] holds every engine; the [`Heuristic`] ranks those that apply, from
//! the profile alone.
//!
//! Absent on purpose: devices. An engine sees a [`DeviceProfile`], so a plan can be made for a
//! machine that is not present. Adding an engine touches one file of this folder and the registry.

mod argmax;
mod attention;
mod body;
mod choose;
mod conv;
mod custom;
mod elementwise;
mod errata;
mod fusion;
mod gemm;
mod heuristic;
mod knobs;
mod lowering;
mod movement;
#[cfg(feature = "packs")]
mod pack;
mod reduce;
mod reduction_order;
mod registry;
mod rows;
mod sample;
mod tuned;

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use body::{Body, Merged};
pub use choose::{Candidate, Choice, Verdict, Wishes, choose};
pub use elementwise::copy;
pub use errata::{Block, DriverKey, ERRATA, Erratum, errata};
pub use fusion::{
    FusedQuant, Fusion, LoweredFusion, PreparedCodes, PreparedLayout, PreparedOperand, SegmentBody,
};
pub use heuristic::{Heuristic, Peaks, Roofline};
pub use knobs::{Knob, KnobValues, Knobs};
pub use lowering::{
    Call, Estimate, Lowering, Step, StepBinding, Tensor, TensorId, TensorRole, View, tensor_bytes,
};
#[cfg(feature = "packs")]
pub use pack::PackEngine;
pub use reduction_order::ReductionOrder;
pub use registry::Registry;
pub use tuned::{TaskKey, Tuned, TunedChoices};

use crate::base::ShapeClass;
use crate::error::Result;
use crate::ir::Op;
use crate::provider::{DeviceKind, DeviceProfile};

/// A globally unique engine name: `wgsl.matvec.q4_k.subgroup`, `cpu.fused`. A name never changes
/// its meaning, so saved choices stay valid.
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

/// Accumulator precision of a matrix product. Operands are exact, or rounded as the graph's
/// [`ComputeMode`](crate::base::ComputeMode) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Sums {
    /// 32 bits: `|err| <= k * 2^-24 * sum |a| * |b|`, k the length of the sum.
    #[default]
    F32,
    /// Partial sums of 16 columns accumulated in 16 bits: `|err| <= k / 16 * 2^-11 * sum |a| *
    /// |b|`.
    F16,
}

/// Properties of an engine for a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// Same device and operands give the same bits.
    pub deterministic: bool,
    /// Accumulator precision of its products.
    pub sums: Sums,
    /// The device's driver compiles its kernels when an instance is created.
    pub needs_compiling: bool,
    /// It consists of kernel launches only, which a device may capture once and replay.
    pub capturable: bool,
}

/// Weight layout that an engine reads. Every engine of this crate reads the blocks of the weight's
/// format in order, so that one upload serves every plan. A weight that a GPU should read in
/// another order is repacked beforehand into a format of its own
/// ([`Format::kept`](crate::base::Format::kept)), which the graph names. All others are uploaded as
/// stored in the file.
///
/// A further layout would be a variant that names a documented byte order, never an engine, so that
/// prefill and decode can share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum WeightLayout {
    /// Blocks row by row, byte for byte as the weight's format specifies.
    #[default]
    AsStored,
}

/// Estimated cost of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Bytes read and written in device memory.
    pub bytes: f64,
    /// Floating-point operations; a multiply and add are two.
    pub flops: f64,
    /// Kernel launches.
    pub dispatches: f64,
    /// Share of the device's peak speed that the engine reaches, 0 to 1.
    pub efficiency: f64,
}

/// One group of nodes to execute, as engines see it.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    /// The operation.
    pub op: &'a Op,
    /// Label for display.
    pub label: &'a str,
    /// Its operands. Those of a product may be two-byte types if a fused conversion to `f32` was
    /// elided.
    pub operands: &'a [View],
    /// Destination of the result: contiguous, except for an update, where it is the state.
    pub output: &'a View,
    /// The operation with everything fused into it as pointwise and row work, if it is of that
    /// kind.
    pub body: Option<&'a Body>,
    /// Operations that the body replaces.
    pub fused: usize,
    /// Prologue and epilogue fused around an anchor.
    pub fusion: Option<&'a Fusion>,
    /// The device.
    pub profile: &'a DeviceProfile,
    /// The ranges of symbols.
    pub class: &'a ShapeClass,
    /// Knob values that the caller set for the engine that is asked.
    pub knobs: &'a KnobValues,
    /// Whether bits may depend only on an element's own inputs: [`Engine::order`].
    pub deterministic: bool,
    /// Whether an f16 product with an f16 result may be accumulated in f16:
    /// [`crate::plan::Options::f16_accumulate`].
    pub f16_accumulate: bool,
    /// Destinations of the other results of the same user kernel, by index.
    pub siblings: &'a [(u32, View)],
    /// Whether K and V of an attention are states to which this run only appends from `past`, so
    /// that earlier rows are already final.
    pub past_kv_is_final: bool,
    /// The first operand as quantised by an earlier kernel: [`Engine::takes`].
    pub given: Option<PreparedOperand>,
}

impl Query<'_> {
    /// Greatest size of a dimension in this class.
    ///
    /// # Errors
    /// Invalid, for a symbol without a range.
    pub fn upper(&self, dim: &crate::base::Dim) -> Result<u64> {
        self.class.upper(dim)
    }

    /// Whether anything is fused with the operation.
    pub fn is_fused(&self) -> bool {
        self.fused > 1 || self.fusion.is_some_and(|fusion| !fusion.is_empty())
    }

    /// Checks that a fusion has one epilogue segment only, and that its buffers fit besides the
    /// operands and `scratch` buffers of the kernel.
    ///
    /// # Errors
    /// The reason, if they do not.
    pub fn only_a_segment(&self, scratch: usize) -> Result<(), String> {
        let Some(fusion) = self.fusion else { return Err(OTHER_OPERATION.into()) };
        if fusion.norm.is_some() || fusion.prologue.is_some() || fusion.segments.len() != 1 {
            return Err("takes work on its result, in one piece".into());
        }
        let own = self.operands.len() + scratch;
        let bindings = own + fusion.reads().len() + fusion.writes().len();
        match bindings as u32 > self.profile.max_storage_buffers {
            true => Err(format!(
                "{bindings} storage buffers, the device has {}",
                self.profile.max_storage_buffers
            )),
            false => Ok(()),
        }
    }

    /// Checks the knob values against the knobs of an engine.
    ///
    /// # Errors
    /// Invalid, naming engine, knob, value and the allowed values.
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

/// The reason of an engine for other operations; reports omit it.
pub const OTHER_OPERATION: &str = "executes other operations";

/// One implementation of a group of nodes.
pub trait Engine: Send + Sync {
    /// Its name.
    fn id(&self) -> &EngineId;

    /// Incremented when the engine launches different work for the same query, which invalidates
    /// older measurements. Measurements of another crate version are always invalid, so built-in
    /// engines increment it only between releases. A wrapper returns the version of its engine.
    fn version(&self) -> u32 {
        1
    }

    /// Properties that a choice for this query depends on.
    fn notes(&self, query: &Query) -> Notes {
        Notes {
            deterministic: true,
            sums: Sums::F32,
            needs_compiling: query.is_wgsl(),
            capturable: true,
        }
    }

    /// Reduction order of each element, independent of the number of elements, as deterministic
    /// mode requires. Knobs that are set count.
    ///
    /// # Errors
    /// The reason, if the order depends on the amount of work or is unknown.
    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Err("its summation order is unknown".into())
    }

    /// Its knobs for this query; earlier knobs may bound later ones. Values set by the caller are
    /// checked against these and arrive in [`Query::knobs`].
    fn knobs(&self, _query: &Query) -> Vec<Knob> {
        Vec::new()
    }

    /// Bytes of temporaries for this query at the upper ends of the shape class, included in the
    /// plan's workspace. Defaults to what [`Engine::lower`] requests.
    ///
    /// # Errors
    /// As [`Engine::lower`].
    fn workspace(&self, query: &Query) -> Result<u64> {
        Lowering::on_paper(query, self.id(), |out| self.lower(query, out))
    }

    /// The weight layout it reads.
    fn weight_layout(&self, _query: &Query) -> WeightLayout {
        WeightLayout::AsStored
    }

    /// Whether it can execute this query, or the reason why not ([`OTHER_OPERATION`] if it never
    /// could). Asked before everything else.
    fn applies(&self, query: &Query) -> Result<(), String>;

    /// Whether it also executes what is fused with the operation: the rest of a loop
    /// ([`Query::body`]) or the fusion around an anchor ([`Query::fusion`]). Asked only if there is
    /// any.
    fn fuses(&self, _query: &Query) -> Result<(), String> {
        Err("executes single operations".into())
    }

    /// Whether it has a quant epilogue: it quantises what it stores for the products that follow
    /// ([`Fusion::quant_epilogue`], which the query has). Asked only if it executes all the rest.
    ///
    /// # Errors
    /// The reason, if it does not.
    fn supports_quant_epilogue(&self, _query: &Query) -> Result<(), String> {
        Err("has no quant epilogue".into())
    }

    /// As [`Engine::supports_quant_epilogue`], with f16 output.
    ///
    /// # Errors
    /// The reason, if it has no f16 output epilogue.
    fn f16_quant_epilogue(&self, _query: &Query) -> Result<(), String> {
        Err("has no f16 output epilogue".into())
    }

    /// The pre-quantised layout this engine accepts for its first operand, or `None` to take it
    /// unconverted.
    fn takes(&self, _query: &Query) -> Option<PreparedLayout> {
        None
    }

    /// Its estimated cost.
    fn cost(&self, query: &Query) -> Cost;

    /// Adds its steps.
    ///
    /// # Errors
    /// Unsupported or invalid, naming the query, if sizes do not fit the device.
    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()>;
}
