//! The keys that each token of attention sees.

use std::ops::Range;

use crate::call::{Call, Input, Out, volume};
use warploom_core::error::Result;

/// The keys visible to each token.
pub(super) struct Keys<'a> {
    kv_len: usize,
    past: usize,
    window: usize,
    causal: bool,
    /// The first key and one past the last key of each token, if the kernel takes spans.
    pub(super) spans: Option<Input<'a, i32>>,
}

impl<'a> Keys<'a> {
    /// Reads `words`: number of keys; position of the first token, or offset of the spans; window;
    /// whether attention is causal.
    pub(super) fn new(
        call: &Call<'a>,
        tokens: usize,
        words: [usize; 4],
        outs: &[Out<'a>],
    ) -> Result<Keys<'a>> {
        let [kv_len, place, window, causal] = words;
        let keys = Keys { kv_len, past: place, window, causal: causal != 0, spans: None };
        match call.names.iter().position(|(name, _)| *name == "spans") {
            Some(binding) => {
                let spans = call.input_apart(binding, place, volume(&[tokens, 2]), outs)?;
                Ok(Keys { past: 0, causal: true, spans: Some(spans), ..keys })
            }
            None => Ok(keys),
        }
    }

    /// Returns the first key of a token's sequence.
    pub(super) fn first(&self, token: usize) -> usize {
        self.spans.as_ref().map_or(0, |spans| spans[2 * token].max(0) as usize)
    }

    /// Returns the keys visible to a token.
    pub(super) fn seen(&self, token: usize) -> Range<usize> {
        let first = self.first(token);
        let last = match &self.spans {
            Some(spans) => spans[2 * token + 1].max(0) as usize,
            None => self.past.saturating_add(token).saturating_add(1),
        };
        let end = if self.causal { self.kv_len.min(last) } else { self.kv_len };
        let start = match self.window {
            0 => first,
            window => first.max(last.saturating_sub(window)),
        };
        start.min(end)..end
    }
}
