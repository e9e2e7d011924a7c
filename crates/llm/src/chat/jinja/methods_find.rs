//! Methods of Python's strings that search or classify text.

use super::call::Given;
use super::checks::is_case;
use super::filters_text::is_space;
use super::meter::{Meter, Result, error, fault};
use super::methods::text_arg;
use super::print::is_printable;
use super::text::Text;
use super::value::Value;

/// Returns the start and end of a slice of a sequence of `len` items, by Python's rules.
pub(super) fn bounds(parts: &[Option<Value>; 2], len: usize) -> Result<(usize, usize)> {
    let place = |part: &Option<Value>, default: usize| match part {
        None | Some(Value::None) => Ok(default),
        Some(value) => {
            let at =
                value.as_int().ok_or_else(|| error("slice indices must be integers or None"))?;
            let at = if at < 0 { at.saturating_add(len as i128) } else { at };
            Ok(usize::try_from(at.max(0)).unwrap_or(usize::MAX))
        }
    };
    Ok((place(&parts[0], 0)?, place(&parts[1], len)?.min(len)))
}

/// Returns the part of `text` that the second and third arguments select, and the character index
/// of its start, or `None` for an invalid range.
fn part_of<'a>(text: &'a str, args: &[Value]) -> Result<Option<(usize, &'a str)>> {
    let parts = [args.get(1).cloned(), args.get(2).cloned()];
    if parts.iter().all(Option::is_none) {
        return Ok(Some((0, text)));
    }
    let len = text.chars().count();
    let (start, stop) = bounds(&parts, len)?;
    if start > stop || start > len {
        return Ok(None);
    }
    let at = |n: usize| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    Ok(Some((start, &text[at(start)..at(stop)])))
}

pub(super) fn text_method(text: &Text, name: &str, given: &Given, meter: &Meter) -> Result<Value> {
    let source = text.as_str();
    match name {
        "startswith" | "endswith" => {
            let args = given.between(name, 1, 3)?;
            let Some((_, part)) = part_of(source, args)? else { return Ok(Value::Bool(false)) };
            let ends = |with: &Text| match name {
                "startswith" => part.starts_with(with.as_str()),
                _ => part.ends_with(with.as_str()),
            };
            let several = match &args[0] {
                Value::Tuple(items) => &items.values[..],
                one => std::slice::from_ref(one),
            };
            for with in several {
                meter.step(1)?;
                if ends(text_arg(with, name)?) {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        "find" | "rfind" | "index" | "rindex" | "count" => {
            let args = given.between(name, 1, 3)?;
            let wanted = text_arg(&args[0], name)?.as_str();
            let part = part_of(source, args)?;
            if name == "count" {
                let count = part.map_or(0, |(_, part)| part.matches(wanted).count());
                return Ok(Value::from(count));
            }
            let found = part.and_then(|(start, part)| {
                let at = if name.starts_with('r') { part.rfind(wanted) } else { part.find(wanted) };
                Some(start + part[..at?].chars().count())
            });
            match found {
                Some(at) => Ok(Value::from(at)),
                None if name.ends_with("find") => Ok(Value::Int(-1)),
                None => fault(format!("{name}: substring not found")),
            }
        }
        "isalnum" | "isalpha" | "isascii" | "isdecimal" | "isdigit" | "isidentifier"
        | "islower" | "isnumeric" | "isprintable" | "isspace" | "istitle" | "isupper" => {
            given.bind(name, [])?;
            is_made_of(source, name).map(Value::Bool)
        }
        other => fault(format!("the method {other:.40} of a text is not supported")),
    }
}

fn is_made_of(text: &str, name: &str) -> Result<bool> {
    let all = |is: &dyn Fn(char) -> bool| !text.is_empty() && text.chars().all(is);
    Ok(match name {
        "isascii" => text.is_ascii(),
        "isprintable" => text.chars().all(is_printable),
        "isspace" => all(&is_space),
        "islower" => is_case(text, false),
        "isupper" => is_case(text, true),
        // Unicode has finer classes of letters and digits than are supported here.
        _ if !text.is_ascii() && name != "isalpha" && name != "isalnum" => {
            return fault(format!("the method {name} is supported for ASCII only"));
        }
        "isalpha" => all(&char::is_alphabetic),
        "isalnum" => all(&char::is_alphanumeric),
        "isdecimal" | "isdigit" | "isnumeric" => all(&|c| c.is_ascii_digit()),
        "isidentifier" => {
            all(&|c| c.is_ascii_alphanumeric() || c == '_')
                && !text.starts_with(|c: char| c.is_ascii_digit())
        }
        _ => {
            let (mut within, mut any) = (false, false);
            for c in text.chars() {
                let fits = match (c.is_ascii_uppercase(), c.is_ascii_lowercase()) {
                    (true, _) => !within,
                    (_, true) => within,
                    _ => true,
                };
                if !fits {
                    return Ok(false);
                }
                within = c.is_ascii_alphabetic();
                any |= within;
            }
            any
        }
    })
}
