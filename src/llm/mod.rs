//! Language models: from a GGUF file to text.
//!
//! The text side knows no device: `tokenizer` and `utf8` turn text into ids and back, `config`
//! reads a model's numbers, `sampler` picks the next id from logits. `weights` finds the tensors,
//! `decoder` is the forward pass as a graph, `session` holds both on a device and replays a plan
//! for each token, `generate` goes from a prompt to text.

pub mod config;
mod decoder;
mod generate;
mod model;
mod pretokenizer;
pub mod sampler;
mod session;
pub mod tokenizer;
pub mod utf8;
mod weights;

#[cfg(test)]
mod test_file;

pub use decoder::{PAST, SEQ, Wanted};
pub use generate::{Event, Finish, GenerateOptions, Generated};
pub use model::Model;
pub use sampler::{Sampler, Sampling};
pub use session::{Session, SessionOptions, class_of, classes};
