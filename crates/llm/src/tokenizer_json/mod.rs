//! tokenizer.json of `tokenizers`, done as that library does it.
//!
//! GGUF's own keys describe two kinds of tokenizer. What they cannot say (normalisers, white space
//! that an added token takes with it, WordPiece, Unigram) a file carries whole, under GGUF's key
//! `tokenizer.huggingface.json`. `keys` is the table of what is honoured, without effect or refused;
//! `checks` looks for what would make the library panic or loop; `pipeline` encodes, with its own
//! search for added tokens, because no message may name a control token; `texts` says what each
//! token writes.

mod checks;
pub(crate) mod keys;
mod pipeline;
mod regex;
mod texts;

#[cfg(test)]
mod tests;

pub(crate) use checks::{merge, model_tokens};
pub(crate) use pipeline::{Guard, Pipeline};

/// GGUF's key for the whole file.
pub(crate) const KEY: &str = "tokenizer.huggingface.json";
