//! Arithmetic, equality and ordering, with Python's semantics.

use std::cmp::Ordering;
use std::rc::Rc;

use super::ast::{Binary, Compare};
use super::escape::joins_markup;
use super::meter::{Meter, Result, fault};
use super::printf;
use super::text::Builder;
use super::value::{Dict, Object, Value, View, range_len};

/// Integers up to this magnitude are exact as floats.
const EXACT: i128 = 1 << 53;

/// Refuses an undefined value.
pub(super) fn defined(value: &Value) -> Result<()> {
    match value {
        Value::Undefined(what) => fault(&**what),
        _ => Ok(()),
    }
}

pub(super) fn binary(op: Binary, a: &Value, b: &Value, meter: &Meter) -> Result<Value> {
    defined(a)?;
    match (op, a, b) {
        (Binary::Add, Value::Str(x), Value::Str(y)) => {
            meter.fits(x.as_str().len().checked_add(y.as_str().len()))?;
            joins_markup(x.markup || y.markup, [x, y].into_iter())?;
            let mut out = Builder::default();
            out.text(x);
            out.text(y);
            let mut sum = out.finish(meter)?;
            sum.markup = x.markup || y.markup;
            return Ok(Value::Str(sum));
        }
        (Binary::Add, Value::List(x), Value::List(y)) => {
            meter.items(x.values.len().saturating_add(y.values.len()))?;
            return Value::list([&x.values[..], &y.values].concat(), meter);
        }
        (Binary::Add, Value::Tuple(x), Value::Tuple(y)) => {
            meter.items(x.values.len().saturating_add(y.values.len()))?;
            return Value::tuple([&x.values[..], &y.values].concat(), meter);
        }
        (Binary::Mul, Value::Str(_) | Value::List(_) | Value::Tuple(_), _) => {
            defined(b)?;
            if let Some(times) = b.as_int() {
                return repeat(a, times, meter);
            }
        }
        (Binary::Mul, _, Value::Str(_) | Value::List(_) | Value::Tuple(_)) => {
            if let Some(times) = a.as_int() {
                return repeat(b, times, meter);
            }
        }
        (Binary::Mod, Value::Str(format), _) => {
            return printf::format(format, b, meter).map(Value::Str);
        }
        _ => {}
    }
    defined(b)?;
    if let (Some(x), Some(y)) = (a.as_int(), b.as_int()) {
        return integers(op, x, y);
    }
    let (Some(x), Some(y)) = (float_of(a)?, float_of(b)?) else {
        let (sign, x, y) = (op.sign(), a.type_name(), b.type_name());
        return fault(format!("unsupported operand types for {sign}: '{x}' and '{y}'"));
    };
    floats(op, x, y).map(Value::Float)
}

fn repeat(value: &Value, times: i128, meter: &Meter) -> Result<Value> {
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    match value {
        Value::Str(text) => {
            meter.fits(text.as_str().len().checked_mul(times))?;
            meter.step(times as u64)?;
            let mut out = Builder::default();
            (0..times).for_each(|_| out.text(text));
            let mut out = out.finish(meter)?;
            out.markup = text.markup;
            Ok(Value::Str(out))
        }
        Value::List(items) | Value::Tuple(items) => {
            meter.items(items.values.len().saturating_mul(times))?;
            meter.step(times as u64)?;
            let mut values = Vec::new();
            (0..times).for_each(|_| values.extend_from_slice(&items.values));
            match value {
                Value::List(_) => Value::list(values, meter),
                _ => Value::tuple(values, meter),
            }
        }
        _ => fault("a value that is not a sequence cannot be repeated"),
    }
}

/// Converts a number to a float; `None` for other types.
pub(super) fn float_of(value: &Value) -> Result<Option<f64>> {
    Ok(match value {
        Value::Float(number) => Some(*number),
        other => other.as_int().map(|number| number as f64),
    })
}

fn integers(op: Binary, x: i128, y: i128) -> Result<Value> {
    let zero = || fault(format!("{x} {} 0: division by zero", op.sign()));
    let exact = match op {
        Binary::Add => x.checked_add(y),
        Binary::Sub => x.checked_sub(y),
        Binary::Mul => x.checked_mul(y),
        Binary::Div if y == 0 => return zero(),
        Binary::Div if x.abs() > EXACT || y.abs() > EXACT => None,
        Binary::Div => return Ok(Value::Float(x as f64 / y as f64)),
        Binary::FloorDiv | Binary::Mod if y == 0 => return zero(),
        Binary::FloorDiv => {
            let quotient = x.checked_div(y);
            quotient.map(|q| q - i128::from(x % y != 0 && (x < 0) != (y < 0)))
        }
        Binary::Mod => {
            let rest = x.checked_rem(y);
            rest.map(|r| if r != 0 && (r < 0) != (y < 0) { r + y } else { r })
        }
        Binary::Pow if y < 0 => return floats(op, x as f64, y as f64).map(Value::Float),
        Binary::Pow => match (x, u32::try_from(y)) {
            (0, _) => Some(i128::from(y == 0)),
            (1, _) => Some(1),
            (-1, _) => Some(if y % 2 == 0 { 1 } else { -1 }),
            (_, Ok(y)) => x.checked_pow(y),
            (_, Err(_)) => None,
        },
    };
    match exact {
        Some(number) => Ok(Value::Int(number)),
        None => fault(format!("operation {} gives an integer beyond 128 bits", op.sign())),
    }
}

fn floats(op: Binary, x: f64, y: f64) -> Result<f64> {
    if y == 0.0 && matches!(op, Binary::Div | Binary::FloorDiv | Binary::Mod) {
        return fault(format!("{x} {} 0: division by zero", op.sign()));
    }
    Ok(match op {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
        Binary::FloorDiv | Binary::Mod => {
            let mut rest = x % y;
            let mut quotient = (x - rest) / y;
            if rest != 0.0 {
                if (y < 0.0) != (rest < 0.0) {
                    rest += y;
                    quotient -= 1.0;
                }
            } else {
                rest = 0.0f64.copysign(y);
            }
            let floor = match quotient {
                0.0 => 0.0f64.copysign(x / y),
                q if q - q.floor() > 0.5 => q.floor() + 1.0,
                q => q.floor(),
            };
            if op == Binary::Mod { rest } else { floor }
        }
        Binary::Pow => {
            if x == 0.0 && y < 0.0 {
                return fault("0.0 cannot be raised to a negative power");
            }
            if x < 0.0 && x.is_finite() && y.is_finite() && y.fract() != 0.0 {
                return fault("operation ** gives a complex number, which is not supported");
            }
            let power = x.powf(y);
            if power.is_infinite() && x.is_finite() && y.is_finite() {
                return fault("operation ** gives a number that is too large");
            }
            power
        }
    })
}

pub(super) fn negative(value: &Value) -> Result<Value> {
    defined(value)?;
    match (value, value.as_int()) {
        (Value::Float(number), _) => Ok(Value::Float(-number)),
        (_, Some(number)) => integers(Binary::Sub, 0, number),
        _ => fault(format!("bad operand type for unary -: '{}'", value.type_name())),
    }
}

pub(super) fn positive(value: &Value) -> Result<Value> {
    defined(value)?;
    match (value, value.as_int()) {
        (Value::Float(number), _) => Ok(Value::Float(*number)),
        (_, Some(number)) => Ok(Value::Int(number)),
        _ => fault(format!("bad operand type for unary +: '{}'", value.type_name())),
    }
}

pub(super) fn compare(op: Compare, a: &Value, b: &Value, meter: &Meter) -> Result<bool> {
    let order = |sign| ordered(a, b, sign, meter);
    Ok(match op {
        Compare::Eq => equal(a, b, meter)?,
        Compare::Ne => !equal(a, b, meter)?,
        Compare::Lt => order("<")? == Some(Ordering::Less),
        Compare::Le => matches!(order("<=")?, Some(Ordering::Less | Ordering::Equal)),
        Compare::Gt => order(">")? == Some(Ordering::Greater),
        Compare::Ge => matches!(order(">=")?, Some(Ordering::Greater | Ordering::Equal)),
        Compare::In => contains(b, a, meter)?,
        Compare::NotIn => !contains(b, a, meter)?,
    })
}

/// Compares integers and floats exactly. The outer `None` is for other types, the inner one for
/// NaN.
fn numbers(a: &Value, b: &Value) -> Option<Option<Ordering>> {
    let mixed = |whole: i128, float: f64| -> Option<Ordering> {
        if whole.abs() <= EXACT || float.is_nan() || float.is_infinite() {
            return (whole as f64).partial_cmp(&float);
        }
        // Beyond 2^53 a float is an integer, and one out of range is larger than any integer here.
        match float.abs() < 1.7e38 {
            true => Some(whole.cmp(&(float as i128))),
            false => 0.0f64.partial_cmp(&float),
        }
    };
    match (a, b) {
        (Value::Float(x), Value::Float(y)) => Some(x.partial_cmp(y)),
        (Value::Float(x), _) => b.as_int().map(|y| mixed(y, *x).map(Ordering::reverse)),
        (_, Value::Float(y)) => a.as_int().map(|x| mixed(x, *y)),
        _ => a.as_int().zip(b.as_int()).map(|(x, y)| Some(x.cmp(&y))),
    }
}

pub(super) fn equal(a: &Value, b: &Value, meter: &Meter) -> Result<bool> {
    meter.step(1)?;
    if let Some(order) = numbers(a, b) {
        return Ok(order == Some(Ordering::Equal));
    }
    Ok(match (a, b) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::Str(x), Value::Str(y)) => {
            meter.spend(x.as_str().len().min(y.as_str().len()) as u64)?;
            x.as_str() == y.as_str()
        }
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => {
            all_equal(&x.values, &y.values, meter)?
        }
        (Value::Dict(x), Value::Dict(y)) => {
            if x.pairs.len() != y.pairs.len() {
                return Ok(false);
            }
            for (key, value) in &x.pairs {
                match get(y, key, meter)? {
                    Some(other) if equal(value, &other, meter)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Value::Range(..), Value::Range(..)) => {
            all_equal(&a.iterate(meter)?, &b.iterate(meter)?, meter)?
        }
        (Value::View(View::Values, x), Value::View(View::Values, y)) => Rc::ptr_eq(x, y),
        (Value::View(..), Value::View(..)) => {
            return fault("a comparison of two views of dictionaries is not supported");
        }
        (Value::Stream(x, _), Value::Stream(y, _)) => Rc::ptr_eq(x, y),
        (Value::Object(x), Value::Object(y)) => same_object(x, y),
        _ => false,
    })
}

pub(super) fn same_object(a: &Object, b: &Object) -> bool {
    match (a, b) {
        (Object::Namespace(x), Object::Namespace(y)) => Rc::ptr_eq(x, y),
        (Object::Macro(x), Object::Macro(y)) => Rc::ptr_eq(x, y),
        (Object::Loop(x), Object::Loop(y)) => Rc::ptr_eq(x, y),
        (Object::Cycler(x), Object::Cycler(y)) => Rc::ptr_eq(x, y),
        (Object::Joiner(x), Object::Joiner(y)) => Rc::ptr_eq(x, y),
        (Object::Function(x), Object::Function(y)) => x == y,
        _ => false,
    }
}

fn all_equal(a: &[Value], b: &[Value], meter: &Meter) -> Result<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (x, y) in a.iter().zip(b) {
        if !equal(x, y, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the order of two values, or `None` for NaN. `sign` is the operator in error messages.
pub(super) fn ordered(a: &Value, b: &Value, sign: &str, meter: &Meter) -> Result<Option<Ordering>> {
    meter.step(1)?;
    defined(a)?;
    defined(b)?;
    if let Some(order) = numbers(a, b) {
        return Ok(order);
    }
    match (a, b) {
        (Value::Str(x), Value::Str(y)) => {
            meter.spend(x.as_str().len().min(y.as_str().len()) as u64)?;
            // The byte order of UTF-8 is that of code points.
            Ok(Some(x.as_str().cmp(y.as_str())))
        }
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => {
            for (x, y) in x.values.iter().zip(&y.values) {
                if !equal(x, y, meter)? {
                    return ordered(x, y, sign, meter);
                }
            }
            Ok(Some(x.values.len().cmp(&y.values.len())))
        }
        _ => {
            let (a, b) = (a.type_name(), b.type_name());
            fault(format!("'{sign}' not supported between instances of '{a}' and '{b}'"))
        }
    }
}

/// Evaluates `value in container`.
pub(super) fn contains(container: &Value, value: &Value, meter: &Meter) -> Result<bool> {
    match container {
        Value::Undefined(_) => Ok(false),
        Value::Str(text) => match value {
            Value::Str(part) => {
                meter.spend((text.as_str().len() + part.as_str().len()) as u64)?;
                Ok(text.as_str().contains(part.as_str()))
            }
            other => {
                defined(other)?;
                fault(format!("'in <string>' takes a string, not {}", other.type_name()))
            }
        },
        Value::Dict(dict) | Value::View(View::Keys, dict) => {
            value.check_key()?;
            Ok(get(dict, value, meter)?.is_some())
        }
        Value::Range(start, stop, step) => {
            let Some(number) = value.as_int() else {
                let number = float_of(value)?.filter(|n| n.fract() == 0.0 && n.abs() < 1e18);
                return match number {
                    Some(n) => contains(container, &Value::Int(n as i128), meter),
                    None => Ok(false),
                };
            };
            let len = range_len(*start, *stop, *step) as i128;
            let at = number.checked_sub(*start);
            Ok(at.is_some_and(|at| at % step == 0 && (0..len).contains(&(at / step))))
        }
        other => {
            for item in other.iterate(meter)? {
                if equal(&item, value, meter)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

/// Returns the value of a key, or `None` if the dictionary does not have it.
pub(super) fn get(dict: &Dict, key: &Value, meter: &Meter) -> Result<Option<Value>> {
    meter.step(1 + dict.pairs.len() as u64 / 8)?;
    for (known, value) in &dict.pairs {
        let same = match (known, key) {
            (Value::Str(x), Value::Str(y)) => x.as_str() == y.as_str(),
            _ => equal(known, key, meter)?,
        };
        if same {
            return Ok(Some(value.clone()));
        }
    }
    Ok(None)
}

/// Sets the value of a key among the pairs of a dictionary that is being built.
pub(super) fn put(
    pairs: &mut Vec<(Value, Value)>,
    key: Value,
    value: Value,
    meter: &Meter,
) -> Result<()> {
    key.check_key()?;
    meter.step(1 + pairs.len() as u64 / 8)?;
    for (known, place) in pairs.iter_mut() {
        if equal(known, &key, meter)? {
            *place = value;
            return Ok(());
        }
    }
    pairs.push((key, value));
    Ok(())
}
