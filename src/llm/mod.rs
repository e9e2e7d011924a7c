//! Language models: from a GGUF file to text.
//!
//! The text side knows no device: `tokenizer` and `utf8` turn text into ids and back, `config`
//! reads a model's numbers, `sampler` picks the next id from logits.

pub mod config;
mod pretokenizer;
pub mod sampler;
pub mod tokenizer;
pub mod utf8;

#[cfg(test)]
mod test_file;
