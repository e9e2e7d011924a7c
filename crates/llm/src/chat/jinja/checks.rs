//! Jinja2's tests: the right-hand side of `is`.

use super::ast::{Binary, Compare};
use super::call::{Given, wanted};
use super::eval::Run;
use super::filters;
use super::meter::{Result, fault};
use super::ops;
use super::print::text_of;
use super::value::{Object, Value};

const NAMES: [&str; 39] = [
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "boolean",
    "callable",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

impl Run<'_> {
    pub(super) fn test(&mut self, name: &str, value: &Value, given: &Given) -> Result<bool> {
        let meter = self.meter;
        let other = || {
            let [other] = given.bind(name, ["other"])?;
            wanted(other, name)
        };
        let compared = match name {
            "==" | "eq" | "equalto" => Some(Compare::Eq),
            "!=" | "ne" => Some(Compare::Ne),
            ">" | "gt" | "greaterthan" => Some(Compare::Gt),
            ">=" | "ge" => Some(Compare::Ge),
            "<" | "lt" | "lessthan" => Some(Compare::Lt),
            "<=" | "le" => Some(Compare::Le),
            "in" => Some(Compare::In),
            _ => None,
        };
        if let Some(op) = compared {
            return ops::compare(op, value, &other()?, meter);
        }
        match name {
            "divisibleby" => {
                let [by] = given.bind(name, ["num"])?;
                let rest = ops::binary(Binary::Mod, value, &wanted(by, name)?, meter)?;
                return ops::equal(&rest, &Value::Int(0), meter);
            }
            "sameas" => return same(value, &other()?),
            _ => {}
        }
        given.bind(name, [])?;
        Ok(match name {
            "odd" | "even" => {
                let rest = ops::binary(Binary::Mod, value, &Value::Int(2), meter)?;
                ops::equal(&rest, &Value::Int(i128::from(name == "odd")), meter)?
            }
            "defined" => !value.is_undefined(),
            "undefined" => value.is_undefined(),
            "none" => matches!(value, Value::None),
            "boolean" => matches!(value, Value::Bool(_)),
            "true" => matches!(value, Value::Bool(true)),
            "false" => matches!(value, Value::Bool(false)),
            "integer" => matches!(value, Value::Int(_)),
            "float" => matches!(value, Value::Float(_)),
            "number" => matches!(value, Value::Int(_) | Value::Float(_) | Value::Bool(_)),
            "string" => matches!(value, Value::Str(_)),
            "mapping" => matches!(value, Value::Dict(_)),
            "sequence" => matches!(
                value,
                Value::Str(_)
                    | Value::List(_)
                    | Value::Tuple(_)
                    | Value::Dict(_)
                    | Value::Range(..)
                    | Value::Undefined(_)
            ),
            "iterable" => match value {
                Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => false,
                Value::Object(object) => matches!(object, Object::Loop(_)),
                _ => true,
            },
            "callable" => match value {
                Value::Undefined(_) => true,
                Value::Object(object) => {
                    !matches!(object, Object::Namespace(_) | Object::Cycler(_))
                }
                _ => false,
            },
            "escaped" => matches!(value, Value::Str(text) if text.markup),
            "lower" | "upper" => {
                let text = text_of(value, meter)?;
                meter.spend(text.as_str().len() as u64)?;
                is_case(text.as_str(), name == "upper")
            }
            "filter" => {
                let text = text_of(value, meter)?;
                filters::NAMES.contains(&text.as_str())
            }
            "test" => NAMES.contains(&text_of(value, meter)?.as_str()),
            other => return fault(format!("no test named {other:.40?}")),
        })
    }
}

/// Returns whether a string has cased letters and all of them are uppercase, or lowercase if
/// `upper` is false.
pub(super) fn is_case(text: &str, upper: bool) -> bool {
    let mut any = false;
    for c in text.chars() {
        let is = if upper { c.is_uppercase() } else { c.is_lowercase() };
        let is_other = if upper { c.is_lowercase() } else { c.is_uppercase() };
        if is_other {
            return false;
        }
        any |= is;
    }
    any
}

/// Returns whether two values are the same object.
fn same(a: &Value, b: &Value) -> Result<bool> {
    match (a, b) {
        (Value::None | Value::Bool(_), _) | (_, Value::None | Value::Bool(_)) => Ok(match (a, b) {
            (Value::None, Value::None) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            _ => false,
        }),
        (Value::Object(a), Value::Object(b)) => Ok(ops::same_object(a, b)),
        _ if a.type_name() != b.type_name() => Ok(false),
        _ => fault("sameas of such values is not supported: it depends on where they are stored"),
    }
}
