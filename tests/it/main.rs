//! The integration tests, in one binary and in tiers, which are folders. `cargo t-fast` runs the
//! first.

mod all_kernels;
mod on_device;
mod on_gpu;
mod pure;
mod with_models;

use on_device::{
    deterministic, devices, finite, fusion_job, opencl_host, packs, partitioned, semantics_devices,
    tensor, translate, tune, webgpu_host,
};
use on_gpu::opencl;
use pure::{
    fused_exprs, gguf_files, gguf_writer, interpret, interpret_device, kernel_fusions, model_bad,
    plans, semantics, semantics_kernels, semantics_numbers, serve, shaders, smollm, tune_cache,
    vendor_gemm, wgsl,
};
pub(crate) use warploom_ledger::{Need, ran, skip, tell};
use with_models::logits;
