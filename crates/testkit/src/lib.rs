//! The conformance kit: one table of cases, comparators that can fail, and a runner.
//!
//! Whatever runs graphs (a provider, an engine, a pack of somebody else's) is held to `reference`
//! by the same rows: [`Conformance`] runs them on a device or on all of a provider's, through engines of one's own where
//! asked, and reports ([`conformance`] is the page to begin with). [`cases()`] has the rows; [`run_case`] evaluates one in
//! the reference and through a closure, and compares. An answer passes only where an error is provably small:
//! `err <= limit`, so that a NaN fails.
//!
//! A device that is known to be wrong is declared in a table with its reason ([`KnownFailure`]); a
//! declaration fails as soon as the device is right. [`faults`] are wrong on purpose: they show that the suite fails.

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
