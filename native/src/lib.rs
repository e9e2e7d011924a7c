//! Providers over the drivers' own APIs, CUDA in `cuda` and OpenCL in `opencl`, and the code they
//! share.
//!
//! Nothing in the shared modules calls a driver. A provider combines them as follows:
//!
//! - `warploom_hal::parallel_compile::build` runs compilers on background threads.
//! - `Program::translate` turns a kernel's spec into source for the driver's compiler, with the
//!   launch arguments in order. `BlobCache` stores the compiler's output.
//! - `Buffers` is the buffer table over the driver's memory type `M`: ids with generations, the
//!   budget, checked ranges.
//! - `warploom_hal::checked` validates recordings and resolves submits. The provider allocates device
//!   memory for the parameters and fills it; in a submit the bytes that changed overwrite the end of
//!   the parameters in queue order.
//!
//! Commands assume an in-order queue, as CUDA's streams and OpenCL's queues are: no command needs
//! to wait for another, and the queue defers frees.
//!
//! Deliberately absent: any choice between kernels, and everything that depends on a driver.

mod buffers;
#[cfg(feature = "cuda")]
pub mod cuda;
mod kernel_cache;
mod native_source;
#[cfg(feature = "opencl")]
pub mod opencl;
mod program;
#[cfg(test)]
mod tests;

pub(crate) use buffers::Buffers;
pub(crate) use kernel_cache::BlobCache;
pub(crate) use program::{Argument, Program, Target};
