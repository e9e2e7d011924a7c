//! The regular expressions of pre-tokenizers, implemented by the crate `fancy-regex`.

use std::ops::Range;

use fancy_regex::Regex;
use warploom::{Error, Result};

/// A compiled regular expression.
#[derive(Debug)]
pub(super) struct Pattern(Regex);

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// Unsupported if the crate does not support a construct.
    pub(super) fn new(pattern: &str) -> Result<Pattern> {
        let regex = Regex::new(pattern);
        let error = |e| Error::unsupported("pre-tokenizer pattern").with_source(e);
        Ok(Pattern(regex.map_err(error)?))
    }

    /// Returns the matches in a text, in order.
    ///
    /// # Errors
    /// Unsupported if the search exceeds its backtracking limit.
    pub(super) fn matches(&self, text: &str) -> Result<Vec<Range<usize>>> {
        let found = self.0.find_iter(text).map(|found| {
            let error = |e| Error::unsupported("pre-tokenizer: the search gave up").with_source(e);
            found.map(|found| found.range()).map_err(error)
        });
        found.collect()
    }
}
