//! warploom in a browser: an engine and its models as classes of JavaScript, for a dedicated worker.
//!
//! `engine` opens a device and loads models, `model` generates text, `source` reads a file that
//! JavaScript holds, `pace` lets the worker's other events run during long work, `error` converts
//! errors, `explain` shows plans and times kernels. With the feature `compute`, `tensors` has lazy
//! tensors and kernel packs. With the feature `checks`, `smoke` checks a device's dispatches and
//! failures, `conformance` runs the table of the conformance kit, `shaders` lists the WGSL that a
//! browser can get, and `page` exports what needs no engine.
//!
//! Everything here exists in a browser only. On other targets the crate is empty, so that the whole
//! workspace still builds.

#[cfg(target_arch = "wasm32")]
mod engine;
#[cfg(target_arch = "wasm32")]
mod error;
#[cfg(target_arch = "wasm32")]
mod explain;
#[cfg(target_arch = "wasm32")]
mod model;
#[cfg(target_arch = "wasm32")]
mod options;
#[cfg(target_arch = "wasm32")]
mod pace;
#[cfg(target_arch = "wasm32")]
mod source;
#[cfg(all(target_arch = "wasm32", feature = "compute"))]
mod tensors;

#[cfg(all(target_arch = "wasm32", feature = "checks"))]
mod conformance;
#[cfg(all(target_arch = "wasm32", feature = "checks"))]
mod page;
#[cfg(all(target_arch = "wasm32", feature = "checks"))]
mod shaders;
#[cfg(all(target_arch = "wasm32", feature = "checks"))]
mod smoke;

#[cfg(all(target_arch = "wasm32", feature = "checks"))]
pub use conformance::conformance;
#[cfg(target_arch = "wasm32")]
pub use engine::Engine;
#[cfg(target_arch = "wasm32")]
pub use model::Model;
#[cfg(all(target_arch = "wasm32", feature = "checks"))]
pub use page::{smoke, words};
#[cfg(all(target_arch = "wasm32", feature = "checks"))]
pub use shaders::shaders;
#[cfg(target_arch = "wasm32")]
pub use source::Source;
#[cfg(all(target_arch = "wasm32", feature = "compute"))]
pub use tensors::Tensors;
