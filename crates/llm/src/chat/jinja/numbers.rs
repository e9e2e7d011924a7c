//! Formats numbers, for `%` and `format`.

/// Maximum precision of a float, in digits.
pub(super) const MAX_PRECISION: usize = 300;

/// Formats like `%e`: one digit, a point, `precision` digits, and an exponent of at least two
/// digits. `alternate` keeps the point if no digits follow it.
pub(super) fn scientific(number: f64, precision: usize, alternate: bool) -> String {
    let text = format!("{number:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    let point = if alternate && precision == 0 { "." } else { "" };
    format!("{digits}{point}e{sign}{:02}", exponent.unsigned_abs())
}

/// Formats like `%f`, with `precision` digits after the point. `alternate` keeps the point if no
/// digits follow it.
pub(super) fn fixed(number: f64, precision: usize, alternate: bool) -> String {
    let point = if alternate && precision == 0 { "." } else { "" };
    format!("{number:.precision$}{point}")
}

/// Formats like `%g`: `precision` significant digits, without trailing zeros unless `alternate` is
/// set.
pub(super) fn general(number: f64, precision: usize, alternate: bool) -> String {
    let precision = precision.max(1);
    let text = format!("{number:.*e}", precision - 1);
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && (exponent < -4 || exponent >= precision as i32) {
        let digits = if alternate { digits } else { without_zeros(digits) };
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.unsigned_abs());
    }
    let behind = (precision as i32 - 1 - exponent).max(0) as usize;
    let text = format!("{number:.behind$}");
    if alternate { text } else { without_zeros(&text).to_owned() }
}

fn without_zeros(digits: &str) -> &str {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    }
}

/// Formats infinities and NaN; `None` for a finite number.
pub(super) fn not_finite(number: f64, upper: bool) -> Option<String> {
    let text = match number {
        n if n.is_nan() => "nan",
        n if n.is_infinite() && n > 0.0 => "inf",
        n if n.is_infinite() => "-inf",
        _ => return None,
    };
    Some(if upper { text.to_uppercase() } else { text.to_owned() })
}

/// Formats a number in base 2 (`b`), 8 (`o`), 16 (`x`, `X`) or 10 (any other letter).
pub(super) fn in_base(number: u128, base: char) -> String {
    match base {
        'b' => format!("{number:b}"),
        'o' => format!("{number:o}"),
        'x' => format!("{number:x}"),
        'X' => format!("{number:X}"),
        _ => number.to_string(),
    }
}

/// Inserts the separator `sign` between groups of `by` digits.
pub(super) fn grouped(digits: &str, by: usize, sign: char) -> String {
    let mut out = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(by) {
            out.push(sign);
        }
        out.push(digit);
    }
    out
}
