//! warploom in a web page.
//!
//! Everything here exists in a browser only; on other targets the crate is empty, so that the
//! workspace builds as one.

#[cfg(target_arch = "wasm32")]
mod page;
#[cfg(target_arch = "wasm32")]
mod smoke;

#[cfg(target_arch = "wasm32")]
pub use page::smoke;
