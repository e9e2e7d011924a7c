//! Any vendor's GPU that has an OpenCL driver, found at run time.
//!
//! Kernels are WGSL translated to OpenCL C and built by the driver; what it made of them is kept on
//! disk. Halves are loaded and stored by functions of the core, so no extension is asked for. All
//! commands go to one queue that runs in order, and each submit ends with a marker whose event
//! `wait` waits for.
//!
//! Invariants:
//! - A machine without a loader, a driver or a device is told of in words; nothing panics. OpenCL's
//!   library is opened when devices are first listed, and never linked.
//! - `submit` checks everything before it enqueues anything. Where the driver then refuses a
//!   command, what came before it runs, and the caller gets the error in place of a ticket.
//! - Prepared work has kernels of its own, with their arguments set where no slot is open. They name
//!   memory that may have been freed, and are not launched then: freed ids are errors.
//! - Host memory that the device reads or writes lives until the event that says it is done.
//! - Sub-groups are used where the device tells their size and its compiler takes them.
//!
//! Uploads: bytes on their way to an idle queue are written straight from the caller's memory,
//! through a mapping where the device shares the host's memory; only what must wait its turn is
//! copied aside first ([`Counters::staged_bytes`]). Downloads are read into the memory that is
//! handed to the caller.
//!
//! Absent on purpose: SPIR-V (naga's is Vulkan's), SVM, several queues, and command buffers, which
//! drivers still lack.
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

/// The provider of every device that an OpenCL driver offers.
#[derive(Debug, Default)]
pub struct Provider;

impl Provider {
    /// What was found: by one thread and once, because drivers are not ready for two that ask
    /// first, and so that the list and `open` mean the same devices.
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
            // Told by `absence`.
            Err(error) if error.is_unsupported() => Ok(Vec::new()),
            Err(error) => Err(error),
        })
    }

    fn absence(&self) -> Option<String> {
        match self.found() {
            Ok([]) => Some("OpenCL drivers are here, devices of theirs are not".into()),
            Ok(_) => None,
            Err(error) => error.is_unsupported().then(|| error.to_string()),
        }
    }

    fn open(&self, index: usize, options: OpenOptions) -> BoxFuture<'_, Result<Arc<dyn Device>>> {
        ready(self.open_now(index, &options))
    }
}
