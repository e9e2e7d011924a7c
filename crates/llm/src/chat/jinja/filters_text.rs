//! Jinja2's filters of strings.

use super::call::{Given, count_of, wanted};
use super::eval::Run;
use super::meter::{Meter, Result, error, fault};
use super::methods::{case, replace, strip};
use super::ops::defined;
use super::print::text_of;
use super::printf::MAX_FIELD;
use super::text::{Builder, Text};
use super::value::Value;

impl Run<'_> {
    pub(super) fn text_filter(
        &mut self,
        name: &str,
        value: &Value,
        given: &Given,
    ) -> Result<Value> {
        let meter = self.meter;
        let text = || text_of(value, meter);
        match name {
            "lower" | "upper" | "capitalize" => {
                given.bind(name, [])?;
                case(name, &text()?, meter).map(Value::Str)
            }
            "title" => {
                given.bind(name, [])?;
                title(&text()?, meter).map(Value::Str)
            }
            "center" => {
                let [width] = given.bind(name, ["width"])?;
                let width = width.map_or(Ok(80), |width| count_of(&width, name))?;
                padded(&text()?, width, ' ', Side::Both, meter).map(Value::Str)
            }
            "trim" => {
                let [chars] = given.bind(name, ["chars"])?;
                strip(&text()?, chars.as_ref(), true, true, meter).map(Value::Str)
            }
            "replace" => {
                let [old, new, count] = given.bind(name, ["old", "new", "count"])?;
                let old = text_of(&wanted(old, name)?, meter)?;
                let new = text_of(&wanted(new, name)?, meter)?;
                let count = count.and_then(|count| count.as_int()).unwrap_or(-1);
                // Autoescape is off, so all three count as plain strings.
                let text = text()?.with_markup(false);
                replace(&text, &old, &new, count, meter).map(Value::Str)
            }
            "indent" => indent(value, given, meter),
            "truncate" => truncate(value, given, meter),
            "wordcount" => {
                given.bind(name, [])?;
                let text = text()?;
                meter.spend(text.as_str().len() as u64)?;
                let words = text.as_str().split(|c: char| !(c.is_alphanumeric() || c == '_'));
                Ok(Value::from(words.filter(|word| !word.is_empty()).count()))
            }
            _ => urlencode(value, given, meter),
        }
    }
}

/// Alignment of a string in its field.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Side {
    Left,
    Right,
    Both,
}

/// Pads a string to `width` characters.
pub(super) fn padded(
    text: &Text,
    width: usize,
    fill: char,
    side: Side,
    meter: &Meter,
) -> Result<Text> {
    let len = text.as_str().chars().count();
    meter.spend(len as u64)?;
    let missing = width.saturating_sub(len);
    if missing > MAX_FIELD {
        return fault(format!("a field of width {width} is beyond the limit"));
    }
    // Of an odd padding, the larger half comes first if the width is odd, as in Python.
    let before = match side {
        Side::Left => 0,
        Side::Right => missing,
        Side::Both => missing / 2 + (missing & width & 1),
    };
    let mut out = Builder::default();
    (0..before).for_each(|_| out.push(fill));
    out.text(text);
    (before..missing).for_each(|_| out.push(fill));
    let mut made = out.finish(meter)?;
    made.markup = text.markup;
    Ok(made)
}

fn title(text: &Text, meter: &Meter) -> Result<Text> {
    let mut made = String::with_capacity(text.as_str().len());
    let mut begins = true;
    meter.fits(Some(text.as_str().len()))?;
    for c in text.as_str().chars() {
        if c == '-' || matches!(c, '(' | '{' | '[' | '<') || is_space(c) {
            made.push(c);
            begins = true;
            continue;
        }
        match begins {
            true => made.extend(c.to_uppercase()),
            false => made.extend(c.to_lowercase()),
        }
        begins = false;
    }
    Ok(text.derive(&made))
}

/// Returns whether Python counts a character as white space.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Splits a string into lines, and returns each without and with its line end.
pub(super) fn lines(text: &str) -> Vec<(&str, &str)> {
    let mut lines = Vec::new();
    let mut from = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let ends = matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}')
            || matches!(c, '\u{2028}' | '\u{2029}');
        if !ends {
            continue;
        }
        let mut end = at + c.len_utf8();
        if c == '\r' && chars.next_if(|(_, c)| *c == '\n').is_some() {
            end += 1;
        }
        lines.push((&text[from..at], &text[from..end]));
        from = end;
    }
    if from < text.len() {
        lines.push((&text[from..], &text[from..]));
    }
    lines
}

fn indent(value: &Value, given: &Given, meter: &Meter) -> Result<Value> {
    let [width, first, blank] = given.bind("indent", ["width", "first", "blank"])?;
    defined(value)?;
    let Value::Str(text) = value else {
        return fault(format!("indent: a text is required, not '{}'", value.type_name()));
    };
    let space = match width {
        None => Text::own("    "),
        Some(Value::Str(space)) => space,
        Some(other) => {
            let width = count_of(&other, "indent")?;
            if width > MAX_FIELD {
                return fault(format!("indent: a width of {width} is beyond the limit"));
            }
            Text::own(&" ".repeat(width))
        }
    };
    let (first, blank) = (first.is_some_and(|v| v.is_true()), blank.is_some_and(|v| v.is_true()));
    let source = text.as_str();
    let mut lines = lines(source);
    // Python appends a line end, so a string that ends with one has an empty last line.
    if source.is_empty() || lines.last().is_some_and(|(bare, whole)| bare.len() < whole.len()) {
        lines.push(("", ""));
    }
    let added = lines.len().checked_mul(space.as_str().len() + 1);
    meter.fits(added.and_then(|added| added.checked_add(source.len())))?;
    let mut out = Builder::default();
    for (index, (line, _)) in lines.iter().enumerate() {
        if index > 0 {
            out.own("\n");
        }
        if (index == 0 && first) || (index > 0 && (blank || !line.is_empty())) {
            out.text(&space);
        }
        if !line.is_empty() {
            out.slice(text, text.place_of(line));
        }
    }
    let mut made = out.finish(meter)?;
    made.markup = text.markup;
    Ok(Value::Str(made))
}

fn truncate(value: &Value, given: &Given, meter: &Meter) -> Result<Value> {
    let names = ["length", "killwords", "end", "leeway"];
    let [length, kill, end, leeway] = given.bind("truncate", names)?;
    let length = length.map_or(Ok(255), |length| count_of(&length, "truncate"))?;
    let end = text_of(&end.unwrap_or_else(|| Value::from("...")), meter)?;
    let leeway = match leeway.filter(|leeway| !matches!(leeway, Value::None)) {
        Some(leeway) => count_of(&leeway, "truncate")?,
        None => 5,
    };
    let end_len = end.as_str().chars().count();
    let kept = length.checked_sub(end_len);
    let kept = kept.ok_or_else(|| error(format!("truncate: expected length >= {end_len}")))?;
    defined(value)?;
    let Value::Str(text) = value else {
        return fault(format!("truncate: a text is required, not '{}'", value.type_name()));
    };
    if value.len(meter)? <= length.saturating_add(leeway) {
        return Ok(value.clone());
    }
    let cut = text.as_str().char_indices().nth(kept).map_or(text.as_str().len(), |(at, _)| at);
    let mut part = &text.as_str()[..cut];
    if !kill.is_some_and(|kill| kill.is_true()) {
        part = part.rsplit_once(' ').map_or(part, |(before, _)| before);
    }
    let mut out = Builder::default();
    out.slice(text, 0..part.len());
    out.text(&end);
    let mut made = out.finish(meter)?;
    made.markup = text.markup;
    Ok(Value::Str(made))
}

fn quote(text: &Text, for_query: bool, meter: &Meter) -> Result<Text> {
    meter.fits(text.as_str().len().checked_mul(3))?;
    let mut out = String::new();
    for byte in text.as_str().bytes() {
        match byte {
            b if b.is_ascii_alphanumeric() || b"_.-~".contains(&b) => out.push(char::from(b)),
            b'/' if !for_query => out.push('/'),
            b' ' if for_query => out.push('+'),
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    Ok(text.derive(&out))
}

fn urlencode(value: &Value, given: &Given, meter: &Meter) -> Result<Value> {
    given.bind("urlencode", [])?;
    let items = match value {
        Value::Str(text) => return quote(text, false, meter).map(Value::Str),
        Value::Dict(dict) => Value::View(super::value::View::Items, dict.clone()).iterate(meter)?,
        Value::List(_) | Value::Tuple(_) | Value::Stream(..) | Value::Undefined(_) => {
            value.iterate(meter)?
        }
        other => return quote(&text_of(other, meter)?, false, meter).map(Value::Str),
    };
    let mut out = Builder::default();
    for (index, pair) in items.into_iter().enumerate() {
        let pair = pair.iterate(meter)?;
        let [key, value] = pair.as_slice() else {
            return fault("urlencode: an element that is not a pair");
        };
        if index > 0 {
            out.own("&");
        }
        out.text(&quote(&text_of(key, meter)?, true, meter)?);
        out.own("=");
        out.text(&quote(&text_of(value, meter)?, true, meter)?);
    }
    Ok(Value::Str(out.finish(meter)?))
}
