//! Splits a text into words with a pre-tokenizer, and encodes their bytes in GPT-2's byte alphabet.

#[cfg(not(target_arch = "wasm32"))]
use super::pattern_native::Pattern;
#[cfg(target_arch = "wasm32")]
use super::pattern_web::Pattern;
use super::pretokenizer::PreTokenizer;
use super::vocabulary::char_of;
use warploom::Result;

/// The compiled patterns of a pre-tokenizer.
#[derive(Debug)]
pub(super) struct Words(Vec<Pattern>);

impl Words {
    /// Compiles the patterns.
    ///
    /// # Errors
    /// Unsupported if the regular expression engine does not support a construct.
    pub(super) fn new(pre: &PreTokenizer) -> Result<Words> {
        Ok(Words(pre.patterns.iter().map(|pattern| Pattern::new(pattern)).collect::<Result<_>>()?))
    }

    /// Returns the words of a text, in order. Together they are the whole text.
    ///
    /// # Errors
    /// Unsupported if the search for a pattern is too complex for the engine.
    pub(super) fn split<'a>(&self, text: &'a str) -> Result<Vec<&'a str>> {
        let mut parts = vec![text];
        for pattern in &self.0 {
            let mut next = Vec::with_capacity(parts.len());
            for part in parts {
                let mut from = 0;
                for found in pattern.matches(part)? {
                    next.extend([&part[from..found.start], &part[found.clone()]]);
                    from = found.end;
                }
                next.push(&part[from..]);
            }
            parts = next;
            parts.retain(|part| !part.is_empty());
        }
        Ok(parts)
    }
}

/// Spells a word in GPT-2's alphabet: one character for each byte.
pub(super) fn spell(word: &str, out: &mut String) {
    out.clear();
    out.extend(word.bytes().map(char_of));
}
