//! Methods of Python's values. Those of strings that search or classify are in `methods_find`.

use super::call::{Given, count_of, wanted};
use super::escape::joins_markup;
use super::eval::Run;
use super::filters_text::{Side, is_space, lines, padded};
use super::meter::{Meter, Result, error, fault};
use super::ops;
use super::text::{Builder, Text};
use super::value::{Object, Value, View};
use super::{format, methods_find};

impl Run<'_> {
    pub(super) fn method(&mut self, value: &Value, name: &str, given: &Given) -> Result<Value> {
        let meter = self.meter;
        match (value, name) {
            (Value::Str(text), "format") => format::format(text, given, meter).map(Value::Str),
            (Value::Str(text), "format_map") => {
                let args = given.between(name, 1, 1)?;
                let Value::Dict(dict) = &args[0] else {
                    return fault("format_map: not a mapping");
                };
                let mut named = Vec::new();
                for (key, value) in &dict.pairs {
                    if let Value::Str(key) = key {
                        named.push((key.as_str().into(), value.clone()));
                    }
                }
                let given = Given { positional: Vec::new(), named };
                format::format(text, &given, meter).map(Value::Str)
            }
            (Value::Str(text), _) => text_method(text, name, given, meter),
            (Value::Dict(dict), "get") => {
                let args = given.between(name, 1, 2)?;
                args[0].check_key()?;
                let found = ops::get(dict, &args[0], meter)?;
                Ok(found.unwrap_or_else(|| args.get(1).cloned().unwrap_or(Value::None)))
            }
            (Value::Dict(dict), "items" | "keys" | "values") => {
                given.bind(name, [])?;
                let kind = match name {
                    "items" => View::Items,
                    "keys" => View::Keys,
                    _ => View::Values,
                };
                Ok(Value::View(kind, dict.clone()))
            }
            (Value::Dict(_) | Value::List(_), "copy") => {
                given.bind(name, [])?;
                Ok(value.clone())
            }
            (Value::List(_) | Value::Tuple(_) | Value::Range(..), "count" | "index") => {
                place(value, name, given, meter)
            }
            (Value::Float(number), "is_integer") => {
                given.bind(name, [])?;
                Ok(Value::Bool(number.fract() == 0.0))
            }
            (Value::Int(_) | Value::Bool(_), "is_integer") => {
                given.bind(name, [])?;
                Ok(Value::Bool(true))
            }
            (Value::Int(_) | Value::Bool(_), "bit_length") => {
                given.bind(name, [])?;
                let size = value.as_int().unwrap_or(0).unsigned_abs();
                Ok(Value::Int(i128::from(128 - size.leading_zeros())))
            }
            (Value::Object(Object::Loop(state)), "cycle") => {
                if given.positional.is_empty() || !given.named.is_empty() {
                    return fault("loop.cycle: no items for cycling given");
                }
                Ok(given.positional[state.index.get() % given.positional.len()].clone())
            }
            (Value::Object(Object::Loop(state)), "changed") => {
                let args = given.between(name, 0, usize::MAX)?;
                let mut last = state.last.borrow_mut();
                let same = match &*last {
                    Some(last) if last.len() == args.len() => {
                        let pairs = last.iter().zip(args);
                        let same = pairs.map(|(a, b)| ops::equal(a, b, meter));
                        same.collect::<Result<Vec<bool>>>()?.into_iter().all(|same| same)
                    }
                    _ => false,
                };
                *last = Some(args.to_vec());
                Ok(Value::Bool(!same))
            }
            (Value::Object(Object::Cycler(state)), "next" | "reset") => {
                given.bind(name, [])?;
                let at = state.1.get();
                if name == "reset" {
                    state.1.set(0);
                    return Ok(Value::None);
                }
                state.1.set((at + 1) % state.0.len().max(1));
                state.0.get(at).cloned().ok_or_else(|| error("cycler: no items"))
            }
            _ => {
                let kind = value.type_name();
                fault(format!("the method {name} of '{kind}' is not supported"))
            }
        }
    }
}

/// Evaluates the methods `count` and `index` of a sequence.
fn place(value: &Value, name: &str, given: &Given, meter: &Meter) -> Result<Value> {
    let items = value.iterate(meter)?;
    if name == "count" {
        let args = given.between(name, 1, 1)?;
        let mut count = 0;
        for item in &items {
            count += usize::from(ops::equal(item, &args[0], meter)?);
        }
        return Ok(Value::from(count));
    }
    let args = given.between(name, 1, 3)?;
    let bounds = [args.get(1).cloned(), args.get(2).cloned()];
    let (start, stop) = methods_find::bounds(&bounds, items.len())?;
    for (at, item) in items.iter().enumerate().take(stop).skip(start) {
        if ops::equal(item, &args[0], meter)? {
            return Ok(Value::from(at));
        }
    }
    fault("index: the value is not in the list")
}

/// Returns a string argument. `what` names the function in errors.
pub(super) fn text_arg<'a>(value: &'a Value, what: &str) -> Result<&'a Text> {
    match value {
        Value::Str(text) => Ok(text),
        other => {
            ops::defined(other)?;
            fault(format!("{what}: a text is required, not '{}'", other.type_name()))
        }
    }
}

fn text_method(text: &Text, name: &str, given: &Given, meter: &Meter) -> Result<Value> {
    meter.spend(text.as_str().len() as u64)?;
    if text.markup {
        let texts = given.positional.iter().chain(given.named.iter().map(|(_, value)| value));
        joins_markup(true, texts.filter_map(Value::as_text))?;
    }
    match name {
        "lower" | "upper" | "capitalize" | "swapcase" | "title" | "casefold" => {
            given.bind(name, [])?;
            case(name, text, meter).map(Value::Str)
        }
        "strip" | "lstrip" | "rstrip" => {
            let args = given.between(name, 0, 1)?;
            let chars = args.first().filter(|chars| !matches!(chars, Value::None));
            strip(text, chars, name != "rstrip", name != "lstrip", meter).map(Value::Str)
        }
        "replace" => {
            let [old, new, count] = match given.named.first() {
                Some((name, _)) if **name != *"count" => {
                    return fault(format!("replace: no argument {name:.40?} is known"));
                }
                _ => given.bind(name, ["old", "new", "count"])?,
            };
            let (old, new) = (wanted(old, name)?, wanted(new, name)?);
            let count = count.map_or(Some(-1), |count| count.as_int());
            let count = count.ok_or_else(|| error("replace: a count that is not an integer"))?;
            let made = replace(text, text_arg(&old, name)?, text_arg(&new, name)?, count, meter)?;
            Ok(Value::Str(made))
        }
        "join" => {
            let args = given.between(name, 1, 1)?;
            let mut out = Builder::default();
            for (index, item) in args[0].iterate(meter)?.iter().enumerate() {
                if index > 0 {
                    out.text(text);
                }
                let item = match item {
                    Value::Str(item) => item,
                    other => {
                        let kind = other.type_name();
                        let what = format!("join: item {index} is '{kind}', not a text");
                        return fault(what);
                    }
                };
                joins_markup(text.markup, std::iter::once(item))?;
                out.text(item);
                meter.fits(Some(out.text.len()))?;
            }
            let mut made = out.finish(meter)?;
            made.markup = text.markup;
            Ok(Value::Str(made))
        }
        "removeprefix" | "removesuffix" => {
            let args = given.between(name, 1, 1)?;
            let part = text_arg(&args[0], name)?.as_str();
            let rest = match name {
                "removeprefix" => text.as_str().strip_prefix(part),
                _ => text.as_str().strip_suffix(part),
            };
            Ok(Value::Str(rest.map_or(text.clone(), |rest| text.part(rest))))
        }
        "center" | "ljust" | "rjust" | "zfill" => widened(text, name, given, meter),
        "split" | "rsplit" => split(text, name == "rsplit", given, meter),
        "splitlines" => {
            let [keep] = given.bind(name, ["keepends"])?;
            let keep = keep.is_some_and(|keep| keep.is_true());
            let lines = lines(text.as_str());
            meter.items(lines.len())?;
            let line = |(bare, whole): &(&str, &str)| {
                Value::Str(text.part(if keep { whole } else { bare }))
            };
            Value::list(lines.iter().map(line).collect(), meter)
        }
        "partition" | "rpartition" => {
            let args = given.between(name, 1, 1)?;
            let between = text_arg(&args[0], name)?.as_str();
            if between.is_empty() {
                return fault("partition: empty separator");
            }
            let found = match name {
                "partition" => text.as_str().find(between),
                _ => text.as_str().rfind(between),
            };
            let len = text.as_str().len();
            let (start, end) = match (found, name) {
                (Some(at), _) => (at, at + between.len()),
                (None, "partition") => (len, len),
                (None, _) => (0, 0),
            };
            let parts = [0..start, start..end, end..len].map(|part| Value::Str(text.slice(part)));
            Value::tuple(parts.to_vec(), meter)
        }
        _ => methods_find::text_method(text, name, given, meter),
    }
}

/// Changes the case of a string as Python's method `name` does.
pub(super) fn case(name: &str, text: &Text, meter: &Meter) -> Result<Text> {
    let source = text.as_str();
    meter.fits(Some(source.len()))?;
    let made = match name {
        "lower" => source.to_lowercase(),
        "upper" => source.to_uppercase(),
        "capitalize" => {
            let mut letters = source.chars();
            let first = letters.next().map(title_letter).transpose()?.unwrap_or_default();
            first + &letters.as_str().to_lowercase()
        }
        "swapcase" => {
            let swapped = |c: char| -> String {
                match c.is_uppercase() {
                    true => c.to_lowercase().collect(),
                    false => c.to_uppercase().collect(),
                }
            };
            source.chars().map(swapped).collect()
        }
        "casefold" if source.is_ascii() => source.to_ascii_lowercase(),
        "casefold" => return fault("the method casefold is supported for ASCII only"),
        _ => {
            let mut made = String::with_capacity(source.len());
            let mut within = false;
            for c in source.chars() {
                let is_cased = c.is_uppercase() || c.is_lowercase();
                match is_cased && !within {
                    true => made.push_str(&title_letter(c)?),
                    false => made.extend(c.to_lowercase()),
                }
                within = is_cased;
            }
            made
        }
    };
    Ok(text.derive(&made))
}

/// Converts the first letter of a word to title case; digraph letters and extended Greek are not
/// supported.
fn title_letter(c: char) -> Result<String> {
    if matches!(c, '\u{1c4}'..='\u{1cc}' | '\u{1f1}'..='\u{1f3}' | '\u{1f80}'..='\u{1fff}') {
        return fault(format!("the title case of {c:?} is not supported"));
    }
    let mut upper = c.to_uppercase();
    // If the uppercase form has several letters, only the first stays uppercase.
    let head: String = upper.next().into_iter().collect();
    Ok(head + &upper.flat_map(char::to_lowercase).collect::<String>())
}

pub(super) fn strip(
    text: &Text,
    chars: Option<&Value>,
    start: bool,
    end: bool,
    meter: &Meter,
) -> Result<Text> {
    let chars = match chars {
        None | Some(Value::None) => None,
        Some(chars) => Some(text_arg(chars, "strip")?.as_str()),
    };
    // Every character at the ends is compared with each of these.
    let work = text.as_str().len().saturating_mul(chars.map_or(1, |chars| chars.len() / 16 + 1));
    meter.spend(work as u64)?;
    let goes = |c: char| chars.map_or(is_space(c), |chars| chars.contains(c));
    let mut part = text.as_str();
    if start {
        part = part.trim_start_matches(goes);
    }
    if end {
        part = part.trim_end_matches(goes);
    }
    Ok(text.part(part))
}

pub(super) fn replace(
    text: &Text,
    old: &Text,
    new: &Text,
    count: i128,
    meter: &Meter,
) -> Result<Text> {
    let most = if count < 0 { usize::MAX } else { usize::try_from(count).unwrap_or(usize::MAX) };
    let source = text.as_str();
    let found = source.matches(old.as_str()).take(most).count();
    let added = found.checked_mul(new.as_str().len() + 16);
    meter.fits(added.and_then(|added| added.checked_add(source.len())))?;
    let mut out = Builder::default();
    let mut from = 0;
    for (at, _) in source.match_indices(old.as_str()).take(most) {
        out.slice(text, from..at);
        out.text(new);
        from = at + old.as_str().len();
    }
    out.slice(text, from..source.len());
    let mut made = out.finish(meter)?;
    made.markup = text.markup;
    Ok(made)
}

fn widened(text: &Text, name: &str, given: &Given, meter: &Meter) -> Result<Value> {
    let args = given.between(name, 1, if name == "zfill" { 1 } else { 2 })?;
    let width = count_of(&args[0], name)?;
    let fill = match args.get(1) {
        None => ' ',
        Some(fill) => {
            let mut letters = text_arg(fill, name)?.as_str().chars();
            match (letters.next(), letters.next()) {
                (Some(fill), None) => fill,
                _ => return fault(format!("{name}: the fill is not one letter")),
            }
        }
    };
    let made = match name {
        "ljust" => padded(text, width, fill, Side::Left, meter)?,
        "rjust" => padded(text, width, fill, Side::Right, meter)?,
        "center" => padded(text, width, fill, Side::Both, meter)?,
        _ => {
            let signed = text.as_str().starts_with(['+', '-']);
            let (sign, digits) = (text.slice(0..usize::from(signed)), usize::from(signed));
            let digits = text.slice(digits..text.as_str().len());
            let digits = padded(
                &digits,
                width.saturating_sub(usize::from(signed)),
                '0',
                Side::Right,
                meter,
            )?;
            let mut out = Builder::default();
            out.text(&sign);
            out.text(&digits);
            out.finish(meter)?
        }
    };
    Ok(Value::Str(made))
}

fn split(text: &Text, from_right: bool, given: &Given, meter: &Meter) -> Result<Value> {
    let [between, most] = given.bind("split", ["sep", "maxsplit"])?;
    let most = most.map_or(Some(-1), |most| most.as_int());
    let most = most.ok_or_else(|| error("split: a count that is not an integer"))?;
    let most =
        if most < 0 { usize::MAX - 1 } else { usize::try_from(most).unwrap_or(usize::MAX - 1) };
    let most = most.min(usize::MAX - 1);
    let source = text.as_str();
    meter.items(source.len() / 2)?;
    let mut parts: Vec<&str> = match between.filter(|between| !matches!(between, Value::None)) {
        Some(between) => {
            let between = text_arg(&between, "split")?.as_str().to_owned();
            if between.is_empty() {
                return fault("split: empty separator");
            }
            match from_right {
                true => source.rsplitn(most + 1, &*between).collect(),
                false => source.splitn(most + 1, &*between).collect(),
            }
        }
        None => words(source, most, from_right),
    };
    if from_right {
        parts.reverse();
    }
    meter.items(parts.len())?;
    Value::list(parts.into_iter().map(|part| Value::Str(text.part(part))).collect(), meter)
}

/// Splits a string at white space, at most `most` times. With `from_right`, it splits from the
/// right and returns the last word first.
fn words(text: &str, most: usize, from_right: bool) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = match from_right {
        true => text.trim_end_matches(is_space),
        false => text.trim_start_matches(is_space),
    };
    while !rest.is_empty() {
        if words.len() == most {
            let last = match from_right {
                true => rest.trim_end_matches(is_space),
                false => rest.trim_start_matches(is_space),
            };
            words.push(last);
            break;
        }
        let (word, left) = match from_right {
            true => {
                let at = rest.rfind(is_space);
                let start =
                    at.map_or(0, |at| at + rest[at..].chars().next().map_or(0, char::len_utf8));
                (&rest[start..], rest[..start].trim_end_matches(is_space))
            }
            false => {
                let at = rest.find(is_space).unwrap_or(rest.len());
                (&rest[..at], rest[at..].trim_start_matches(is_space))
            }
        };
        words.push(word);
        rest = left;
    }
    words
}
