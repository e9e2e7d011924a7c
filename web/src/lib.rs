//! Smoke tests of warploom that run in a web page.
//!
//! Everything here exists in a browser only. On other targets the crate is empty, so that the whole
//! workspace still builds.

#[cfg(target_arch = "wasm32")]
mod page;
#[cfg(target_arch = "wasm32")]
mod smoke;

#[cfg(target_arch = "wasm32")]
pub use page::smoke;
