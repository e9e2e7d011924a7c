//! Model files: what GGUF and safetensors files hold, and how they come from the Hugging Face hub.
//!
//! Knows no model and no device: tensors are names, formats and bytes.

#[cfg(all(feature = "download", not(target_arch = "wasm32")))]
pub mod download;
pub mod gguf;
pub mod safetensors;
