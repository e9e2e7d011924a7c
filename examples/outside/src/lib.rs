//! What another crate can bring: [`Gelu`], an engine with WGSL of its own, and [`Counted`], a provider around another one
//! that counts the bytes it hands out. `tests/conformance.rs` holds both to warploom's conformance suite, in three
//! lines each, and `tests/runtime.rs` runs a graph on the provider.

mod counted;
mod gelu;

pub use counted::Counted;
pub use gelu::Gelu;
