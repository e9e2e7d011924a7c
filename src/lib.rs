//! warploom: one graph, or one WGSL kernel, on every GPU and on the CPU.

pub mod config;
mod error;

pub mod base;

pub mod ir;
pub mod quant;

pub mod gguf;
pub mod kernel;
pub mod reference;

pub mod codegen;
pub mod cpu;
pub mod provider;
#[cfg(feature = "webgpu")]
pub mod webgpu;

pub mod engine;
pub mod memory;

pub mod plan;

pub mod runtime;

#[cfg(feature = "llm")]
pub mod llm;

pub mod testkit;

pub use error::{Error, Result, broken_invariant};
