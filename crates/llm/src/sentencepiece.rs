//! SentencePiece vocabularies (`tokenizer.ggml.model` is `llama`): a text is one word, spaces are
//! U+2581, pairs merge by the score of the result, and byte tokens replace characters without a
//! token.

use std::collections::HashMap;

use super::bpe::Merge;
use super::vocabulary::{NORMAL, TokenizerSpec, type_of};
use warploom::{Error, Result};

/// The character that stands for a space in tokens.
const SPACE: char = '\u{2581}';
/// [`SPACE`] as a string.
pub(super) const SPACE_TEXT: &str = "\u{2581}";

/// Maximum bytes of a token that merges can produce; real ones have fewer than 100. Each is split
/// at every position, so the cost is quadratic in its length.
const MAX_PIECE_BYTES: usize = 256;

/// Replaces each space of a text with U+2581, as in tokens. If `prefix` is set, a space is put
/// before the text first.
pub(super) fn spelled(text: &str, prefix: bool) -> String {
    let space = if prefix { SPACE_TEXT } else { "" };
    space.to_owned() + &text.replace(' ', SPACE_TEXT)
}

/// Replaces each U+2581 with a space: the inverse of [`spelled`] without a prefix.
pub(super) fn plain(spelled: &str) -> String {
    spelled.replace(SPACE, " ")
}

/// Maps byte offset `at` in the plain form of `text`, in which each U+2581 is a space, to the
/// corresponding offset in `text`.
pub(super) fn origin(text: &str, at: usize) -> usize {
    let mut plain = 0;
    for (offset, c) in text.char_indices() {
        let len = if c == SPACE { 1 } else { c.len_utf8() };
        if at < plain + len {
            return offset + (at - plain);
        }
        plain += len;
    }
    text.len()
}

/// Parses a byte token, `<0x00>` to `<0xFF>`.
///
/// # Errors
/// Bad file, naming the element, if the token does not have this form.
pub(super) fn byte(index: usize, token: &str) -> Result<u8> {
    let digits = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    let is_byte = |digits: &&str| {
        digits.len() == 2
            && digits.bytes().all(|d| d.is_ascii_digit() || (b'A'..=b'F').contains(&d))
    };
    let byte = digits.filter(is_byte).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    byte.ok_or_else(|| {
        Error::bad_file(format!(
            "tokenizer.ggml.tokens: element {index}, {token:?}, is of type byte, but is not one \
             of <0x00> to <0xFF>"
        ))
    })
}

/// Derives the merges from the scores, best first: all pairs of tokens whose joined text is a
/// token.
///
/// # Errors
/// Bad file, naming the element, if scores are missing or NaN, or a token is too long.
pub(super) fn merges(spec: &TokenizerSpec, ids: &HashMap<&str, u32>) -> Result<Vec<Merge>> {
    let (tokens, scores) = (spec.tokens.len(), spec.scores.len());
    if scores != tokens {
        return Err(Error::bad_file(format!(
            "tokenizer.ggml.scores: {scores} entries for {tokens} tokens"
        )));
    }
    if let Some(index) = spec.scores.iter().position(|score| score.is_nan()) {
        return Err(Error::bad_file(format!("tokenizer.ggml.scores: element {index} is NaN")));
    }
    let piece =
        |text: &str| ids.get(text).copied().filter(|id| type_of(spec, *id as usize) == NORMAL);
    let mut found: Vec<(u32, u32, u32)> = Vec::new();
    for (index, (whole, token)) in (0u32..).zip(&spec.tokens).enumerate() {
        if type_of(spec, index) != NORMAL {
            continue;
        }
        if token.len() > MAX_PIECE_BYTES {
            let len = token.len();
            return Err(Error::bad_file(format!(
                "tokenizer.ggml.tokens: element {index} has {len} bytes, the limit of a token \
                 made of others is {MAX_PIECE_BYTES}"
            )));
        }
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if let (Some(left), Some(right)) = (piece(left), piece(right)) {
                found.push((whole, left, right));
            }
        }
    }
    let score = |(whole, _, _): &(u32, u32, u32)| spec.scores[*whole as usize];
    found.sort_by(|a, b| score(b).total_cmp(&score(a)).then(a.cmp(b)));
    Ok(found.into_iter().map(|(whole, left, right)| (left, right, whole)).collect())
}

#[cfg(test)]
#[path = "sentencepiece_tests.rs"]
mod tests;
