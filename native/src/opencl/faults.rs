//! What an error of OpenCL means: memory that is not there, a device that is gone, or just an
//! error.

use std::sync::{Mutex, PoisonError};

use cl3::error_codes as codes;

use super::cl::{Code, Queue};
use warploom_core::error::{Error, Result};

/// Whether the device is gone, and why.
pub(super) struct Faults {
    device: String,
    lost: Mutex<Option<String>>,
}

impl Faults {
    /// A record for the device with this id.
    pub(super) fn new(device: String) -> Faults {
        Faults { device, lost: Mutex::default() }
    }

    /// An error where the device is gone.
    pub(super) fn check_lost(&self) -> Result<()> {
        match &*self.lost.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(reason) => Err(Error::device_lost(format!("{} is lost: {reason}", self.device))),
            None => Ok(()),
        }
    }

    /// The crate's error for one of OpenCL, told by a call that did `what`. A device that then
    /// refuses the least of commands is lost.
    pub(super) fn convert(&self, code: Code, queue: &Queue, what: &str) -> Error {
        if is_loss(code) || queue.marker().and_then(|marker| marker.wait()).is_err() {
            let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
            let reason = lost.get_or_insert_with(|| format!("{what}: {code}"));
            return Error::device_lost(format!("{} is lost: {reason}", self.device));
        }
        let text = format!("{what} on {}: {code}", self.device);
        if is_memory(code) { refused(&text) } else { Error::device(text) }
    }
}

/// The error of a driver that has no memory left and does not say how much there is.
fn refused(what: &str) -> Error {
    Error::out_of_memory(format!("{what} (the driver refused, sizes unknown)"), 0, 0)
}

/// Whether a driver says by this that memory is not enough.
pub(super) fn is_memory(code: Code) -> bool {
    matches!(
        code.0,
        codes::CL_MEM_OBJECT_ALLOCATION_FAILURE
            | codes::CL_OUT_OF_RESOURCES
            | codes::CL_OUT_OF_HOST_MEMORY
    )
}

/// Whether a driver says by this that nothing works any more.
fn is_loss(code: Code) -> bool {
    matches!(
        code.0,
        codes::CL_DEVICE_NOT_AVAILABLE
            | codes::CL_INVALID_CONTEXT
            | codes::CL_INVALID_COMMAND_QUEUE
            | codes::CL_CONTEXT_TERMINATED_KHR
    )
}
