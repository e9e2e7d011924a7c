//! Internals of warploom: the graph and its semantics, independent of any device.
//!
//! `base` defines sizes, shapes and element types, `quant` the storage formats of weights, `ir` the
//! graph, `reference` the semantics of every operation in plain loops, `sampling` the choice of a
//! token from its logits, `config` the environment variables, and `error` the error type. This
//! crate is not a stable interface: depend on `warploom` instead.

pub mod base;
pub mod config;
pub mod error;
pub mod ir;
pub mod quant;
pub mod reference;
pub mod sampling;

pub use error::{Error, Result, broken_invariant};
