//! Model files: GGUF, safetensors, and downloads from the Hugging Face hub.
//!
//! This crate is independent of models and devices: it treats tensors as names, formats and bytes.

#[cfg(all(feature = "download", not(target_arch = "wasm32")))]
pub mod download;
pub mod gguf;
pub mod safetensors;
