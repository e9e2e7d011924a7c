//! Devices of any vendor with an OpenCL driver, found at run time.
//!
//! Kernels are WGSL translated to OpenCL C and built by the driver; the binaries are cached on
//! disk. f16 values are loaded and stored by core functions, so no extension is required. All
//! commands go to one in-order queue, and each submit ends with a marker whose event `wait` waits
//! for.
//!
//! Invariants:
//! - A missing loader, driver or device is reported with its reason; nothing panics. The OpenCL
//!   library is opened when devices are first listed, and never linked.
//! - `submit` checks everything before it enqueues anything. If the driver then refuses a command,
//!   the earlier commands run, and the caller gets an error instead of a ticket.
//! - Prepared work has its own kernel objects, with arguments set unless a slot is open. Arguments
//!   may refer to freed memory, but such work is not launched: freed ids are errors.
//! - Host memory that the device reads or writes lives until the event of its completion.
//! - Sub-groups are used if the device reports their size and its compiler accepts them.
//!
//! Uploads: if the queue is idle, bytes are written directly from the caller's memory, through a
//! mapping if the device shares the host's memory; otherwise they are first copied to a staging
//! buffer ([`Counters::staged_bytes`]). Downloads are read into the memory that the caller
//! receives.
//!
//! Deliberately absent: SPIR-V (naga's is for Vulkan), SVM, several queues, and command buffers,
//! which drivers still lack.
//!
//! [`Counters::staged_bytes`]: warploom_hal::Counters::staged_bytes

mod build;
mod cl;
mod compile;
mod device;
mod faults;
mod memory;
mod prepare;
mod profile;
mod submit;
mod wait;

use std::sync::{Arc, OnceLock};

use device::OpenClDevice;
use profile::Found;
use warploom_core::base::platform::{BoxFuture, ready};
use warploom_core::error::{Error, Result};
use warploom_hal::{Device, DeviceProfile, OpenOptions};

/// The provider of every device that OpenCL drivers report.
#[derive(Debug, Default)]
pub struct Provider;

impl Provider {
    /// Returns the devices, which are searched for once and by one thread: drivers have races in
    /// concurrent initialisation, and `list` and `open` must refer to the same devices.
    fn found(&self) -> Result<&'static [Found]> {
        static FOUND: OnceLock<Result<Vec<Found>>> = OnceLock::new();
        match FOUND.get_or_init(profile::find) {
            Ok(found) => Ok(found),
            Err(error) => Err(error.duplicate()),
        }
    }

    fn open_now(&self, index: usize, options: &OpenOptions) -> Result<Arc<dyn Device>> {
        let found = self.found()?;
        let device = found.get(index).ok_or_else(|| {
            let have = found.len();
            Error::invalid(format!("opencl:{index} does not exist, {have} devices were found"))
        })?;
        Ok(Arc::new(OpenClDevice::open(device, options)?))
    }
}

impl warploom_hal::Provider for Provider {
    fn name(&self) -> &'static str {
        "opencl"
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<DeviceProfile>>> {
        ready(match self.found() {
            Ok(found) => Ok(found.iter().map(|device| device.profile.clone()).collect()),
            // Reported by `absence`.
            Err(error) if error.is_unsupported() => Ok(Vec::new()),
            Err(error) => Err(error),
        })
    }

    fn absence(&self) -> Option<String> {
        match self.found() {
            Ok([]) => Some("OpenCL drivers are installed, but they have no devices".into()),
            Ok(_) => None,
            Err(error) => error.is_unsupported().then(|| error.to_string()),
        }
    }

    fn open(&self, index: usize, options: OpenOptions) -> BoxFuture<'_, Result<Arc<dyn Device>>> {
        ready(self.open_now(index, &options))
    }
}
