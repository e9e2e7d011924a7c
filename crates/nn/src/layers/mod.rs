//! Layers: parameters with a function of tensors.
//!
//! Each holds its [`Var`](warploom::tensor::Var)s and has a method `forward`. Weights have
//! PyTorch's names and layouts, so that its safetensors files fit.

mod attention;
mod basic;
mod dropout;
mod lstm;
mod norm;

pub use attention::MultiHeadAttention;
pub use basic::{Activation, Conv2dLayer, Embedding, Linear};
pub use dropout::Dropout;
pub use lstm::{Lstm, LstmState};
pub use norm::{LayerNorm, RmsNorm};
