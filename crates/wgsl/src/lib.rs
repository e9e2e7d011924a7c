//! WGSL compute shaders beyond WebGPU: as CUDA C and OpenCL C (`translate`), and run on the CPU
//! with checks for races, out-of-bounds indices and reads of undefined memory (`interpret`).
//!
//! Both start from a validated `naga::Module` and know no device.

pub mod interpret;
pub mod translate;
