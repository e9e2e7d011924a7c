//! The device's clock.

use std::time::Instant;

/// Whether this build has a clock.
pub(super) const AVAILABLE: bool = true;

/// A clock that counts from the opening of the device.
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn new() -> Clock {
        Clock(Instant::now())
    }

    /// Returns the nanoseconds since the device was opened.
    pub(super) fn nanoseconds(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}
