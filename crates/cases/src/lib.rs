//! The table of conformance cases, random graphs, and comparison with the reference.
//!
//! This crate is below the engine crates, so that unit tests of every crate can use it;
//! `warploom-testkit` runs the cases on devices. The interface is not stable: depend on
//! `warploom-testkit` instead.

mod build;
mod compare;
mod inputs;
mod random;
mod run;
mod table;

pub use build::{Binding, Case};
pub use compare::{Mismatch, Report, Tolerance, compare, compare_product};
pub use random::{RandomLimits, random_case, random_class, shrink};
pub use run::{
    Failure, KnownFailure, NamedBytes, Outcome, Wrong, agree, declared, judge, run_case, worse,
};
pub use table::cases;
