//! The integration tests, in one binary.

mod analyze;
mod architectures;
mod arena;
mod async_api;
mod batch;
mod cases;
mod chat;
mod conformance;
mod counters;
mod cuda;
mod cuda_products;
mod custom_providers;
mod deterministic;
mod deterministic_engines;
mod deterministic_model;
mod device_faults;
mod device_sampling;
mod device_tensors;
mod device_work;
mod devices;
mod doctor;
mod engines;
mod f16_accumulate;
mod finite;
mod finite_serve;
mod forward;
mod fused_exprs;
mod fused_kernels;
mod fused_quant;
mod fusion;
mod fusion_job;
mod futures;
mod generated;
mod gguf_bad;
mod gguf_exercise;
mod gguf_files;
mod gguf_fuzz;
mod gguf_mutate;
mod gguf_writer;
mod greedy;
mod interpret;
mod interpret_device;
mod interpret_faults;
mod interpret_fuzz;
mod interpret_kernels;
mod interpret_math;
mod keep_alive;
mod kernel_fusions;
mod layers;
mod lazy;
mod logits;
mod model_bad;
mod opencl;
mod opencl_host;
mod overlap;
mod pack_engines;
mod pack_twins;
mod packs;
mod packs_broken;
mod packs_wgsl;
mod partitioned;
mod peers;
mod perplexity;
mod plan_files;
mod plans;
mod planted_faults;
mod prewarm;
mod quant_formats;
mod quantize;
mod random;
mod ranking;
mod sample;
mod sanitize;
mod semantics;
mod semantics_devices;
mod semantics_kernels;
mod semantics_numbers;
mod serve;
mod serve_hostile;
mod shaders;
mod shaders_fused;
mod smollm;
mod tensor;
mod tensor_runs;
mod tidy;
mod translate;
mod translate_refused;
mod tune;
mod tune_cache;
mod tune_lost;
mod vendor_gemm;
mod webgpu_faults;
mod webgpu_host;
mod wgsl;
mod workgroup_memory;

/// Says something that is seen even when the test passes: which devices were covered, what was
/// skipped and why.
pub(crate) fn tell(line: &str) {
    use std::io::Write;
    // libtest captures `println!` but not this; a closed stderr is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Says that the test of this thread, or the part of it that `why` names, has not run, and why.
pub(crate) fn skip(why: &str) {
    let thread = std::thread::current();
    tell(&format!("skipped: {}: {why}", thread.name().unwrap_or("a test")));
}
