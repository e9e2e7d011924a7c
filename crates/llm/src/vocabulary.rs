//! The tokenizer metadata of a file as plain data, and checks of the untrusted vocabulary.

use std::collections::{HashMap, HashSet};

use super::bpe::Merge;
use super::sentencepiece;
use warploom::{Error, Result};
use warploom_models::gguf::Gguf;

/// Maximum entries of a vocabulary; the largest in use has about 262,000.
pub(super) const MAX_TOKENS: usize = 1 << 22;
/// Maximum bytes of an entry as stored in the file; the longest in use are runs of spaces.
const MAX_TOKEN_BYTES: usize = 1 << 16;
/// Maximum number of special tokens, which are searched for at every position of a text.
pub(super) const MAX_SPECIALS: usize = 1 << 16;

/// Value of `tokenizer.ggml.token_type`: text.
pub(super) const NORMAL: i32 = 1;
/// Value of `tokenizer.ggml.token_type`: replaces text that has no token.
pub(super) const UNKNOWN: i32 = 2;
/// Value of `tokenizer.ggml.token_type`: controls the model and is not text.
pub(super) const CONTROL: i32 = 3;
/// Value of `tokenizer.ggml.token_type`: text that is always one token.
pub(super) const USER_DEFINED: i32 = 4;
/// Value of `tokenizer.ggml.token_type`: an unused entry.
#[cfg(not(target_arch = "wasm32"))]
pub(super) const UNUSED: i32 = 5;
/// Value of `tokenizer.ggml.token_type`: `<0x00>` to `<0xFF>`, the byte fallback for text that has
/// no token.
pub(super) const BYTE: i32 = 6;

/// Key of the array of ids that end an answer, for models with more of them than GGUF's three keys
/// can hold.
pub(super) const END_TOKENS: &str = "tokenizer.warploom.end_token_ids";

/// Special tokens of Phi-3 that keep the white space after them.
const KEEP_SPACE: [&str; 3] = ["<unk>", "<s>", "<|endoftext|>"];
/// Parts of `general.name` by which llama.cpp recognises Phi-3, because GGUF has no key for tokens
/// that strip white space.
const PHI3_NAMES: [&str; 2] = ["phi-3", "phi3"];

/// The tokenizer metadata of a file, as plain data.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TokenizerSpec {
    /// `tokenizer.ggml.model`: `gpt2` is byte-level BPE, `llama` is SentencePiece's BPE, `bert` is
    /// WordPiece, `t5` is SentencePiece's Unigram.
    pub model: String,
    /// `tokenizer.ggml.pre`: how text is split into words; empty if the file has no such key.
    pub pre: String,
    /// `tokenizer.ggml.tokens`: the text of each id. `gpt2` writes bytes in its own alphabet,
    /// `llama` writes spaces as U+2581, `bert` what begins a word.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.merges`: pairs `a b`, best first. May be absent for `llama`; the merges are
    /// then derived from the scores.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.scores`, one for each token: in `llama` pairs with a higher-scored result merge
    /// first, in `t5` they are the logarithms of probabilities.
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.token_type`, one for each token, or none at all: 1 normal, 2 unknown,
    /// 3 control, 4 user-defined, 5 unused, 6 byte.
    pub token_types: Vec<i32>,
    /// `tokenizer.ggml.bos_token_id`: the token that begins a text.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`: the token that ends a text.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.eot_token_id`: the token that ends a turn.
    pub eot: Option<u32>,
    /// `tokenizer.ggml.cls_token_id` of `bert`: the token that begins a text. If absent it is the BOS
    /// token, and without that `[CLS]`.
    pub cls: Option<u32>,
    /// `tokenizer.ggml.seperator_token_id` of `bert`: the token that ends a text; `[SEP]` if absent.
    pub sep: Option<u32>,
    /// `tokenizer.ggml.eom_token_id`: the token that ends a message before a tool call.
    pub eom: Option<u32>,
    /// `tokenizer.warploom.end_token_ids`: every id that ends an answer, if there are more than the
    /// keys above hold.
    pub ends: Vec<u32>,
    /// `tokenizer.ggml.add_bos_token`: whether a text begins with the BOS token. If absent, the
    /// pre-tokenizer decides for `gpt2`, and it is true for `llama`.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`: whether a text ends with the EOS token.
    pub add_eos: Option<bool>,
    /// Whether special tokens strip the white space after them, as those of Phi-3 do.
    pub strips: bool,
    /// `tokenizer.ggml.unknown_token_id` of `t5`: the token of text that has none.
    pub unknown: Option<u32>,
    /// `tokenizer.ggml.precompiled_charsmap` of `t5`: the normalisation of characters, as
    /// SentencePiece stores it.
    pub charsmap: Vec<u8>,
    /// `tokenizer.ggml.remove_extra_whitespaces` of `t5`; true if absent.
    pub removes_spaces: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`: whether a space is put before the text; true
    /// if absent.
    pub add_space_prefix: Option<bool>,
}

impl TokenizerSpec {
    /// Returns whether tokens are text (SentencePiece) rather than bytes.
    pub(super) fn is_pieces(&self) -> bool {
        self.model == "llama"
    }

    /// Reads the tokenizer metadata of a file.
    ///
    /// # Errors
    /// Bad file, naming file and key, if a required key is missing or a key has the wrong type.
    pub fn from_gguf(file: &Gguf) -> Result<TokenizerSpec> {
        let key = |name: &str| format!("tokenizer.ggml.{name}");
        let strings = |name: &str| -> Result<Vec<String>> {
            Ok(file.strings(&key(name))?.map(str::to_owned).collect())
        };
        let id = |name: &str| file.find_u32(&key(name));
        let model = file.get_str(&key("model"))?.to_owned();
        // Required by this model only.
        let merges = match model == "gpt2" || file.find_strings(&key("merges"))?.is_some() {
            true => strings("merges")?,
            false => Vec::new(),
        };
        let scores = file.find_floats(&key("scores"))?.map_or(Vec::new(), Iterator::collect);
        let types = file.find_integers(&key("token_type"))?;
        Ok(TokenizerSpec {
            model,
            pre: file.find_str(&key("pre"))?.unwrap_or_default().to_owned(),
            tokens: strings("tokens")?,
            merges,
            scores,
            // A type outside i32 is as invalid as any other unknown type.
            token_types: types.map_or(Vec::new(), |types| {
                types.map(|t| i32::try_from(t).unwrap_or(i32::MAX)).collect()
            }),
            bos: id("bos_token_id")?,
            eos: id("eos_token_id")?,
            eot: id("eot_token_id")?,
            eom: id("eom_token_id")?,
            cls: id("cls_token_id")?,
            // Misspelt in the format.
            sep: id("seperator_token_id")?,
            ends: match file.find_integers(END_TOKENS)? {
                // An id outside u32 is as invalid as any other outside the vocabulary.
                Some(ids) => ids.map(|id| u32::try_from(id).unwrap_or(u32::MAX)).collect(),
                None => Vec::new(),
            },
            add_bos: file.find_bool(&key("add_bos_token"))?,
            add_eos: file.find_bool(&key("add_eos_token"))?,
            unknown: id("unknown_token_id")?,
            charsmap: match file.find_integers(&key("precompiled_charsmap"))? {
                None => Vec::new(),
                Some(items) => items
                    .map(|item| u8::try_from(item).or(i8::try_from(item).map(|n| n as u8)))
                    .collect::<std::result::Result<_, _>>()
                    .map_err(|_| {
                        let key = key("precompiled_charsmap");
                        Error::bad_file(format!("{}: {key}: an element is no byte", file.name()))
                    })?,
            },
            removes_spaces: file.find_bool(&key("remove_extra_whitespaces"))?,
            strips: file.find_str("general.name")?.is_some_and(is_phi3),
            add_space_prefix: file.find_bool(&key("add_space_prefix"))?,
        })
    }
}

/// Returns whether a model with this name strips white space as Phi-3 does.
pub(super) fn is_phi3(name: &str) -> bool {
    let name = name.to_lowercase();
    PHI3_NAMES.iter().any(|part| name.contains(part))
}

/// A token that is found in text before it is split into words.
#[derive(Debug)]
pub(super) struct Special {
    pub(super) text: String,
    pub(super) id: u32,
    /// Whether it is found even if control tokens are not parsed.
    pub(super) always: bool,
    /// Whether it strips the white space before it.
    #[cfg_attr(
        all(target_arch = "wasm32", not(feature = "tokenizer-json")),
        expect(dead_code, reason = "read by the pipeline of a whole tokenizer.json")
    )]
    pub(super) lstrip: bool,
    /// Whether it strips the white space after it.
    pub(super) rstrip: bool,
    /// Whether it is found only as a whole word.
    #[cfg_attr(
        all(target_arch = "wasm32", not(feature = "tokenizer-json")),
        expect(dead_code, reason = "read by the pipeline of a whole tokenizer.json")
    )]
    pub(super) single_word: bool,
}

/// Maps a character of GPT-2's alphabet to its byte: printable Latin-1 characters stand for
/// themselves, and those from U+0100 on for the other 68 bytes in order.
pub(super) fn byte_of(c: char) -> Option<u8> {
    match u32::from(c) {
        n @ (33..=126 | 161..=172 | 174..=255) => Some(n as u8),
        n @ 256..=288 => Some((n - 256) as u8),
        n @ 289..=322 => Some((n - 289 + 127) as u8),
        323 => Some(173),
        _ => None,
    }
}

/// The inverse of [`byte_of`].
pub(super) fn char_of(byte: u8) -> char {
    match byte {
        33..=126 | 161..=172 | 174..=255 => char::from(byte),
        0..=32 => char::from_u32(256 + u32::from(byte)).unwrap_or_default(),
        127..=160 => char::from_u32(289 - 127 + u32::from(byte)).unwrap_or_default(),
        173 => '\u{143}',
    }
}

/// Returns the type of a token. All tokens of a file without types are normal.
pub(super) fn type_of(spec: &TokenizerSpec, index: usize) -> i32 {
    spec.token_types.get(index).copied().unwrap_or(1)
}

/// Returns whether a token stands for text. Control and unknown tokens do not, so BPE never
/// produces them from their names.
pub(super) fn writes(spec: &TokenizerSpec, index: usize) -> bool {
    !matches!(type_of(spec, index), UNKNOWN | CONTROL)
}

/// Checks tokens and types, and returns the id of each token.
pub(super) fn check_tokens(spec: &TokenizerSpec) -> Result<HashMap<&str, u32>> {
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

/// Splits the merges and checks that both parts and the result are tokens. A merge with a token that
/// is not text is left out: many vocabularies spell `</s>` by merges, which must stay three tokens in
/// text.
pub(super) fn check_merges(spec: &TokenizerSpec, ids: &HashMap<&str, u32>) -> Result<Vec<Merge>> {
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
            Some(id) => Ok(Some(*id).filter(|id| writes(spec, *id as usize))),
            None => Err(at(format!("names {token:?}, which is not a token"))),
        };
        let all = (text_token(a)?, text_token(b)?, text_token(&joined)?);
        let (Some(a), Some(b), Some(whole)) = all else { continue };
        let pair = (a, b);
        // Of equal merges the first, which ranks higher, is kept.
        if seen.insert(pair) {
            merges.push((pair.0, pair.1, whole));
        }
    }
    Ok(merges)
}

/// Returns the concatenated bytes of all tokens, and the end offset of each.
///
/// # Errors
/// Bad file, naming the element, if a byte token is not valid.
pub(super) fn texts(spec: &TokenizerSpec) -> Result<(Vec<u8>, Vec<usize>)> {
    let mut bytes = Vec::new();
    let mut ends = Vec::with_capacity(spec.tokens.len());
    for (index, token) in spec.tokens.iter().enumerate() {
        match type_of(spec, index) {
            UNKNOWN | CONTROL => {}
            BYTE if spec.is_pieces() => bytes.push(sentencepiece::byte(index, token)?),
            _ if spec.is_pieces() => {
                bytes.extend_from_slice(sentencepiece::plain(token).as_bytes());
            }
            USER_DEFINED => bytes.extend_from_slice(token.as_bytes()),
            _ => {
                let from = bytes.len();
                for c in token.chars() {
                    match byte_of(c) {
                        Some(byte) => bytes.push(byte),
                        None => {
                            // Not in the byte alphabet: the token's bytes are its own text.
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
    Ok((bytes, ends))
}

/// Returns the tokens that are found in text before it is split into words, by first byte. Each
/// list is ordered by text; of several tokens with the same text, the first in the file comes last.
pub(super) fn find_specials(spec: &TokenizerSpec) -> Result<HashMap<u8, Vec<Special>>> {
    let mut specials: HashMap<u8, Vec<Special>> = HashMap::new();
    let mut n = 0;
    for (index, (id, token)) in (0u32..).zip(&spec.tokens).enumerate() {
        let kind = type_of(spec, index);
        if !matches!(kind, UNKNOWN | CONTROL | USER_DEFINED) {
            continue;
        }
        // Files spell such tokens with U+2581 or spaces; text has spaces.
        let text = match kind == USER_DEFINED && spec.is_pieces() {
            true => sentencepiece::plain(token),
            false => token.clone(),
        };
        let Some(first) = text.bytes().next() else { continue };
        n += 1;
        let rstrip = spec.strips && !KEEP_SPACE.contains(&token.as_str());
        let always = kind == USER_DEFINED;
        let special = Special { text, id, always, lstrip: false, rstrip, single_word: false };
        specials.entry(first).or_default().push(special);
    }
    if n > MAX_SPECIALS {
        return Err(Error::bad_file(format!(
            "tokenizer.ggml.token_type: {n} control and user-defined tokens, the limit is \
             {MAX_SPECIALS}"
        )));
    }
    for list in specials.values_mut() {
        list.reverse();
        list.sort_by(|a, b| a.text.cmp(&b.text));
    }
    Ok(specials)
}

/// Returns the longest token that `rest` begins with, among those for which `may` is true. `list`
/// is in the order of [`find_specials`].
pub(super) fn longest_special<'a>(
    mut list: &'a [Special],
    mut rest: &[u8],
    may: impl Fn(&Special) -> bool,
) -> Option<&'a Special> {
    loop {
        // Prefixes of `rest` sort no later than `rest`, the longest last.
        list = &list[..list.partition_point(|special| special.text.as_bytes() <= rest)];
        let (last, before) = list.split_last()?;
        let text = last.text.as_bytes();
        let common = text.iter().zip(rest).take_while(|(a, b)| a == b).count();
        if common < text.len() {
            // `last` shares `common` bytes with `rest`: no other prefix is longer.
            rest = &rest[..common];
        } else if may(last) {
            return Some(last);
        }
        list = before;
    }
}

/// Checks that an id of the metadata is in the vocabulary, and returns it.
pub(super) fn check_id(spec: &TokenizerSpec, field: &str, id: Option<u32>) -> Result<Option<u32>> {
    match id {
        Some(id) if id as usize >= spec.tokens.len() => {
            let n = spec.tokens.len();
            Err(Error::bad_file(format!("tokenizer.ggml.{field}: {id}, but there are {n} tokens")))
        }
        id => Ok(id),
    }
}
