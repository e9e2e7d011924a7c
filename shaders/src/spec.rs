//! Kernel specs: what to compile, as data.
//!
//! A spec identifies a kernel completely: two equal specs are the same code on one device, so a
//! device keys its cache by the spec. Values that shape the code are constants here; values that
//! change from run to run are parameters of a dispatch.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::fused::FusedExpr;
use super::fusion::{KernelFusion, Neighbours, OperandLayout};
use super::routine::Routine;
use warploom_core::ir::Twin;

/// A kernel to compile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KernelSpec {
    /// A catalogue kernel.
    Asset(AssetSpec),
    /// A generated kernel: elementwise work and reductions along rows.
    Fused(FusedExpr),
    /// WGSL from outside the catalogue.
    Source(SourceSpec),
    /// A vendor library call.
    Routine(Routine),
}

/// A catalogue kernel with its variant and constants.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AssetSpec {
    /// Name in the catalogue, which is also the name of the CPU function and of the conformance
    /// cases.
    pub name: String,
    /// Preprocessor defines, sorted, such as `subgroup`.
    pub defines: Vec<String>,
    /// Values of the asset's `override` constants.
    pub constants: BTreeMap<String, Constant>,
    /// The prologue and epilogue fused into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fusion: Option<Box<KernelFusion>>,
    /// Specialisation shared by all its launches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<Box<Specialization>>,
}

/// Specialisation constants and launch properties that hold for every launch of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Specialization {
    /// Parameter words by index, compiled in as constants. The parameter block contains them too.
    pub words: BTreeMap<u32, u32>,
    /// Indices in [`Interface::bindings`] of buffers that may be read before earlier launches
    /// complete: weights, which no kernel writes while work that reads them is in flight, and
    /// caches, if early reads touch only rows of earlier runs (`attn_split_kv_fused` with
    /// `settled`).
    pub steady: Vec<u32>,
    /// Whether the next launch has `overlaps_previous`; that launch may start only when every
    /// launch before this one is complete (programmatic dependent launch).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allows_overlap: bool,
    /// Whether the launch may overlap with the previous one, which must have `allows_overlap`:
    /// neither accesses what the other writes. This launch completes after the previous one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overlaps_previous: bool,
}

/// The value of an `override` constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Constant {
    /// An unsigned integer.
    U32(u32),
    /// A 32-bit float, stored as its bits so that specs can be compared.
    F32(u32),
    /// A 64-bit float, stored as its bits. Can hold any value that a user may set.
    F64(u64),
}

impl Constant {
    /// Returns the value as `f64`.
    pub fn value(self) -> f64 {
        match self {
            Constant::U32(value) => value.into(),
            Constant::F32(bits) => f32::from_bits(bits).into(),
            Constant::F64(bits) => f64::from_bits(bits),
        }
    }
}

/// A user's WGSL: text, entry point and interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourceSpec {
    /// Name for messages and traces.
    pub name: String,
    /// The complete WGSL text.
    pub wgsl: String,
    /// Name of the compute entry point.
    pub entry: String,
    /// Access of each storage binding; binding numbers start at 1.
    pub bindings: Vec<Access>,
    /// Number of words in the parameter block at binding 0; if 0, there is no such binding.
    pub param_words: u32,
    /// Values of `override` constants, by name or number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub constants: BTreeMap<String, Constant>,
    /// Native kernels: hand-written versions in the providers' languages, compiled instead of the
    /// translation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub twins: Vec<Twin>,
}

/// How a kernel accesses a storage buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Access {
    /// `var<storage, read>`.
    Read,
    /// `var<storage, read_write>`.
    ReadWrite,
}

/// The binding interface of a kernel, the same for every kind of spec.
///
/// All bindings are in group 0. Binding 0 is a uniform block of 32-bit words, absent if there are
/// none; the bindings from 1 are the storage buffers, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Number of words in the uniform block.
    pub param_words: u32,
    /// Access of each storage buffer, in binding order.
    pub bindings: Vec<Access>,
}

impl AssetSpec {
    /// Creates the spec of a catalogue kernel with no defines and the asset's default constants.
    pub fn new(name: impl Into<String>) -> AssetSpec {
        AssetSpec {
            name: name.into(),
            defines: Vec::new(),
            constants: BTreeMap::new(),
            fusion: None,
            known: None,
        }
    }

    /// Adds a define.
    pub fn define(mut self, name: impl Into<String>) -> AssetSpec {
        self.defines.push(name.into());
        self.defines.sort();
        self.defines.dedup();
        self
    }

    /// Sets an unsigned constant.
    pub fn constant(mut self, name: impl Into<String>, value: u32) -> AssetSpec {
        self.constants.insert(name.into(), Constant::U32(value));
        self
    }

    /// Returns how neighbours find their maximum in the kernel's quant epilogue, if it has one.
    pub fn quant_epilogue_neighbours(&self) -> Option<Neighbours> {
        let epilogue = self.fusion.as_ref()?.quant_epilogue.as_ref()?;
        Some(match epilogue.form {
            OperandLayout::Codes { neighbours, .. } => neighbours,
            OperandLayout::Halves(_) => Neighbours::Lanes,
        })
    }

    /// Returns whether the kernel's quant epilogue works in subgroups of at least 32 threads.
    pub fn has_wide_quant_epilogue(&self) -> bool {
        self.quant_epilogue_neighbours().is_some_and(|by| by != Neighbours::Apart)
    }

    /// Sets the fusion; an empty one is removed.
    pub fn attach(mut self, attachment: KernelFusion) -> AssetSpec {
        self.fusion = (attachment != KernelFusion::default()).then(|| Box::new(attachment));
        self
    }

    /// Sets the specialisation; an empty one is removed.
    pub fn known(mut self, known: Specialization) -> AssetSpec {
        self.known = (known != Specialization::default()).then(|| Box::new(known));
        self
    }

    /// Returns the value of an unsigned constant, if it is set.
    pub fn get_u32(&self, name: &str) -> Option<u32> {
        match self.constants.get(name) {
            Some(Constant::U32(value)) => Some(*value),
            _ => None,
        }
    }
}

impl KernelSpec {
    /// Returns a short name for messages and traces.
    pub fn name(&self) -> &str {
        match self {
            KernelSpec::Asset(asset) => &asset.name,
            KernelSpec::Fused(_) => "fused",
            KernelSpec::Source(source) => &source.name,
            KernelSpec::Routine(routine) => routine.name(),
        }
    }

    /// Returns the specialisation, if there is one.
    pub fn known(&self) -> Option<&Specialization> {
        match self {
            KernelSpec::Asset(asset) => asset.known.as_deref(),
            KernelSpec::Fused(_) | KernelSpec::Source(_) | KernelSpec::Routine(_) => None,
        }
    }

    /// Returns the name of the compute entry point in the kernel's WGSL; `main` for a routine,
    /// which has none.
    pub fn entry(&self) -> &str {
        match self {
            KernelSpec::Source(source) => &source.entry,
            KernelSpec::Asset(_) | KernelSpec::Fused(_) | KernelSpec::Routine(_) => "main",
        }
    }
}

impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Constant::U32(value) => write!(f, "{value}"),
            Constant::F32(bits) => write!(f, "{}", f32::from_bits(*bits)),
            Constant::F64(bits) => write!(f, "{}", f64::from_bits(*bits)),
        }
    }
}

impl fmt::Display for KernelSpec {
    /// Writes the name with defines, constants and fusion: `matvec_q4_k+subgroup(ROWS=4)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelSpec::Asset(asset) => {
                f.write_str(&asset.name)?;
                for define in &asset.defines {
                    write!(f, "+{define}")?;
                }
                for (i, (name, value)) in asset.constants.iter().enumerate() {
                    f.write_str(if i == 0 { "(" } else { "," })?;
                    write!(f, "{name}={value}")?;
                }
                f.write_str(if asset.constants.is_empty() { "" } else { ")" })?;
                let Some(fusion) = &asset.fusion else { return Ok(()) };
                if fusion.norm.is_some() {
                    f.write_str(" norm")?;
                }
                if let Some(prologue) = &fusion.prologue {
                    write!(f, " x: {prologue}")?;
                }
                for (i, segment) in fusion.segments.iter().enumerate() {
                    write!(f, "{} {}", if i == 0 { " ->" } else { " |" }, segment.body)?;
                }
                let Some(epilogue) = &fusion.quant_epilogue else { return Ok(()) };
                f.write_str(if epilogue.norm.is_some() { " norm, " } else { " " })?;
                match &epilogue.form {
                    OperandLayout::Codes { orders, .. } if orders.len() == 1 => {
                        f.write_str("rounded")
                    }
                    OperandLayout::Codes { orders, .. } => {
                        write!(f, "rounded in {} orders", orders.len())
                    }
                    OperandLayout::Halves(_) => f.write_str("halves"),
                }
            }
            KernelSpec::Fused(expr) => write!(f, "fused({expr})"),
            KernelSpec::Routine(routine) => write!(f, "{routine}"),
            KernelSpec::Source(source) => {
                f.write_str(&source.name)?;
                for (i, (name, value)) in source.constants.iter().enumerate() {
                    write!(f, "{}{name}={value}", if i == 0 { "(" } else { "," })?;
                }
                f.write_str(if source.constants.is_empty() { "" } else { ")" })
            }
        }
    }
}
