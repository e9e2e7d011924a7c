//! Replaces `tokenizer_json` in browser builds without the feature `tokenizer-json`: refuses every
//! file with a whole tokenizer.json.

use std::collections::HashSet;

use serde_json::Value;
use warploom::{Error, Result};

/// GGUF key of the whole JSON.
pub(crate) const KEY: &str = "tokenizer.huggingface.json";

/// What limits the search for added tokens.
#[expect(dead_code, reason = "no pipeline reads it")]
pub(crate) struct Guard<'a> {
    pub(crate) marks: &'a [usize],
    pub(crate) parse_special: bool,
    pub(crate) from: usize,
    pub(crate) before: Option<u32>,
}

/// The tokens around two texts, which this build cannot read.
#[derive(Clone, Default)]
pub(crate) struct Pair {
    pub(crate) before: Vec<u32>,
    pub(crate) between: Vec<u32>,
    pub(crate) behind: Vec<u32>,
    pub(crate) has_types: bool,
}

/// WordPiece, which this build cannot make.
pub(crate) mod wordpiece {
    use crate::vocabulary::TokenizerSpec;

    pub(crate) const MODEL: &str = "bert";

    /// Returns a JSON that is refused like any other.
    ///
    /// # Errors
    /// None.
    pub(crate) fn json(_: &TokenizerSpec) -> warploom::Result<serde_json::Value> {
        Ok(serde_json::Value::Null)
    }
}

/// Unigram, which this build cannot make.
pub(crate) mod unigram {
    pub(crate) const MODEL: &str = "t5";

    pub(crate) use super::wordpiece::json;
}

/// A pipeline, which this build cannot make.
pub(crate) enum Pipeline {}

impl Pipeline {
    /// Refuses the JSON.
    ///
    /// # Errors
    /// Unsupported, always.
    pub(crate) fn new(_: &Value, _: usize, _: HashSet<u32>) -> Result<Pipeline> {
        Err(Error::unsupported(
            "this build lacks the feature tokenizer-json, which reads a whole tokenizer.json",
        ))
    }

    pub(crate) fn texts(&self, _: usize) -> Result<(Vec<u8>, Vec<usize>)> {
        match *self {}
    }

    pub(crate) fn around(&self) -> (&[u32], &[u32]) {
        match *self {}
    }

    pub(crate) fn pair(&self) -> Option<&Pair> {
        match *self {}
    }

    pub(crate) fn encode(&self, _: &str, _: &Guard<'_>) -> Result<Vec<u32>> {
        match *self {}
    }

    pub(crate) fn decode(&self, _: &[u32]) -> Result<Vec<u8>> {
        match *self {}
    }

    pub(crate) fn control_tokens(&self) -> std::iter::Empty<(&str, u32)> {
        match *self {}
    }

    pub(crate) fn names_vary(&self) -> bool {
        match *self {}
    }
}
