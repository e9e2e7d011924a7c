//! Marks in the text of messages, at which no control token may begin or go on.
//!
//! A template may trim, split and compare what messages say, so they cannot be replaced while it
//! runs. They get a character that neither they nor the template hold, in front of every name of a
//! control token and wherever text around a message could complete one; most messages get none.
//! Afterwards the marks are taken out, and their places are told to the tokenizer.

use super::Message;
use crate::tokenizer::Tokenizer;
use warploom::error::{Error, Result};

/// The planes for private use, where marks are taken from.
const MARKS: std::ops::RangeInclusive<char> = '\u{f0000}'..='\u{ffffd}';

/// Texts in order, none of which begins with another.
struct Texts<'a>(Vec<&'a str>);

impl<'a> Texts<'a> {
    /// Those that begin with another one go: whatever [`Texts::meet`] they would, that one meets.
    fn of(texts: impl Iterator<Item = &'a str>) -> Texts<'a> {
        let mut all: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
        all.sort_unstable();
        all.dedup_by(|later, kept| later.starts_with(&**kept));
        Texts(all)
    }

    /// Whether one of them begins with `text`, or `text` with one of them. Those that begin with it
    /// stand from its own place on; what it begins with stands right before that, since whatever
    /// stood between would begin with it as well.
    fn meet(&self, text: &str) -> bool {
        let (before, behind) = self.0.split_at(self.0.partition_point(|known| *known < text));
        behind.first().is_some_and(|known| known.starts_with(text))
            || before.last().is_some_and(|known| text.starts_with(known))
    }
}

/// The names of control tokens, and what may stand in a text of names that began before it.
pub(super) struct Names<'a> {
    names: Texts<'a>,
    ends: Texts<'a>,
    /// Every sign of a message may be a part of a name: a normaliser decides, later.
    everywhere: bool,
}

impl<'a> Names<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Names<'a> {
        Names { everywhere: tokenizer.names_vary(), ..Names::of(tokenizer.control_names()) }
    }

    fn of(names: impl Iterator<Item = &'a str>) -> Names<'a> {
        let names: Vec<&str> = names.collect();
        let ends = |name: &&'a str| {
            let name = *name;
            name.char_indices().skip(1).map(move |(at, _)| &name[at..])
        };
        let ends = Texts::of(names.iter().flat_map(ends));
        Names { names: Texts::of(names.into_iter()), ends, everywhere: false }
    }

    /// Where marks belong in a text that a template may put between others, and may trim.
    fn places(&self, text: &str) -> Vec<usize> {
        let trimmed = text.trim_end();
        let mut places = Vec::new();
        for (at, c) in text.char_indices() {
            let tail = trimmed.get(at..).unwrap_or_default();
            // A name, or the beginning of one that the text behind could complete.
            let varies = self.everywhere && !c.is_whitespace();
            if varies || self.names.meet(&text[at..]) || (!tail.is_empty() && self.names.meet(tail))
            {
                places.push(at);
            }
        }
        // The rest of a name that the text before could begin.
        let start = text.len() - text.trim_start().len();
        let edges = [(0, text), (start, &text[start..]), (0, trimmed), (start, text.trim())];
        for (at, part) in edges {
            // It goes on, or ends within, a name whose beginning came before.
            if !part.is_empty() && self.ends.meet(part) {
                places.push(at);
            }
        }
        places.sort_unstable();
        places.dedup();
        places
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
    marked_text(&message.content, names, mark)
}

/// A text of a message, with marks.
pub(super) fn marked_text(text: &str, names: &Names<'_>, mark: char) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The same by its definition: every name at every place.
    fn places(names: &[&str], text: &str) -> Vec<usize> {
        let trimmed = text.trim_end();
        let ahead = |name: &str, at: usize| {
            let (rest, tail) = (&text[at..], trimmed.get(at..).unwrap_or_default());
            rest.starts_with(name)
                || name.starts_with(rest)
                || (!tail.is_empty() && name.starts_with(tail))
        };
        let begins = |at: &usize| names.iter().any(|name| ahead(name, *at));
        let mut places: Vec<usize> = text.char_indices().map(|(at, _)| at).filter(begins).collect();
        let start = text.len() - text.trim_start().len();
        for (at, part) in
            [(0, text), (start, text.trim_start()), (0, trimmed), (start, text.trim())]
        {
            let within = |name: &&str| {
                let mut inner = name.char_indices().skip(1).map(|(at, _)| &name[at..]);
                inner.any(|rest| part.starts_with(rest) || rest.starts_with(part))
            };
            if !part.is_empty() && names.iter().any(within) {
                places.push(at);
            }
        }
        places.sort_unstable();
        places.dedup();
        places
    }

    #[test]
    fn places_are_those_of_every_name_at_every_place() {
        let sets: [&[&str]; 6] = [
            &["<|a|>", "<|b|>", "<|a", "<s>", "</s>"],
            &["<", "<|", "<|a|>"],
            &["a< ", " ab", "b"],
            &["\u{e9}|", "<\u{e9}", "|a"],
            &["<|reserved_1|>", "<|reserved_12|>", "<|reserved_2|>"],
            &[],
        ];
        let letters = ['<', '|', 'a', 'b', '>', 's', ' ', '\u{e9}'];
        for names in sets {
            let ours = Names::of(names.iter().copied());
            let mut texts = vec![String::new()];
            for _ in 0..4 {
                let longer = |text: &String| letters.map(|letter| format!("{text}{letter}"));
                let more: Vec<String> = texts.iter().flat_map(longer).collect();
                for text in &more {
                    assert_eq!(ours.places(text), places(names, text), "{names:?} {text:?}");
                }
                texts = more;
            }
            for text in ["x<|reserved_1", "eserved_2|>", "<|reserved_12|><|reserved_3", "12|> a"] {
                assert_eq!(ours.places(text), places(names, text), "{names:?} {text:?}");
            }
        }
    }
}
