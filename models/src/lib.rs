//! The small language model that the `warploom` command runs if no model is named.
//!
//! It is a separate crate, so that only programs that embed the model download its 4.8 MB.

/// The model as a GGUF file: llama architecture, mostly Q4_K and Q6_K.
pub static GGUF: &[u8] = include_bytes!("../warploom-tiny-llama-Q4_K_M.gguf");
