//! Model files: GGUF and safetensors, and downloads from the Hugging Face hub.
//!
//! Independent of models and devices: tensors are names, formats and bytes.

#[cfg(all(feature = "download", not(target_arch = "wasm32")))]
pub mod download;
pub mod gguf;
pub mod safetensors;
