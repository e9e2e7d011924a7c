//! Translates WGSL kernels to CUDA C and OpenCL C: from a validated `naga::Module` to text, without
//! a device.
//!
//! `README.md` in this folder describes the translation of each construct, the refused constructs,
//! and the flags for compiling the text. One printer serves both targets: values are plain structs
//! and functions in the common subset of C99 and C++; `dialect.rs` holds the differences.
//!
//! Invariants: equal modules and options give equal text; the text needs no header and no library;
//! unsupported constructs are refused by name, never printed as something else.
//!
//! Compilation, launches and caches are absent on purpose: they belong to providers.

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
mod lvalue;
mod math;
mod names;
mod operator;
mod packing;
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

/// NVRTC options that the text requires, in addition to `--gpu-architecture`. Products and sums may
/// contract to fused multiply-adds, as in a Vulkan driver; denormals are kept, division and square
/// root are correctly rounded. `--use_fast_math` would break the guarantees for infinities and NaN.
pub const CUDA_FLAGS: [&str; 5] =
    ["--std=c++17", "--fmad=true", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"];

/// `clBuildProgram` options that the text requires. `-cl-fast-relaxed-math`, `-cl-finite-math-only`
/// and `-cl-unsafe-math-optimizations` must not be added.
pub const OPENCL_FLAGS: [&str; 1] = ["-cl-std=CL1.2"];

/// `clBuildProgram` options that replace [`OPENCL_FLAGS`] if [`Translated::extensions`] lists
/// sub-groups, which need OpenCL C 2.0 or later.
pub const OPENCL_SUBGROUP_FLAGS: [&str; 1] = ["-cl-std=CL3.0"];

/// Handling of an index outside its array, vector or matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Bounds {
    /// Clamped to the last element, as the WGSL specification allows.
    #[default]
    Restrict,
    /// Not checked; an index out of bounds is undefined behaviour. Only for kernels that are known
    /// to stay in bounds.
    Unchecked,
}

/// How subgroup operations are translated to OpenCL C. CUDA C uses warps, always of 32 lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Subgroups {
    /// They are refused as unsupported.
    #[default]
    Refused,
    /// The device's sub-groups: `cl_khr_subgroups`, and its extensions if an operation needs them
    /// ([`Translated::extensions`]).
    Extension,
    /// The workgroup, of at most 128 threads, is one subgroup and exchanges values through
    /// workgroup memory: for devices without sub-groups.
    WorkgroupMemory,
}

/// Options for a translation.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Name of the compute entry point.
    pub entry: String,
    /// The name of the kernel in the text, after `kernel_`, for profilers; the entry point's name
    /// if empty.
    pub label: String,
    /// Values of `override` constants, by name or number.
    pub constants: BTreeMap<String, f64>,
    /// Handling of an index out of bounds.
    pub bounds: Bounds,
    /// Whether workgroup memory is zeroed, as in WGSL.
    pub zero_workgroup_memory: bool,
    /// How subgroup operations are translated to OpenCL C.
    pub subgroups: Subgroups,
    /// Whether the threads of a subgroup return from the kernel together, as WGSL's uniformity
    /// rules require before a subgroup operation. If so, the CUDA C reduces a warp without testing
    /// for returned lanes.
    pub returns_together: bool,
    /// Whether compilers may hoist storage reads, above barriers too: no other pointer aliases the
    /// written buffers, and threads do not communicate through storage. In CUDA C such a kernel
    /// does not start before all earlier ones are complete; others do, and wait before their first
    /// storage access. In OpenCL C hoisting is always allowed.
    pub reads_ahead: bool,
    /// `@binding`s of group 0 that are not written while kernels that read them are in flight: in
    /// CUDA C a kernel may read them before it waits for earlier launches.
    pub steady: Vec<u32>,
    /// Whether the next launch has `overlaps_previous`: in CUDA C this kernel lets it start only
    /// once all launches before this one are complete.
    pub allows_overlap: bool,
    /// Whether the kernel is independent of the previous launch, which has `allows_overlap`: in
    /// CUDA C it then waits for that one at its end, not before its first storage access.
    pub overlaps_previous: bool,
    /// Minimum resident workgroups per multiprocessor (occupancy), in CUDA C; 0 leaves it to the
    /// compiler.
    pub resident: u32,
    /// Whether functions named `mma_int8` and `multiply_half` are those of
    /// `shaders/shared/mma_int8.wgsl`: CUDA has instructions for them from compute capability
    /// 8.0 on.
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
            allows_overlap: false,
            overlaps_previous: false,
            resident: 0,
            multiplies_codes: false,
        }
    }
}

/// A translated kernel, with its launch interface.
///
/// Parameters of the kernel, in this order:
/// 1. a pointer for each of `bindings`, aligned to 16 bytes; in OpenCL a whole buffer, followed by
///    a `ulong`, the byte offset of the bound range, a multiple of 16;
/// 2. if `lengths` is not empty, a struct by value with one `u32` for each of them, in order: the
///    number of elements of a runtime-sized array ([`ArrayLength::elements`]);
/// 3. if there are `immediates`, a struct by value of that many bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translated {
    /// The complete program.
    pub text: String,
    /// Name of the kernel in the text.
    pub entry: String,
    /// Threads per workgroup in x, y and z; fixed in the text.
    pub workgroup_size: [u32; 3],
    /// Buffers that the kernel uses, in ascending order of group and binding.
    pub bindings: Vec<Binding>,
    /// Runtime-sized arrays. Their lengths are passed to the kernel.
    pub lengths: Vec<ArrayLength>,
    /// Bytes of the `var<immediate>`, if there is one.
    pub immediates: Option<u32>,
    /// Bytes of workgroup memory, all of it declared in the text.
    pub workgroup_bytes: u32,
    /// OpenCL extensions that the device must support, sorted.
    pub extensions: Vec<&'static str>,
}

/// A buffer of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// `@group`.
    pub group: u32,
    /// `@binding`.
    pub binding: u32,
    /// How the kernel uses it.
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
    /// Index in [`Translated::bindings`].
    pub binding: usize,
    /// Bytes before the array.
    pub offset: u32,
    /// Element stride in bytes.
    pub stride: u32,
}

impl ArrayLength {
    /// Returns the number of elements in a bound range of this size in bytes.
    pub fn elements(&self, bytes: u64) -> u32 {
        let elements = bytes.saturating_sub(u64::from(self.offset)) / u64::from(self.stride);
        u32::try_from(elements).unwrap_or(u32::MAX)
    }
}

/// Parses and validates WGSL.
///
/// # Errors
/// Compile, with naga's message, if the text is not valid.
pub fn parse(wgsl: &str) -> Result<(Module, ModuleInfo)> {
    let module =
        naga::front::wgsl::parse_str(wgsl).map_err(|e| Error::compile(e.emit_to_string(wgsl)))?;
    // Unsupported constructs are refused by name later, if the entry point reaches them.
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|e| Error::compile(e.emit_to_string(wgsl)))?;
    Ok((module, info))
}

/// Translates the entry point to CUDA C++ for NVRTC, with [`CUDA_FLAGS`].
///
/// # Errors
/// Invalid if the module lacks the entry point or a constant; unsupported, with its name and
/// function, if a construct is not translated.
pub fn cuda(module: &Module, info: &ModuleInfo, options: &Options) -> Result<Translated> {
    translate(Dialect::Cuda, module, info, options)
}

/// Translates the entry point to OpenCL C 1.2, with [`OPENCL_FLAGS`].
///
/// # Errors
/// Same as [`cuda`].
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
