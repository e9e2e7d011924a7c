//! Opens the device of a runtime again, after it was lost.

use std::sync::PoisonError;

use super::Runtime;
use crate::error::{Error, Result};

/// Which device takes the place of a lost one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reopen {
    /// The same device.
    Same,
    /// The same device; if it does not open, the best other one that does.
    OrNext,
}

impl Runtime {
    /// Returns whether the runtime opened its device itself, so that
    /// [`reopen_async`](Runtime::reopen_async) can open it again. False for a device that the
    /// caller opened ([`RuntimeBuilder::build_on`](super::RuntimeBuilder::build_on)).
    pub fn can_reopen(&self) -> bool {
        self.0.builder.is_some()
    }

    /// Opens the device of this runtime again, with the same settings, and returns a new runtime.
    /// Nothing in the memory of the lost device is kept.
    ///
    /// # Errors
    /// Invalid if the caller opened the device; otherwise the errors of
    /// [`RuntimeBuilder::build_async`](super::RuntimeBuilder::build_async).
    pub async fn reopen_async(&self, which: Reopen) -> Result<Runtime> {
        let Some(builder) = &self.0.builder else {
            return Err(Error::invalid("the caller opened the device and must open it again"));
        };
        let (builder, id) = (builder.clone(), self.0.device.profile().id());
        let runtime = match (builder.clone().device(&id).build_async().await, which) {
            (Err(_), Reopen::OrNext) => builder.device("auto").build_async().await?,
            (done, _) => done?,
        };
        if runtime.device().profile().id() == id {
            let mut tuning = runtime.0.tuning.write().unwrap_or_else(PoisonError::into_inner);
            *tuning = self.tuning();
        }
        Ok(runtime)
    }

    /// Blocking version of [`Runtime::reopen_async`].
    ///
    /// # Errors
    /// Same as [`Runtime::reopen_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn reopen(&self, which: Reopen) -> Result<Runtime> {
        crate::base::platform::block_on(self.reopen_async(which))
    }
}
