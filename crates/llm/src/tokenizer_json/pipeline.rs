//! Encodes text with the parts of a tokenizer.json.
//!
//! Normaliser, pre-tokenizer and model are those of `tokenizers`. Its search for added tokens, in
//! the raw text and then in the normalised rest, is reimplemented here, because no control token
//! may be found in the text of a message.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use serde_json::Value as Json;
use tokenizers::normalizer::Range as Part;
use tokenizers::utils::SysRegex;
use tokenizers::{
    Model as _, NormalizedString, Normalizer as _, OffsetType, PreTokenizedString,
    PreTokenizer as _, Token,
};

use super::added::{Added, Found, added, spelled};
use super::checks::{for_library, model_tokens};
use super::keys::{check_file, object};
use super::pair::Pair;
use super::texts::Texts;
use crate::vocabulary::Special;
use warploom::{Error, Result};

type Tokens = Vec<(NormalizedString, Option<Vec<Token>>)>;

/// Limits on the added tokens that are found in a text.
pub(crate) struct Guard<'a> {
    /// Ascending byte offsets at which no control token may begin, and which none may span.
    pub(crate) marks: &'a [usize],
    /// Whether control tokens are parsed.
    pub(crate) parse_special: bool,
    /// Byte offset at which encoding starts; the text before it is already encoded.
    pub(crate) from: usize,
    /// Last token of the text before `from`.
    pub(crate) before: Option<u32>,
}

impl Guard<'_> {
    /// Returns whether a control token may stand for this byte range of a normalised text.
    fn allows(&self, text: &NormalizedString, part: Range<usize>) -> bool {
        let start = text.offsets_original().0;
        let original = text.convert_offsets(Part::Normalized(part));
        self.parse_special
            && original.is_some_and(|range| {
                let first = self.marks.partition_point(|mark| *mark < start + range.start);
                self.marks.get(first).is_none_or(|mark| *mark >= start + range.end)
            })
    }
}

/// A tokenizer.json, ready for encoding.
pub(crate) struct Pipeline {
    inner: tokenizers::Tokenizer,
    /// Added tokens that are found in the raw text.
    plain: Added,
    /// Added tokens that are found in the normalised text.
    normalized: Added,
    texts: Texts,
    prefix: Vec<u32>,
    suffix: Vec<u32>,
    pair: Option<Pair>,
    /// Whether the model drops text without a token.
    drops: bool,
    /// Tokens that are not text: those that the file calls special, and those that control the
    /// model.
    controls: HashSet<u32>,
    /// Control tokens that the model itself can produce from their names.
    spelled: HashMap<u32, String>,
    word: SysRegex,
}

impl Pipeline {
    /// Builds the pipeline of a file, whose ids must be below `count`. `controls` are ids that are
    /// control tokens even if the file does not call them special.
    ///
    /// # Errors
    /// Unsupported, naming the object and the key, if a key is refused; bad file, naming the field,
    /// if the contents are inconsistent.
    pub(crate) fn new(file: &Json, count: usize, mut controls: HashSet<u32>) -> Result<Pipeline> {
        check_file(file)?;
        let texts = Texts::new(file)?;
        let cleaned = for_library(file)?;
        let model = object(&cleaned["model"], "model")?;
        let bad = |what: String| Err(Error::bad_file(what));
        for (text, id) in model_tokens(model)? {
            if id as usize >= count {
                return bad(format!(
                    "model: vocab: {text:?} is {id}, but there are {count} tokens"
                ));
            }
        }
        let drops = model["type"] == "BPE"
            && model.get("unk_token").and_then(Json::as_str).is_none_or(str::is_empty);
        let inner: tokenizers::Tokenizer = cleaned
            .to_string()
            .parse()
            .map_err(|e| Error::bad_file(format!("not read by `tokenizers`: {e}")))?;
        let word = SysRegex::new(r"^\w$")
            .map_err(|e| Error::unsupported("the class of words").with_source(e))?;
        let (prefix, suffix) = around(&file["post_processor"], &|text| inner.token_to_id(text))?;
        let pair = Pair::read(&file["post_processor"], &|text| inner.token_to_id(text))?;
        let largest = pair.as_ref().and_then(Pair::largest);
        let outside = |id: &&u32| **id as usize >= count;
        if let Some(id) = prefix.iter().chain(&suffix).chain(&largest).find(outside) {
            return bad(format!("post_processor: id {id}, but there are {count} tokens"));
        }
        let special = inner.get_added_vocabulary().get_added_tokens_decoder().iter();
        controls.extend(special.filter(|(_, token)| token.special).map(|(id, _)| *id));
        let [plain, normalized] = added(&cleaned, &inner, count, &controls)?;
        let spelled = spelled(model, &controls)?;
        Ok(Pipeline {
            inner,
            plain,
            normalized,
            texts,
            prefix,
            suffix,
            pair,
            drops,
            controls,
            spelled,
            word,
        })
    }

    /// Returns the tokens to put before and after a text.
    pub(crate) fn around(&self) -> (&[u32], &[u32]) {
        (&self.prefix, &self.suffix)
    }

    /// Returns the tokens to put around two texts that are read together, if the file says it.
    pub(crate) fn pair(&self) -> Option<&Pair> {
        self.pair.as_ref()
    }

    /// Returns an iterator over the names of control tokens, as they appear in text.
    pub(crate) fn control_tokens(&self) -> impl Iterator<Item = (&str, u32)> {
        let all = self.plain.all().chain(self.normalized.all());
        let added = all.filter(|s| !s.always).map(|s| (s.text.as_str(), s.id));
        added.chain(self.spelled.iter().map(|(id, name)| (name.as_str(), *id)))
    }

    /// Returns whether text other than the name of a control token can become that token, because a
    /// normaliser makes the two equal.
    pub(crate) fn names_vary(&self) -> bool {
        let mut all = self.normalized.all();
        let controls = !self.spelled.is_empty() || all.any(|special| !special.always);
        self.inner.get_normalizer().is_some() && controls
    }

    /// Returns the concatenated bytes of the first `count` tokens, and the end offset of each.
    ///
    /// # Errors
    /// Unsupported if a regular expression of the decoder fails.
    pub(crate) fn texts(&self, count: usize) -> Result<(Vec<u8>, Vec<usize>)> {
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(count);
        for id in 0..count as u32 {
            bytes.extend(self.text(id, false)?);
            ends.push(bytes.len());
        }
        Ok((bytes, ends))
    }

    /// Returns the bytes of a token, which may depend on whether it is the first of a text. Empty
    /// for control tokens.
    fn text(&self, id: u32, first: bool) -> Result<Vec<u8>> {
        match self.inner.id_to_token(id) {
            Some(token) if !self.controls.contains(&id) => self.texts.of(&token, first),
            _ => Ok(Vec::new()),
        }
    }

    /// Decodes a whole text with the decoder of the file.
    ///
    /// # Errors
    /// Unsupported if a regular expression of the decoder fails.
    pub(crate) fn decode(&self, ids: &[u32]) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut first = true;
        for id in ids.iter().filter(|id| !self.controls.contains(id)) {
            bytes.extend(self.text(*id, first)?);
            first = false;
        }
        Ok(self.texts.trimmed(&bytes).to_vec())
    }

    /// Converts a text to token ids, without prefix and suffix.
    ///
    /// # Errors
    /// Invalid if the vocabulary has no token for a part of the text, or only a control token that
    /// is not allowed there.
    pub(crate) fn encode(&self, text: &str, guard: &Guard<'_>) -> Result<Vec<u32>> {
        self.encoded(text, guard).map_err(|e| Error::invalid(format!("text: {e}")))
    }

    fn encoded(&self, text: &str, guard: &Guard<'_>) -> tokenizers::Result<Vec<u32>> {
        let mut cut = PreTokenizedString::from(text);
        let from = self.begin(text, guard);
        cut.split(|_, text| self.split(&self.plain, text, from, guard))?;
        cut.split(|_, mut text| {
            if let Some(normalizer) = self.inner.get_normalizer() {
                normalizer.normalize(&mut text)?;
            }
            self.split(&self.normalized, text, 0, guard)
        })?;
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut cut)?;
        }
        cut.tokenize(|text| self.model_tokens(text, guard))?;
        let encoding = cut.into_encoding(None, 0, OffsetType::None)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Tokenises a part of a text with the model. If the model's own vocabulary has the name of a
    /// control token, the name is split after its first character wherever that token is not
    /// allowed.
    fn model_tokens(
        &self,
        text: &NormalizedString,
        guard: &Guard<'_>,
    ) -> tokenizers::Result<Vec<Token>> {
        let (tokens, cuts) = self.tokens_and_cuts(text, guard)?;
        if cuts.is_empty() {
            return Ok(tokens);
        }
        let mut done = Vec::new();
        let mut open = cut_at(text, &cuts)?;
        while let Some(text) = open.pop() {
            let (tokens, cuts) = self.tokens_and_cuts(&text, guard)?;
            match cuts.is_empty() {
                true => done.extend(tokens),
                false => open.extend(cut_at(&text, &cuts)?),
            }
        }
        Ok(done)
    }

    /// Tokenises a text with the model. Also returns the byte offsets at which to split it because
    /// the result contains control tokens that are not allowed there.
    fn tokens_and_cuts(
        &self,
        text: &NormalizedString,
        guard: &Guard<'_>,
    ) -> tokenizers::Result<(Vec<Token>, Vec<usize>)> {
        let tokens = self.inner.get_model().tokenize(text.get())?;
        // Offsets cover the tokenised text: they end early if the model dropped text at the end.
        if self.drops && tokens.last().map_or(0, |token| token.offsets.1) < text.get().len() {
            let (at, part) = (text.offsets_original().0, text.get());
            let what = format!("the model's vocabulary lacks a part of {part:?}");
            return Err(format!("{what} at offset {at}").into());
        }
        let mut cuts = Vec::new();
        for token in tokens.iter().filter(|token| self.spelled.contains_key(&token.id)) {
            let (from, to) = token.offsets;
            if guard.allows(text, from..to) {
                continue;
            }
            let first = text.get().get(from..).and_then(|rest| rest.chars().next());
            let at = from + first.map_or(0, char::len_utf8);
            if at == from || at >= to {
                return Err(format!("{:?} is the name of a control token", token.value).into());
            }
            cuts.push(at);
        }
        Ok((tokens, cuts))
    }

    /// Returns the byte offset at which encoding starts: `from`, or the end of the white space
    /// there if the token before it strips white space.
    fn begin(&self, text: &str, guard: &Guard<'_>) -> usize {
        let rest = text.get(guard.from..).unwrap_or_default();
        let mut all = self.plain.all().chain(self.normalized.all());
        match guard.before {
            Some(id) if all.any(|special| special.id == id && special.rstrip) => {
                text.len() - rest.trim_start().len()
            }
            _ => text.len() - rest.len(),
        }
    }

    /// Splits a text at the added tokens found from byte `from` on; the text before it is already
    /// encoded.
    fn split(
        &self,
        added: &Added,
        text: NormalizedString,
        from: usize,
        guard: &Guard<'_>,
    ) -> tokenizers::Result<Tokens> {
        let may = |special: &Special, at: Range<usize>| special.always || guard.allows(&text, at);
        let mut parts = Vec::new();
        if from > 0 {
            parts.push((Found::Done, 0..from));
        }
        added.find(text.get(), from, may, |c| self.is_word(c), &mut parts);
        let cut = |(found, range): (Found, Range<usize>)| {
            let part = text.slice(Part::Normalized(range.clone()));
            let part = part.ok_or("a token ends within a character")?;
            let tokens = match found {
                Found::Text => None,
                Found::Done => Some(Vec::new()),
                Found::Token(id) => Some(vec![Token::new(id, String::new(), (0, range.len()))]),
            };
            Ok((part, tokens))
        };
        parts.into_iter().map(cut).collect()
    }

    /// Returns whether a character is a word character, as in `\w`.
    fn is_word(&self, c: char) -> bool {
        let mut buffer = [0; 4];
        self.word.find_iter(c.encode_utf8(&mut buffer)).next().is_some()
    }
}

/// Splits a text at ascending byte offsets, and returns the parts last to first.
fn cut_at(text: &NormalizedString, cuts: &[usize]) -> tokenizers::Result<Vec<NormalizedString>> {
    let ends = cuts.iter().copied().chain([text.get().len()]);
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let parts = starts.zip(ends).map(|(from, to)| text.slice(Part::Normalized(from..to)));
    let mut parts = parts.collect::<Option<Vec<_>>>().ok_or("a token ends within a character")?;
    parts.reverse();
    Ok(parts)
}

/// Returns the ids that a post-processor puts before and after a text.
fn around(
    processor: &Json,
    id_of_token: &dyn Fn(&str) -> Option<u32>,
) -> Result<(Vec<u32>, Vec<u32>)> {
    let bad = |what: &str| Error::bad_file(format!("post_processor: {what}"));
    let id_of = |pair: &Json| {
        let id = pair.get(1).and_then(Json::as_u64).and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| bad("sep and cls must be pairs of a text and an id"))
    };
    let (mut prefix, mut suffix) = (Vec::new(), Vec::new());
    match processor.get("type").and_then(Json::as_str) {
        Some("BertProcessing" | "RobertaProcessing") => {
            prefix.push(id_of(&processor["cls"])?);
            suffix.push(id_of(&processor["sep"])?);
        }
        Some("Sequence") => {
            for step in processor["processors"].as_array().into_iter().flatten() {
                let (before, behind) = around(step, id_of_token)?;
                prefix = [before, prefix].concat();
                suffix.extend(behind);
            }
        }
        Some("TemplateProcessing") => {
            let pieces = processor["single"].as_array();
            let pieces = pieces.ok_or_else(|| bad("single: not a list"))?;
            let mut texts = 0;
            for piece in pieces {
                if piece.pointer("/Sequence/id").is_some_and(|id| id == "A") {
                    texts += 1;
                    continue;
                }
                let name = piece.pointer("/SpecialToken/id").and_then(Json::as_str);
                let name = name.ok_or_else(|| bad("single: neither the text nor a token"))?;
                let to = if texts == 0 { &mut prefix } else { &mut suffix };
                let ids = processor["special_tokens"].get(name).and_then(|t| t["ids"].as_array());
                let Some(ids) = ids else {
                    let id = id_of_token(name);
                    to.push(id.ok_or_else(|| bad("single: a token without ids"))?);
                    continue;
                };
                for id in ids {
                    let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
                    to.push(id.ok_or_else(|| bad("special_tokens: not an id"))?);
                }
            }
            if texts != 1 {
                return Err(bad("single: the text must occur in it once"));
            }
        }
        _ => {}
    }
    Ok((prefix, suffix))
}
