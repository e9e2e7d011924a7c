//! Classification of OpenCL errors: out of memory, device loss, or other.

use std::sync::{Mutex, PoisonError};

use cl3::error_codes as codes;

use super::cl::{Code, Queue};
use warploom_core::error::{Error, Result};

/// Whether a device is lost, and the reason.
pub(super) struct Faults {
    device: String,
    lost: Mutex<Option<String>>,
}

impl Faults {
    /// Creates the state of the device with this id, which is not lost.
    pub(super) fn new(device: String) -> Faults {
        Faults { device, lost: Mutex::default() }
    }

    /// Returns an error if the device is lost.
    pub(super) fn check_lost(&self) -> Result<()> {
        match &*self.lost.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(reason) => Err(Error::device_lost(format!("{} is lost: {reason}", self.device))),
            None => Ok(()),
        }
    }

    /// Converts an OpenCL error of a call with the purpose `what`. If the device then fails even a
    /// trivial command, it is marked as lost.
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

/// Creates an out-of-memory error without sizes, since drivers do not report the free bytes.
fn refused(what: &str) -> Error {
    Error::out_of_memory(format!("{what} (the driver refused, sizes unknown)"), 0, 0)
}

/// Returns whether the code means out of memory.
pub(super) fn is_memory(code: Code) -> bool {
    matches!(
        code.0,
        codes::CL_MEM_OBJECT_ALLOCATION_FAILURE
            | codes::CL_OUT_OF_RESOURCES
            | codes::CL_OUT_OF_HOST_MEMORY
    )
}

/// Returns whether the code means that the device is unusable.
fn is_loss(code: Code) -> bool {
    matches!(
        code.0,
        codes::CL_DEVICE_NOT_AVAILABLE
            | codes::CL_INVALID_CONTEXT
            | codes::CL_INVALID_COMMAND_QUEUE
            | codes::CL_CONTEXT_TERMINATED_KHR
    )
}
