//! The CPU as a device. Catalogue kernels are Rust functions; fused kernels are evaluated in tiles.
//!
//! `submit` executes work on the calling thread and on the device's own threads
//! (`OpenOptions::threads` in total, by default one for each core); `wait` only returns the
//! results. The work of a caller that must not block, because it polls futures, is executed in
//! order on a background thread: see `queue`. Everything is resolved in `prepare`, so a submit that
//! runs in place allocates only its downloads and the packing buffers of the crate `gemm-f32`.
//! Unless a kernel quantises its operands, matrix products are computed in f32 on decoded weights.
//! The best instruction set is chosen once, when the device is opened. A user's WGSL runs in the
//! interpreter, which is slow but returns the same results as a GPU.
//!
//! Invariants:
//! - Only the holder of the device's turn (a lock, see `queue`) accesses buffers, in `write` and in
//!   kernels. Kernels receive checked raw ranges and share them by the rules in `call`. Freed
//!   memory stays allocated until all work submitted before the free is done.
//! - A kernel checks its parameters against its bindings before it starts: bad parameters are an
//!   error at `wait`, never a panic or an access outside the bindings.
//! - Only WGSL kernels depend on the grid of a dispatch. Other kernels ignore it, except that an
//!   empty grid launches nothing.
//!
//! A browser has no threads, no clock and no `gemm-f32`; the `mod` lines below select the
//! replacements.

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

/// Returns a normally distributed number from two uniformly distributed ones (Box and Muller), `u` in
/// (0, 1] and `v` in [0, 1]: the same bits on every machine, since it needs no mathematical library.
#[doc(hidden)]
#[inline]
pub fn normal(u: f32, v: f32) -> f32 {
    (-2.0 * arch::math::log(u)).sqrt() * arch::math::cos(std::f32::consts::TAU * v)
}

/// The provider of the single device `cpu:0`.
#[derive(Debug, Default)]
pub struct Provider;

impl Provider {
    /// Returns the device profile with one thread for each core.
    pub fn profile() -> DeviceProfile {
        system::profile(arch::choose(), system::cores())
    }

    /// Opens the device synchronously.
    ///
    /// `memory_budget` defaults to the machine's memory, or to no limit if that is unknown.
    /// `threads` includes the calling thread and defaults to one for each core. `floor` has no
    /// effect, since CPU kernels have no variants.
    pub fn device(options: &OpenOptions) -> Arc<dyn Device> {
        Arc::new(device::CpuDevice::new(arch::choose(), options))
    }

    /// Returns the names of the instruction sets that this machine supports, best first;
    /// [`Provider::device`] uses the first.
    pub fn instruction_sets() -> Vec<&'static str> {
        arch::available().into_iter().map(|arch| arch.name).collect()
    }

    /// Opens the device with the given instruction set, for tests and measurements.
    ///
    /// # Errors
    /// Unsupported if this machine has no instruction set with that name.
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
