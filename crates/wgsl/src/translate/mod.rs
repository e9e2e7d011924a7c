//! WGSL kernels as CUDA C and OpenCL C: text from a validated `naga::Module`, without a device.
//!
//! `README.md` of this folder tells how each construct is translated, what is refused, and with
//! which flags the text is compiled. Both targets come from one printer: values are plain structs
//! and functions that C99 and C++ share, `dialect.rs` holds what differs.
//!
//! Invariants: equal modules and options give equal text; the text needs no header and no library;
//! what is not translated is refused by name, never printed as something else.
//!
//! Absent on purpose: compiling, launching and caching, which are a provider's.

mod atomics;
mod convert;
mod cooperative;
mod dialect;
mod expression;
mod function;
mod geometry;
mod helpers;
mod holes;
mod kernel;
mod literal;
mod math;
mod names;
mod operator;
mod packing;
mod place;
mod statement;
mod subgroup;
mod types;
mod wait;
mod writer;

use std::collections::BTreeMap;

pub use naga;
use naga::back::PipelineConstants;
use naga::back::pipeline_constants::process_overrides;
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{Module, ShaderStage};

pub use dialect::BEGIN as CUDA_BEGIN;
use dialect::Dialect;
use warploom_core::error::{Error, Result};
use writer::Writer;

/// Options of NVRTC that the text is written for, beside `--gpu-architecture`. Products and sums
/// may contract to fused ones, as a Vulkan driver also does with WGSL; denormals are kept, division
/// and square root are rounded correctly. `--use_fast_math` would break what is promised of
/// infinities and NaN.
pub const CUDA_FLAGS: [&str; 5] =
    ["--std=c++17", "--fmad=true", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"];

/// Options of `clBuildProgram` that the text is written for. `-cl-fast-relaxed-math`,
/// `-cl-finite-math-only` and `-cl-unsafe-math-optimizations` must not be added.
pub const OPENCL_FLAGS: [&str; 1] = ["-cl-std=CL1.2"];

/// `-cl-std` for text whose [`Translated::extensions`] name sub-groups: they came with OpenCL C 2.0.
pub const OPENCL_SUBGROUP_FLAGS: [&str; 1] = ["-cl-std=CL3.0"];

/// What becomes of an index outside of its array, vector or matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Bounds {
    /// The last element is taken in its place, as the WGSL specification allows.
    #[default]
    Restrict,
    /// Undefined behaviour: for kernels that are known to stay inside.
    Unchecked,
}

/// What subgroup operations become in OpenCL C. CUDA has warps, always of 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Subgroups {
    /// They are refused.
    #[default]
    Refused,
    /// Sub-groups of the device: `cl_khr_subgroups`, and extensions of it where an operation needs
    /// them ([`Translated::extensions`]).
    Extension,
    /// The workgroup, of at most 128 threads, is one subgroup and exchanges values through
    /// workgroup memory: for devices without sub-groups.
    WorkgroupMemory,
}

/// How a module is translated.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Name of the compute entry point.
    pub entry: String,
    /// What the kernel is called in the text, behind `kernel_`, for profilers; the entry point's name where it is empty.
    pub label: String,
    /// Values of `override` constants, by name or by number.
    pub constants: BTreeMap<String, f64>,
    /// What becomes of an index that is outside.
    pub bounds: Bounds,
    /// Whether workgroup memory starts as zeros, as WGSL says.
    pub zero_workgroup_memory: bool,
    /// What subgroup operations become in OpenCL C.
    pub subgroups: Subgroups,
    /// Whether the threads of a subgroup return from the kernel together, as WGSL's rules of uniformity demand before a
    /// subgroup operation: CUDA C then adds up a warp without asking which of its lanes are left.
    pub returns_together: bool,
    /// Whether compilers may read storage before the kernel asks for it, above barriers too: no other pointer leads to what
    /// it writes, and its threads tell each other nothing through storage. In CUDA C such a kernel does not begin before all
    /// that was launched before it is done; others do, and wait where they first meet storage. OpenCL C says so always.
    pub reads_ahead: bool,
    /// `@binding`s of group 0 that nothing writes to while kernels that read them are in flight: in CUDA C a kernel reads
    /// them before it waits for those launched before it.
    pub steady: Vec<u32>,
    /// Whether the kernel launched next is `beside`: in CUDA C this one lets it begin only once all that was launched before
    /// this one is done.
    pub followed: bool,
    /// Whether the kernel has nothing to do with the one launched before it, which is `followed`: in CUDA C it then waits for
    /// that one where it ends, not where it meets storage.
    pub beside: bool,
    /// Workgroups that a multiprocessor should have room for, in CUDA C; 0 leaves it to the compiler.
    pub resident: u32,
    /// Whether functions named `multiply_codes` and `multiply_half` are those of `shaders/shared/multiply_codes.wgsl`, for
    /// which CUDA has instructions from compute capability 8.0 on.
    pub multiplies_codes: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            entry: "main".to_string(),
            label: String::new(),
            constants: BTreeMap::new(),
            bounds: Bounds::default(),
            zero_workgroup_memory: true,
            subgroups: Subgroups::default(),
            returns_together: false,
            reads_ahead: false,
            steady: Vec::new(),
            followed: false,
            beside: false,
            resident: 0,
            multiplies_codes: false,
        }
    }
}

/// A kernel as text, and what launches it.
///
/// Parameters of the kernel, in this order:
/// 1. a pointer for each of `bindings`, aligned to 16 bytes; in OpenCL a whole buffer, and after it
///    a `ulong`, the byte at which the bound range starts, a multiple of 16;
/// 2. if `lengths` is not empty, a struct by value with one `u32` for each of them, in this order:
///    the elements of a runtime-sized array ([`ArrayLength::elements`]);
/// 3. if there are `immediates`, a struct by value of that many bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translated {
    /// The whole program.
    pub text: String,
    /// Name of the kernel in it.
    pub entry: String,
    /// Threads of a workgroup in x, y and z; the text holds them.
    pub workgroup_size: [u32; 3],
    /// Buffers that the kernel uses, ascending by group and binding.
    pub bindings: Vec<Binding>,
    /// Runtime-sized arrays whose lengths the kernel takes.
    pub lengths: Vec<ArrayLength>,
    /// Bytes of the `var<immediate>`, if there is one.
    pub immediates: Option<u32>,
    /// Bytes of workgroup memory, all of it declared in the text.
    pub workgroup_bytes: u32,
    /// OpenCL extensions that the device must have, sorted.
    pub extensions: Vec<&'static str>,
}

/// A buffer of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// `@group`.
    pub group: u32,
    /// `@binding`.
    pub binding: u32,
    /// How it is used.
    pub access: Access,
}

/// How a kernel uses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `var<uniform>`: read only.
    Uniform,
    /// `var<storage, read>`.
    Read,
    /// `var<storage, read_write>`.
    ReadWrite,
}

/// The runtime-sized array of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayLength {
    /// Which of [`Translated::bindings`].
    pub binding: usize,
    /// Bytes before the array.
    pub offset: u32,
    /// Bytes from one element to the next.
    pub stride: u32,
}

impl ArrayLength {
    /// Elements in a bound range of so many bytes.
    pub fn elements(&self, bytes: u64) -> u32 {
        let elements = bytes.saturating_sub(u64::from(self.offset)) / u64::from(self.stride);
        u32::try_from(elements).unwrap_or(u32::MAX)
    }
}

/// Parses and validates WGSL.
///
/// # Errors
/// Compile, with naga's message, for text that is not valid.
pub fn parse(wgsl: &str) -> Result<(Module, ModuleInfo)> {
    let module =
        naga::front::wgsl::parse_str(wgsl).map_err(|e| Error::compile(e.emit_to_string(wgsl)))?;
    // What is not translated is refused by its name, where the entry point reaches it.
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|e| Error::compile(e.emit_to_string(wgsl)))?;
    Ok((module, info))
}

/// The entry point as CUDA C++ for NVRTC, with [`CUDA_FLAGS`].
///
/// # Errors
/// Invalid, for an entry point or a constant that the module does not have; unsupported, for a
/// construct that is not translated, by its name and function.
pub fn cuda(module: &Module, info: &ModuleInfo, options: &Options) -> Result<Translated> {
    translate(Dialect::Cuda, module, info, options)
}

/// The entry point as OpenCL C 1.2, with [`OPENCL_FLAGS`].
///
/// # Errors
/// As [`cuda`].
pub fn opencl(module: &Module, info: &ModuleInfo, options: &Options) -> Result<Translated> {
    translate(Dialect::OpenCl, module, info, options)
}

fn translate(
    dialect: Dialect,
    module: &Module,
    info: &ModuleInfo,
    options: &Options,
) -> Result<Translated> {
    let constants: PipelineConstants =
        options.constants.iter().map(|(name, value)| (name.clone(), *value)).collect();
    let stage = ShaderStage::Compute;
    let is_entry = |point: &&naga::EntryPoint| point.stage == stage && point.name == options.entry;
    if !module.entry_points.iter().any(|point| is_entry(&point)) {
        return Err(Error::invalid(format!("there is no compute entry point {:?}", options.entry)));
    }
    let (module, info) = process_overrides(module, info, Some((stage, &options.entry)), &constants)
        .map_err(|e| Error::invalid(format!("entry point {}: {e}", options.entry)))?;
    Writer::new(dialect, options, &module, &info)
        .kernel()
        .map_err(|e| e.context(format!("entry point {} to {dialect}", options.entry)))
}
