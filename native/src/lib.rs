//! What the providers over vendors' own APIs share: CUDA in `cuda`, OpenCL in `opencl`.
//!
//! Nothing here calls a driver. A provider puts it together like this:
//!
//! - `provider::background::build` runs compilers on threads.
//! - `Program::translate` makes a kernel's spec the text that the driver's compiler takes, with
//!   the arguments of a launch in order. `BlobCache` keeps what the compiler made of it.
//! - `Buffers` is the table of buffers over the driver's memory `M`: ids with generations, the
//!   budget, checked ranges.
//! - `Work::check` makes a recording steps that are checked once, in `Device::prepare`. The
//!   provider then takes device memory for `Work::params` and fills it: every parameter block
//!   lies there at `Launch::params`, those that change at the end.
//! - `Work::evaluate` checks what changes, in `Device::submit`, for *all* the work before
//!   anything is enqueued. Then `Run::changed` overwrites the end of the parameters in the order
//!   of the queue, and `Work::commands` yields the commands with numbers in them.
//!
//! Commands are meant for a queue that runs in order, as CUDA's streams and OpenCL's queues do:
//! then no command needs to wait for another, and memory that the queue frees is deferred by it.
//!
//! Absent on purpose: any choice between kernels, and all that a driver has a word in.

mod blobs;
mod buffers;
mod check;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "opencl")]
pub mod opencl;
mod program;
mod run;
#[cfg(test)]
mod tests;
mod twin;
mod work;

pub(crate) use blobs::BlobCache;
pub(crate) use buffers::Buffers;
#[cfg(feature = "cuda")]
pub(crate) use check::Callee;
pub(crate) use program::{Argument, Program, Target};
pub(crate) use run::{Run, Todo};
pub(crate) use work::{Launch, Work};
