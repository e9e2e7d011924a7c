//! `tojson` as `transformers` defines it: Python's `json.dumps` with `ensure_ascii=False`, hence
//! with spaces after separators and without HTML escapes.

use super::call::Given;
use super::filters_list::sorted;
use super::meter::{Meter, Result, error, fault};
use super::print::float;
use super::text::{Builder, Text};
use super::value::Value;

const MAX_INDENT: usize = 16;
const MAX_SEPARATOR: usize = 16;

/// Formatting options of the output.
struct Style {
    indent: Option<String>,
    item: Text,
    key: Text,
    sort: bool,
    ascii: bool,
}

/// Converts a value to JSON.
///
/// # Errors
/// A fault for an option of the wrong type or beyond its limit, and for a value without a JSON
/// form.
pub(super) fn to_json(value: &Value, given: &Given, meter: &Meter) -> Result<Text> {
    let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let [ascii, indent, separators, sort] = given.bind("tojson", names)?;
    let indent = match indent {
        None | Some(Value::None) => None,
        Some(Value::Str(text)) if text.as_str().len() <= MAX_INDENT => {
            Some(text.as_str().to_owned())
        }
        Some(other) => match other.as_int() {
            Some(width) if width <= MAX_INDENT as i128 => Some(" ".repeat(width.max(0) as usize)),
            _ => return fault(format!("tojson: an indent that is not up to {MAX_INDENT}")),
        },
    };
    let (item, key) = match separators {
        None | Some(Value::None) => {
            let item = if indent.is_some() { "," } else { ", " };
            (Text::own(item), Text::own(": "))
        }
        Some(pair) => match pair.iterate(meter)?.as_slice() {
            [Value::Str(item), Value::Str(key)]
                if item.as_str().len().max(key.as_str().len()) <= MAX_SEPARATOR =>
            {
                (item.clone(), key.clone())
            }
            _ => return fault("tojson: separators are two short texts"),
        },
    };
    let is = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let style = Style { indent, item, key, sort: is(sort), ascii: is(ascii) };
    let mut out = Builder::default();
    write(&mut out, value, &style, 0, meter)?;
    out.finish(meter)
}

fn write(
    out: &mut Builder,
    value: &Value,
    style: &Style,
    depth: usize,
    meter: &Meter,
) -> Result<()> {
    meter.step(1)?;
    meter.fits(Some(out.text.len()))?;
    match value {
        Value::None => out.own("null"),
        Value::Bool(is) => out.own(if *is { "true" } else { "false" }),
        Value::Int(number) => out.own(&number.to_string()),
        Value::Float(number) => out.own(&number_text(*number)),
        Value::Str(text) => string(out, text, style),
        Value::List(items) | Value::Tuple(items) => {
            list(out, ['[', ']'], style, depth, &items.values, &mut |out, item| {
                write(out, item, style, depth + 1, meter)
            })?;
        }
        Value::Dict(dict) => {
            let mut pairs = Vec::new();
            for (key, value) in &dict.pairs {
                pairs.push((key.clone(), Value::tuple(vec![key.clone(), value.clone()], meter)?));
            }
            let pairs: Vec<Value> = match style.sort {
                true => sorted(pairs, false, meter)?,
                false => pairs.into_iter().map(|(_, pair)| pair).collect(),
            };
            list(out, ['{', '}'], style, depth, &pairs, &mut |out, pair| {
                let Value::Tuple(pair) = pair else { return Ok(()) };
                key(out, &pair.values[0], style)?;
                out.text(&style.key);
                write(out, &pair.values[1], style, depth + 1, meter)
            })?;
        }
        other => {
            let kind = other.type_name();
            return fault(format!("Object of type {kind} is not JSON serializable"));
        }
    }
    Ok(())
}

fn number_text(number: f64) -> String {
    match number {
        n if n.is_nan() => "NaN".into(),
        n if n.is_infinite() && n > 0.0 => "Infinity".into(),
        n if n.is_infinite() => "-Infinity".into(),
        n => float(n),
    }
}

fn key(out: &mut Builder, key: &Value, style: &Style) -> Result<()> {
    match key {
        Value::Str(text) => string(out, text, style),
        Value::None => out.own("\"null\""),
        Value::Bool(is) => out.own(if *is { "\"true\"" } else { "\"false\"" }),
        Value::Int(number) => out.own(&format!("\"{number}\"")),
        Value::Float(number) => out.own(&format!("\"{}\"", number_text(*number))),
        other => return Err(error(format!("keys must be str, not {}", other.type_name()))),
    }
    Ok(())
}

fn list(
    out: &mut Builder,
    [open, close]: [char; 2],
    style: &Style,
    depth: usize,
    items: &[Value],
    one: &mut dyn FnMut(&mut Builder, &Value) -> Result<()>,
) -> Result<()> {
    let line = |out: &mut Builder, depth: usize| {
        if let Some(space) = &style.indent {
            out.own("\n");
            (0..depth).for_each(|_| out.own(space));
        }
    };
    out.push(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.text(&style.item);
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

fn string(out: &mut Builder, text: &Text, style: &Style) {
    out.push('"');
    let source = text.as_str();
    let mut plain = 0;
    for (at, c) in source.char_indices() {
        let escaped = match c {
            '"' => "\\\"".to_owned(),
            '\\' => "\\\\".to_owned(),
            '\n' => "\\n".to_owned(),
            '\r' => "\\r".to_owned(),
            '\t' => "\\t".to_owned(),
            '\u{8}' => "\\b".to_owned(),
            '\u{c}' => "\\f".to_owned(),
            c if u32::from(c) < 0x20 => {
                format!("\\u{:04x}", u32::from(c))
            }
            c if style.ascii && !c.is_ascii() => {
                let mut units = [0; 2];
                c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
            }
            _ => continue,
        };
        out.slice(text, plain..at);
        out.derived(&escaped, text.is_outside_at(at));
        plain = at + c.len_utf8();
    }
    out.slice(text, plain..source.len());
    out.push('"');
}
