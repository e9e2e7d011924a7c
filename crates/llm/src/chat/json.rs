//! `tojson` as the models' own library writes it: Python's `json.dumps` with `ensure_ascii=False`,
//! so spaces behind separators, and no escapes for HTML.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

const MAX_INDENT: usize = 16;

/// How it is laid out.
struct Style {
    indent: Option<usize>,
    item: String,
    key: String,
    sort: bool,
}

/// A value as JSON. Options: `indent`, `separators`, `sort_keys`; `ensure_ascii` is ignored.
///
/// # Errors
/// An option of the wrong type, or a value that JSON has no form for.
pub(super) fn to_json(value: &Value, options: &Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    if indent.is_some_and(|width| width > MAX_INDENT) {
        return Err(invalid(format!("tojson: an indent of more than {MAX_INDENT}")));
    }
    let separators: Option<Vec<String>> = options.get("separators")?;
    let [item, key] = match separators.as_deref() {
        None if indent.is_some() => [",".to_owned(), ": ".to_owned()],
        None => [", ".to_owned(), ": ".to_owned()],
        Some([item, key]) if item.len() + key.len() <= 2 * MAX_INDENT => {
            [item.clone(), key.clone()]
        }
        Some(_) => return Err(invalid("tojson: separators are two short texts".into())),
    };
    let sort: Option<bool> = options.get("sort_keys")?;
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let mut out = String::new();
    write(&mut out, value, &Style { indent, item, key, sort: sort.unwrap_or(false) }, 0)?;
    Ok(out)
}

fn invalid(what: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}

fn write(out: &mut String, value: &Value, style: &Style, depth: usize) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&value.to_string()),
        ValueKind::String => string(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.checked().collect::<Result<_, _>>()?;
            list(out, '[', ']', style, depth, &items, &mut |out, item| {
                write(out, item, style, depth + 1)
            })?;
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.checked().collect::<Result<_, _>>()?;
            if style.sort {
                keys.sort();
            }
            list(out, '{', '}', style, depth, &keys, &mut |out, key| {
                match key.as_str() {
                    Some(text) => string(out, text),
                    None => string(out, &key.to_string()),
                }
                out.push_str(&style.key);
                write(out, &value.get_item(key)?, style, depth + 1)
            })?;
        }
        kind => return Err(invalid(format!("tojson: {kind} has no form in JSON"))),
    }
    Ok(())
}

fn list(
    out: &mut String,
    open: char,
    close: char,
    style: &Style,
    depth: usize,
    items: &[Value],
    one: &mut dyn FnMut(&mut String, &Value) -> Result<(), Error>,
) -> Result<(), Error> {
    let line = |out: &mut String, depth: usize| {
        if let Some(width) = style.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', width * depth));
        }
    };
    out.push(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(&style.item);
        }
        line(out, depth + 1);
        one(out, item)?;
    }
    if !items.is_empty() {
        line(out, depth);
    }
    out.push(close);
    Ok(())
}

fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}
