//! WGSL compute shaders beyond WebGPU: translation to CUDA C and OpenCL C (`translate`), and
//! execution on the CPU with checks for races, out-of-bounds indices and uninitialised reads
//! (`interpret`).
//!
//! Both start from WGSL whose overrides `source` has replaced by constants. Neither knows any
//! device.

pub mod interpret;
pub mod source;
pub mod translate;
