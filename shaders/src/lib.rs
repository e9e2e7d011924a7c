//! The kernels of warploom as data: which exist, and how they are called.
//!
//! A kernel has one name everywhere: the WGSL asset, the CPU function, the catalogue row, the
//! testkit cases and the trace label. `catalogue` lists the parameters and bindings of each;
//! `source` turns an asset and its variant into WGSL text; `fused` describes the bodies of
//! generated kernels; `fusion` describes the prologue and epilogue of a catalogue kernel; `codegen`
//! prints both as WGSL; `prequant` describes the layouts of quantised rows; `routine` describes
//! vendor library calls; `pack` loads users' kernels.
//!
//! Not here: devices, and the choice between kernels (`engine`).

mod attention_variants;
pub mod catalogue;
pub mod codegen;
mod entry;
mod find;
pub mod fused;
pub mod fused_reference;
pub mod fusion;
mod interface;
mod mixtures;
#[cfg(feature = "packs")]
pub mod pack;
mod params;
pub mod prequant;
mod routine;
pub mod source;
mod spec;

pub use entry::AHEAD_THREADS;
pub use fused::{Addressing, FusedExpr, Operand, Output, Schedule, Stage, Value};
pub use fusion::{
    F16Layout, KernelFusion, MAX_ORDERS, MAX_SEGMENTS, Neighbours, OperandLayout, QuantEpilogue,
    SEGMENT_WORDS, Segment,
};
pub use prequant::CodeOrder;
pub use routine::{Epilogue, GEMM_PARAMS, Gemm, GemmCompute, Routine};
pub use spec::{Access, AssetSpec, Constant, Interface, KernelSpec, SourceSpec, Specialization};
