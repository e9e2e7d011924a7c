//! No clock: the standard one panics in a browser, so the profile says that there is none, and
//! `prepare` refuses timestamps.

/// Whether there is one.
pub(super) const AVAILABLE: bool = false;

/// Stands still.
pub(super) struct Clock;

impl Clock {
    pub(super) fn new() -> Clock {
        Clock
    }

    /// Always 0; never asked for, since `prepare` refuses.
    pub(super) fn nanoseconds(&self) -> u64 {
        0
    }
}
