//! Text to token ids and back: BPE as GGUF files describe it, of bytes or of SentencePiece's kind.
//!
//! The merge loop is the crate `tokenizers`'; around it stands what a file needs: checks of a
//! vocabulary that nobody vouches for (`vocabulary`), control tokens found in text or left as text
//! as the caller wants, and bytes of a token without a copy. Nothing is dropped: where a vocabulary
//! lacks a byte of the text, that is an error. Text is taken as it is, without normalisation.

use super::vocabulary::{
    Special, check_id, check_merges, check_tokens, find_specials, longest_special, stops, texts,
    writes,
};
use super::{pretokenizer, sentencepiece};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;
use warploom::error::{Error, Result};
use warploom_models::gguf::Gguf;

pub use super::vocabulary::TokenizerSpec;

/// How a text is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Begins with the begin token, if the file asks for one and the text has none.
    pub add_bos: bool,
    /// Takes the names of control tokens in the text as these tokens, as a chat template needs;
    /// otherwise they are text like any other.
    pub parse_special: bool,
}

/// A tokenizer, ready for any number of threads.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// Text of every token, one after the other.
    bytes: Vec<u8>,
    /// Where each token's text ends in `bytes`.
    ends: Vec<usize>,
    /// By first byte, in the order of [`find_specials`].
    specials: HashMap<u8, Vec<Special>>,
    stops: HashSet<u32>,
    bos: Option<u32>,
    add_bos: bool,
    /// Of pieces: whether text begins with a space that is not there.
    pieces: Option<bool>,
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
    /// Those of [`TokenizerSpec::from_gguf`] and of [`Tokenizer::new`], naming the file.
    pub fn from_gguf(file: &Gguf) -> Result<Tokenizer> {
        let spec = TokenizerSpec::from_gguf(file)?;
        Tokenizer::new(spec).map_err(|e| e.context(file.name()))
    }

    /// Builds the tokenizer that `spec` describes.
    ///
    /// # Errors
    /// Unsupported, for a model or pre-tokenizer that is not known; bad file, naming the field
    /// and the element, for a vocabulary that contradicts itself.
    pub fn new(spec: TokenizerSpec) -> Result<Tokenizer> {
        let pre = match spec.model.as_str() {
            "gpt2" => Some(pretokenizer::by_name(&spec.pre)?),
            "llama" => None,
            other => {
                return Err(Error::unsupported(format!(
                    "tokenizer.ggml.model: {other:?} is not supported; known: \"gpt2\" \
                     (byte-level BPE), \"llama\" (SentencePiece's BPE)"
                )));
            }
        };
        let ids = check_tokens(&spec)?;
        let (bytes, ends) = texts(&spec)?;
        let specials = find_specials(&spec)?;
        let (stops, bos) = (stops(&spec)?, check_id(&spec, "bos_token_id", spec.bos)?);
        let add_bos = spec.add_bos.unwrap_or(pre.is_none_or(|pre| pre.add_bos));
        if add_bos && bos.is_none() && spec.add_bos.is_some() {
            return Err(Error::bad_file(
                "tokenizer.ggml.add_bos_token: true, but bos_token_id is absent",
            ));
        }
        let merges = match pre.is_none() && spec.merges.is_empty() {
            true => sentencepiece::merges(&spec, &ids)?,
            false => check_merges(&spec, &ids)?,
        };
        let vocab: Vocab = ids
            .iter()
            .filter(|(_, id)| writes(&spec, **id as usize))
            .map(|(token, id)| ((*token).to_owned(), *id))
            .collect();
        let model = BPE::builder()
            .vocab_and_merges(vocab, merges)
            .ignore_merges(pre.is_some_and(|pre| pre.ignore_merges))
            .byte_fallback(pre.is_none())
            .build()
            .map_err(|e| Error::bad_file("tokenizer.ggml.merges: rejected").with_source(e))?;
        let mut inner = tokenizers::Tokenizer::new(model);
        if let Some(pre) = pre {
            inner.with_pre_tokenizer(Some(words(pre)?));
        }
        let pieces = spec.is_pieces().then(|| spec.add_space_prefix.unwrap_or(true));
        Ok(Tokenizer { inner, bytes, ends, specials, stops, bos, add_bos, pieces })
    }

    /// Number of tokens.
    pub fn vocabulary(&self) -> usize {
        self.ends.len()
    }

    /// The token that begins a text, if there is one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// Whether a model of this file expects [`Tokenizer::bos`] before a text.
    pub fn adds_bos(&self) -> bool {
        self.add_bos && self.bos.is_some()
    }

    /// Whether generation ends at this token: end of text or of a turn.
    pub fn is_stop(&self, id: u32) -> bool {
        self.stops.contains(&id)
    }

    /// The bytes that a token writes; often no whole characters. Control and unknown tokens
    /// write nothing.
    ///
    /// # Errors
    /// Invalid, where the vocabulary has no such id.
    pub fn token_bytes(&self, id: u32) -> Result<&[u8]> {
        let index = id as usize;
        let Some(end) = self.ends.get(index) else {
            let n = self.ends.len();
            return Err(Error::invalid(format!("token {id} is outside the vocabulary of {n}")));
        };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Ok(&self.bytes[start..*end])
    }

    /// The text of tokens; what is not UTF-8 becomes U+FFFD. Where text is encoded with a space
    /// before it, that space is not told.
    ///
    /// # Errors
    /// Invalid, where the vocabulary lacks one of the ids.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        let mut bytes = Vec::new();
        for id in ids {
            bytes.extend_from_slice(self.token_bytes(*id)?);
        }
        let text = match bytes.strip_prefix(b" ") {
            Some(rest) if self.pieces == Some(true) => rest,
            _ => &bytes,
        };
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// Invalid, naming the first byte of `text` for which the vocabulary has no token.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>> {
        self.encode_marked(text, &[], options)
    }

    /// As [`Tokenizer::encode`], where no control token may begin at one of `marks` or span it:
    /// offsets in `text`, growing.
    ///
    /// # Errors
    /// Those of [`Tokenizer::encode`].
    pub fn encode_marked(
        &self,
        text: &str,
        marks: &[usize],
        options: EncodeOptions,
    ) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        let mut plain = 0;
        let mut at = 0;
        while at < text.len() {
            // Bytes up to which a control token may reach from here.
            let next = marks.get(marks.partition_point(|mark| *mark < at));
            let reach = if options.parse_special { next.map_or(usize::MAX, |m| m - at) } else { 0 };
            match self.special_at(&text.as_bytes()[at..], reach) {
                Some(special) => {
                    self.encode_plain(text, plain..at, &mut ids)?;
                    ids.push(special.id);
                    at += special.text.len();
                    plain = at;
                }
                None => at += 1,
            }
        }
        self.encode_plain(text, plain..at, &mut ids)?;
        match self.bos {
            Some(bos) if options.add_bos && self.add_bos && ids.first() != Some(&bos) => {
                ids.insert(0, bos);
            }
            _ => {}
        }
        Ok(ids)
    }

    /// The names of the control tokens.
    pub fn control_names(&self) -> impl Iterator<Item = &str> {
        self.specials.values().flatten().filter(|s| !s.always).map(|s| s.text.as_str())
    }

    /// The longest special token that `rest` begins with; control tokens within `reach` bytes.
    fn special_at(&self, rest: &[u8], reach: usize) -> Option<&Special> {
        longest_special(self.specials.get(rest.first()?)?, rest, reach)
    }

    /// Appends the ids of a part of `text` that holds no special token.
    fn encode_plain(
        &self,
        text: &str,
        part: std::ops::Range<usize>,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let offset = part.start;
        // Special tokens are whole UTF-8 strings, so what lies between them is too.
        let Some(part) = text.get(part).filter(|p| !p.is_empty()) else { return Ok(()) };
        let (spelled, plain) = match self.pieces {
            None => (Cow::Borrowed(part), Cow::Borrowed(part)),
            Some(prefix) => {
                let spelled = sentencepiece::spelled(part, prefix);
                let plain = sentencepiece::plain(&spelled);
                (Cow::Owned(spelled), Cow::Owned(plain))
            }
        };
        let encoding = self
            .inner
            .encode_fast(&*spelled, false)
            .map_err(|e| Error::invalid("text cannot be encoded").with_source(e))?;
        let from = ids.len();
        ids.extend_from_slice(encoding.get_ids());
        // The BPE drops what it has no token for. Ids must give back every byte, in order.
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
                let prefix = usize::from(self.pieces == Some(true));
                let at = (plain.len() - rest.len()).saturating_sub(prefix);
                let at = if self.pieces.is_some() { sentencepiece::origin(part, at) } else { at };
                Err(Error::invalid(format!(
                    "text: the model's vocabulary has no token for byte {byte:#04x} at offset {}",
                    offset + at
                )))
            }
        }
    }
}

/// How a text is cut into words, which are then told in the alphabet of bytes.
fn words(pre: &pretokenizer::PreTokenizer) -> Result<Sequence> {
    let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
    for pattern in pre.patterns {
        let pattern = SplitPattern::Regex((*pattern).to_owned());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
            .map_err(|e| Error::unsupported("pre-tokenizer pattern").with_source(e))?;
        steps.push(split.into());
    }
    steps.push(ByteLevel::new(false, false, false).into());
    Ok(Sequence::new(steps))
}

#[cfg(test)]
#[path = "tokenizer_tests.rs"]
mod tests;
