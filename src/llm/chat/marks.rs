//! Marks in the text of messages, at which no control token may begin or go on.
//!
//! A template may trim, split and compare what messages say, so they cannot be replaced while it
//! runs. They get a character that neither they nor the template hold, in front of every name of a
//! control token and wherever text around a message could complete one; most messages get none.
//! Afterwards the marks are taken out, and their places are told to the tokenizer.

use std::collections::HashMap;

use super::Message;
use crate::error::{Error, Result};
use crate::llm::tokenizer::Tokenizer;

/// The planes for private use, where marks are taken from.
const MARKS: std::ops::RangeInclusive<char> = '\u{f0000}'..='\u{ffffd}';

/// The names of control tokens, by first byte.
pub(super) struct Names<'a>(HashMap<u8, Vec<&'a str>>);

impl<'a> Names<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Names<'a> {
        let mut names: HashMap<u8, Vec<&str>> = HashMap::new();
        for name in tokenizer.control_names() {
            if let Some(first) = name.bytes().next() {
                names.entry(first).or_default().push(name);
            }
        }
        Names(names)
    }

    /// Where marks belong in a text that a template may put between others, and may trim.
    fn places(&self, text: &str) -> Vec<usize> {
        let trimmed = text.trim_end();
        let mut places = Vec::new();
        for (at, _) in text.char_indices() {
            let rest = &text[at..];
            let names = self.0.get(&rest.as_bytes()[0]).map_or(&[][..], Vec::as_slice);
            let tail = trimmed.get(at..).unwrap_or_default();
            // A name, or the beginning of one that the text behind could complete.
            if names.iter().any(|name| {
                rest.starts_with(name)
                    || name.starts_with(rest)
                    || (!tail.is_empty() && name.starts_with(tail))
            }) {
                places.push(at);
            }
        }
        // The rest of a name that the text before could begin.
        let start = text.len() - text.trim_start().len();
        let edges = [(0, text), (start, &text[start..]), (0, trimmed), (start, text.trim())];
        for (at, part) in edges {
            if !part.is_empty() && self.continues(part) {
                places.push(at);
            }
        }
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Whether `text` goes on, or ends within, a name whose beginning came before.
    fn continues(&self, text: &str) -> bool {
        self.0.values().flatten().any(|name| {
            let mut inner = name.char_indices().skip(1).map(|(at, _)| &name[at..]);
            inner.any(|rest| text.starts_with(rest) || rest.starts_with(text))
        })
    }
}

/// A character that stands in none of the texts.
///
/// # Errors
/// Invalid, where they hold every one that there is.
pub(super) fn unused_mark<'a>(texts: impl Iterator<Item = &'a str>) -> Result<char> {
    let mut used: Vec<char> = texts.flat_map(str::chars).filter(|c| MARKS.contains(c)).collect();
    used.sort_unstable();
    used.dedup();
    let free = MARKS.zip(used.iter().map(Some).chain(std::iter::repeat(None)));
    let found = free.into_iter().find(|(mark, used)| Some(mark) != *used);
    found.map(|(mark, _)| mark).ok_or_else(|| {
        Error::invalid("the messages hold every character of a private plane of Unicode")
    })
}

/// What a message says, with marks.
pub(super) fn marked(message: &Message, names: &Names<'_>, mark: char) -> String {
    let text = &message.content;
    let places = names.places(text);
    let mut out = String::with_capacity(text.len() + places.len() * mark.len_utf8());
    let mut from = 0;
    for at in places {
        out.push_str(&text[from..at]);
        out.push(mark);
        from = at;
    }
    out.push_str(&text[from..]);
    out
}

/// The text without its marks, and where they stood.
pub(super) fn unmark(text: &str, mark: char) -> (String, Vec<usize>) {
    let mut out = String::with_capacity(text.len());
    let mut places = Vec::new();
    for (index, part) in text.split(mark).enumerate() {
        if index > 0 {
            places.push(out.len());
        }
        out.push_str(part);
    }
    (out, places)
}
