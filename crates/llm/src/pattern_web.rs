//! The regular expressions of pre-tokenizers, implemented by JavaScript's `RegExp`. The browser
//! already has the Unicode tables, which would make up a large part of the module.

use std::ops::Range;

use js_sys::{Array, JsString, Reflect, RegExp};
use warploom::{Error, Result};
use wasm_bindgen::{JsCast, JsValue};

use super::pattern_syntax::for_javascript;

/// The source of a regular expression. Objects of JavaScript belong to one thread, so each search
/// compiles it; browsers cache compiled expressions.
#[derive(Debug)]
pub(super) struct Pattern(String);

impl Pattern {
    /// Translates a pattern.
    ///
    /// # Errors
    /// None; the `Result` matches the native version.
    pub(super) fn new(pattern: &str) -> Result<Pattern> {
        Ok(Pattern(for_javascript(pattern)))
    }

    /// Returns the matches in a text, in order.
    ///
    /// # Errors
    /// Unsupported if the browser refuses the expression or aborts the search.
    pub(super) fn matches(&self, text: &str) -> Result<Vec<Range<usize>>> {
        let error = |thrown: JsValue| {
            Error::unsupported(format!("pre-tokenizer pattern {:?}: {thrown:?}", self.0))
        };
        let compiled = RegExp::new(&self.0, "gu");
        let found: js_sys::Iterator = JsString::from(text).match_all(&compiled);
        let (mut ranges, mut at) = (Vec::new(), Position::new(text));
        loop {
            let next = found.next().map_err(error)?;
            if next.done() {
                return Ok(ranges);
            }
            let value = next.value();
            let index = Reflect::get(&value, &"index".into()).map_err(error)?;
            let matched = value.unchecked_into::<Array>().get(0).unchecked_into::<JsString>();
            let start = at.advance(index.as_f64().unwrap_or_default() as usize);
            let units = at.units + matched.length() as usize;
            ranges.push(start..at.advance(units));
        }
    }
}

/// A place in a text, which only moves forward: JavaScript counts UTF-16 units, Rust bytes.
struct Position<'a> {
    rest: std::str::Chars<'a>,
    units: usize,
    bytes: usize,
}

impl Position<'_> {
    fn new(text: &str) -> Position<'_> {
        Position { rest: text.chars(), units: 0, bytes: 0 }
    }

    /// Moves to a number of units, and returns the bytes there.
    fn advance(&mut self, units: usize) -> usize {
        while self.units < units {
            let Some(c) = self.rest.next() else { break };
            self.units += c.len_utf16();
            self.bytes += c.len_utf8();
        }
        self.bytes
    }
}
