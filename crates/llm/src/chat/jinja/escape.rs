//! HTML-escaped text: Python's `Markup`.

use super::meter::{Meter, Result, fault};
use super::text::{Builder, Text};

fn escaped(c: char) -> Option<&'static str> {
    Some(match c {
        '&' => "&amp;",
        '<' => "&lt;",
        '>' => "&gt;",
        '\'' => "&#39;",
        '"' => "&#34;",
        _ => return None,
    })
}

/// Escapes a string. A string that is already escaped stays unchanged unless `again` is set.
pub(super) fn escape(text: &Text, again: bool, meter: &Meter) -> Result<Text> {
    if text.markup && !again {
        return Ok(text.clone());
    }
    let mut out = Builder::default();
    for (at, c) in text.as_str().char_indices() {
        match escaped(c) {
            Some(instead) => {
                out.derived(instead, text.is_outside_at(at));
            }
            None => out.slice(text, at..at + c.len_utf8()),
        }
        if at % 4096 == 0 {
            meter.fits(Some(out.text.len()))?;
        }
    }
    let mut out = out.finish(meter)?;
    out.markup = true;
    Ok(out)
}

/// Refuses text that Python would escape when joined with escaped text: chat templates do not mix
/// the two.
pub(super) fn joins_markup<'a>(
    is_markup: bool,
    texts: impl Iterator<Item = &'a Text>,
) -> Result<()> {
    let mut changed = texts.filter(|text| {
        is_markup && !text.markup && text.as_str().chars().any(|c| escaped(c).is_some())
    });
    match changed.next() {
        Some(_) => fault("joining an escaped text with one that is not is not supported"),
        None => Ok(()),
    }
}
