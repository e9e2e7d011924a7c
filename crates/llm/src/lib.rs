//! Language models: from a GGUF file to text.
//!
//! The text side knows no device: `tokenizer` and `utf8` turn text into ids and back, `config`
//! reads a model's numbers, `sampler` picks the next id from logits. `architecture` is the table
//! of what differs between models, `weights` finds the tensors, `decoder` is the forward pass as
//! a graph, `session` holds both on a device and replays a plan for each token, `batch` runs several
//! sequences of one at once, `draws` chooses tokens on the device, `ahead` several without the host between them, `generate` goes
//! from a prompt to text, `chat` from messages to an answer, `perplexity`
//! tells how well a text was foreseen.
//! `huggingface` tells a folder of safetensors as the GGUF file that it would be, and `quantize`
//! writes one with smaller weights.

mod ahead;
mod architecture;
mod batch;
mod batch_ahead;
pub mod chat;
mod classes;
pub mod config;
mod decoder;
mod draws;
mod ends;
mod expected;
mod foreign;
mod generate;
#[cfg(not(target_arch = "wasm32"))]
pub mod huggingface;
mod model;
mod perplexity;
mod pretokenizer;
#[cfg(not(target_arch = "wasm32"))]
pub mod quantize;
pub mod sampler;
mod sentencepiece;
mod session;
pub mod shapes;
pub mod tokenizer;
mod tokenizer_json;
pub mod utf8;
mod vocabulary;
mod weights;
mod yarn;

#[cfg(test)]
mod test_file;

pub use batch::class_of_each;
pub use classes::{class_of, classes};
pub use decoder::{BASE, CacheShape, PAST, Run, SEQ, Wanted};
pub use expected::Expected;
pub use generate::{Event, Finish, GenerateOptions, Generated, OnEvent};
pub use model::Model;
pub use perplexity::{OnWindow, Perplexity, PerplexityOptions};
pub use sampler::{Sampler, Sampling};
pub use session::{MAX_SEQUENCES, Session, SessionOptions};
