//! WGSL compute shaders beyond WebGPU: translation to CUDA C and OpenCL C (`translate`), and
//! execution on the CPU with checks for races, out-of-bounds indices and uninitialised reads
//! (`interpret`).
//!
//! A user's WGSL passes through `source` first: it replaces `override`s with constants, and reports
//! errors in terms of the shader. Nothing in this crate depends on a device.

pub mod interpret;
pub mod source;
pub mod translate;
