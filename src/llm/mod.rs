//! Language models: from a GGUF file to text.
//!
//! The text side knows no device: `tokenizer` and `utf8` turn text into ids and back, `config`
//! reads a model's numbers, `sampler` picks the next id from logits.

pub mod config;
mod pretokenizer;
pub mod sampler;
pub mod tokenizer;
pub mod utf8;

mod decoder;
mod generate;
mod model;
mod session;
mod weights;
pub use decoder::{PAST, SEQ, Wanted};
pub use generate::{Event, Finish, GenerateOptions, Generated};
pub use model::Model;
pub use sampler::{Sampler, Sampling};
pub use session::{Session, SessionOptions};
