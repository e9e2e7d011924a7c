//! Converts text to token ids and back, with the BPE of GGUF files: byte-level or SentencePiece's.
//!
//! If a file contains a whole tokenizer.json, its pipeline is used (`tokenizer_json`). Otherwise
//! `words` splits the text and `bpe` applies the merges; this module checks the untrusted
//! vocabulary (`vocabulary`), parses control tokens or leaves them as text, and returns the bytes
//! of a token without a copy. Encoding is then lossless: a byte missing from the vocabulary is an
//! error, and text is not normalised.

use super::bpe::Bpe;
use super::tokenizer_json::{self, Guard, Pair, Pipeline, unigram, wordpiece};
use super::vocabulary::{
    CONTROL, MAX_TOKENS, Special, check_id, check_merges, check_tokens, find_specials,
    longest_special, texts, writes,
};
use super::words::{self, Words};
use super::{ends, pretokenizer, sentencepiece};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;
use warploom::{Error, Result};
use warploom_models::gguf::Gguf;

pub use super::vocabulary::TokenizerSpec;

/// Encoding options. The default adds no tokens to the text and parses no control tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncodeOptions {
    /// Whether the file's prefix tokens, such as BOS, are put before the text unless it begins with
    /// them. [`Tokenizer::encode`] then also puts the suffix tokens after the text.
    pub add_bos: bool,
    /// Whether names of control tokens in the text are parsed as those tokens, as chat templates
    /// require. Otherwise they are plain text.
    pub parse_special: bool,
}

crate::setters!(EncodeOptions { add_bos: bool, parse_special: bool });

/// Converts text to token ids and back. Can be shared by any number of threads.
pub struct Tokenizer {
    kind: Kind,
    /// Bytes of all tokens, concatenated.
    bytes: Vec<u8>,
    /// End offset of each token in `bytes`.
    ends: Vec<usize>,
    stops: HashSet<u32>,
    bos: Option<u32>,
    /// Tokens to put before a text.
    prefix: Vec<u32>,
    /// Tokens to put after a whole text.
    suffix: Vec<u32>,
}

/// The encoding algorithm.
enum Kind {
    /// Built from GGUF's own keys.
    Vocabulary {
        bpe: Box<Bpe>,
        /// Splits a text into the words inside which merges apply; `None` if a text is one word.
        words: Option<Words>,
        /// Special tokens by first byte, in the order of [`find_specials`].
        specials: HashMap<u8, Vec<Special>>,
        /// Whether a space is put before the text; `None` if the tokens are not SentencePiece's.
        pieces: Option<bool>,
    },
    /// Built from the tokenizer.json in the file.
    Json(Box<Pipeline>),
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokenizer({} tokens)", self.ends.len())
    }
}

impl Tokenizer {
    /// Builds the tokenizer of a file.
    ///
    /// # Errors
    /// Same as [`TokenizerSpec::from_gguf`] and [`Tokenizer::new`], naming the file.
    pub fn from_gguf(file: &Gguf) -> Result<Tokenizer> {
        let spec = TokenizerSpec::from_gguf(file)?;
        match file.find_str(tokenizer_json::KEY)? {
            None => Tokenizer::new(spec),
            Some(text) => match serde_json::from_str(text) {
                Ok(json) => Tokenizer::from_json(spec, &json),
                Err(e) => Err(Error::bad_file(e.to_string())),
            }
            .map_err(|e| e.context(tokenizer_json::KEY)),
        }
        .map_err(|e| e.context(file.name()))
    }

    /// Builds the tokenizer of a tokenizer.json. `spec` supplies the number of tokens, the ids that
    /// end generation, and the prefix and suffix if the JSON has none. Its control tokens are
    /// control tokens whatever the JSON says of them.
    fn from_json(mut spec: TokenizerSpec, json: &Json) -> Result<Tokenizer> {
        ends::retype(&mut spec);
        let count = spec.tokens.len();
        if count == 0 || count > MAX_TOKENS {
            return Err(Error::bad_file(format!(
                "tokenizer.ggml.tokens: {count} entries, must be from 1 to {MAX_TOKENS}"
            )));
        }
        let controls = (0u32..).zip(&spec.token_types).filter(|(_, kind)| **kind == CONTROL);
        let controls = controls.map(|(id, _)| id).collect();
        let pipeline = Pipeline::new(json, count, controls)?;
        let (bytes, bounds) = pipeline.texts(count)?;
        let (bos, eos) = edges(&spec)?;
        let (before, behind) = pipeline.around();
        let prefix = if before.is_empty() { bos.as_slice() } else { before }.to_vec();
        let suffix = if behind.is_empty() { eos.as_slice() } else { behind }.to_vec();
        let (stops, bos) = (ends::of(&spec)?, check_id(&spec, "bos_token_id", spec.bos)?);
        let kind = Kind::Json(Box::new(pipeline));
        Ok(Tokenizer { kind, bytes, ends: bounds, stops, bos, prefix, suffix })
    }

    /// Builds the tokenizer that `spec` describes.
    ///
    /// # Errors
    /// Unsupported if the model or the pre-tokenizer is unknown; bad file, naming the field and the
    /// element, if the vocabulary is inconsistent.
    pub fn new(mut spec: TokenizerSpec) -> Result<Tokenizer> {
        let json = match spec.model.as_str() {
            wordpiece::MODEL => Some(wordpiece::json(&spec)?),
            unigram::MODEL => Some(unigram::json(&spec)?),
            _ => None,
        };
        if let Some(json) = json {
            return Tokenizer::from_json(spec, &json);
        }
        ends::retype(&mut spec);
        let pre = match spec.model.as_str() {
            "gpt2" => Some(pretokenizer::by_name(&spec.pre)?),
            "llama" => None,
            other => {
                return Err(Error::unsupported(format!(
                    "tokenizer.ggml.model: {other:?} is not supported; known: \"gpt2\" \
                     (byte-level BPE), \"llama\" (SentencePiece's BPE), \"bert\" (WordPiece), \"t5\" \
                     (SentencePiece's Unigram)"
                )));
            }
        };
        if spec.add_bos.is_none() {
            spec.add_bos = Some(spec.bos.is_some() && pre.is_none_or(|pre| pre.add_bos));
        }
        let ids = check_tokens(&spec)?;
        let (bytes, ends) = texts(&spec)?;
        let specials = find_specials(&spec)?;
        let (stops, bos) = (ends::of(&spec)?, check_id(&spec, "bos_token_id", spec.bos)?);
        let (prefix, suffix) = edges(&spec)?;
        let merges = match pre.is_none() && spec.merges.is_empty() {
            true => sentencepiece::merges(&spec, &ids)?,
            false => check_merges(&spec, &ids)?,
        };
        let vocab: HashMap<String, u32> = ids
            .iter()
            .filter(|(_, id)| writes(&spec, **id as usize))
            .map(|(token, id)| ((*token).to_owned(), *id))
            .collect();
        let ignore_merges = pre.is_some_and(|pre| pre.ignore_merges);
        let bpe = Box::new(Bpe::new(vocab, &merges, ignore_merges, pre.is_none()));
        let words = pre.map(Words::new).transpose()?;
        let pieces = spec.is_pieces().then(|| spec.add_space_prefix.unwrap_or(true));
        let kind = Kind::Vocabulary { bpe, words, specials, pieces };
        Ok(Tokenizer { kind, bytes, ends, stops, bos, prefix, suffix })
    }

    /// Converts two texts that are read together to token ids, and returns the tokens around them: as
    /// the file says it, otherwise with twice the suffix between them, as RoBERTa has it.
    pub(super) fn encode_pair(&self, a: &str, b: &str) -> Result<(Vec<u32>, Vec<u32>, Pair)> {
        let of_file = match &self.kind {
            Kind::Json(pipeline) => pipeline.pair().cloned(),
            Kind::Vocabulary { .. } => None,
        };
        let pair = of_file.unwrap_or_else(|| Pair {
            before: self.prefix.clone(),
            between: self.suffix.repeat(2),
            behind: self.suffix.clone(),
            has_types: false,
        });
        let options = EncodeOptions::default();
        Ok((self.encode(a, options)?, self.encode(b, options)?, pair))
    }

    /// Returns the number of tokens that [`Tokenizer::encode`] puts after a text.
    pub(super) fn suffix_len(&self) -> usize {
        self.suffix.len()
    }

    /// Returns the number of tokens.
    pub fn vocabulary(&self) -> usize {
        self.ends.len()
    }

    /// Returns the BOS token, if there is one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// Returns whether the model expects [`Tokenizer::bos`] before a text.
    pub fn adds_bos(&self) -> bool {
        self.bos.is_some() && self.prefix.first() == self.bos.as_ref()
    }

    /// Returns whether generation ends at this token, such as the end of a text or of a turn.
    pub fn is_stop(&self, id: u32) -> bool {
        self.stops.contains(&id)
    }

    /// Yields the tokens at which generation ends, in no order.
    pub fn stop_tokens(&self) -> impl Iterator<Item = u32> + '_ {
        self.stops.iter().copied()
    }

    /// Returns the bytes that a token stands for, which may be only a part of a character. Empty
    /// for control and unknown tokens.
    ///
    /// # Errors
    /// Invalid if the vocabulary has no such id.
    pub fn token_bytes(&self, id: u32) -> Result<&[u8]> {
        let index = id as usize;
        let Some(end) = self.ends.get(index) else {
            let n = self.ends.len();
            return Err(Error::invalid(format!("token {id} is outside the vocabulary of {n}")));
        };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Ok(&self.bytes[start..*end])
    }

    /// Converts token ids to text. Invalid UTF-8 becomes U+FFFD. A space that encoding put before
    /// the text is removed.
    ///
    /// # Errors
    /// Invalid if the vocabulary has no such id.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        let mut bytes = Vec::new();
        for id in ids {
            bytes.extend_from_slice(self.token_bytes(*id)?);
        }
        match &self.kind {
            Kind::Json(pipeline) => bytes = pipeline.decode(ids)?,
            Kind::Vocabulary { pieces: Some(true), .. } if bytes.first() == Some(&b' ') => {
                bytes.remove(0);
            }
            Kind::Vocabulary { .. } => {}
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Converts a text to token ids.
    ///
    /// # Errors
    /// Invalid, naming the offset, if the vocabulary has no token for a part of the text.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>> {
        let mut ids = self.encode_marked(text, &[], options)?;
        if options.add_bos {
            ids.extend_from_slice(&self.suffix);
        }
        Ok(ids)
    }

    /// Same as [`Tokenizer::encode`], but adds no suffix, and no control token may begin at or span
    /// a mark. `marks` are ascending byte offsets in `text`.
    ///
    /// # Errors
    /// Same as [`Tokenizer::encode`].
    pub fn encode_marked(
        &self,
        text: &str,
        marks: &[usize],
        options: EncodeOptions,
    ) -> Result<Vec<u32>> {
        let mut ids = self.encode_from(text, 0, None, marks, options.parse_special)?;
        if options.add_bos && !ids.starts_with(&self.prefix) {
            ids.splice(0..0, self.prefix.iter().copied());
        }
        Ok(ids)
    }

    /// Converts the part of a text from byte `from` on to token ids, without prefix or suffix.
    /// `before` is the last token of the text before `from`.
    pub(super) fn encode_from(
        &self,
        text: &str,
        from: usize,
        before: Option<u32>,
        marks: &[usize],
        parse_special: bool,
    ) -> Result<Vec<u32>> {
        match &self.kind {
            Kind::Json(pipeline) => {
                pipeline.encode(text, &Guard { marks, parse_special, from, before })
            }
            Kind::Vocabulary { specials, .. } => {
                let strips =
                    |id: &u32| specials.values().flatten().any(|s| s.id == *id && s.rstrip);
                let from = match before.filter(strips) {
                    Some(_) => behind_space(text, from),
                    None => from,
                };
                self.encode_vocabulary(text, from, marks, parse_special, false)
            }
        }
    }

    /// Converts a text that follows other text to token ids: no space is put before it.
    #[cfg(all(not(target_arch = "wasm32"), feature = "structure"))]
    pub(crate) fn encode_inside(&self, text: &str) -> Result<Vec<u32>> {
        match &self.kind {
            Kind::Json(_) => self.encode_from(text, 0, None, &[], false),
            Kind::Vocabulary { .. } => self.encode_vocabulary(text, 0, &[], false, true),
        }
    }

    /// `inside` leaves out the space that SentencePiece puts before a text.
    fn encode_vocabulary(
        &self,
        text: &str,
        from: usize,
        marks: &[usize],
        parse_special: bool,
        inside: bool,
    ) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        let (mut plain, mut at) = (from, from);
        while at < text.len() {
            // Maximum length of a control token that begins here.
            let next = marks.get(marks.partition_point(|mark| *mark < at));
            let reach = if parse_special { next.map_or(usize::MAX, |m| m - at) } else { 0 };
            match self.special_at(&text.as_bytes()[at..], reach) {
                Some(special) => {
                    self.encode_plain(text, plain..at, inside, &mut ids)?;
                    ids.push(special.id);
                    at += special.text.len();
                    if special.rstrip {
                        at = behind_space(text, at);
                    }
                    plain = at;
                }
                None => at += 1,
            }
        }
        self.encode_plain(text, plain..at, inside, &mut ids)?;
        Ok(ids)
    }

    /// Returns an iterator over the names of the control tokens.
    pub fn control_names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.control_tokens().map(|(name, _)| name))
    }

    /// Returns an iterator over the names of the control tokens and their ids.
    pub fn control_tokens(&self) -> Box<dyn Iterator<Item = (&str, u32)> + '_> {
        match &self.kind {
            Kind::Json(pipeline) => Box::new(pipeline.control_tokens()),
            Kind::Vocabulary { specials, .. } => {
                let controls = specials.values().flatten().filter(|s| !s.always);
                Box::new(controls.map(|s| (s.text.as_str(), s.id)))
            }
        }
    }

    /// Returns whether text other than the name of a control token can become that token.
    pub(super) fn names_vary(&self) -> bool {
        matches!(&self.kind, Kind::Json(pipeline) if pipeline.names_vary())
    }

    /// Finds the longest special token that `rest` begins with. Control tokens may have at most
    /// `reach` bytes.
    fn special_at(&self, rest: &[u8], reach: usize) -> Option<&Special> {
        let Kind::Vocabulary { specials, .. } = &self.kind else { return None };
        let may = |special: &Special| special.always || special.text.len() <= reach;
        longest_special(specials.get(rest.first()?)?, rest, may)
    }

    /// Appends the ids of a range of `text` that contains no special tokens.
    fn encode_plain(
        &self,
        text: &str,
        part: std::ops::Range<usize>,
        inside: bool,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let offset = part.start;
        let Kind::Vocabulary { bpe, words, pieces, .. } = &self.kind else { return Ok(()) };
        let pieces = pieces.map(|prefix| prefix && !inside);
        // Special tokens are valid UTF-8, so the text between them is too.
        let Some(part) = text.get(part).filter(|p| !p.is_empty()) else { return Ok(()) };
        let (spelled, plain) = match pieces {
            None => (Cow::Borrowed(part), Cow::Borrowed(part)),
            Some(prefix) => {
                let spelled = sentencepiece::spelled(part, prefix);
                let plain = sentencepiece::plain(&spelled);
                (Cow::Owned(spelled), Cow::Owned(plain))
            }
        };
        let from = ids.len();
        match words {
            None => bpe.encode(&spelled, ids),
            Some(words) => {
                let mut word = String::new();
                for part in words.split(&spelled)? {
                    words::spell(part, &mut word);
                    bpe.encode(&word, ids);
                }
            }
        }
        // The BPE drops text without a token. The ids must reproduce every byte, in order.
        let mut rest = plain.as_bytes();
        for id in &ids[from..] {
            match rest.strip_prefix(self.token_bytes(*id)?) {
                Some(after) => rest = after,
                None => break,
            }
        }
        match rest.first() {
            None => Ok(()),
            Some(byte) => {
                let prefix = usize::from(pieces == Some(true));
                let at = (plain.len() - rest.len()).saturating_sub(prefix);
                let at = if pieces.is_some() { sentencepiece::origin(part, at) } else { at };
                Err(Error::invalid(format!(
                    "text: the model's vocabulary has no token for byte {byte:#04x} at offset {}",
                    offset + at
                )))
            }
        }
    }
}

/// Returns the words into which a pre-tokenizer splits a text. `pre` is its name in
/// `tokenizer.ggml.pre`.
///
/// # Errors
/// Unsupported if there is no such pre-tokenizer, or if its regular expression is too complex for
/// the text.
pub fn split_words(pre: &str, text: &str) -> Result<Vec<String>> {
    let words = Words::new(pretokenizer::by_name(pre)?)?;
    Ok(words.split(text)?.into_iter().map(str::to_owned).collect())
}

/// Returns the end of the white space that begins at byte `at`. White space is that of C's
/// `isspace`, as in llama.cpp.
fn behind_space(text: &str, at: usize) -> usize {
    let space = |byte: &&u8| matches!(byte, b' ' | b'\t'..=b'\r');
    at + text.as_bytes().get(at..).unwrap_or_default().iter().take_while(space).count()
}

/// Returns the prefix and suffix tokens that the metadata requests.
fn edges(spec: &TokenizerSpec) -> Result<(Vec<u32>, Vec<u32>)> {
    let edge = |field: &str, id: Option<u32>, adds: Option<bool>| {
        let id = check_id(spec, &format!("{field}_token_id"), id)?;
        match (adds, id) {
            (Some(true), Some(id)) => Ok(vec![id]),
            (Some(true), None) => Err(Error::bad_file(format!(
                "tokenizer.ggml.add_{field}_token: true, but {field}_token_id is absent"
            ))),
            _ => Ok(Vec::new()),
        }
    };
    Ok((edge("bos", spec.bos, spec.add_bos)?, edge("eos", spec.eos, spec.add_eos)?))
}

#[cfg(test)]
#[path = "tokenizer_tests.rs"]
mod tests;
