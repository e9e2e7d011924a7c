//! No clock: the standard one panics in a browser. The profile reports none, and `prepare` refuses
//! timestamps.

/// Whether there is one.
pub(super) const AVAILABLE: bool = false;

/// A stub that does not advance.
pub(super) struct Clock;

impl Clock {
    pub(super) fn new() -> Clock {
        Clock
    }

    /// Always 0; unreachable, since `prepare` refuses timestamps.
    pub(super) fn nanoseconds(&self) -> u64 {
        0
    }
}
