//! Autotuner: finds the fastest engine for each task of a plan by measurement.
//!
//! Tasks are the distinct groups of a plan ([`crate::plan::tasks`]). Each gets its own device
//! memory. A candidate is an engine with knob values. Each candidate runs once, and its result is
//! checked against that of the engine chosen by estimates. Then candidates are timed alternately,
//! and slow ones are eliminated early. Results are stored on disk ([`TuneCache`]) and reach plans
//! as [`Options::tuned`](crate::plan::Options::tuned).
//!
//! A candidate is eliminated, with the reason, if it does not compile, computes a wrong result, or
//! exceeds a limit of time or memory. The journal records a candidate that ends the process or
//! never returns, so it is not tried again.

mod cache;
mod choices;
mod options;
#[cfg(not(target_arch = "wasm32"))]
mod search;

pub use cache::{Suspect, TuneCache, TuneRecord, TunedTask, UnmeasuredTask};
pub(super) use choices::Tuning;
pub use choices::tuned_on;
pub use options::{Dropped, Timing, TuneMode, TuneOptions, TuneProgress, TuneReport, TuneResult};
