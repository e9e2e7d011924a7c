//! A stub of the device's clock, since the standard one panics in a browser. The profile reports no
//! timestamps, and `prepare` refuses them.

/// Whether this build has a clock.
pub(super) const AVAILABLE: bool = false;

/// A stub clock that does not advance.
pub(super) struct Clock;

impl Clock {
    pub(super) fn new() -> Clock {
        Clock
    }

    /// Returns 0. Never called, since `prepare` refuses timestamps.
    pub(super) fn nanoseconds(&self) -> u64 {
        0
    }
}
