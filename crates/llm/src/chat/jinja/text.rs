//! Taint tracking: a string with the byte ranges that came from outside the template.
//!
//! A template may split, join and change the text of messages, which must never become a control
//! token. So outside bytes are tracked through every operation: joining, splitting, replacing and
//! formatting keep them apart from the template's own; an operation that changes characters taints
//! the whole result.

use std::ops::Range;
use std::rc::Rc;

use super::meter::{Meter, Result};

#[derive(Clone, Debug)]
pub(in crate::chat) struct Text {
    text: Rc<str>,
    /// Ranges of outside bytes: ascending, not empty, not adjacent. `None` if there are none.
    outside: Option<Rc<[Range<usize>]>>,
    /// Whether the string is HTML-escaped: Python's `Markup`.
    pub(super) markup: bool,
}

impl Text {
    /// Creates a string of the template.
    pub(super) fn own(text: &str) -> Text {
        Text { text: text.into(), outside: None, markup: false }
    }

    /// Creates a string from outside the template.
    pub(super) fn outside(text: &str) -> Text {
        let outside = (!text.is_empty()).then(|| std::iter::once(0..text.len()).collect());
        Text { text: text.into(), outside, markup: false }
    }

    /// Returns the same string, marked as escaped or not.
    pub(super) fn with_markup(mut self, markup: bool) -> Text {
        self.markup = markup;
        self
    }

    /// Creates the result of an operation that changes characters: wholly outside if any byte of
    /// this string is.
    pub(super) fn derive(&self, text: &str) -> Text {
        match self.outside {
            Some(_) => Text { markup: self.markup, ..Text::outside(text) },
            None => Text { markup: self.markup, ..Text::own(text) },
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn is_outside(&self) -> bool {
        self.outside.is_some()
    }

    pub(super) fn outside_ranges(&self) -> &[Range<usize>] {
        self.outside.as_deref().unwrap_or_default()
    }

    pub(super) fn is_outside_at(&self, at: usize) -> bool {
        let ranges = self.outside_ranges();
        ranges.get(ranges.partition_point(|range| range.end <= at)).is_some_and(|r| r.start <= at)
    }

    /// Returns the substring in this byte range.
    pub(super) fn slice(&self, range: Range<usize>) -> Text {
        if range == (0..self.text.len()) {
            return self.clone();
        }
        let mut part = Builder::default();
        part.slice(self, range);
        Text { markup: self.markup, ..part.unmetered() }
    }

    /// Returns the byte range of a subslice of [`Text::as_str`]; `0..0` if it is empty.
    pub(super) fn place_of(&self, part: &str) -> Range<usize> {
        let start = (part.as_ptr() as usize).checked_sub(self.text.as_ptr() as usize);
        let place = start.map(|start| start..start + part.len());
        // An empty slice may point anywhere.
        place.filter(|place| !part.is_empty() && place.end <= self.text.len()).unwrap_or(0..0)
    }

    /// Returns a subslice of [`Text::as_str`] with its outside bytes.
    pub(super) fn part(&self, part: &str) -> Text {
        self.slice(self.place_of(part))
    }
}

/// Builds a string, keeping track of outside bytes.
#[derive(Debug, Default)]
pub(super) struct Builder {
    pub(super) text: String,
    outside: Vec<Range<usize>>,
}

impl Builder {
    pub(super) fn own(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(super) fn push(&mut self, c: char) {
        self.text.push(c);
    }

    pub(super) fn text(&mut self, text: &Text) {
        self.slice(text, 0..text.text.len());
    }

    pub(super) fn slice(&mut self, text: &Text, range: Range<usize>) {
        let base = self.text.len();
        for outside in text.outside_ranges() {
            let start = outside.start.max(range.start);
            let end = outside.end.min(range.end);
            if start < end {
                self.mark(base + start - range.start..base + end - range.start);
            }
        }
        self.text.push_str(&text.text[range]);
    }

    /// Appends a string that is wholly outside if `outside` is set.
    pub(super) fn derived(&mut self, text: &str, outside: bool) {
        let start = self.text.len();
        self.text.push_str(text);
        if outside && !text.is_empty() {
            self.mark(start..self.text.len());
        }
    }

    fn mark(&mut self, range: Range<usize>) {
        match self.outside.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.outside.push(range),
        }
    }

    /// Returns whether any byte is from outside.
    pub(super) fn is_outside(&self) -> bool {
        !self.outside.is_empty()
    }

    /// Checks the size against the limits and returns the string.
    pub(super) fn finish(self, meter: &Meter) -> Result<Text> {
        meter.fits(Some(self.text.len() + 16 * self.outside.len()))?;
        Ok(self.unmetered())
    }

    fn unmetered(self) -> Text {
        let outside = (!self.outside.is_empty()).then(|| Rc::from(self.outside));
        Text { text: self.text.into(), outside, markup: false }
    }

    /// Returns the string and the ranges of its outside bytes.
    pub(super) fn parts(self) -> (String, Vec<Range<usize>>) {
        (self.text, self.outside)
    }
}
