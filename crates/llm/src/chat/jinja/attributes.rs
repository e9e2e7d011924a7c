//! Evaluates attributes, subscripts and slices.

use std::rc::Rc;

use super::meter::{Meter, Result, fault};
use super::ops::{self, defined};
use super::text::{Builder, Text};
use super::value::{Dict, Loop, Object, Value, range_len};

/// Methods of Python's `str`; unsupported ones are refused when called.
const OF_TEXT: [&str; 47] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];
const OF_DICT: [&str; 6] = ["copy", "fromkeys", "get", "items", "keys", "values"];
const OF_LIST: [&str; 3] = ["copy", "count", "index"];
const OF_INT: [&str; 8] = [
    "as_integer_ratio",
    "bit_count",
    "bit_length",
    "conjugate",
    "from_bytes",
    "is_integer",
    "to_bytes",
    "fromhex",
];
const OF_FLOAT: [&str; 5] = ["as_integer_ratio", "conjugate", "fromhex", "hex", "is_integer"];
/// Mutating methods, which the sandbox hides.
const CHANGING: [&str; 12] = [
    "append",
    "clear",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "reverse",
    "setdefault",
    "sort",
    "update",
    "add",
];

/// Returns a Python attribute of a value, if it has one with this name.
fn own(value: &Value, name: &str) -> Result<Option<Value>> {
    let method = |names: &[&str]| {
        let made = || Value::Object(Object::Method(Rc::new((value.clone(), name.into()))));
        names.contains(&name).then(made)
    };
    let unsafe_ = |names: &[&str]| {
        let what = || {
            let kind = value.type_name();
            Value::undefined(format!("access to attribute '{name}' of '{kind}' object is unsafe"))
        };
        names.contains(&name).then(what)
    };
    if name.starts_with("__") && name.ends_with("__") {
        let kind = value.type_name();
        let what = format!("access to attribute '{name}' of '{kind}' object is unsafe");
        return Ok(Some(Value::undefined(what)));
    }
    Ok(match value {
        Value::Str(text) if text.markup && matches!(name, "escape" | "striptags" | "unescape") => {
            method(&[name])
        }
        Value::Str(_) => method(&OF_TEXT),
        Value::List(_) => method(&OF_LIST).or_else(|| unsafe_(&CHANGING)),
        Value::Tuple(items) if items.is_group && name == "grouper" => items.values.first().cloned(),
        Value::Tuple(items) if items.is_group && name == "list" => items.values.get(1).cloned(),
        Value::Tuple(_) => method(&OF_LIST[1..]),
        Value::Dict(_) => method(&OF_DICT).or_else(|| unsafe_(&CHANGING)),
        Value::View(..) => method(&["isdisjoint", "mapping"]),
        Value::Range(start, stop, step) => match name {
            "start" => Some(Value::Int(*start)),
            "stop" => Some(Value::Int(*stop)),
            "step" => Some(Value::Int(*step)),
            _ => method(&OF_LIST[1..]),
        },
        Value::Int(_) | Value::Bool(_) => match name {
            "real" | "numerator" => value.as_int().map(Value::Int),
            "imag" => Some(Value::Int(0)),
            "denominator" => Some(Value::Int(1)),
            _ => method(&OF_INT),
        },
        Value::Float(number) => match name {
            "real" => Some(Value::Float(*number)),
            "imag" => Some(Value::Float(0.0)),
            _ => method(&OF_FLOAT),
        },
        Value::Stream(..) => method(&["close", "send", "throw"]),
        Value::Object(object) => of_object(object, name)?.or_else(|| match object {
            Object::Cycler(_) => method(&["next", "reset"]),
            Object::Loop(_) => method(&["cycle", "changed"]),
            Object::Function(_) => method(&["fromkeys"]),
            _ => None,
        }),
        Value::Undefined(_) | Value::None => None,
    })
}

fn of_object(object: &Object, name: &str) -> Result<Option<Value>> {
    Ok(match object {
        Object::Namespace(names) => {
            names.borrow().iter().find(|(known, _)| **known == *name).map(|(_, v)| v.clone())
        }
        Object::Loop(state) => of_loop(state, name),
        Object::Cycler(state) if name == "current" => state.0.get(state.1.get()).cloned(),
        Object::Macro(made) => match name {
            "name" => Some(Value::from(&*made.made.name)),
            "arguments" | "catch_kwargs" | "catch_varargs" | "caller" => {
                return fault(format!("the attribute {name} of a macro is not supported"));
            }
            _ => None,
        },
        _ => None,
    })
}

fn of_loop(state: &Loop, name: &str) -> Option<Value> {
    let (index, len) = (state.index.get(), state.items.len());
    let beside = |at: Option<usize>, what: &str| {
        let found = at.and_then(|at| state.items.get(at)).cloned();
        found.unwrap_or_else(|| Value::undefined(format!("there is no {what} item")))
    };
    Some(match name {
        "index" => Value::from(index + 1),
        "index0" => Value::from(index),
        "revindex" => Value::from(len - index),
        "revindex0" => Value::from(len - index - 1),
        "first" => Value::Bool(index == 0),
        "last" => Value::Bool(index + 1 == len),
        "length" => Value::from(len),
        "depth" => Value::from(state.depth + 1),
        "depth0" => Value::from(state.depth),
        "previtem" => beside(index.checked_sub(1), "previous"),
        "nextitem" => beside(Some(index + 1), "next"),
        _ => return None,
    })
}

fn missing(value: &Value, name: &str) -> Value {
    Value::undefined(format!("'{} object' has no attribute '{name:.60}'", value.type_name()))
}

/// Returns a Python attribute, never an item, as the filter `attr` does.
pub(super) fn own_attribute(value: &Value, name: &str) -> Result<Value> {
    match value {
        // Attributes of a namespace exist only as items.
        Value::Object(Object::Namespace(_)) => Ok(missing(value, name)),
        _ => Ok(own(value, name)?.unwrap_or_else(|| missing(value, name))),
    }
}

/// Evaluates `value.name`: an attribute first, then an item.
pub(super) fn attribute(value: &Value, name: &str, meter: &Meter) -> Result<Value> {
    meter.step(1)?;
    defined(value)?;
    if let Some(found) = own(value, name)? {
        return Ok(found);
    }
    match value {
        Value::Dict(dict) => {
            let found = by_name(dict, name, meter)?;
            Ok(found.unwrap_or_else(|| missing(value, name)))
        }
        _ => Ok(missing(value, name)),
    }
}

fn by_name(dict: &Dict, name: &str, meter: &Meter) -> Result<Option<Value>> {
    meter.step(1 + dict.pairs.len() as u64 / 8)?;
    let is = |key: &Value| matches!(key, Value::Str(text) if text.as_str() == name);
    Ok(dict.pairs.iter().find(|(key, _)| is(key)).map(|(_, value)| value.clone()))
}

/// Evaluates `value[key]`: an item first, then an attribute.
pub(super) fn item(value: &Value, key: &Value, meter: &Meter) -> Result<Value> {
    meter.step(1)?;
    defined(value)?;
    let found = match (value, key.as_int()) {
        (Value::Dict(dict), _) => match key.check_key() {
            Ok(()) => ops::get(dict, key, meter)?,
            Err(_) => None,
        },
        (Value::List(items) | Value::Tuple(items), Some(at)) => {
            index(at, items.values.len()).map(|at| items.values[at].clone())
        }
        (Value::Str(text), Some(at)) => {
            meter.spend(text.as_str().len() as u64)?;
            let count = text.as_str().chars().count();
            index(at, count).and_then(|at| {
                let (from, c) = text.as_str().char_indices().nth(at)?;
                Some(Value::Str(text.slice(from..from + c.len_utf8())))
            })
        }
        (Value::Range(start, stop, step), Some(at)) => {
            let at = index(at, range_len(*start, *stop, *step));
            at.map(|at| Value::Int(start + step * at as i128))
        }
        _ => None,
    };
    if let Some(found) = found {
        return Ok(found);
    }
    match key {
        Value::Str(name) => {
            let found = own(value, name.as_str())?;
            Ok(found.unwrap_or_else(|| missing(value, name.as_str())))
        }
        other => {
            let what = other.as_int().map_or("of that kind".to_owned(), |at| at.to_string());
            Ok(no_element(value, &what))
        }
    }
}

fn no_element(value: &Value, what: &str) -> Value {
    Value::undefined(format!("'{} object' has no element {what}", value.type_name()))
}

fn index(at: i128, len: usize) -> Option<usize> {
    let at = if at < 0 { at + len as i128 } else { at };
    usize::try_from(at).ok().filter(|at| *at < len)
}

/// Returns the start, end and step of a slice of a sequence of `len` items, or `None` if one is not
/// an integer.
fn bounds(parts: &[Option<Value>; 3], len: usize) -> Result<Option<(i128, i128, i128)>> {
    let part = |at: usize| match &parts[at] {
        None | Some(Value::None) => Some(None),
        Some(value) => value.as_int().map(Some),
    };
    let (Some(start), Some(stop), Some(step)) = (part(0), part(1), part(2)) else {
        return Ok(None);
    };
    let step = step.unwrap_or(1);
    if step == 0 {
        return fault("slice step cannot be zero");
    }
    let len = len as i128;
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let place = |at: i128| (if at < 0 { at.saturating_add(len) } else { at }).clamp(low, high);
    let start = start.map_or(if step > 0 { low } else { high }, place);
    let stop = stop.map_or(if step > 0 { high } else { low }, place);
    Ok(Some((start, stop, step)))
}

/// Evaluates `value[start:stop:step]`.
pub(super) fn slice(value: &Value, parts: &[Option<Value>; 3], meter: &Meter) -> Result<Value> {
    defined(value)?;
    let len = match value {
        Value::Str(_) | Value::List(_) | Value::Tuple(_) | Value::Range(..) => value.len(meter)?,
        other => return fault(format!("'{}' object is not subscriptable", other.type_name())),
    };
    let Some((start, stop, step)) = bounds(parts, len)? else {
        return fault("slice indices must be integers or None");
    };
    let count = range_len(start, stop, step);
    meter.step(count as u64 / 8)?;
    let places = (0..count).map(|i| (start + step * i as i128) as usize);
    match value {
        Value::Str(text) => slice_text(text, places, (step, len), meter).map(Value::Str),
        Value::List(items) => {
            meter.items(count)?;
            Value::list(places.map(|at| items.values[at].clone()).collect(), meter)
        }
        Value::Tuple(items) => {
            meter.items(count)?;
            Value::tuple(places.map(|at| items.values[at].clone()).collect(), meter)
        }
        Value::Range(from, _, by) => {
            Ok(Value::Range(from + by * start, from + by * stop, by * step))
        }
        _ => Ok(Value::None),
    }
}

fn slice_text(
    text: &Text,
    mut places: impl ExactSizeIterator<Item = usize>,
    (step, len): (i128, usize),
    meter: &Meter,
) -> Result<Text> {
    let letters = text.as_str();
    meter.fits(Some(letters.len()))?;
    if step == 1 {
        let count = places.len();
        let Some(first) = places.next() else { return Ok(text.slice(0..0)) };
        let at = |n: usize| letters.char_indices().nth(n).map_or(letters.len(), |(at, _)| at);
        return Ok(text.slice(at(first)..at(first + count)));
    }
    meter.items(len)?;
    let starts: Vec<usize> = letters.char_indices().map(|(at, _)| at).collect();
    let mut out = Builder::default();
    for place in places {
        let end = starts.get(place + 1).copied().unwrap_or(letters.len());
        out.slice(text, starts[place]..end);
    }
    // Reordered characters may form a new name.
    let outside = out.is_outside();
    let (made, _) = out.parts();
    let mut out = Builder::default();
    out.derived(&made, outside);
    let mut made = out.finish(meter)?;
    made.markup = text.markup;
    Ok(made)
}
