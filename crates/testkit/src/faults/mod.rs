//! Planted faults: providers and engines with one deliberate error each, to show that a suite can
//! fail.
//!
//! ```
//! use std::sync::Arc;
//! use warploom_testkit::Conformance;
//! use warploom_testkit::faults::{DeviceFault, FaultyProvider};
//!
//! # fn main() -> warploom::Result<()> {
//! let broken = FaultyProvider::new(Arc::new(warploom_cpu::Provider), DeviceFault::NotANumber);
//! let report = Conformance::new().only("softmax/n").run_provider(&broken)?;
//! assert!(!report.passed());
//! # Ok(())
//! # }
//! ```

mod device;
mod engine;

pub use device::FaultyProvider;
pub use engine::FaultyEngine;

/// Fault of a [`FaultyProvider`]'s devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceFault {
    /// One bit of the middle word of each result is flipped: for floats, the highest exponent bit.
    WrongElement,
    /// The middle word of each result is NaN.
    NotANumber,
    /// Every element of each result is zero.
    Zeros,
    /// A result is that of the previous run, truncated or padded with zeros.
    Stale,
    /// The last kernel of each recording is not launched, so its output keeps its old contents.
    KernelLeftOut,
    /// Four bytes past the output of each recording's last kernel are overwritten.
    PastTheEnd,
}

impl DeviceFault {
    /// Every fault.
    pub const ALL: [DeviceFault; 6] = [
        DeviceFault::WrongElement,
        DeviceFault::NotANumber,
        DeviceFault::Zeros,
        DeviceFault::Stale,
        DeviceFault::KernelLeftOut,
        DeviceFault::PastTheEnd,
    ];
}

/// Fault of a [`FaultyEngine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineFault {
    /// One bit of the middle word of the result is flipped: for floats, the highest exponent bit.
    WrongElement,
    /// The middle word of the result is NaN.
    NotANumber,
    /// The engine's last kernel is not launched, so readers of the result read unwritten memory.
    KernelLeftOut,
    /// Operands are read as if contiguous from the first byte of their memory.
    IgnoresLayout,
}

impl EngineFault {
    /// Every fault.
    pub const ALL: [EngineFault; 4] = [
        EngineFault::WrongElement,
        EngineFault::NotANumber,
        EngineFault::KernelLeftOut,
        EngineFault::IgnoresLayout,
    ];
}

/// A word that is NaN as `f32`, and whose two 16-bit parts are NaN as `f16` and `bf16`.
const NOT_A_NUMBER: u32 = 0x7fc0_7fc0;
/// The bit of an `f32` that turns 0 into 2, and 1 into infinity.
const EXPONENT: u32 = 0x4000_0000;
