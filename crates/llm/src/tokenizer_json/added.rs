//! The added tokens of a tokenizer.json, and the search for them in a text.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use serde_json::{Map, Value as Json};

use super::checks::{merge, model_tokens};
use crate::sentencepiece::SPACE_TEXT;
use crate::vocabulary::{MAX_SPECIALS, Special, longest_special};
use warploom::{Error, Result};

/// Added tokens by first byte, in the order that [`longest_special`] needs.
#[derive(Default)]
pub(super) struct Added(HashMap<u8, Vec<Special>>);

/// The kind of a part of a text.
pub(super) enum Found {
    Text,
    /// Already encoded.
    Done,
    Token(u32),
}

impl Added {
    /// Yields the tokens in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Special> {
        self.0.values().flatten()
    }

    fn insert(&mut self, special: Special) {
        if let Some(first) = special.text.bytes().next() {
            self.0.entry(first).or_default().push(special);
        }
    }

    fn sort(&mut self) {
        for list in self.0.values_mut() {
            // Of tokens that a normaliser makes equal, the first in the file must win, and the
            // search finds the last in the list.
            list.reverse();
            list.sort_by(|a, b| a.text.cmp(&b.text));
        }
    }

    /// Appends the parts of a text from byte `from` on: the longest added token at each position,
    /// and the text between these tokens.
    pub(super) fn find(
        &self,
        text: &str,
        from: usize,
        may: impl Fn(&Special, Range<usize>) -> bool,
        is_word: impl Fn(char) -> bool,
        parts: &mut Vec<(Found, Range<usize>)>,
    ) {
        let (mut at, mut done) = (from, from);
        while at < text.len() && !self.0.is_empty() {
            let rest = &text.as_bytes()[at..];
            let found = self.0.get(&rest[0]).and_then(|list| {
                longest_special(list, rest, |special| may(special, at..at + special.text.len()))
            });
            let Some(special) = found else {
                at += 1;
                continue;
            };
            let (mut start, mut stop) = (at, at + special.text.len());
            at = stop;
            let within = text[..start].chars().next_back().is_some_and(&is_word)
                || text[stop..].chars().next().is_some_and(&is_word);
            if special.single_word && within {
                continue;
            }
            if special.lstrip {
                start = text[..start].trim_end().len().max(done);
            }
            if special.rstrip {
                stop = text.len() - text[stop..].trim_start().len();
            }
            if done < start {
                parts.push((Found::Text, done..start));
            }
            parts.push((Found::Token(special.id), start..stop));
            done = stop;
        }
        if done < text.len() {
            parts.push((Found::Text, done..text.len()));
        }
    }
}

/// Reads the added tokens: those found in raw text, then those found in normalised text.
pub(super) fn added(
    file: &Json,
    inner: &tokenizers::Tokenizer,
    count: usize,
    controls: &HashSet<u32>,
) -> Result<[Added; 2]> {
    let mut found = [Added::default(), Added::default()];
    let bad = |what: String| Err(Error::bad_file(format!("added_tokens: {what}")));
    let tokens = file["added_tokens"].as_array().map_or(&[][..], Vec::as_slice);
    if tokens.len() > MAX_SPECIALS {
        return bad(format!("{} tokens, the limit is {MAX_SPECIALS}", tokens.len()));
    }
    for token in tokens {
        let content = token.get("content").and_then(Json::as_str).unwrap_or_default();
        let id = token.get("id").and_then(Json::as_u64).and_then(|id| u32::try_from(id).ok());
        let Some(id) = id.filter(|id| (*id as usize) < count && !content.is_empty()) else {
            return bad(format!("{content:?}: no text, or no id below {count}"));
        };
        if let Some(theirs) = inner.token_to_id(content).filter(|theirs| *theirs != id) {
            return bad(format!("{content:?}: id {id}, but `tokenizers` numbers it {theirs}"));
        }
        let flag = |name: &str| token.get(name).and_then(Json::as_bool).unwrap_or(false);
        let normalized = flag("normalized");
        let text = match normalized {
            // The content in normalised form.
            true => inner.get_added_vocabulary().simple_id_to_token(id),
            false => Some(content.to_owned()),
        };
        let special = Special {
            text: text.unwrap_or_else(|| content.to_owned()),
            id,
            always: !controls.contains(&id),
            lstrip: flag("lstrip"),
            rstrip: flag("rstrip"),
            single_word: flag("single_word"),
        };
        found[usize::from(normalized)].insert(special);
    }
    found.iter_mut().for_each(Added::sort);
    Ok(found)
}

/// Returns the control tokens, other than the unknown token, that the model itself can produce from
/// their names, with these names.
pub(super) fn spelled(
    model: &Map<String, Json>,
    controls: &HashSet<u32>,
) -> Result<HashMap<u32, String>> {
    let vocab = model_tokens(model)?;
    let whole = model["type"] != "BPE" || model.get("ignore_merges").is_some_and(|i| i == true);
    let merges = model.get("merges").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let made: HashSet<String> = match whole {
        true => HashSet::new(),
        false => merges.iter().filter_map(merge).map(|pair| pair.concat()).collect(),
    };
    let unk_token = model.get("unk_token").and_then(Json::as_str);
    let unk_id = model.get("unk_id").and_then(Json::as_u64);
    let is_unk = |name: &str, id: u32| match unk_token {
        Some(unk) => name == unk,
        None => unk_id == Some(u64::from(id)),
    };
    let makes = |name: &str| whole || name.chars().count() == 1 || made.contains(name);
    let found = vocab
        .into_iter()
        .filter(|(name, id)| controls.contains(id) && makes(name) && !is_unk(name, *id));
    // Spaces are written in another way in text.
    let plain = |name: &str| name.replace(SPACE_TEXT, " ").trim().to_owned();
    Ok(found.map(|(name, id)| (id, plain(name))).collect())
}
