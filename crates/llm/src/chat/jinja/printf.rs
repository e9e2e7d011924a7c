//! `'..' % values`: Python's printf-style formatting.

use super::escape::joins_markup;
use super::meter::{Meter, Result, error, fault};
use super::numbers::{MAX_PRECISION, fixed, general, in_base, not_finite, scientific};
use super::ops::{self, defined};
use super::print::{quoted, text_of};
use super::text::{Builder, Text};
use super::value::Value;

/// Maximum width of a field, in characters.
pub(super) const MAX_FIELD: usize = 4096;

/// The flags, width and precision of a field, between `%` and the conversion letter.
#[derive(Debug, Default)]
struct Field {
    left: bool,
    plus: bool,
    space: bool,
    zero: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
}

/// The values still to be formatted.
struct Values<'a> {
    all: &'a [Value],
    next: usize,
    mapping: Option<&'a Value>,
    /// Whether unused values are allowed, as for a mapping.
    may_remain: bool,
}

impl Values<'_> {
    fn take(&mut self) -> Result<Value> {
        let value = self.all.get(self.next).cloned();
        self.next += 1;
        value.ok_or_else(|| error("not enough arguments for format string"))
    }
}

/// Evaluates `format % given`.
pub(super) fn format(format: &Text, given: &Value, meter: &Meter) -> Result<Text> {
    let one = [given.clone()];
    let is_mapping = matches!(given, Value::Dict(_));
    let mut values = match given {
        Value::Tuple(items) => {
            Values { all: &items.values, next: 0, mapping: None, may_remain: false }
        }
        _ => {
            let mapping = is_mapping.then_some(given);
            // Python allows unused values for types with item access; these are the ones supported.
            let may_remain = matches!(
                given,
                Value::Dict(_) | Value::List(_) | Value::Range(..) | Value::Undefined(_)
            );
            Values { all: &one, next: 0, mapping, may_remain }
        }
    };
    let source = format.as_str();
    meter.spend(source.len() as u64)?;
    let mut out = Builder::default();
    let mut from = 0;
    while let Some(found) = source[from..].find('%') {
        let at = from + found;
        out.slice(format, from..at);
        let mut rest = source[at + 1..].chars();
        let value = one_field(&mut rest, &mut values, format.markup, meter)?;
        match value {
            Some(value) => out.text(&value),
            None => out.slice(format, at..at + 1),
        }
        from = source.len() - rest.as_str().len();
        meter.fits(Some(out.text.len()))?;
    }
    out.slice(format, from..source.len());
    if values.next < values.all.len() && !values.may_remain {
        return fault("not all arguments converted during string formatting");
    }
    let mut text = out.finish(meter)?;
    text.markup = format.markup;
    Ok(text)
}

/// Formats the field at the start of `rest`, after its `%`; `None` for a second `%`, which makes a
/// literal percent sign.
fn one_field(
    rest: &mut std::str::Chars<'_>,
    values: &mut Values<'_>,
    is_markup: bool,
    meter: &Meter,
) -> Result<Option<Text>> {
    let mut keyed = None;
    if rest.as_str().starts_with('(') {
        let Some(mapping) = values.mapping else { return fault("format requires a mapping") };
        let inside = &rest.as_str()[1..];
        let mut open = 1;
        let end = inside.char_indices().find(|(_, c)| {
            open += match c {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            open == 0
        });
        let Some((end, _)) = end else { return fault("incomplete format key") };
        let key = Value::from(&inside[..end]);
        let Value::Dict(dict) = mapping else { return fault("format requires a mapping") };
        let value = ops::get(dict, &key, meter)?;
        keyed = Some(value.ok_or_else(|| error(format!("no key {:.40?}", &inside[..end])))?);
        *rest = inside[end + 1..].chars();
    }
    let mut field = Field::default();
    let mut letter = rest.next();
    while let Some(flag) = letter {
        match flag {
            '-' => field.left = true,
            '+' => field.plus = true,
            ' ' => field.space = true,
            '0' => field.zero = true,
            '#' => field.alternate = true,
            _ => break,
        }
        letter = rest.next();
    }
    let number = |letter: &mut Option<char>, rest: &mut std::str::Chars<'_>| {
        let mut number = 0usize;
        while let Some(digit) = letter.and_then(|c| c.to_digit(10)) {
            number = number.saturating_mul(10).saturating_add(digit as usize);
            *letter = rest.next();
        }
        number
    };
    if letter == Some('*') {
        let width = values.take()?.as_int().ok_or_else(|| error("* wants int"))?;
        field.left |= width < 0;
        field.width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
        letter = rest.next();
    } else {
        field.width = number(&mut letter, rest);
    }
    if letter == Some('.') {
        letter = rest.next();
        field.precision = Some(match letter {
            Some('*') => {
                let precision = values.take()?.as_int().ok_or_else(|| error("* wants int"))?;
                letter = rest.next();
                usize::try_from(precision.max(0)).unwrap_or(usize::MAX)
            }
            _ => number(&mut letter, rest),
        });
    }
    while matches!(letter, Some('h' | 'l' | 'L')) {
        letter = rest.next();
    }
    if field.width > MAX_FIELD {
        return fault(format!("a field of width {} is beyond the limit", field.width));
    }
    let Some(letter) = letter else { return fault("incomplete format") };
    if letter == '%' {
        return Ok(None);
    }
    let value = match keyed {
        Some(value) => value,
        None => values.take()?,
    };
    converted(letter, &value, &field, is_markup, meter).map(Some)
}

fn converted(
    letter: char,
    value: &Value,
    field: &Field,
    is_markup: bool,
    meter: &Meter,
) -> Result<Text> {
    let text = match letter {
        's' | 'r' | 'a' => {
            let text = match (letter, value) {
                ('s', _) => text_of(value, meter)?,
                ('r', _) => {
                    let mut out = Builder::default();
                    super::print::repr_into(&mut out, value, meter)?;
                    out.finish(meter)?
                }
                (_, Value::Str(text)) => text.derive(&quoted(text.as_str(), true)),
                _ => return fault("%a of a value that is not text is not supported"),
            };
            joins_markup(is_markup, std::iter::once(&text))?;
            let mut chars = text.as_str().char_indices().map(|(at, _)| at);
            match field.precision.and_then(|most| chars.nth(most)) {
                Some(end) => text.slice(0..end),
                None => text,
            }
        }
        'c' => match value {
            Value::Str(text) if text.as_str().chars().count() == 1 => text.clone(),
            other => {
                let code = other.as_int().and_then(|code| u32::try_from(code).ok());
                match code.and_then(char::from_u32) {
                    Some(c) => Text::own(&c.to_string()),
                    None => return fault("%c requires an int or a unicode character"),
                }
            }
        },
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' => return integer(letter, value, field, meter),
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => return float(letter, value, field, meter),
        other => return fault(format!("unsupported format character {other:?}")),
    };
    padded(&text, field, meter)
}

fn padded(text: &Text, field: &Field, meter: &Meter) -> Result<Text> {
    let missing = field.width.saturating_sub(text.as_str().chars().count());
    let space = " ".repeat(missing);
    let mut out = Builder::default();
    if !field.left {
        out.own(&space);
    }
    out.text(text);
    if field.left {
        out.own(&space);
    }
    out.finish(meter)
}

/// Combines a number's sign, digits and padding.
fn number(sign: &str, digits: &str, field: &Field, meter: &Meter) -> Result<Text> {
    let missing = field.width.saturating_sub(sign.len() + digits.len());
    let zeros = if field.zero && !field.left { "0".repeat(missing) } else { String::new() };
    padded(&Text::own(&format!("{sign}{zeros}{digits}")), field, meter)
}

fn sign_of(is_negative: bool, field: &Field) -> &'static str {
    match is_negative {
        true => "-",
        false if field.plus => "+",
        false if field.space => " ",
        false => "",
    }
}

fn integer(letter: char, value: &Value, field: &Field, meter: &Meter) -> Result<Text> {
    defined(value)?;
    let whole = match (value, letter) {
        (Value::Float(number), 'd' | 'i' | 'u') if number.is_finite() && number.abs() < 1.7e38 => {
            Some(*number as i128)
        }
        _ => value.as_int(),
    };
    let Some(whole) = whole else {
        let kind = value.type_name();
        return fault(format!("%{letter} format: a real number is required, not {kind}"));
    };
    let mut digits = in_base(whole.unsigned_abs(), letter);
    let precision = field.precision.unwrap_or(0);
    if precision > MAX_FIELD {
        return fault(format!("a precision of {precision} is beyond the limit"));
    }
    if digits.len() < precision {
        digits.insert_str(0, &"0".repeat(precision - digits.len()));
    }
    let prefix = match letter {
        'x' | 'X' | 'o' if field.alternate => format!("0{letter}"),
        _ => String::new(),
    };
    let sign = format!("{}{prefix}", sign_of(whole < 0, field));
    number(&sign, &digits, field, meter)
}

fn float(letter: char, value: &Value, field: &Field, meter: &Meter) -> Result<Text> {
    defined(value)?;
    let Some(float) = ops::float_of(value)? else {
        return fault(format!("must be real number, not {}", value.type_name()));
    };
    let precision = field.precision.unwrap_or(6);
    if precision > MAX_PRECISION {
        return fault(format!("a precision of {precision} is beyond the limit"));
    }
    let size = float.abs();
    let upper = letter.is_ascii_uppercase();
    let digits = match (not_finite(size, upper), letter.to_ascii_lowercase()) {
        (Some(text), _) => text,
        (None, 'e') => scientific(size, precision, field.alternate),
        (None, 'f') => fixed(size, precision, field.alternate),
        (None, _) => general(size, precision, field.alternate),
    };
    let digits = if upper { digits.to_uppercase() } else { digits };
    let negative = float.is_sign_negative() && !float.is_nan();
    number(sign_of(negative, field), &digits, field, meter)
}
