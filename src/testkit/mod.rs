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

mod build;
mod cases;
mod compare;
pub mod conformance;
pub mod doctor;
pub mod faults;
pub mod fused;
mod inputs;
mod memory;
#[cfg(feature = "llm")]
mod models;
#[cfg(feature = "packs")]
pub mod pack;
mod random;
mod run;

pub use build::{Binding, Case};
pub use cases::cases;
pub use compare::{Mismatch, Report, Tolerance, compare, compare_product};
pub use conformance::{Conformance, ConformanceProgress, ConformanceReport};
pub use memory::{Intermediate, MemoryUse, intermediates, memory_use};
#[cfg(feature = "llm")]
pub use models::{gemma3_270m, qwen2_5_0_5b, smollm2_135m};
pub use random::{RandomLimits, random_case, random_class, shrink};
pub use run::{Failure, KnownFailure, NamedBytes, Outcome, declared, run_case};
