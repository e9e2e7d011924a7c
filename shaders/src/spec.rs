//! What to compile, as data.
//!
//! A spec names a kernel completely: two equal specs are the same code on one device, so a
//! device keys its cache by the spec. Numbers that shape the code are constants here; numbers
//! that change from run to run are parameters of a dispatch.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::attach::{Attachment, HandForm, Neighbours};
use super::fused::FusedExpr;
use super::routine::Routine;
use warploom_core::ir::Twin;

/// What to compile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KernelSpec {
    /// A kernel of the catalogue.
    Asset(AssetSpec),
    /// A generated elementwise kernel.
    Fused(FusedExpr),
    /// WGSL from outside the catalogue.
    Source(SourceSpec),
    /// A call of a vendor's library.
    Routine(Routine),
}

/// A catalogue kernel with its variant and constants.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AssetSpec {
    /// Name in the catalogue, which is also the name of the CPU function and of the cases.
    pub name: String,
    /// Names defined for the preprocessor, sorted: `subgroup`, `f16`.
    pub defines: Vec<String>,
    /// Values in the place of the asset's `override` constants.
    pub constants: BTreeMap<String, Constant>,
    /// What is fused into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<Box<Attachment>>,
    /// What all its launches have in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<Box<Known>>,
}

/// What is known of every launch of a kernel when it is compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Known {
    /// Words of the parameter block, by their place: constants in the text. The block holds them as well.
    pub words: BTreeMap<u32, u32>,
    /// Places of the buffers that may be read before what was launched earlier is done: weights, which no kernel writes to
    /// as long as work that reads them is in flight, and caches of which the kernel itself reads only rows of earlier runs
    /// so early (`attn_spread` with `settled`).
    pub steady: Vec<u32>,
    /// Whether what is launched next is `beside`, and this lets it begin only when all that was launched before this is done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub followed: bool,
    /// Whether it neither reads what the launch before it writes nor writes what that one reads or writes, and that one is
    /// `followed`: they may run at once, and it is done when both are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beside: bool,
}

/// The value of an `override` constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Constant {
    /// An unsigned integer.
    U32(u32),
    /// A 32-bit float, by its bits so that specs can be compared.
    F32(u32),
    /// A 64-bit float by its bits, which holds every number that a constant of a user's may be.
    F64(u64),
}

impl Constant {
    /// The number.
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
    /// The whole WGSL text.
    pub wgsl: String,
    /// Name of the compute entry point.
    pub entry: String,
    /// What each storage binding is for; binding numbers start at 1.
    pub bindings: Vec<Access>,
    /// Words of the parameter block at binding 0; none means that binding 0 is absent.
    pub param_words: u32,
    /// Values in the place of `override` constants, by name or number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub constants: BTreeMap<String, Constant>,
    /// The same kernel in languages of providers: the text that those compile in the place of the translation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub twins: Vec<Twin>,
}

/// Whether a kernel writes to a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Access {
    /// `var<storage, read>`.
    Read,
    /// `var<storage, read_write>`.
    ReadWrite,
}

/// How a kernel meets its bindings, the same for every kind of spec.
///
/// Group 0. Binding 0 is a uniform block of 32-bit words (absent where there are none), bindings
/// 1 and up are storage buffers in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Words in the uniform block.
    pub param_words: u32,
    /// Storage buffers.
    pub bindings: Vec<Access>,
}

impl AssetSpec {
    /// A catalogue kernel with no defines and the constants as written in the asset.
    pub fn new(name: impl Into<String>) -> AssetSpec {
        AssetSpec {
            name: name.into(),
            defines: Vec::new(),
            constants: BTreeMap::new(),
            attached: None,
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

    /// How neighbours round what it hands on.
    pub fn hands_on_by(&self) -> Option<Neighbours> {
        let hand = self.attached.as_ref()?.hand_on.as_ref()?;
        Some(match hand.form {
            HandForm::Codes { neighbours, .. } => neighbours,
            HandForm::Halves(_) => Neighbours::Lanes,
        })
    }

    /// Whether whole subgroups round what it hands on.
    pub fn hands_on_wide(&self) -> bool {
        self.hands_on_by().is_some_and(|by| by != Neighbours::Apart)
    }

    /// Fuses work into it; an attachment without any is none.
    pub fn attach(mut self, attachment: Attachment) -> AssetSpec {
        self.attached = (attachment != Attachment::default()).then(|| Box::new(attachment));
        self
    }

    /// Says what all its launches have in common; nothing is nothing.
    pub fn known(mut self, known: Known) -> AssetSpec {
        self.known = (known != Known::default()).then(|| Box::new(known));
        self
    }

    /// The value of an unsigned constant, if set.
    pub fn get_u32(&self, name: &str) -> Option<u32> {
        match self.constants.get(name) {
            Some(Constant::U32(value)) => Some(*value),
            _ => None,
        }
    }
}

impl KernelSpec {
    /// A short name for messages and traces.
    pub fn name(&self) -> &str {
        match self {
            KernelSpec::Asset(asset) => &asset.name,
            KernelSpec::Fused(_) => "fused",
            KernelSpec::Source(source) => &source.name,
            KernelSpec::Routine(routine) => routine.name(),
        }
    }

    /// What is known of all its launches, where something is.
    pub fn known(&self) -> Option<&Known> {
        match self {
            KernelSpec::Asset(asset) => asset.known.as_deref(),
            KernelSpec::Fused(_) | KernelSpec::Source(_) | KernelSpec::Routine(_) => None,
        }
    }

    /// Name of the compute entry point in its WGSL, where it has any.
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
    /// The name with defines and constants: `matvec_q4_k+subgroup(ROWS=4)`.
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
                let Some(attached) = &asset.attached else { return Ok(()) };
                if attached.norm.is_some() {
                    f.write_str(" norm")?;
                }
                if let Some(prologue) = &attached.prologue {
                    write!(f, " x: {prologue}")?;
                }
                for (i, segment) in attached.segments.iter().enumerate() {
                    write!(f, "{} {}", if i == 0 { " ->" } else { " |" }, segment.body)?;
                }
                let Some(hand) = &attached.hand_on else { return Ok(()) };
                f.write_str(if hand.norm.is_some() { " norm, " } else { " " })?;
                match &hand.form {
                    HandForm::Codes { orders, .. } if orders.len() == 1 => f.write_str("rounded"),
                    HandForm::Codes { orders, .. } => {
                        write!(f, "rounded in {} orders", orders.len())
                    }
                    HandForm::Halves(_) => f.write_str("halves"),
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
