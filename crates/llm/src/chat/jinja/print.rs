//! Converts values to strings: Python's `str` and `repr`.

use super::meter::{Meter, Result, fault};
use super::text::{Builder, Text};
use super::value::{Dict, Object, Value, View};

/// Evaluates `str(value)`.
pub(super) fn text_of(value: &Value, meter: &Meter) -> Result<Text> {
    match value {
        Value::Str(text) => Ok(text.clone()),
        _ => {
            let mut out = Builder::default();
            str_into(&mut out, value, meter)?;
            out.finish(meter)
        }
    }
}

/// Appends `str(value)`.
pub(super) fn str_into(out: &mut Builder, value: &Value, meter: &Meter) -> Result<()> {
    match value {
        Value::Undefined(_) => Ok(()),
        Value::Str(text) => {
            meter.fits(Some(out.text.len() + text.as_str().len()))?;
            out.text(text);
            Ok(())
        }
        _ => repr_into(out, value, meter),
    }
}

/// Appends `repr(value)`.
pub(super) fn repr_into(out: &mut Builder, value: &Value, meter: &Meter) -> Result<()> {
    meter.step(1)?;
    meter.fits(Some(out.text.len()))?;
    match value {
        Value::Undefined(_) => out.own("Undefined"),
        Value::None => out.own("None"),
        Value::Bool(is) => out.own(if *is { "True" } else { "False" }),
        Value::Int(number) => out.own(&number.to_string()),
        Value::Float(number) => out.own(&float(*number)),
        Value::Str(text) => {
            meter.spend(text.as_str().len() as u64)?;
            if text.markup {
                out.own("Markup(");
            }
            out.derived(&quoted(text.as_str(), false), text.is_outside());
            if text.markup {
                out.own(")");
            }
        }
        Value::List(items) => list_into(out, "[", &items.values, "]", meter)?,
        Value::Tuple(items) => {
            let end = if items.values.len() == 1 { ",)" } else { ")" };
            list_into(out, "(", &items.values, end, meter)?;
        }
        Value::Dict(dict) => dict_into(out, dict, meter)?,
        Value::View(kind, _) => {
            let open = match kind {
                View::Keys => "dict_keys([",
                View::Values => "dict_values([",
                View::Items => "dict_items([",
            };
            list_into(out, open, &value.iterate(meter)?, "])", meter)?;
        }
        Value::Range(start, stop, 1) => out.own(&format!("range({start}, {stop})")),
        Value::Range(start, stop, step) => out.own(&format!("range({start}, {stop}, {step})")),
        Value::Stream(..) | Value::Object(_) => {
            let what = match value {
                Value::Object(Object::Method(method)) => format!("the method {}", method.1),
                _ => format!("a {}", value.type_name()),
            };
            return fault(format!("{what} has no form as text"));
        }
    }
    Ok(())
}

fn list_into(
    out: &mut Builder,
    open: &str,
    values: &[Value],
    close: &str,
    meter: &Meter,
) -> Result<()> {
    out.own(open);
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.own(", ");
        }
        repr_into(out, value, meter)?;
    }
    out.own(close);
    Ok(())
}

fn dict_into(out: &mut Builder, dict: &Dict, meter: &Meter) -> Result<()> {
    out.own("{");
    for (index, (key, value)) in dict.pairs.iter().enumerate() {
        if index > 0 {
            out.own(", ");
        }
        repr_into(out, key, meter)?;
        out.own(": ");
        repr_into(out, value, meter)?;
    }
    out.own("}");
    Ok(())
}

/// Formats a float with the fewest digits that round-trip, in Python's notation.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.unsigned_abs());
    }
    let plain = format!("{number}");
    if plain.contains('.') { plain } else { format!("{plain}.0") }
}

/// Quotes a string as Python's `repr` does; with `ascii`, non-ASCII characters are escaped.
pub(super) fn quoted(text: &str, ascii: bool) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) && (!ascii || c.is_ascii()) => out.push(c),
            c => {
                let code = u32::from(c);
                out.push_str(&match code {
                    0..=0xff => format!("\\x{code:02x}"),
                    0x100..=0xffff => format!("\\u{code:04x}"),
                    _ => format!("\\U{code:08x}"),
                });
            }
        }
    }
    out.push(quote);
    out
}

/// Ranges of unprintable characters: Unicode categories Cc, Cf, Co, Zl, Zp and Zs, except the
/// space.
const HIDDEN: [(u32, u32); 32] = [
    (0x00, 0x1f),
    (0x7f, 0xa0),
    (0xad, 0xad),
    (0x600, 0x605),
    (0x61c, 0x61c),
    (0x6dd, 0x6dd),
    (0x70f, 0x70f),
    (0x890, 0x891),
    (0x8e2, 0x8e2),
    (0x1680, 0x1680),
    (0x180e, 0x180e),
    (0x2000, 0x200f),
    (0x2028, 0x202f),
    (0x205f, 0x2064),
    (0x2066, 0x206f),
    (0x3000, 0x3000),
    (0xe000, 0xf8ff),
    (0xfdd0, 0xfdef),
    (0xfeff, 0xfeff),
    (0xfff0, 0xfffb),
    (0xfffe, 0xffff),
    (0x110bd, 0x110bd),
    (0x110cd, 0x110cd),
    (0x13430, 0x1343f),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0x1fffe, 0x1ffff),
    (0x2fffe, 0x2ffff),
    (0x3fffe, 0xdffff),
    (0xe0000, 0xe00ff),
    (0xe01f0, 0xeffff),
    (0xf0000, 0x10ffff),
];

pub(super) fn is_printable(c: char) -> bool {
    let code = u32::from(c);
    let next = HIDDEN.partition_point(|(start, _)| *start <= code);
    next == 0 || HIDDEN[next - 1].1 < code
}
