//! Engines: implementations of operations, chosen by estimate or measurement.
//!
//! An [`Engine`] has a stable, globally unique [`EngineId`], reports whether it applies to a
//! [`Query`] and at what cost, and lowers the query to [`Step`]s: kernel launches with parameters,
//! on tensors that have no memory yet. The [`Registry`] holds every engine; the [`Heuristic`] ranks
//! those that apply, from the profile alone.
//!
//! An engine never sees a device, only its [`DeviceProfile`], so a plan can be made for a machine
//! that is not present. Adding an engine touches one file of this folder and the registry.

mod argmax;
mod argsort;
mod attention;
mod body;
mod choose;
mod conv;
mod custom;
mod delta;
mod elementwise;
mod errata;
mod fusion;
mod gemm;
mod heuristic;
mod index_add;
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
mod top_k;
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

/// A globally unique engine name, such as `wgsl.matvec.q4_k.subgroup` or `fused.elementwise`. A
/// name never changes its meaning, so saved choices stay valid.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EngineId(Cow<'static, str>);

impl EngineId {
    /// Creates an id from a literal or a generated name.
    pub fn new(name: impl Into<Cow<'static, str>>) -> EngineId {
        EngineId(name.into())
    }

    /// Returns the name.
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
/// [`ComputeMode`](crate::base::ComputeMode) requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Sums {
    /// Accumulated in f32: `|err| <= k * 2^-24 * sum |a| * |b|`, where k is the length of the sum.
    #[default]
    F32,
    /// Accumulated in f16 over 16 columns at a time:
    /// `|err| <= k / 16 * 2^-11 * sum |a| * |b|`.
    F16,
}

/// Properties of an engine when it executes a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// Whether equal operands on the same device yield equal bits.
    pub deterministic: bool,
    /// Accumulator precision of the engine's matrix products.
    pub sums: Sums,
    /// Whether the driver compiles the engine's kernels when an instance is created.
    pub needs_compiling: bool,
    /// Whether its work is kernel launches only, which a device may capture once and replay.
    pub capturable: bool,
}

/// The weight layout that an engine reads. Every engine of this crate reads the blocks of the
/// weight's format in order, so that one upload serves every plan. A weight that a GPU should read
/// in a different order is repacked beforehand into a format of its own
/// ([`Format::kept`](crate::base::Format::kept)), which the graph names. All other weights are
/// uploaded as stored in the file.
///
/// A further layout would be a variant named after a documented byte order, not after an engine, so
/// that prefill and decode can share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum WeightLayout {
    /// Blocks row by row, byte for byte as the weight's format specifies.
    #[default]
    AsStored,
}

/// Estimated cost of executing a query with one engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Bytes read and written in device memory.
    pub bytes: f64,
    /// Floating-point operations; a multiply and add are two.
    pub flops: f64,
    /// Kernel launches.
    pub dispatches: f64,
    /// Fraction of the device's peak speed that the engine reaches, from 0 to 1.
    pub efficiency: f64,
}

/// One group of nodes to execute, as engines see it.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    /// The operation of the group's root: its anchor, or its last node.
    pub op: &'a Op,
    /// Label for display.
    pub label: &'a str,
    /// Operands of that operation. Those of a matrix product may be two-byte types if their
    /// conversion to `f32` was elided.
    pub operands: &'a [View],
    /// Destination of its result: contiguous, except for an update, where it is the state.
    pub output: &'a View,
    /// The whole group as a body, if it consists of elementwise work and row reductions.
    pub body: Option<&'a Body>,
    /// Number of nodes in the group.
    pub fused: usize,
    /// Prologue and epilogue fused around an anchor.
    pub fusion: Option<&'a Fusion>,
    /// Profile of the device that the plan is for.
    pub profile: &'a DeviceProfile,
    /// The shape class of the plan.
    pub class: &'a ShapeClass,
    /// Knob values set for the engine that receives the query.
    pub knobs: &'a KnobValues,
    /// Whether the bits of each result must depend on its own inputs alone; see [`Engine::order`].
    pub deterministic: bool,
    /// Whether an f16 product with an f16 result may be accumulated in f16; see
    /// [`crate::plan::Options::f16_accumulate`].
    pub f16_accumulate: bool,
    /// Destinations of the other results of the same user kernel, each with its output index.
    pub siblings: &'a [(u32, View)],
    /// Whether the keys and values of attention are states that this run only appends to, from
    /// position `past` on, so that earlier rows are already final.
    pub past_kv_is_final: bool,
    /// The first operand, if an earlier kernel has quantised it; see [`Engine::takes`].
    pub given: Option<PreparedOperand>,
}

impl Query<'_> {
    /// Returns the maximum of a dimension in the shape class.
    ///
    /// # Errors
    /// Invalid for a symbol without a range.
    pub fn upper(&self, dim: &crate::base::Dim) -> Result<u64> {
        self.class.upper(dim)
    }

    /// Returns whether anything is fused with the operation.
    pub fn is_fused(&self) -> bool {
        self.fused > 1 || self.fusion.is_some_and(|fusion| !fusion.is_empty())
    }

    /// Checks that the fusion is a single epilogue segment, and that the device can bind its
    /// buffers in addition to the operands and `scratch` buffers of the kernel.
    ///
    /// # Errors
    /// Returns the reason if either is not the case.
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

    /// Returns whether the device runs WGSL kernels (or counts them, as the null device does).
    pub fn is_wgsl(&self) -> bool {
        self.profile.kind != DeviceKind::Cpu
    }
}

/// The reason that an engine returns for operations that it never executes; reports omit it.
pub const OTHER_OPERATION: &str = "executes other operations";

/// One implementation of a group of nodes.
pub trait Engine: Send + Sync {
    /// Returns the engine's id.
    fn id(&self) -> &EngineId;

    /// Returns the engine's version, which is incremented when the engine launches different work
    /// for the same query; this invalidates older measurements. Measurements of another crate
    /// version are always invalid, so built-in engines increment it only between releases. A
    /// wrapper returns the version of the engine that it wraps.
    fn version(&self) -> u32 {
        1
    }

    /// Returns the engine's properties for this query.
    fn notes(&self, query: &Query) -> Notes {
        Notes {
            deterministic: true,
            sums: Sums::F32,
            needs_compiling: query.is_wgsl(),
            capturable: true,
        }
    }

    /// Returns the reduction order of each element, which does not depend on the number of
    /// elements, as deterministic mode requires. It may depend on knob values that are set.
    ///
    /// # Errors
    /// Returns the reason if the order depends on the amount of work or is unknown.
    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Err("its summation order is unknown".into())
    }

    /// Returns the engine's knobs for this query; earlier knobs may bound later ones. Values set by
    /// the caller are checked against these and arrive in [`Query::knobs`].
    fn knobs(&self, _query: &Query) -> Vec<Knob> {
        Vec::new()
    }

    /// Returns the size in bytes of the temporaries for this query at the upper ends of the shape
    /// class, which are included in the plan's workspace. The default implementation adds up what
    /// [`Engine::lower`] requests.
    ///
    /// # Errors
    /// Same as [`Engine::lower`].
    fn workspace(&self, query: &Query) -> Result<u64> {
        Lowering::on_paper(query, self.id(), |out| self.lower(query, out))
    }

    /// Returns the weight layout that the engine reads.
    fn weight_layout(&self, _query: &Query) -> WeightLayout {
        WeightLayout::AsStored
    }

    /// Checks that the engine can execute this query. Called before all other methods for the
    /// query.
    ///
    /// # Errors
    /// Returns the reason if it cannot; [`OTHER_OPERATION`] if it never executes the operation.
    fn applies(&self, query: &Query) -> Result<(), String>;

    /// Checks that the engine also executes what is fused with the operation: the rest of a
    /// pointwise fusion ([`Query::body`]) or the fusion around an anchor ([`Query::fusion`]).
    /// Called only if anything is fused.
    ///
    /// # Errors
    /// Returns the reason if it does not.
    fn fuses(&self, _query: &Query) -> Result<(), String> {
        Err("executes single operations".into())
    }

    /// Checks that the engine supports the quant epilogue of the query
    /// ([`Fusion::quant_epilogue`]): it quantises what it stores for the matrix products that
    /// follow. Called only if it executes everything else.
    ///
    /// # Errors
    /// Returns the reason if it does not.
    fn supports_quant_epilogue(&self, _query: &Query) -> Result<(), String> {
        Err("has no quant epilogue".into())
    }

    /// Same as [`Engine::supports_quant_epilogue`], for a quant epilogue that writes f16.
    ///
    /// # Errors
    /// Same as [`Engine::supports_quant_epilogue`].
    fn f16_quant_epilogue(&self, _query: &Query) -> Result<(), String> {
        Err("has no f16 output epilogue".into())
    }

    /// Returns the layout in which the engine reads the first operand if an earlier kernel
    /// quantises it, or `None` if it only reads that operand unquantised.
    fn takes(&self, _query: &Query) -> Option<PreparedLayout> {
        None
    }

    /// Estimates the engine's cost for this query.
    fn cost(&self, query: &Query) -> Cost;

    /// Adds the engine's steps for this query to `out`.
    ///
    /// # Errors
    /// Unsupported or invalid, naming the query, if sizes do not fit the device.
    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()>;
}
