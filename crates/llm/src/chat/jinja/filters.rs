//! Jinja2's filters: the dispatch of all filters, and the implementation of those of single values.

use super::call::{Given, wanted};
use super::escape::escape;
use super::eval::Run;
use super::meter::{Result, error, fault};
use super::ops::{self, defined};
use super::print::text_of;
use super::value::Value;
use super::{attributes, json, printf};

/// Every filter of Jinja2, for the test `filter`; unsupported ones are refused by name.
pub(super) const NAMES: [&str; 54] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "pprint",
    "random",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "striptags",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "urlize",
    "wordcount",
    "wordwrap",
    "xmlattr",
];

impl Run<'_> {
    pub(super) fn filter(&mut self, name: &str, value: &Value, given: &Given) -> Result<Value> {
        self.meter.enter()?;
        let made = match name {
            "batch" | "dictsort" | "first" | "groupby" | "items" | "join" | "last" | "list"
            | "map" | "max" | "min" | "reject" | "rejectattr" | "reverse" | "select"
            | "selectattr" | "slice" | "sort" | "sum" | "unique" => {
                self.list_filter(name, value, given)
            }
            "capitalize" | "center" | "indent" | "lower" | "replace" | "title" | "trim"
            | "truncate" | "upper" | "urlencode" | "wordcount" => {
                self.text_filter(name, value, given)
            }
            "random" | "pprint" | "striptags" | "urlize" | "wordwrap" | "xmlattr" => {
                fault(format!("the filter {name} is not supported"))
            }
            _ => self.value_filter(name, value, given),
        };
        self.meter.leave();
        made
    }

    fn value_filter(&mut self, name: &str, value: &Value, given: &Given) -> Result<Value> {
        let meter = self.meter;
        match name {
            "abs" => {
                given.bind(name, [])?;
                defined(value)?;
                match (value, value.as_int()) {
                    (Value::Float(number), _) => Ok(Value::Float(number.abs())),
                    (_, Some(number)) if number < 0 => ops::negative(&Value::Int(number)),
                    (_, Some(number)) => Ok(Value::Int(number)),
                    _ => fault(format!("bad operand type for abs(): '{}'", value.type_name())),
                }
            }
            "attr" => {
                let [attr] = given.bind(name, ["name"])?;
                let attr = text_of(&wanted(attr, name)?, meter)?;
                attributes::own_attribute(value, attr.as_str())
            }
            "count" | "length" => {
                given.bind(name, [])?;
                Ok(Value::from(value.len(meter)?))
            }
            "d" | "default" => {
                let [instead, falsy] = given.bind(name, ["default_value", "boolean"])?;
                let falsy = falsy.is_some_and(|falsy| falsy.is_true());
                match value.is_undefined() || (falsy && !value.is_true()) {
                    true => Ok(instead.unwrap_or_else(|| Value::from(""))),
                    false => Ok(value.clone()),
                }
            }
            "e" | "escape" | "forceescape" => {
                given.bind(name, [])?;
                let text = text_of(value, meter)?;
                escape(&text, name == "forceescape", meter).map(Value::Str)
            }
            "safe" => {
                given.bind(name, [])?;
                let text = text_of(value, meter)?;
                Ok(Value::Str(text.with_markup(true)))
            }
            "string" => {
                given.bind(name, [])?;
                text_of(value, meter).map(Value::Str)
            }
            "filesizeformat" => file_size(value, given),
            "float" => {
                let [instead] = given.bind(name, ["default"])?;
                defined(value)?;
                let instead = instead.unwrap_or(Value::Float(0.0));
                Ok(to_float(value)?.map_or(instead, Value::Float))
            }
            "int" => to_int(value, given),
            "format" => {
                let text = text_of(value, meter)?;
                let values = match (given.positional.is_empty(), given.named.is_empty()) {
                    (false, false) => {
                        return fault("can't handle positional and keyword arguments at once");
                    }
                    (true, false) => {
                        let pairs = given.named.iter();
                        let pairs = pairs.map(|(name, v)| (Value::from(&**name), v.clone()));
                        Value::dict(pairs.collect(), meter)?
                    }
                    _ => Value::tuple(given.positional.clone(), meter)?,
                };
                printf::format(&text, &values, meter).map(Value::Str)
            }
            "round" => round(value, given),
            "tojson" => json::to_json(value, given, meter).map(Value::Str),
            other => fault(format!("no filter named {other:.40?}")),
        }
    }
}

/// Refuses non-ASCII digits, which Python accepts.
fn check_digits(text: &str) -> Result<()> {
    match text.chars().any(|c| !c.is_ascii() && c.is_numeric()) {
        true => fault("digits of other scripts are not supported"),
        false => Ok(()),
    }
}

/// Evaluates `float(value)`; `None` if Python raises a type or value error.
pub(super) fn to_float(value: &Value) -> Result<Option<f64>> {
    Ok(match value {
        Value::Str(text) => {
            check_digits(text.as_str())?;
            parse_float(text.as_str())
        }
        other => ops::float_of(other)?,
    })
}

fn parse_float(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits_around = |at: usize| {
        let bytes = text.as_bytes();
        let digit =
            |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
        digit(at.checked_sub(1)) && digit(Some(at + 1))
    };
    if text.match_indices('_').any(|(at, _)| !digits_around(at)) {
        return None;
    }
    let text = text.replace('_', "");
    let bare = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
    let is_number = bare.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        || matches!(bare.as_str(), "inf" | "infinity" | "nan");
    is_number.then(|| text.to_ascii_lowercase().parse().ok()).flatten()
}

/// Evaluates `int(text, base)`; `None` if Python raises a value error.
fn parse_int(text: &str, base: u32) -> Result<Option<i128>> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let prefix = |letter: &str| lower.strip_prefix('0').and_then(|rest| rest.strip_prefix(letter));
    let (base, digits) = match (base, prefix("x"), prefix("o"), prefix("b")) {
        (0 | 16, Some(rest), _, _) => (16, rest),
        (0 | 8, _, Some(rest), _) => (8, rest),
        (0 | 2, _, _, Some(rest)) => (2, rest),
        (0, ..) if lower.starts_with('0') && !lower.trim_matches(['0', '_']).is_empty() => {
            return Ok(None);
        }
        (0, ..) => (10, lower.as_str()),
        (base, ..) => (base, lower.as_str()),
    };
    // An underscore may follow a digit or a prefix.
    let plain = digits.strip_prefix('_').filter(|_| digits.len() < lower.len()).unwrap_or(digits);
    if plain.is_empty()
        || plain.starts_with('_')
        || plain.ends_with('_')
        || plain.contains("__")
        || !plain.chars().all(|c| c == '_' || c.is_digit(base))
    {
        return Ok(None);
    }
    let number = i128::from_str_radix(&plain.replace('_', ""), base);
    let number = number.map_err(|_| error("int: an integer beyond 128 bits"))?;
    Ok(Some(if negative { -number } else { number }))
}

fn to_int(value: &Value, given: &Given) -> Result<Value> {
    let [instead, base] = given.bind("int", ["default", "base"])?;
    defined(value)?;
    let base = match base.as_ref().map(|base| (base, base.as_int())) {
        None => 10,
        Some((_, Some(base))) if base == 0 || (2..=36).contains(&base) => base as u32,
        Some(_) => return fault("int: a base that is not from 2 to 36"),
    };
    let whole = |number: f64| match number.is_finite() {
        true if number.abs() < 1.7e38 => Ok(Some(number as i128)),
        true => fault("int: an integer beyond 128 bits"),
        false => Ok(None),
    };
    let number = match value {
        Value::Str(text) => {
            check_digits(text.as_str())?;
            match parse_int(text.as_str(), base)? {
                Some(number) => Some(number),
                None => parse_float(text.as_str()).map_or(Ok(None), whole)?,
            }
        }
        // Python raises an overflow error that the filter does not catch.
        Value::Float(number) if number.is_infinite() => {
            return fault("int: cannot convert float infinity to integer");
        }
        Value::Float(number) => whole(*number)?,
        other => other.as_int(),
    };
    Ok(number.map(Value::Int).unwrap_or_else(|| instead.unwrap_or(Value::Int(0))))
}

fn file_size(value: &Value, given: &Given) -> Result<Value> {
    let [binary] = given.bind("filesizeformat", ["binary"])?;
    defined(value)?;
    let binary = binary.is_some_and(|binary| binary.is_true());
    let base: f64 = if binary { 1024.0 } else { 1000.0 };
    let Some(bytes) = to_float(value)? else { return fault("filesizeformat: not a number") };
    if bytes == 1.0 {
        return Ok(Value::from("1 Byte"));
    }
    if bytes < base {
        return Ok(Value::from(&*format!("{} Bytes", bytes as i128)));
    }
    let mut unit = base;
    let mut last = "kB";
    for prefix in ["K", "M", "G", "T", "P", "E", "Z", "Y"] {
        unit *= base;
        last = prefix;
        if bytes < unit {
            break;
        }
    }
    let name = match (binary, last) {
        (true, prefix) => format!("{prefix}iB"),
        (false, "K") => "kB".to_owned(),
        (false, prefix) => format!("{prefix}B"),
    };
    Ok(Value::from(&*format!("{:.1} {name}", base * bytes / unit)))
}

fn round(value: &Value, given: &Given) -> Result<Value> {
    let [precision, method] = given.bind("round", ["precision", "method"])?;
    defined(value)?;
    let precision = precision.map_or(Some(0), |precision| precision.as_int());
    let places = precision.filter(|places| (-30..=300).contains(places));
    let Some(places) = places else { return fault("round: a precision that is not supported") };
    let method = method.unwrap_or_else(|| Value::from("common"));
    let method = method.as_text().map_or("", |text| text.as_str()).to_owned();
    let Some(number) = ops::float_of(value)? else {
        return fault(format!("round: a number is required, not '{}'", value.type_name()));
    };
    match method.as_str() {
        "common" => match value.as_int() {
            Some(whole) if places >= 0 => Ok(Value::Int(whole)),
            Some(_) => fault("round: an integer with a negative precision is not supported"),
            None if places < 0 => fault("round: a negative precision is not supported"),
            None if !number.is_finite() => Ok(Value::Float(number)),
            // Formats the exact decimal digits, with ties to even, as Python rounds.
            None => {
                let text = format!("{number:.*}", places as usize);
                Ok(Value::Float(text.parse().map_err(|_| error("round: no number"))?))
            }
        },
        "ceil" | "floor" if places >= 0 && number.is_finite() => {
            let scale = 10f64.powi(places as i32);
            let scaled = number * scale;
            let whole = if method == "ceil" { scaled.ceil() } else { scaled.floor() };
            // Python has an integer here, which has no negative zero.
            Ok(Value::Float((whole + 0.0) / scale))
        }
        "ceil" | "floor" => fault("round: that precision or number is not supported"),
        _ => fault("round: method must be common, ceil or floor"),
    }
}
