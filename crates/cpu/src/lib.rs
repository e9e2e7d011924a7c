//! The CPU as a device: every catalogue kernel as a Rust function, fused kernels by tiles.
//!
//! `submit` executes work on the calling thread and the device's own threads
//! (`OpenOptions::threads`, one for each core by default, including the calling thread); `wait`
//! only returns the results. A caller that may not block, because it polls futures, has its work
//! executed in order by another thread: see `queue`. Everything is resolved in `prepare`, so a
//! submit in place allocates nothing but its downloads and the packing buffers of `gemm`. Products are exact in f32
//! on the decoded weights, with the best instruction set, chosen once. A user's WGSL runs in the
//! interpreter: slow, with the same results as on a GPU.
//!
//! Invariants:
//! - Buffers are accessed only by the holder of the device's turn: by `write`, and by kernels.
//!   Kernels receive checked raw ranges, and share them by the rules of `call`. Freed memory lasts
//!   until work submitted before is done.
//! - A kernel checks its parameters against its bindings before it works: bad ones are an error at
//!   `wait`, never a panic and never an access to another buffer.
//! - Only WGSL depends on the grid of a dispatch; for other kernels an empty grid launches nothing,
//!   and any other grid is equivalent.
//!
//! In a browser there are no threads, no clock and no `gemm`; the `mod` lines below select the
//! files for it.

mod arch;
mod call;
#[cfg_attr(not(target_arch = "wasm32"), path = "clock_native.rs")]
#[cfg_attr(target_arch = "wasm32", path = "clock_none.rs")]
mod clock;
mod device;
mod epilogue;
mod fused;
mod kernels;
mod memory;
mod pool;
mod prepare;
mod queue;
#[cfg_attr(not(target_arch = "wasm32"), path = "sgemm_native.rs")]
#[cfg_attr(target_arch = "wasm32", path = "sgemm_plain.rs")]
mod sgemm;
#[cfg_attr(feature = "interpret", path = "source.rs")]
#[cfg_attr(not(feature = "interpret"), path = "source_none.rs")]
mod source;
mod submit;
mod system;

use std::sync::Arc;

use warploom_core::base::platform::{BoxFuture, ready};
use warploom_core::error::{Error, Result};
use warploom_hal::{Device, DeviceProfile, OpenOptions};

/// The provider of one device, `cpu:0`.
#[derive(Debug, Default)]
pub struct Provider;

impl Provider {
    /// The device profile with one thread for each core.
    pub fn profile() -> DeviceProfile {
        system::profile(arch::choose(), system::cores())
    }

    /// Opens the device synchronously.
    ///
    /// `memory_budget` defaults to the machine's memory (no limit if that is unknown), `threads` to
    /// one for each core, including the calling thread. `floor` has no effect: kernels here have no
    /// variants.
    pub fn device(options: &OpenOptions) -> Arc<dyn Device> {
        Arc::new(device::CpuDevice::new(arch::choose(), options))
    }

    /// Names of the instruction sets of this machine, the one in use first.
    pub fn instruction_sets() -> Vec<&'static str> {
        arch::available().into_iter().map(|arch| arch.name).collect()
    }

    /// Opens the device with a given instruction set, for tests and measurements.
    ///
    /// # Errors
    /// Unsupported if the machine has no instruction set of that name.
    pub fn device_with(instruction_set: &str, options: &OpenOptions) -> Result<Arc<dyn Device>> {
        let arch = arch::available().into_iter().find(|arch| arch.name == instruction_set);
        let arch = arch.ok_or_else(|| {
            let have = Provider::instruction_sets();
            Error::unsupported(format!(
                "instruction set {instruction_set:?}, this machine has {have:?}"
            ))
        })?;
        Ok(Arc::new(device::CpuDevice::new(arch, options)))
    }
}

impl warploom_hal::Provider for Provider {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<DeviceProfile>>> {
        ready(Ok(vec![Provider::profile()]))
    }

    fn open(&self, index: usize, options: OpenOptions) -> BoxFuture<'_, Result<Arc<dyn Device>>> {
        ready(match index {
            0 => Ok(Provider::device(&options)),
            _ => Err(Error::invalid(format!("cpu:{index} does not exist, there is cpu:0 only"))),
        })
    }
}

#[cfg(test)]
mod tests;
