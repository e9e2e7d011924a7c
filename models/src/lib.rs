//! The small trained language model that the `warploom` command runs when no file is named.
//!
//! A crate of its own, so that only programs that embed the model download its 4.8 MB.

/// The model as a GGUF file: llama architecture, mostly Q4_K and Q6_K.
pub static GGUF: &[u8] = include_bytes!("../warploom-tiny-llama-Q4_K_M.gguf");
