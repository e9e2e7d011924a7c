//! Extensions of warploom from another crate: [`Gelu`], an engine with its own WGSL, and
//! [`Counted`], a provider that wraps another and counts the bytes that its devices allocate.
//! `tests/conformance.rs` runs warploom's conformance suite on both, and `tests/runtime.rs` runs a
//! graph on the provider.

mod counted;
mod gelu;

pub use counted::Counted;
pub use gelu::Gelu;
