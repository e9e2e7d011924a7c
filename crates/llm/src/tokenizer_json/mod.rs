//! tokenizer.json of `tokenizers`, with the behaviour of that library.
//!
//! GGUF's own keys describe two kinds of tokenizer. For features beyond them (normalisers, added
//! tokens that strip white space, WordPiece, Unigram) a file carries the whole JSON, under the key
//! `tokenizer.huggingface.json`. `keys` is the table of keys that are honoured, without effect or
//! refused; `checks` refuses parts that would make the library panic or loop; `pipeline` encodes,
//! with its own search for added tokens, because no message may name a control token; `texts`
//! returns the text of each token.

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
