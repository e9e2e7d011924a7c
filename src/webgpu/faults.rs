//! Collects wgpu's errors: none panics, and the first is kept until a `wait` returns it.
//!
//! The callbacks may run inside any wgpu call, so they access only this record.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::platform::BoxFuture;
use crate::error::{Error, Result};

/// Record of the errors of a device that no call returns directly.
pub(super) struct Faults {
    device: String,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    lost: Option<String>,
    first: Option<Error>,
}

impl Faults {
    /// Installs callbacks that write to a new record. `device` is the device id, for messages.
    pub(super) fn install(gpu: &wgpu::Device, device: String) -> Arc<Faults> {
        let faults = Arc::new(Faults { device, record: Mutex::default() });
        let uncaptured = Arc::clone(&faults);
        gpu.on_uncaptured_error(Arc::new(move |error| uncaptured.note(error)));
        let lost = Arc::clone(&faults);
        gpu.set_device_lost_callback(move |reason, message| {
            lost.note_lost(&format!("{reason:?} {message}"));
        });
        faults
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an error that no call waits for; the first one is kept.
    pub(super) fn note(&self, error: wgpu::Error) {
        let error = convert(error, &self.device, None);
        self.record().first.get_or_insert(error);
    }

    /// Marks the device as lost; the first reason is kept.
    pub(super) fn note_lost(&self, reason: &str) {
        self.record().lost.get_or_insert_with(|| reason.trim().to_owned());
    }

    /// Returns an error if the device is lost.
    pub(super) fn check_lost(&self) -> Result<()> {
        match &self.record().lost {
            Some(reason) => Err(Error::device_lost(format!("{} is lost: {reason}", self.device))),
            None => Ok(()),
        }
    }

    /// Returns the device loss on every call, or else the first error since the last call, once.
    pub(super) fn take(&self) -> Result<()> {
        self.check_lost()?;
        match self.record().first.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Runs a wgpu call that panics on driver failure; a panic counts as a lost device.
    pub(super) fn guard<T>(&self, what: &str, call: impl FnOnce() -> T) -> Result<T> {
        catch_unwind(AssertUnwindSafe(call)).or_else(|panic| {
            self.note_lost(&format!("{what} failed: {}", panic_text(&*panic)));
            self.check_lost()?;
            Err(Error::device_lost(format!("{} is lost", self.device)))
        })
    }
}

/// The message of a caught panic.
pub(super) use crate::base::platform::panic_text;

/// Converts a wgpu error; `what` names the failed action. `memory` is the needed and the available
/// bytes, if known.
pub(super) fn convert(error: wgpu::Error, what: &str, memory: Option<(u64, u64)>) -> Error {
    match error {
        wgpu::Error::OutOfMemory { .. } => match memory {
            Some((need, have)) => Error::out_of_memory(what, need, have),
            None => {
                Error::out_of_memory(format!("{what} (the driver refused, sizes unknown)"), 0, 0)
            }
        },
        wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
            Error::device(format!("{what}: {}", tidy(&description)))
        }
    }
}

/// Removes the headings of wgpu's description and the whitespace around it.
pub(super) fn tidy(description: &str) -> String {
    let body = description.trim_start_matches("Validation Error").trim_start();
    body.trim_start_matches("Caused by:").trim().to_owned()
}

/// Error scopes of all three kinds around wgpu calls, on this thread.
pub(super) struct Scopes {
    // In reverse order of pushing, since fields are dropped in this order.
    internal: wgpu::ErrorScopeGuard,
    memory: wgpu::ErrorScopeGuard,
    validation: wgpu::ErrorScopeGuard,
}

/// The first error of the closed scopes; ready at once on native builds.
pub(super) type ScopeFuture = BoxFuture<'static, Option<wgpu::Error>>;

impl Scopes {
    /// Opens one scope of each kind.
    pub(super) fn open(gpu: &wgpu::Device) -> Scopes {
        let validation = gpu.push_error_scope(wgpu::ErrorFilter::Validation);
        let memory = gpu.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let internal = gpu.push_error_scope(wgpu::ErrorFilter::Internal);
        Scopes { internal, memory, validation }
    }

    /// Closes the scopes. Later calls are outside them, even before the future is awaited.
    pub(super) fn close(self) -> ScopeFuture {
        let internal = self.internal.pop();
        let memory = self.memory.pop();
        let validation = self.validation.pop();
        Box::pin(async move {
            // All are awaited, so that no promise is left pending.
            let (validation, memory, internal) = (validation.await, memory.await, internal.await);
            memory.or(validation).or(internal)
        })
    }
}
