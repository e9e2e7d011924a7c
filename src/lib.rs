//! warploom: one graph, or one WGSL kernel, on every GPU and on the CPU.

pub mod config;
mod error;

pub mod base;

pub mod ir;
pub mod quant;

pub mod kernel;
pub mod reference;

pub mod provider;

pub mod testkit;

pub use error::{Error, Result, broken_invariant};
