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
//! - `Work::check` validates a recording once, in `Device::prepare`. The provider then allocates
//!   device memory for `Work::params` and fills it. A launch finds its parameter block at
//!   `Launch::params`; blocks that change are at the end.
//! - `Work::evaluate` checks the changing parts, in `Device::submit`, for *all* the work before
//!   anything is enqueued. Then the bytes of `Run::changed` overwrite the end of the parameters in
//!   queue order, and `Work::commands` yields the resolved commands.
//!
//! Commands assume an in-order queue, as CUDA's streams and OpenCL's queues are: no command needs
//! to wait for another, and the queue defers frees.
//!
//! Deliberately absent: any choice between kernels, and everything that depends on a driver.

mod buffers;
mod checked;
#[cfg(feature = "cuda")]
pub mod cuda;
mod kernel_cache;
mod native_source;
#[cfg(feature = "opencl")]
pub mod opencl;
mod program;
mod resolve;
#[cfg(test)]
mod tests;
mod validate;

pub(crate) use buffers::Buffers;
pub(crate) use checked::{Launch, Work};
pub(crate) use kernel_cache::BlobCache;
pub(crate) use program::{Argument, Program, Target};
pub(crate) use resolve::{Run, Todo};
#[cfg(feature = "cuda")]
pub(crate) use validate::Callee;
