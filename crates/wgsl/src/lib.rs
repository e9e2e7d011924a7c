//! WGSL compute shaders beyond WebGPU: as CUDA C and OpenCL C (`translate`), and run on the CPU
//! with checks for races, out-of-bounds indices and reads of undefined memory (`interpret`).
//!
//! Both start from WGSL whose overrides `source` has put in as constants, and know no device.

pub mod interpret;
pub mod source;
pub mod translate;
