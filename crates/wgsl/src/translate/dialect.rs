//! What differs between CUDA C++ and OpenCL C.

use std::fmt;

use naga::AddressSpace;

/// The language of the text.
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

/// What a kernel begins with that does not read ahead, or says once it has waited where it is followed: the next one may
/// be put on the device while this one runs (PTX ISA, "griddepcontrol"). Where nothing was launched so, neither this nor
/// the wait does anything.
pub const BEGIN: &str = "wl_begin();";

/// Each thread waits until all work of the kernel before is done and seen. A kernel that is done has waited, or began
/// when all before it was done, so the work of all before it is seen as well.
pub(super) const WAIT: &str = "wl_wait();";

/// No thread reads from a cache what was there before the kernel began: the wait does the same for those that wait first.
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

/// Names of the scalars in both languages; `f16` is how halves lie in memory.
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

    /// The text for CUDA or that for OpenCL.
    pub(super) fn pick<T>(self, cuda: T, opencl: T) -> T {
        match self {
            Dialect::Cuda => cuda,
            Dialect::OpenCl => opencl,
        }
    }

    /// The qualifier of an address space, with a space behind it. CUDA's pointers are generic.
    pub(super) fn space(self, space: AddressSpace) -> &'static str {
        match (self, space) {
            (Dialect::OpenCl, AddressSpace::Uniform | AddressSpace::Storage { .. }) => "__global ",
            (Dialect::OpenCl, AddressSpace::WorkGroup) => "__local ",
            _ => "",
        }
    }

    /// A function of the language's own library on `f32`, by its name in OpenCL.
    pub(super) fn math(self, name: &str, args: &[String]) -> String {
        let suffix = self.pick("f", "");
        format!("{name}{suffix}({})", args.join(", "))
    }

    /// A struct made of these parts.
    pub(super) fn aggregate(self, ty: &str, parts: &str) -> String {
        match self {
            Dialect::Cuda => format!("{ty}{{{parts}}}"),
            Dialect::OpenCl => format!("(({ty}){{{parts}}})"),
        }
    }

    pub(super) fn restrict(self) -> &'static str {
        self.pick("__restrict__", "restrict")
    }

    /// One coordinate (`x`, `y`, `z`: 0, 1, 2) of a thread in its workgroup.
    pub(super) fn local_id(self, axis: usize) -> String {
        self.coordinate("threadIdx", "get_local_id", axis)
    }

    /// One coordinate of a workgroup.
    pub(super) fn group_id(self, axis: usize) -> String {
        self.coordinate("blockIdx", "get_group_id", axis)
    }

    /// Workgroups along one axis.
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
