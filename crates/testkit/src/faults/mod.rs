//! Planted faults: providers and engines that are wrong on purpose, in one way each, to show that a suite fails.
//!
//! ```
//! use std::sync::Arc;
//! use warploom::testkit::Conformance;
//! use warploom::testkit::faults::{DeviceFault, FaultyProvider};
//!
//! # fn main() -> warploom::Result<()> {
//! let broken = FaultyProvider::new(Arc::new(warploom::cpu::Provider), DeviceFault::NotANumber);
//! let report = Conformance::new().only("softmax/n").run_provider(&broken)?;
//! assert!(!report.passed());
//! # Ok(())
//! # }
//! ```

mod device;
mod engine;

pub use device::FaultyProvider;
pub use engine::FaultyEngine;

/// What a [`FaultyProvider`]'s devices do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceFault {
    /// In the middle of each result one bit is wrong, the highest of the exponent of a float.
    WrongElement,
    /// In the middle of each result stands no number.
    NotANumber,
    /// Every result is zeros.
    Zeros,
    /// A result is that of the run before, cut to its size or filled up with zeros.
    Stale,
    /// The last kernel of each recording is not launched: what it writes is what was there before.
    KernelLeftOut,
    /// Four bytes behind what the last kernel of a recording writes are written as well.
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

/// What a [`FaultyEngine`] does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineFault {
    /// In the middle of the result one bit is wrong, the highest of the exponent of a float.
    WrongElement,
    /// In the middle of the result stands no number.
    NotANumber,
    /// Its last kernel is not launched, so that what reads the result reads memory that nobody wrote.
    KernelLeftOut,
    /// Operands are read as if they lay without gaps from the first byte of their memory on.
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

/// A word that is no number as `f32`, and in either half as `f16` and `bf16`.
const NOT_A_NUMBER: u32 = 0x7fc0_7fc0;
/// The bit that makes 2 of 0, and infinity of 1.
const EXPONENT: u32 = 0x4000_0000;
