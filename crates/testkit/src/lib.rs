//! The conformance kit: a table of cases, comparisons with the reference, and a runner.
//!
//! Anything that runs graphs (a provider, an engine, a third-party pack) is tested against
//! `reference` with the same rows. [`Conformance`] runs them on one device or on all devices of a
//! provider, optionally through given engines, and reports; start with [`conformance`]. [`cases()`]
//! lists the rows. [`run_case`] runs one with the reference and with a closure, and compares the
//! results. The test is `err <= limit`, so a NaN fails.
//!
//! Known errors of a device are declared in a table with a reason ([`KnownFailure`]); a declaration
//! fails as soon as the device is right. [`faults`] contains deliberate errors that show that the
//! suite can fail.

pub mod conformance;
pub mod doctor;
pub mod faults;
mod memory;
#[cfg(feature = "packs")]
pub mod pack;

pub use conformance::{Conformance, ConformanceProgress, ConformanceReport};
pub use memory::{Intermediate, MemoryUse, intermediates, memory_use};
pub use warploom::kernel::fused_reference as fused;
pub use warploom_cases::{
    Binding, Case, Failure, KnownFailure, Mismatch, NamedBytes, Outcome, RandomLimits, Report,
    Tolerance, cases, compare, compare_product, declared, random_case, random_class, run_case,
    shrink,
};
