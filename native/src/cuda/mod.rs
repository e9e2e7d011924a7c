//! NVIDIA GPUs through CUDA's driver API, with kernels compiled by NVRTC.
//!
//! No part of CUDA is needed to build or to start: the driver and NVRTC are opened by name at run
//! time, NVRTC from `WARPLOOM_NVRTC`, `CUDA_PATH`, `/usr/local/cuda`, a virtual environment or the
//! system. Without a driver there is no device. If there is a driver but no NVRTC, `list` returns
//! an error, which is reported before the next provider is tried.
//!
//! A device is one stream of the GPU's primary context. Everything runs in stream order, so copies,
//! launches, allocations and frees need no waiting. A thread enters the context for each call and
//! then restores its previous one. Uploads go through a ring of pinned memory, or directly from the
//! source if that is pinned and nothing long-running is in the stream. Downloads go to pinned
//! memory, which `wait` reads.
//!
//! Prepared work is launched kernel by kernel the first time. If it is submitted again, each
//! sequence of launches becomes a CUDA graph: parameters are in device memory and are rewritten by
//! one small copy before the launches, and a changed grid or buffer is set in its graph node.
//!
//! Matrix products may be calls of cuBLASLt, which is located like NVRTC (`library`). It is
//! optional: without it, `DeviceProfile::has_gemm_library` is false. `blas` describes the calls.
//!
//! Invariants:
//! - `submit` checks everything before it enqueues anything.
//! - Kernels and graphs are destroyed when no submit that uses them runs; memory is freed in stream
//!   order.
//! - An error from which CUDA cannot recover, such as an illegal address, is a device loss, and
//!   each later call reports it. A refused allocation leaves the device unchanged.
//!
//! Copies between GPUs do not pass through the host (`peer`); events order both streams.
//!
//! Deliberately absent: managed memory, and several streams.

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

/// The provider of every GPU that CUDA's driver reports.
#[derive(Debug, Default)]
pub struct Provider;

impl Provider {
    /// Creates the provider; the driver is loaded when devices are listed.
    pub fn new() -> Provider {
        Provider
    }

    /// Allocates zeroed pinned host memory. `index` may be that of any CUDA device: its driver
    /// allocates the memory, and every other CUDA device can read it too.
    ///
    /// # Errors
    /// Invalid for zero bytes; out of memory or device if the driver fails.
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
