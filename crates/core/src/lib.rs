//! Internals of warploom: the graph and its semantics, independent of any device.
//!
//! `base` holds sizes, shapes and element types, `quant` the storage formats of weights, `ir` the
//! graph, `reference` the semantics of every operation in plain loops, `draw` the random sampling
//! of a token, `config` the environment variables. Not a stable interface: depend on `warploom`.

pub mod base;
pub mod config;
pub mod error;
pub mod ir;
pub mod quant;
pub mod reference;
pub mod sampling;

pub use error::{Error, Result, broken_invariant};
