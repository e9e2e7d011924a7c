//! What kernels there are and how they are called, as data.
//!
//! A kernel has one name everywhere: the WGSL asset, the CPU function, the row of the catalogue,
//! the cases of the testkit and the label in a trace. `catalogue` says what parameters and
//! bindings each has; `source` turns an asset with its variant into WGSL text; `fused` is the body
//! of generated kernels; `attach` is what is fused into a kernel of the catalogue; `codes` is how
//! rounded rows lie; `routine` are the calls of vendors' libraries.
//!
//! Absent on purpose: devices, and any choice between kernels (that is `engine`).

pub mod attach;
pub mod catalogue;
pub mod codegen;
pub mod codes;
mod entry;
mod find;
pub mod fused;
pub mod fused_reference;
mod interface;
#[cfg(feature = "packs")]
pub mod pack;
mod params;
mod routine;
pub mod source;
mod spec;

pub use attach::{
    Attachment, HalvesForm, HandForm, HandOn, MAX_ORDERS, MAX_SEGMENTS, Neighbours, SEGMENT_WORDS,
    Segment,
};
pub use codes::CodeOrder;
pub use entry::AHEAD_THREADS;
pub use fused::{Addressing, FusedExpr, Operand, Output, Schedule, Stage, Value};
pub use routine::{Epilogue, GEMM_PARAMS, Gemm, GemmCompute, Routine};
pub use spec::{Access, AssetSpec, Constant, Interface, KernelSpec, Known, SourceSpec};
