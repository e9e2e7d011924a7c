//! Text to token ids and back: byte-level BPE as GGUF files describe it.
//!
//! The merge loop is the crate `tokenizers`'; around it stands what a file needs: checks of a
//! vocabulary that nobody vouches for, control tokens found in text or left as text as the
//! caller wants, and bytes of a token without a copy. Nothing is dropped: where a vocabulary
//! lacks a byte of the text, that is an error.

use super::pretokenizer;
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use std::collections::{HashMap, HashSet};
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;

/// Entries of a vocabulary; the largest in use has about 262,000.
const MAX_TOKENS: usize = 1 << 22;
/// Bytes of one entry as it stands in the file; the longest in use are runs of spaces.
const MAX_TOKEN_BYTES: usize = 1 << 16;
/// Entries that are looked for in text; every position of a text is compared with them.
const MAX_SPECIALS: usize = 1 << 16;

/// `tokenizer.ggml.token_type`: stands for what has no token.
const UNKNOWN: i32 = 2;
/// `tokenizer.ggml.token_type`: steers the model and is no text.
const CONTROL: i32 = 3;
/// `tokenizer.ggml.token_type`: text that is one token wherever it stands.
const USER_DEFINED: i32 = 4;

/// Control tokens by which models end a turn or a text, whether or not the metadata says so.
const STOP_NAMES: [&str; 9] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "</s>",
    "<EOT>",
];

/// What a file says of its tokenizer, as plain data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenizerSpec {
    /// `tokenizer.ggml.model`: `gpt2` is byte-level BPE.
    pub model: String,
    /// `tokenizer.ggml.pre`: how text is cut into words; empty where the file does not say.
    pub pre: String,
    /// `tokenizer.ggml.tokens`: the text of each id, in the byte alphabet of GPT-2.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.merges`: pairs `a b`, best first.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.token_type`, one for each token, or none at all: 1 normal, 2 unknown,
    /// 3 control, 4 user-defined, 5 unused, 6 byte.
    pub token_types: Vec<i32>,
    /// `tokenizer.ggml.bos_token_id`: begins a text.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`: ends a text.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.eot_token_id`: ends a turn.
    pub eot: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`; where it is absent the pre-tokenizer decides.
    pub add_bos: Option<bool>,
}

impl TokenizerSpec {
    /// What a file's metadata says.
    ///
    /// # Errors
    /// Bad file, naming file and key, where one is missing or of the wrong type.
    pub fn from_gguf(file: &Gguf) -> Result<TokenizerSpec> {
        let key = |name: &str| format!("tokenizer.ggml.{name}");
        let strings = |name: &str| -> Result<Vec<String>> {
            Ok(file.strings(&key(name))?.map(str::to_owned).collect())
        };
        let id = |name: &str| file.find_u32(&key(name));
        let model = file.get_str(&key("model"))?.to_owned();
        // Other models have no merges; what is missing there is not the file's fault.
        let merges = if model == "gpt2" { strings("merges")? } else { Vec::new() };
        let types = file.find_integers(&key("token_type"))?;
        Ok(TokenizerSpec {
            model,
            pre: file.find_str(&key("pre"))?.unwrap_or_default().to_owned(),
            tokens: strings("tokens")?,
            merges,
            // A type outside i32 is as wrong as any other that is not known.
            token_types: types.map_or(Vec::new(), |types| {
                types.map(|t| i32::try_from(t).unwrap_or(i32::MAX)).collect()
            }),
            bos: id("bos_token_id")?,
            eos: id("eos_token_id")?,
            eot: id("eot_token_id")?,
            add_bos: file.find_bool(&key("add_bos_token"))?,
        })
    }
}

/// How a text is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Begins with the begin token, if the file asks for one and the text has none.
    pub add_bos: bool,
    /// Takes the names of control tokens in the text as these tokens, as a chat template needs;
    /// otherwise they are text like any other.
    pub parse_special: bool,
}

/// A token that is found in text before the words are cut.
#[derive(Debug)]
struct Special {
    text: String,
    id: u32,
    /// Found even where control tokens are not parsed.
    always: bool,
}

/// A tokenizer, ready for any number of threads.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// Text of every token, one after the other.
    bytes: Vec<u8>,
    /// Where each token's text ends in `bytes`.
    ends: Vec<usize>,
    /// By first byte, longest first.
    specials: HashMap<u8, Vec<Special>>,
    stops: HashSet<u32>,
    bos: Option<u32>,
    add_bos: bool,
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
        if spec.model != "gpt2" {
            return Err(Error::unsupported(format!(
                "tokenizer.ggml.model: {:?} is not supported; known: \"gpt2\" (byte-level BPE)",
                spec.model
            )));
        }
        let pre = pretokenizer::by_name(&spec.pre)?;
        let ids = check_tokens(&spec)?;
        let (bytes, ends) = texts(&spec);
        let specials = find_specials(&spec)?;
        let (stops, bos) = (stops(&spec)?, check_id(&spec, "bos_token_id", spec.bos)?);
        let add_bos = spec.add_bos.unwrap_or(pre.add_bos);
        if add_bos && bos.is_none() && spec.add_bos.is_some() {
            return Err(Error::bad_file(
                "tokenizer.ggml.add_bos_token: true, but bos_token_id is absent",
            ));
        }
        let merges = check_merges(&spec, &ids)?;
        let vocab: Vocab = ids
            .iter()
            .filter(|(_, id)| writes(&spec, **id as usize))
            .map(|(token, id)| ((*token).to_owned(), *id))
            .collect();
        let model = BPE::builder()
            .vocab_and_merges(vocab, merges)
            .ignore_merges(pre.ignore_merges)
            .build()
            .map_err(|e| Error::bad_file("tokenizer.ggml.merges: rejected").with_source(e))?;
        let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
        for pattern in pre.patterns {
            let pattern = SplitPattern::Regex((*pattern).to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
                .map_err(|e| Error::unsupported("pre-tokenizer pattern").with_source(e))?;
            steps.push(split.into());
        }
        steps.push(ByteLevel::new(false, false, false).into());
        let mut inner = tokenizers::Tokenizer::new(model);
        inner.with_pre_tokenizer(Some(Sequence::new(steps)));
        Ok(Tokenizer { inner, bytes, ends, specials, stops, bos, add_bos })
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

    /// The text of tokens; what is not UTF-8 becomes U+FFFD.
    ///
    /// # Errors
    /// Invalid, where the vocabulary lacks one of the ids.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        let mut bytes = Vec::new();
        for id in ids {
            bytes.extend_from_slice(self.token_bytes(*id)?);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// Invalid, naming the first byte of `text` for which the vocabulary has no token.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        let mut plain = 0;
        let mut at = 0;
        while at < text.len() {
            match self.special_at(&text.as_bytes()[at..], options.parse_special) {
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

    /// The longest special token that `rest` begins with.
    fn special_at(&self, rest: &[u8], parse_special: bool) -> Option<&Special> {
        let all = self.specials.get(rest.first()?)?;
        all.iter().find(|s| (s.always || parse_special) && rest.starts_with(s.text.as_bytes()))
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
        let encoding = self
            .inner
            .encode_fast(part, false)
            .map_err(|e| Error::invalid("text cannot be encoded").with_source(e))?;
        let from = ids.len();
        ids.extend_from_slice(encoding.get_ids());
        // The BPE drops what it has no token for. Ids must give back every byte, in order.
        let mut rest = part.as_bytes();
        for id in &ids[from..] {
            match rest.strip_prefix(self.token_bytes(*id)?) {
                Some(after) => rest = after,
                None => break,
            }
        }
        match rest.first() {
            None => Ok(()),
            Some(byte) => {
                let at = offset + part.len() - rest.len();
                Err(Error::invalid(format!(
                    "text: the model's vocabulary has no token for byte {byte:#04x} at offset {at}"
                )))
            }
        }
    }
}

/// The byte that a character of GPT-2's alphabet stands for: printable Latin-1 for itself, the
/// other 68 bytes, in order, for the characters from U+0100 on.
fn byte_of(c: char) -> Option<u8> {
    match u32::from(c) {
        n @ (33..=126 | 161..=172 | 174..=255) => Some(n as u8),
        n @ 256..=288 => Some((n - 256) as u8),
        n @ 289..=322 => Some((n - 289 + 127) as u8),
        323 => Some(173),
        _ => None,
    }
}

/// The type of a token; a file without types has normal ones only.
fn type_of(spec: &TokenizerSpec, index: usize) -> i32 {
    spec.token_types.get(index).copied().unwrap_or(1)
}

/// Whether a token is text. The name of a control token is never a word, not even as a whole.
fn writes(spec: &TokenizerSpec, index: usize) -> bool {
    !matches!(type_of(spec, index), UNKNOWN | CONTROL)
}

/// Checks tokens and types, and returns the id of each token.
fn check_tokens(spec: &TokenizerSpec) -> Result<HashMap<&str, u32>> {
    let n = spec.tokens.len();
    if n == 0 || n > MAX_TOKENS {
        return Err(Error::bad_file(format!(
            "tokenizer.ggml.tokens: {n} entries, must be from 1 to {MAX_TOKENS}"
        )));
    }
    let types = spec.token_types.len();
    if types != 0 && types != n {
        return Err(Error::bad_file(format!(
            "tokenizer.ggml.token_type: {types} entries for {n} tokens"
        )));
    }
    if let Some(index) = spec.token_types.iter().position(|t| !(0..=6).contains(t)) {
        let value = type_of(spec, index);
        return Err(Error::bad_file(format!(
            "tokenizer.ggml.token_type: element {index} is {value}, must be from 0 to 6"
        )));
    }
    let mut ids = HashMap::with_capacity(n);
    for (id, token) in (0u32..).zip(&spec.tokens) {
        if token.len() > MAX_TOKEN_BYTES {
            let len = token.len();
            return Err(Error::bad_file(format!(
                "tokenizer.ggml.tokens: element {id} has {len} bytes, the limit is {MAX_TOKEN_BYTES}"
            )));
        }
        if let Some(first) = ids.insert(token.as_str(), id) {
            return Err(Error::bad_file(format!(
                "tokenizer.ggml.tokens: element {id} repeats element {first}, {token:?}"
            )));
        }
    }
    Ok(ids)
}

/// Splits the merges and checks that both parts and the result are text tokens.
fn check_merges(spec: &TokenizerSpec, ids: &HashMap<&str, u32>) -> Result<Merges> {
    let mut merges = Vec::with_capacity(spec.merges.len());
    let mut seen = HashSet::with_capacity(spec.merges.len());
    let mut joined = String::new();
    for (index, merge) in spec.merges.iter().enumerate() {
        let at = |what: String| {
            Error::bad_file(format!("tokenizer.ggml.merges: element {index}, {merge:?}, {what}"))
        };
        let pair = merge
            .split_once(' ')
            .filter(|(a, b)| !a.is_empty() && !b.is_empty() && !b.contains(' '));
        let Some((a, b)) = pair else {
            return Err(at("is not two tokens with a space between".into()));
        };
        joined.clear();
        joined.push_str(a);
        joined.push_str(b);
        let text_token = |token: &str| match ids.get(token) {
            Some(id) if writes(spec, *id as usize) => Ok(*id),
            Some(_) => Err(at(format!("names {token:?}, which is no text"))),
            None => Err(at(format!("names {token:?}, which is no token"))),
        };
        let pair = (text_token(a)?, text_token(b)?);
        text_token(&joined)?;
        // Of equal merges the first, which is the better one, holds.
        if seen.insert(pair) {
            merges.push((a.to_owned(), b.to_owned()));
        }
    }
    Ok(merges)
}

/// The bytes of all tokens, and where each ends.
fn texts(spec: &TokenizerSpec) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::new();
    let mut ends = Vec::with_capacity(spec.tokens.len());
    for (index, token) in spec.tokens.iter().enumerate() {
        match type_of(spec, index) {
            UNKNOWN | CONTROL => {}
            USER_DEFINED => bytes.extend_from_slice(token.as_bytes()),
            _ => {
                let from = bytes.len();
                for c in token.chars() {
                    match byte_of(c) {
                        Some(byte) => bytes.push(byte),
                        None => {
                            // Not in the byte alphabet: the token stands for its own text.
                            bytes.truncate(from);
                            bytes.extend_from_slice(token.as_bytes());
                            break;
                        }
                    }
                }
            }
        }
        ends.push(bytes.len());
    }
    (bytes, ends)
}

/// Tokens that are found in text before the words are cut.
fn find_specials(spec: &TokenizerSpec) -> Result<HashMap<u8, Vec<Special>>> {
    let mut specials: HashMap<u8, Vec<Special>> = HashMap::new();
    let mut n = 0;
    for (index, (id, token)) in (0u32..).zip(&spec.tokens).enumerate() {
        let kind = type_of(spec, index);
        let Some(first) = token.bytes().next() else { continue };
        if !matches!(kind, UNKNOWN | CONTROL | USER_DEFINED) {
            continue;
        }
        n += 1;
        let special = Special { text: token.clone(), id, always: kind == USER_DEFINED };
        specials.entry(first).or_default().push(special);
    }
    if n > MAX_SPECIALS {
        return Err(Error::bad_file(format!(
            "tokenizer.ggml.token_type: {n} control and user-defined tokens, the limit is \
             {MAX_SPECIALS}"
        )));
    }
    for list in specials.values_mut() {
        list.sort_by_key(|s| std::cmp::Reverse(s.text.len()));
    }
    Ok(specials)
}

/// The tokens at which generation ends.
fn stops(spec: &TokenizerSpec) -> Result<HashSet<u32>> {
    let mut stops = HashSet::new();
    stops.extend(check_id(spec, "eos_token_id", spec.eos)?);
    stops.extend(check_id(spec, "eot_token_id", spec.eot)?);
    for (index, (id, token)) in (0u32..).zip(&spec.tokens).enumerate() {
        if type_of(spec, index) == CONTROL && STOP_NAMES.contains(&token.as_str()) {
            stops.insert(id);
        }
    }
    Ok(stops)
}

/// An id of the metadata, if it lies in the vocabulary.
fn check_id(spec: &TokenizerSpec, field: &str, id: Option<u32>) -> Result<Option<u32>> {
    match id {
        Some(id) if id as usize >= spec.tokens.len() => {
            let n = spec.tokens.len();
            Err(Error::bad_file(format!("tokenizer.ggml.{field}: {id}, but there are {n} tokens")))
        }
        id => Ok(id),
    }
}

#[cfg(test)]
#[path = "tokenizer_tests.rs"]
mod tests;
