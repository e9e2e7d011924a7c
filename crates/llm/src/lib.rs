//! Language models: from a GGUF file to text.
//!
//! The text side is independent of the device: `tokenizer` and `utf8` convert text to ids and back,
//! `config` reads a model's hyperparameters, `sampler` picks the next id from logits.
//! `architecture` is the table of differences between models, `weights` finds the tensors,
//! `decoder` builds the forward pass as a graph, `session` keeps weights and KV cache on a device
//! and replays a plan for each token, `batch` decodes several sequences at once, `draws` samples on
//! the device, `ahead` is run-ahead decoding (several tokens without a host round trip), `generate`
//! goes from a prompt to text, `chat` from messages to an answer, `perplexity` measures how well
//! the model predicts a text. `huggingface` presents a folder of safetensors as a GGUF file, and
//! `quantize` writes one with smaller weights.

mod architecture;
mod batch;
pub mod chat;
pub mod config;
mod decoder;
mod device_sampling;
mod ends;
mod foreign;
mod generate;
#[cfg(not(target_arch = "wasm32"))]
pub mod huggingface;
mod model;
mod perplexity;
mod pretokenizer;
mod prewarm;
#[cfg(not(target_arch = "wasm32"))]
pub mod quantize;
mod run_ahead;
mod run_ahead_batch;
pub mod sampler;
mod sentencepiece;
mod session;
mod shape_buckets;
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
pub use decoder::{BASE, CacheShape, PAST, Run, SEQ, Wanted};
pub use generate::{Event, Finish, GenerateOptions, Generated, OnEvent};
pub use model::Model;
pub use perplexity::{OnWindow, Perplexity, PerplexityOptions};
pub use prewarm::Expected;
pub use sampler::{Sampler, Sampling};
pub use session::{MAX_SEQUENCES, Session, SessionOptions};
pub use shape_buckets::{class_of, classes};
