//! NVIDIA GPUs through CUDA's driver API, with kernels compiled by NVRTC.
//!
//! Nothing of CUDA is needed to build or to start: the driver is opened by name, and so is NVRTC,
//! from `WARPLOOM_NVRTC`, `CUDA_PATH`, `/usr/local/cuda`, a virtual environment or the system. No
//! driver is no device; a driver without NVRTC is an error of `list`, which is reported while the
//! next provider is taken.
//!
//! A device is one stream of the GPU's primary context. Everything runs in its order, so copies,
//! launches, and memory that comes and goes need no waiting; a thread enters the context for each
//! call and leaves what it had before. Uploads go through a ring of pinned memory, or from where they
//! are if that is pinned and nothing that takes long is in the stream; downloads to pinned memory that
//! `wait` reads.
//!
//! Prepared work is launched kernel by kernel the first time. Where it comes again, each stretch of
//! launches becomes a CUDA graph: parameters lie in device memory and are rewritten by one small
//! copy in front, a grid or a buffer that changed is set in the graph's node.
//!
//! Products may be calls of cuBLASLt, which is looked for as NVRTC is (`library`). Without it all else
//! works, and `DeviceProfile::has_gemm_library` is false. `blas` says how it is called.
//!
//! Invariants:
//! - `submit` checks everything before it enqueues anything.
//! - Kernels and graphs are destroyed when no submit that uses them runs; memory is freed in the
//!   stream's order.
//! - An error that CUDA never recovers from, such as an illegal address, is the device's loss, and
//!   each later call says so. Memory that the driver refuses leaves the device as it was.
//!
//! From one GPU to another bytes go without the host (`peer`), with events that order both streams.
//!
//! Absent on purpose: managed memory, and several streams.

mod blas;
mod compile;
mod device;
mod driver;
mod gemm;
mod gpu;
mod graph;
mod library;
mod memory;
mod nvrtc;
mod peer;
mod prepare;
mod product;
mod profile;
mod submit;
mod transfer;
mod wait;

use std::sync::Arc;

pub use memory::PinnedBytes;
pub use nvrtc::Nvrtc;

use device::CudaDevice;
use warploom_core::base::platform::{BoxFuture, ready};
use warploom_core::error::{Error, Result};
use warploom_hal::{Device, DeviceProfile, OpenOptions};

/// The provider of every GPU that CUDA's driver finds.
#[derive(Debug, Default)]
pub struct Provider;

impl Provider {
    /// The driver is looked for when devices are listed.
    pub fn new() -> Provider {
        Provider
    }

    /// Memory of the host, so many zeros, that CUDA's devices read by themselves. `index` is that of a device, which may be
    /// any: its driver gives the memory, and every other knows it.
    ///
    /// # Errors
    /// Invalid, for no bytes; out of memory, or what the driver says.
    pub fn pinned(&self, index: usize, bytes: usize) -> Result<PinnedBytes> {
        driver::driver().map_err(|why| Error::device(why.clone()))?;
        if bytes == 0 {
            return Err(Error::invalid("pinned memory of 0 bytes"));
        }
        let gpu = gpu::Gpu::open(index)?;
        let _current = gpu.enter()?;
        Ok(PinnedBytes(memory::Pinned::new(&gpu, bytes)?))
    }

    fn profiles(&self) -> Result<Vec<DeviceProfile>> {
        let Ok(driver) = driver::driver() else { return Ok(Vec::new()) };
        let nvrtc = Nvrtc::open()?;
        (0..driver.devices).map(|index| profile::profile_of(driver, nvrtc, index)).collect()
    }

    fn open_device(&self, index: usize, options: &OpenOptions) -> Result<Arc<dyn Device>> {
        let driver = driver::driver().map_err(|why| Error::device(why.clone()))?;
        let profiles = self.profiles()?;
        let found = profiles.len();
        let profile = profiles.into_iter().nth(index).ok_or_else(|| {
            Error::invalid(format!("cuda:{index} does not exist, {found} devices were found"))
        })?;
        let profile = if options.floor { profile::at_floor(profile) } else { profile };
        CudaDevice::open(driver, Nvrtc::open()?, profile, options)
    }
}

impl warploom_hal::Provider for Provider {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<DeviceProfile>>> {
        ready(self.profiles())
    }

    fn absence(&self) -> Option<String> {
        driver::driver().err().cloned()
    }

    fn open(&self, index: usize, options: OpenOptions) -> BoxFuture<'_, Result<Arc<dyn Device>>> {
        ready(self.open_device(index, &options))
    }
}
