//! `'..'.format(..)`: replacement fields and format specifications.

use std::rc::Rc;

use super::attributes::{attribute, item};
use super::call::Given;
use super::escape::joins_markup;
use super::meter::{Meter, Result, error, fault};
use super::numbers::{MAX_PRECISION, fixed, general, grouped, in_base, not_finite, scientific};
use super::print::{float as float_text, quoted, repr_into, text_of};
use super::printf::MAX_FIELD;
use super::text::{Builder, Text};
use super::value::Value;

/// The arguments, and the state of automatic numbering.
struct Fields<'a> {
    given: &'a Given,
    /// The next automatic number.
    next: usize,
    /// Whether fields are numbered explicitly; `None` before the first numbered field.
    numbered: Option<bool>,
}

/// Fills in the replacement fields of a string.
pub(super) fn format(text: &Text, given: &Given, meter: &Meter) -> Result<Text> {
    let mut fields = Fields { given, next: 0, numbered: None };
    let mut out = Builder::default();
    fill(&mut out, text, text.as_str(), &mut fields, 3, meter)?;
    let mut made = out.finish(meter)?;
    made.markup = text.markup;
    Ok(made)
}

fn fill(
    out: &mut Builder,
    whole: &Text,
    part: &str,
    fields: &mut Fields<'_>,
    depth: usize,
    meter: &Meter,
) -> Result<()> {
    let Some(depth) = depth.checked_sub(1) else {
        return fault("max string recursion exceeded");
    };
    meter.spend(part.len() as u64)?;
    let mut rest = part;
    while let Some(at) = rest.find(['{', '}']) {
        out.slice(whole, whole.place_of(&rest[..at]));
        let brace = &rest[at..at + 1];
        rest = &rest[at + 1..];
        if rest.starts_with(brace) {
            out.slice(whole, whole.place_of(&rest[..1]));
            rest = &rest[1..];
            continue;
        }
        if brace == "}" {
            return fault("single '}' encountered in format string");
        }
        let mut open = 1;
        let end = rest.char_indices().find(|(_, c)| {
            open += match c {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            open == 0
        });
        let Some((end, _)) = end else {
            return fault("expected '}' before end of string");
        };
        let filled = field(whole, &rest[..end], fields, depth, meter)?;
        joins_markup(whole.markup, std::iter::once(&filled))?;
        out.text(&filled);
        meter.fits(Some(out.text.len()))?;
        rest = &rest[end + 1..];
    }
    out.slice(whole, whole.place_of(rest));
    Ok(())
}

/// Formats a replacement field: a name, a conversion such as `!r`, and a format specification after
/// `:`.
fn field(
    whole: &Text,
    inside: &str,
    fields: &mut Fields<'_>,
    depth: usize,
    meter: &Meter,
) -> Result<Text> {
    // Inside brackets, `!` and `:` are literal.
    let mut in_bracket = false;
    let split = inside.char_indices().find(|(_, c)| {
        match c {
            '[' => in_bracket = true,
            ']' => in_bracket = false,
            _ => {}
        }
        !in_bracket && matches!(c, '!' | ':')
    });
    let (name, tail) = inside.split_at(split.map_or(inside.len(), |(at, _)| at));
    let (conversion, spec) = match tail.strip_prefix('!') {
        Some(rest) => {
            let mut letters = rest.chars();
            let letter = letters.next();
            match letters.as_str() {
                "" => (letter, ""),
                rest => match rest.strip_prefix(':') {
                    Some(spec) => (letter, spec),
                    None => return fault("expected ':' after conversion specifier"),
                },
            }
        }
        None => (None, tail.strip_prefix(':').unwrap_or("")),
    };
    let mut value = named(name, fields, meter)?;
    let mut out = Builder::default();
    match conversion {
        None => {}
        Some('s') => value = Value::Str(text_of(&value, meter)?),
        Some('r') => {
            repr_into(&mut out, &value, meter)?;
            value = Value::Str(std::mem::take(&mut out).finish(meter)?);
        }
        Some('a') => {
            let Value::Str(text) = &value else {
                return fault("!a of a value that is not text is not supported");
            };
            value = Value::Str(text.derive(&quoted(text.as_str(), true)));
        }
        Some(other) => return fault(format!("unknown conversion specifier {other:?}")),
    }
    let mut spelled = Builder::default();
    fill(&mut spelled, whole, spec, fields, depth, meter)?;
    laid_out(&value, &spelled.text, meter)
}

/// Returns the value that the name of a replacement field refers to.
fn named(name: &str, fields: &mut Fields<'_>, meter: &Meter) -> Result<Value> {
    let first_end = name.find(['.', '[']).unwrap_or(name.len());
    let (first, mut rest) = name.split_at(first_end);
    let number = match first {
        "" => {
            fields.next += 1;
            Some((fields.next - 1, false))
        }
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => {
            let number = digits.parse();
            Some((number.map_err(|_| error("too many decimal digits in format string"))?, true))
        }
        _ => None,
    };
    let mut value = match number {
        Some((number, is_given)) => {
            if *fields.numbered.get_or_insert(is_given) != is_given {
                return fault("cannot mix fields with numbers and fields without");
            }
            let value = fields.given.positional.get(number).cloned();
            value.ok_or_else(|| error(format!("replacement index {number} out of range")))?
        }
        None => {
            let given = fields.given.named.iter().find(|(known, _)| **known == *first);
            let value = given.map(|(_, value)| value.clone());
            value.ok_or_else(|| error(format!("format: no argument {first:.40?}")))?
        }
    };
    while !rest.is_empty() {
        meter.step(1)?;
        if let Some(tail) = rest.strip_prefix('.') {
            let end = tail.find(['.', '[']).unwrap_or(tail.len());
            if end == 0 {
                return fault("empty attribute in format string");
            }
            value = attribute(&value, &tail[..end], meter)?;
            rest = &tail[end..];
        } else if let Some(tail) = rest.strip_prefix('[') {
            let Some(end) = tail.find(']') else { return fault("missing ']' in format string") };
            let key = &tail[..end];
            let is_number = !key.is_empty() && key.bytes().all(|b| b.is_ascii_digit());
            let key = match key.parse::<i128>() {
                Ok(number) if is_number => Value::Int(number),
                _ if key.is_empty() => return fault("empty attribute in format string"),
                _ => Value::from(key),
            };
            value = item(&value, &key, meter)?;
            rest = &tail[end + 1..];
        } else {
            return fault("only '.' or '[' may follow ']' in format field specifier");
        }
    }
    Ok(value)
}

/// A format specification: `[[fill]align][sign][#][0][width][,][.precision][type]`.
#[derive(Debug, Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    width: usize,
    group: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

fn spec_of(text: &str) -> Result<Spec> {
    let mut spec = Spec::default();
    let mut chars = text.chars().peekable();
    let is_align = |c: char| matches!(c, '<' | '>' | '^' | '=');
    let mut ahead = text.chars();
    match (ahead.next(), ahead.next()) {
        (Some(fill), Some(align)) if is_align(align) => {
            (spec.fill, spec.align) = (Some(fill), Some(align));
            chars.next();
            chars.next();
        }
        (Some(align), _) if is_align(align) => {
            spec.align = Some(align);
            chars.next();
        }
        _ => {}
    }
    spec.sign = chars.next_if(|c| matches!(c, '+' | '-' | ' '));
    if chars.next_if_eq(&'z').is_some() {
        return fault("the option z of a format is not supported");
    }
    spec.alternate = chars.next_if_eq(&'#').is_some();
    if spec.fill.is_none() && chars.next_if_eq(&'0').is_some() {
        spec.fill = Some('0');
        spec.align = spec.align.or(Some('='));
    }
    let number = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| {
        let mut number = None;
        while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
            let before = number.unwrap_or(0usize);
            number = Some(before.saturating_mul(10).saturating_add(digit as usize));
            chars.next();
        }
        number
    };
    spec.width = number(&mut chars).unwrap_or(0);
    spec.group = chars.next_if(|c| matches!(c, ',' | '_'));
    if chars.next_if_eq(&'.').is_some() {
        spec.precision = number(&mut chars);
        if spec.precision.is_none() {
            return fault("format specifier missing precision");
        }
    }
    spec.kind = chars.next();
    if chars.next().is_some() {
        return fault(format!("invalid format specifier {text:.40?}"));
    }
    if spec.width > MAX_FIELD || spec.precision.is_some_and(|p| p > MAX_FIELD) {
        return fault(format!("a field of width {} is beyond the limit", spec.width));
    }
    Ok(spec)
}

/// Formats a value by a format specification.
pub(super) fn laid_out(value: &Value, spec: &str, meter: &Meter) -> Result<Text> {
    if spec.is_empty() {
        return text_of(value, meter);
    }
    let parsed = spec_of(spec)?;
    let wrong = || {
        let kind = value.type_name();
        fault(format!("unsupported format {spec:.40?} of type '{kind}'"))
    };
    match value {
        Value::Str(text) => {
            let is_plain = matches!(parsed.kind, None | Some('s'))
                && parsed.sign.is_none()
                && !parsed.alternate
                && parsed.group.is_none()
                && parsed.align != Some('=');
            if !is_plain {
                return wrong();
            }
            let cut = parsed.precision.and_then(|most| text.as_str().char_indices().nth(most));
            let text = cut.map_or(text.clone(), |(at, _)| text.slice(0..at));
            padded("", &text, &parsed, '<', meter)
        }
        // A Boolean with a specification is formatted as a number.
        Value::Int(_) | Value::Bool(_) => {
            let number = value.as_int().unwrap_or(0);
            match parsed.kind {
                None | Some('d' | 'x' | 'X' | 'o' | 'b' | 'c' | 'n') => {
                    integer(number, &parsed, meter)
                }
                Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%') => {
                    float(number as f64, &parsed, meter)
                }
                _ => wrong(),
            }
        }
        Value::Float(number) => match parsed.kind {
            None | Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%' | 'n') => {
                float(*number, &parsed, meter)
            }
            _ => wrong(),
        },
        _ => wrong(),
    }
}

fn sign_of(is_negative: bool, spec: &Spec) -> &'static str {
    match (is_negative, spec.sign) {
        (true, _) => "-",
        (false, Some('+')) => "+",
        (false, Some(' ')) => " ",
        _ => "",
    }
}

fn integer(number: i128, spec: &Spec, meter: &Meter) -> Result<Text> {
    if spec.precision.is_some() {
        return fault("precision not allowed in integer format specifier");
    }
    let kind = spec.kind.unwrap_or('d');
    if kind == 'c' {
        if spec.sign.is_some() || spec.group.is_some() || spec.alternate {
            return fault("sign, grouping and '#' are not allowed with 'c'");
        }
        let c = u32::try_from(number).ok().and_then(char::from_u32);
        let c = c.ok_or_else(|| error("%c arg not in range"))?;
        return padded("", &Text::own(&c.to_string()), spec, '>', meter);
    }
    let mut digits = in_base(number.unsigned_abs(), kind);
    let by = if matches!(kind, 'b' | 'o' | 'x' | 'X') { 4 } else { 3 };
    if spec.group == Some(',') && by == 4 {
        return fault(format!("cannot specify ',' with '{kind}'"));
    }
    if let Some(sign) = spec.group {
        if spec.align == Some('=') && spec.fill == Some('0') {
            return fault("digit grouping with zero padding is not supported");
        }
        digits = grouped(&digits, by, sign);
    }
    let prefix = match kind {
        'b' | 'o' | 'x' | 'X' if spec.alternate => format!("0{kind}"),
        _ => String::new(),
    };
    let sign = format!("{}{prefix}", sign_of(number < 0, spec));
    padded(&sign, &Text::own(&digits), spec, '>', meter)
}

fn float(number: f64, spec: &Spec, meter: &Meter) -> Result<Text> {
    if spec.precision.is_some_and(|p| p > MAX_PRECISION) {
        return fault("a precision beyond the limit");
    }
    let size = number.abs();
    let precision = spec.precision.unwrap_or(6);
    let upper = spec.kind.is_some_and(|kind| kind.is_ascii_uppercase());
    let mut digits = match (not_finite(size, upper), spec.kind.unwrap_or(' ')) {
        (Some(text), _) => text,
        (None, 'e' | 'E') => scientific(size, precision, spec.alternate),
        (None, 'f' | 'F') => fixed(size, precision, spec.alternate),
        (None, '%') => fixed(size * 100.0, precision, spec.alternate),
        (None, 'g' | 'G' | 'n') => general(size, precision, spec.alternate),
        // Like `str`, or with the given precision; always with a decimal point.
        (None, _) => match spec.precision {
            None => float_text(size),
            Some(precision) => {
                let text = general(size, precision, spec.alternate);
                let exponent = if size == 0.0 { 0.0 } else { size.log10().floor() };
                match text.contains(['.', 'e']) {
                    true => text,
                    false if exponent >= precision.max(1) as f64 - 1.0 => {
                        scientific_short(size, precision)
                    }
                    false => format!("{text}.0"),
                }
            }
        },
    };
    if upper {
        digits = digits.to_uppercase();
    }
    if let Some(sign) = spec.group.filter(|_| number.is_finite()) {
        if spec.align == Some('=') && spec.fill == Some('0') {
            return fault("digit grouping with zero padding is not supported");
        }
        let whole = digits.find(['.', 'e', 'E', '%']).unwrap_or(digits.len());
        digits = format!("{}{}", grouped(&digits[..whole], 3, sign), &digits[whole..]);
    }
    if spec.kind == Some('%') {
        digits.push('%');
    }
    let negative = number.is_sign_negative() && !number.is_nan();
    padded(sign_of(negative, spec), &Text::own(&digits), spec, '>', meter)
}

/// Formats a float in scientific notation without trailing zeros: Python's choice for a format
/// without a type if `precision` leaves no digits after the point.
fn scientific_short(size: f64, precision: usize) -> String {
    let text = scientific(size, precision.max(1) - 1, false);
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
    let digits = match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    };
    format!("{digits}e{exponent}")
}

fn padded(sign: &str, text: &Text, spec: &Spec, align: char, meter: &Meter) -> Result<Text> {
    let len = sign.len() + text.as_str().chars().count();
    let missing = spec.width.saturating_sub(len);
    let fill: Rc<str> = spec.fill.unwrap_or(' ').to_string().into();
    let (before, between, behind) = match spec.align.unwrap_or(align) {
        '<' => (0, 0, missing),
        '^' => (missing / 2, 0, missing - missing / 2),
        '=' => (0, missing, 0),
        _ => (missing, 0, 0),
    };
    let mut out = Builder::default();
    out.own(&fill.repeat(before));
    out.own(sign);
    out.own(&fill.repeat(between));
    out.text(text);
    out.own(&fill.repeat(behind));
    out.finish(meter)
}
