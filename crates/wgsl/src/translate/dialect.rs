//! Differences between CUDA C++ and OpenCL C.

use std::fmt;

use naga::AddressSpace;

/// The target language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Cuda,
    OpenCl,
}

const CUDA_PRELUDE: &str = "\
#define WL_FN static __device__ __forceinline__
#define WL_ALIGN(bytes) __align__(bytes)
#if __CUDA_ARCH__ >= 900
#define wl_begin() asm volatile(\"griddepcontrol.launch_dependents;\")
#define wl_wait() asm volatile(\"griddepcontrol.wait;\" ::: \"memory\")
#else
#define wl_begin()
#define wl_wait()
#endif
";

/// Allows the next kernel to start while this one runs (PTX ISA, "griddepcontrol"). It is the first
/// statement of a kernel, or follows its wait if it `allows_overlap`; kernels that read ahead have
/// none. Without programmatic launches, this and the wait have no effect.
pub const BEGIN: &str = "wl_begin();";

/// Makes each thread wait until all work of the previous kernel is complete and visible. A
/// completed kernel has waited, or began after all earlier ones, so the work of all earlier kernels
/// is visible too.
pub(super) const WAIT: &str = "wl_wait();";

/// Prevents reads of stale cache lines from before the kernel began; a wait at the start implies
/// it.
pub(super) const FRESH: &str = "wl_fresh();";

pub(super) const FRESH_DEFINITION: &str = "\
#if __CUDA_ARCH__ >= 900
#define wl_fresh() asm volatile(\"fence.acq_rel.gpu;\" ::: \"memory\")
#else
#define wl_fresh()
#endif";

const OPENCL_PRELUDE: &str = "\
#define WL_FN static inline
#define WL_ALIGN(bytes) __attribute__((aligned(bytes)))
";

/// Names of the scalars in both languages; `f16` is the storage type.
pub(super) const SCALARS: &str = "\
typedef float f32;
typedef int i32;
typedef unsigned int u32;
typedef unsigned short f16;
";

impl Dialect {
    pub(super) fn prelude(self) -> &'static str {
        match self {
            Dialect::Cuda => CUDA_PRELUDE,
            Dialect::OpenCl => OPENCL_PRELUDE,
        }
    }

    /// Selects the text for CUDA or OpenCL.
    pub(super) fn pick<T>(self, cuda: T, opencl: T) -> T {
        match self {
            Dialect::Cuda => cuda,
            Dialect::OpenCl => opencl,
        }
    }

    /// Returns the qualifier of an address space, with a trailing space. CUDA pointers are generic.
    pub(super) fn space(self, space: AddressSpace) -> &'static str {
        match (self, space) {
            (Dialect::OpenCl, AddressSpace::Uniform | AddressSpace::Storage { .. }) => "__global ",
            (Dialect::OpenCl, AddressSpace::WorkGroup) => "__local ",
            _ => "",
        }
    }

    /// Formats a call of a library function on `f32`, given by its OpenCL name.
    pub(super) fn math(self, name: &str, args: &[String]) -> String {
        let suffix = self.pick("f", "");
        format!("{name}{suffix}({})", args.join(", "))
    }

    /// Formats a value of the aggregate type `ty`; `parts` are its members, separated by commas.
    pub(super) fn aggregate(self, ty: &str, parts: &str) -> String {
        match self {
            Dialect::Cuda => format!("{ty}{{{parts}}}"),
            Dialect::OpenCl => format!("(({ty}){{{parts}}})"),
        }
    }

    pub(super) fn restrict(self) -> &'static str {
        self.pick("__restrict__", "restrict")
    }

    /// Returns the coordinate of a thread in its workgroup along an axis (0, 1 or 2).
    pub(super) fn local_id(self, axis: usize) -> String {
        self.coordinate("threadIdx", "get_local_id", axis)
    }

    /// Returns the coordinate of a workgroup along an axis (0, 1 or 2).
    pub(super) fn group_id(self, axis: usize) -> String {
        self.coordinate("blockIdx", "get_group_id", axis)
    }

    /// Returns the number of workgroups along an axis.
    pub(super) fn num_groups(self, axis: usize) -> String {
        self.coordinate("gridDim", "get_num_groups", axis)
    }

    fn coordinate(self, cuda: &str, opencl: &str, axis: usize) -> String {
        match self {
            Dialect::Cuda => format!("{cuda}.{}", ["x", "y", "z"][axis]),
            Dialect::OpenCl => format!("(u32){opencl}({axis})"),
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.pick("CUDA C", "OpenCL C"))
    }
}
