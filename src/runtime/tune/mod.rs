//! The tuner: for each piece of a plan, the fastest engine by measurement.
//!
//! A plan's distinct pieces are tasks ([`crate::plan::tasks`]). Each gets memory of its own on the
//! device; every candidate, an engine with values of its knobs, runs once and is held to the
//! numbers of the engine that estimates choose, then candidates are timed in turn and losers are
//! out early. What is found is kept on disk ([`TuneCache`]) and reaches plans as
//! [`Options::tuned`](crate::plan::Options::tuned).
//!
//! A candidate that does not compile, is wrong, takes too long or too much memory is out, with the
//! reason. One that ends the process, or never comes back, is known by the journal and not tried
//! again.

mod cache;
mod choices;
mod options;
#[cfg(not(target_arch = "wasm32"))]
mod search;

pub use cache::{Suspect, TuneCache, TuneRecord, TunedTask, UnmeasuredTask};
pub(super) use choices::Tuning;
pub use choices::tuned_on;
pub use options::{Dropped, Timing, TuneMode, TuneOptions, TuneProgress, TuneReport, TuneResult};
