//! Injection guard: finds where in a prompt no control token may begin or continue.
//!
//! A render reports which bytes of its text came from messages. The tokenizer must not find the
//! name of a control token that covers such a byte: neither a name spelled in a message, nor one
//! that a message completes with the template's text before or after it.

use std::ops::Range;

use crate::tokenizer::Tokenizer;

/// The names of control tokens.
pub(super) struct Names<'a> {
    /// Sorted, without duplicates.
    names: Vec<&'a str>,
    longest: usize,
    /// Whether any character of a message may be part of a name, because the tokenizer normalises
    /// text first.
    everywhere: bool,
}

impl<'a> Names<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Names<'a> {
        Names { everywhere: tokenizer.names_vary(), ..Names::of(tokenizer.control_names()) }
    }

    fn of(names: impl Iterator<Item = &'a str>) -> Names<'a> {
        let mut names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        names.dedup();
        let longest = names.iter().map(|name| name.len()).max().unwrap_or(0);
        Names { names, longest, everywhere: false }
    }

    /// Yields the length in bytes of each name that `text` begins with, longest first.
    fn at_start(&self, text: &[u8]) -> impl Iterator<Item = usize> {
        let mut rest = text;
        let mut list = &self.names[..];
        std::iter::from_fn(move || {
            loop {
                // Prefixes of `rest` sort no later than `rest`, the longest last.
                list = &list[..list.partition_point(|name| name.as_bytes() <= rest)];
                let (last, before) = list.split_last()?;
                list = before;
                let common = last.bytes().zip(rest).take_while(|(a, b)| a == *b).count();
                // No earlier name shares more with `rest` than `last` does.
                rest = &rest[..common];
                if common == last.len() {
                    return Some(common);
                }
            }
        })
    }

    /// Returns ascending byte offsets in `text` at which no name may begin or continue: the first
    /// outside byte that each name covers or, if `everywhere` is set, the start of every outside
    /// character. `outside` holds the byte ranges that came from messages.
    pub(super) fn marks(&self, text: &str, outside: &[Range<usize>]) -> Vec<usize> {
        if self.everywhere {
            let places = |range: &Range<usize>| {
                let (start, part) = (range.start, &text[range.clone()]);
                part.char_indices().map(move |(at, _)| start + at)
            };
            return outside.iter().flat_map(places).collect();
        }
        let bytes = text.as_bytes();
        let mut marks = Vec::new();
        // Visits once each position from which a name could reach into one of the ranges.
        let mut from = 0;
        for range in outside {
            let first = range.start.saturating_sub(self.longest.saturating_sub(1)).max(from);
            for at in first..range.end {
                let reached = range.start.max(at);
                if self.at_start(&bytes[at..]).any(|len| at + len > reached) {
                    marks.push(reached);
                }
            }
            from = range.end;
        }
        marks.dedup();
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference implementation: every name at every position.
    fn marks(names: &[&str], text: &str, outside: &[Range<usize>]) -> Vec<usize> {
        let mut marks = Vec::new();
        for (at, _) in text.char_indices() {
            for name in names.iter().filter(|name| text[at..].starts_with(**name)) {
                let over = |place: &usize| outside.iter().any(|range| range.contains(place));
                marks.extend((at..at + name.len()).find(over));
            }
        }
        marks.sort_unstable();
        marks.dedup();
        marks
    }

    #[test]
    fn marks_are_those_of_every_name_at_every_place() {
        let sets: [&[&str]; 5] = [
            &["<|a|>", "<|b|>", "<|a", "<s>", "</s>"],
            &["<", "<|", "<|a|>"],
            &["a<", "ab", "b", "bab", "baba"],
            &["\u{e9}|", "<\u{e9}", "|a"],
            &[],
        ];
        let letters = ["<", "|", "a", "b", ">", "\u{e9}"];
        for names in sets {
            let ours = Names::of(names.iter().copied());
            let mut texts = vec![String::new()];
            for _ in 0..4 {
                let longer = |text: &String| letters.map(|letter| format!("{text}{letter}"));
                texts = texts.iter().flat_map(longer).collect();
                for text in &texts {
                    let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
                    let end = |n: usize| places.get(n).copied().unwrap_or(text.len());
                    // One letter from outside, all but the ends, and two separate ones.
                    let first = std::iter::once(0..end(1)).collect();
                    let inner = std::iter::once(end(1)..end(3)).collect();
                    let places: [Vec<Range<usize>>; 3] =
                        [first, inner, vec![0..end(1), end(2)..end(3)]];
                    for outside in places {
                        let outside: Vec<_> =
                            outside.into_iter().filter(|r| !r.is_empty()).collect();
                        let want = marks(names, text, &outside);
                        assert_eq!(
                            ours.marks(text, &outside),
                            want,
                            "{names:?} {text:?} {outside:?}"
                        );
                    }
                }
            }
        }
    }
}
