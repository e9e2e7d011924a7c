//! Applies the decoder of a tokenizer.json to one token at a time.
//!
//! `tokenizers` decodes a whole list of tokens at once, but a stream never has the whole list.
//! Every supported decoder writes the same text for a token at every position except the first.

use serde_json::Value as Json;
use tokenizers::normalizers::replace::Replace;
use tokenizers::{Decoder, decoders::wordpiece::cleanup};

use super::regex::translated;
use crate::vocabulary::byte_of;
use warploom::{Error, Result};

/// One step of a decoder, applied to one token.
enum Step {
    /// Maps the byte alphabet to bytes; a token with other characters is left unchanged.
    ByteLevel,
    /// Converts each of the tokens `<0x00>` to `<0xFF>` to a byte.
    ByteFallback,
    Replace(Box<Replace>),
    /// Replaces each `space` character with a space; in the first token, removes them instead if
    /// `skips` is true.
    Metaspace {
        space: char,
        skips: bool,
    },
    /// Removes `prefix` from tokens that continue a word, and puts a space before those that begin
    /// one. Leaves the first token unchanged.
    WordPiece {
        prefix: String,
        cleanup: bool,
    },
    /// Puts a space before each token but the first.
    Apart,
    /// Strips up to `count` occurrences of `content` from the start of the token.
    Strip {
        content: char,
        count: usize,
    },
}

/// The decoder of a file, for single tokens.
pub(super) struct Texts {
    steps: Vec<Step>,
    /// Characters to strip from the start of the whole text, each with its maximum count.
    strips: Vec<(char, usize)>,
}

/// A partly decoded token: text, or bytes, which are final.
enum Piece {
    Text(String),
    Bytes(Vec<u8>),
}

impl Texts {
    /// Reads the decoder of a file; without one, inverts its normaliser and pre-tokenizer.
    ///
    /// # Errors
    /// Unsupported, naming the step, if the text of a token would depend on more than whether it is
    /// the first; bad file, naming the field, if a step is not valid.
    pub(super) fn new(file: &Json) -> Result<Texts> {
        let mut texts = Texts { steps: Vec::new(), strips: Vec::new() };
        let mut fused = false;
        match file.get("decoder") {
            None | Some(Json::Null) => texts.steps = implied(file),
            Some(decoder) => texts.add(decoder, &mut fused).map_err(|e| e.context("decoder"))?,
        }
        Ok(texts)
    }

    fn add(&mut self, step: &Json, fused: &mut bool) -> Result<()> {
        let kind = step.get("type").and_then(Json::as_str).unwrap_or_default();
        let text = |key: &str| {
            let value = step.get(key).and_then(Json::as_str);
            value.ok_or_else(|| Error::bad_file(format!("{kind}: {key}: no text")))
        };
        let one = |key: &str| {
            let mut all = text(key)?.chars();
            match (all.next(), all.next()) {
                (Some(c), None) => Ok(c),
                _ => Err(Error::bad_file(format!("{kind}: {key}: not one character"))),
            }
        };
        let count = |key: &str| step.get(key).and_then(Json::as_u64).unwrap_or(0) as usize;
        let next = match kind {
            "Sequence" => {
                let steps = step.get("decoders").and_then(Json::as_array);
                return steps.into_iter().flatten().try_for_each(|step| self.add(step, fused));
            }
            "Fuse" => {
                *fused = true;
                return Ok(());
            }
            "Strip" if *fused => {
                self.strips.push((one("content")?, count("start")));
                return Ok(());
            }
            _ if *fused => {
                return Err(Error::unsupported(format!(
                    "{kind} after a step that joins all tokens to one text is not supported: a \
                     stream has no such text"
                )));
            }
            "ByteLevel" => {
                *fused = true;
                Step::ByteLevel
            }
            "ByteFallback" => Step::ByteFallback,
            "Strip" => Step::Strip { content: one("content")?, count: count("start") },
            "Metaspace" => Step::Metaspace {
                space: one("replacement")?,
                skips: step.get("prepend_scheme").and_then(Json::as_str) != Some("never")
                    && step.get("add_prefix_space").and_then(Json::as_bool) != Some(false),
            },
            "WordPiece" => Step::WordPiece {
                prefix: text("prefix")?.to_owned(),
                cleanup: step.get("cleanup").and_then(Json::as_bool).unwrap_or(true),
            },
            "Replace" => {
                let mut step = step.clone();
                if let Some(pattern) = step.pointer_mut("/pattern/Regex") {
                    *pattern = translated(pattern.as_str().unwrap_or_default())?.into();
                }
                let replace = serde_json::from_value(step)
                    .map_err(|e| Error::bad_file(format!("Replace: {e}")))?;
                Step::Replace(Box::new(replace))
            }
            other => return Err(Error::unsupported(format!("{other} is not supported"))),
        };
        self.steps.push(next);
        Ok(())
    }

    /// Returns the bytes of a token, which may depend on whether it is the first of a text.
    ///
    /// # Errors
    /// Unsupported if a regular expression of the file fails.
    pub(super) fn of(&self, token: &str, first: bool) -> Result<Vec<u8>> {
        let mut piece = Piece::Text(token.to_owned());
        for step in &self.steps {
            let Piece::Text(text) = piece else { break };
            piece = step.apply(text, first)?;
        }
        Ok(match piece {
            Piece::Text(text) => text.into_bytes(),
            Piece::Bytes(bytes) => bytes,
        })
    }

    /// Strips from the start of a whole text the characters that the decoder removes there.
    pub(super) fn trimmed<'a>(&self, mut text: &'a [u8]) -> &'a [u8] {
        for (content, count) in &self.strips {
            let mut buffer = [0; 4];
            let content = content.encode_utf8(&mut buffer).as_bytes();
            for _ in 0..*count {
                text = text.strip_prefix(content).unwrap_or(text);
            }
        }
        text
    }
}

impl Step {
    fn apply(&self, text: String, first: bool) -> Result<Piece> {
        Ok(Piece::Text(match self {
            Step::ByteLevel => {
                let bytes: Option<Vec<u8>> = text.chars().map(byte_of).collect();
                return Ok(Piece::Bytes(bytes.unwrap_or(text.into_bytes())));
            }
            Step::ByteFallback => {
                let digits = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
                let byte = digits.filter(|d| d.len() == 2);
                match byte.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                    Some(byte) => return Ok(Piece::Bytes(vec![byte])),
                    None => text,
                }
            }
            Step::Replace(replace) => replace
                .decode_chain(vec![text])
                .map_err(|e| Error::unsupported("decoder: Replace").with_source(e))?
                .concat(),
            Step::Metaspace { space, skips } if first && *skips => text.replace(*space, ""),
            Step::Metaspace { space, .. } => text.replace(*space, " "),
            Step::WordPiece { prefix, cleanup: clean } => {
                let word = match text.strip_prefix(prefix.as_str()) {
                    _ if first => text,
                    Some(rest) => rest.to_owned(),
                    None => format!(" {text}"),
                };
                if *clean { cleanup(&word) } else { word }
            }
            Step::Apart if first => text,
            Step::Apart => format!(" {text}"),
            Step::Strip { content, count } => {
                let mut rest = text.as_str();
                for _ in 0..*count {
                    rest = rest.strip_prefix(*content).unwrap_or(rest);
                }
                rest.to_owned()
            }
        }))
    }
}

/// Returns the steps that invert the normaliser and the pre-tokenizer of a file without a decoder.
fn implied(file: &Json) -> Vec<Step> {
    let mut kinds = Vec::new();
    for (part, steps) in [("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")] {
        flatten(file.get(part).unwrap_or(&Json::Null), steps, &mut kinds);
    }
    let has = |kind: &str| kinds.iter().find(|step| step["type"] == kind);
    if has("ByteLevel").is_some() {
        return vec![Step::ByteLevel];
    }
    let pieces = |step: &&&Json| step["type"] == "Replace" && step["pattern"]["String"] == " ";
    let space = match (has("Metaspace"), kinds.iter().find(pieces)) {
        (Some(step), _) => step.get("replacement"),
        (None, Some(step)) => step.get("content"),
        (None, None) => return vec![Step::Apart],
    };
    let space = space.and_then(Json::as_str).and_then(|text| text.chars().next());
    let skips = has("Prepend").is_some()
        || has("Metaspace")
            .is_some_and(|step| step.get("prepend_scheme").and_then(Json::as_str) != Some("never"));
    match space {
        Some(space) => vec![Step::ByteFallback, Step::Metaspace { space, skips }],
        None => vec![Step::Apart],
    }
}

/// Appends the steps of a part to `to`, with sequences flattened.
fn flatten<'a>(step: &'a Json, steps: &str, to: &mut Vec<&'a Json>) {
    match step.get(steps).and_then(Json::as_array) {
        Some(inner) => inner.iter().for_each(|step| flatten(step, steps, to)),
        None => to.push(step),
    }
}
