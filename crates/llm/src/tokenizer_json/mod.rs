//! Reads tokenizer.json, the format of the `tokenizers` library, and encodes and decodes as that
//! library does.
//!
//! GGUF's own keys describe two kinds of tokenizer. For other features (normalisers, added tokens
//! that strip white space, WordPiece, Unigram) a file contains the whole JSON, under the key
//! `tokenizer.huggingface.json`. `keys` is the table of the keys that are honoured, have no effect
//! or are refused; `checks` refuses parts that would make the library panic or loop; `pipeline`
//! encodes, with its own search for added tokens (`added`), because the text of a message must
//! never become a control token; `texts` returns the text of each token. `wordpiece` and
//! `unigram` make the JSON of a GGUF file with such a tokenizer.

mod added;
mod checks;
pub(crate) mod keys;
mod pair;
mod pipeline;
mod regex;
mod texts;
pub(crate) mod unigram;
pub(crate) mod wordpiece;

#[cfg(test)]
mod of_gguf_tests;
#[cfg(test)]
mod tests;

#[cfg(not(target_arch = "wasm32"))]
pub(crate) use checks::{merge, model_tokens};
pub(crate) use pair::Pair;
pub(crate) use pipeline::{Guard, Pipeline};

/// GGUF key of the whole JSON.
pub(crate) const KEY: &str = "tokenizer.huggingface.json";
