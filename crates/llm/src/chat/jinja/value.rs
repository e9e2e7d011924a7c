//! The Python values of a template.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

#[cfg(test)]
use serde_json::Value as Json;

use super::ast;
use super::meter::{MAX_DEPTH, Meter, Result, error, fault};
use super::scope::Scope;
use super::text::Text;

#[derive(Clone, Debug)]
pub(in crate::chat) enum Value {
    /// An undefined value, with a description for errors.
    Undefined(Rc<str>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Text),
    List(Rc<Items>),
    Tuple(Rc<Items>),
    Dict(Rc<Dict>),
    View(View, Rc<Dict>),
    /// A range: start, stop, step.
    Range(i128, i128, i128),
    /// A generator: its remaining items, and its nesting depth.
    Stream(Rc<RefCell<VecDeque<Value>>>, u32),
    Object(Object),
}

/// The attributes of a namespace: their names and values.
pub(in crate::chat) type Names = Rc<RefCell<Vec<(Rc<str>, Value)>>>;

/// Values that cannot be converted to a string.
#[derive(Clone, Debug)]
pub(in crate::chat) enum Object {
    Namespace(Names),
    Macro(Rc<MacroValue>),
    Function(Function),
    /// A method, bound to its value.
    Method(Rc<(Value, Rc<str>)>),
    Loop(Rc<Loop>),
    Cycler(Rc<(Vec<Value>, Cell<usize>)>),
    Joiner(Rc<(Value, Cell<bool>)>),
}

/// The contents of a list or tuple.
#[derive(Debug)]
pub(in crate::chat) struct Items {
    pub(super) values: Vec<Value>,
    pub(super) depth: u32,
    /// Whether this is a pair made by `groupby`, with the attributes `grouper` and `list`.
    pub(super) is_group: bool,
}

/// The contents of a dictionary, in insertion order.
#[derive(Debug)]
pub(in crate::chat) struct Dict {
    pub(super) pairs: Vec<(Value, Value)>,
    pub(super) depth: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::chat) enum View {
    Keys,
    Values,
    Items,
}

#[derive(Debug)]
pub(in crate::chat) struct MacroValue {
    pub(super) made: Arc<ast::Macro>,
    pub(super) scope: Rc<Scope>,
}

/// The state of the variable `loop` in a `for`.
#[derive(Debug)]
pub(in crate::chat) struct Loop {
    pub(super) items: Vec<Value>,
    pub(super) index: Cell<usize>,
    pub(super) depth: usize,
    /// The last arguments of `loop.changed`.
    pub(super) last: RefCell<Option<Vec<Value>>>,
    /// For a recursive loop: its syntax tree and enclosing scope.
    pub(super) again: Option<(Arc<ast::For>, Rc<Scope>)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::chat) enum Function {
    Range,
    Dict,
    Namespace,
    Cycler,
    Joiner,
    RaiseException,
    StrftimeNow,
    Lipsum,
}

/// Creates a dictionary without checking limits.
pub(super) fn dict_of_values(pairs: Vec<(Value, Value)>) -> Value {
    let depth = deepest(pairs.iter().map(|(_, value)| value)) + 1;
    Value::Dict(Rc::new(Dict { pairs, depth }))
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Str(Text::own(text))
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Value {
        Value::Int(number as i128)
    }
}

impl Value {
    /// Converts JSON to a value from outside the template, whose text never becomes a control
    /// token.
    ///
    /// # Errors
    /// A description, if the value is nested too deeply.
    #[cfg(test)]
    pub(in crate::chat) fn from_json(json: &Json) -> std::result::Result<Value, String> {
        let made = from_json(json, 0);
        made.ok_or_else(|| format!("a value is nested more than {MAX_DEPTH} deep"))
    }

    /// Creates a string from outside the template.
    pub(in crate::chat) fn outside(text: &str) -> Value {
        Value::Str(Text::outside(text))
    }

    /// Creates a string that is treated as the template's own.
    pub(in crate::chat) fn own(text: &str) -> Value {
        Value::Str(Text::own(text))
    }

    /// Creates a list without checking limits.
    pub(in crate::chat) fn list_of(values: Vec<Value>) -> Value {
        let depth = deepest(values.iter()) + 1;
        Value::List(Rc::new(Items { values, depth, is_group: false }))
    }

    /// Creates a dictionary without checking limits.
    pub(in crate::chat) fn dict_of(pairs: Vec<(&str, Value)>) -> Value {
        dict_of_values(pairs.into_iter().map(|(key, value)| (Value::own(key), value)).collect())
    }

    pub(super) fn list(values: Vec<Value>, meter: &Meter) -> Result<Value> {
        Ok(Value::List(items(values, meter)?))
    }

    pub(super) fn tuple(values: Vec<Value>, meter: &Meter) -> Result<Value> {
        Ok(Value::Tuple(items(values, meter)?))
    }

    pub(super) fn stream(values: Vec<Value>, meter: &Meter) -> Result<Value> {
        let items = items(values, meter)?;
        let depth = items.depth;
        let values = Rc::into_inner(items).map(|items| items.values).unwrap_or_default();
        Ok(Value::Stream(Rc::new(RefCell::new(values.into())), depth))
    }

    pub(super) fn dict(pairs: Vec<(Value, Value)>, meter: &Meter) -> Result<Value> {
        meter.items(pairs.len().saturating_mul(2))?;
        let depth = checked_depth(pairs.iter().flat_map(|(key, value)| [key, value]))?;
        Ok(Value::Dict(Rc::new(Dict { pairs, depth })))
    }

    pub(super) fn undefined(what: impl Into<String>) -> Value {
        Value::Undefined(what.into().into())
    }

    pub(super) fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined(_))
    }

    pub(super) fn as_text(&self) -> Option<&Text> {
        match self {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value of an integer, or a Boolean as 0 or 1. Returns `None` for other types.
    pub(super) fn as_int(&self) -> Option<i128> {
        match self {
            Value::Int(number) => Some(*number),
            Value::Bool(is) => Some(i128::from(*is)),
            _ => None,
        }
    }

    /// Returns Python's name for the value's type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "Undefined",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Str(text) if text.markup => "Markup",
            Value::Str(_) => "str",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Dict(_) => "dict",
            Value::View(View::Keys, _) => "dict_keys",
            Value::View(View::Values, _) => "dict_values",
            Value::View(View::Items, _) => "dict_items",
            Value::Range(..) => "range",
            Value::Stream(..) => "generator",
            Value::Object(object) => match object {
                Object::Namespace(_) => "Namespace",
                Object::Macro(_) => "Macro",
                Object::Function(_) => "function",
                Object::Method(_) => "method",
                Object::Loop(_) => "LoopContext",
                Object::Cycler(_) => "Cycler",
                Object::Joiner(_) => "Joiner",
            },
        }
    }

    pub(super) fn is_true(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(is) => *is,
            Value::Int(number) => *number != 0,
            Value::Float(number) => *number != 0.0,
            Value::Str(text) => !text.as_str().is_empty(),
            Value::List(items) | Value::Tuple(items) => !items.values.is_empty(),
            Value::Dict(dict) | Value::View(_, dict) => !dict.pairs.is_empty(),
            Value::Range(start, stop, step) => range_len(*start, *stop, *step) > 0,
            Value::Stream(..) | Value::Object(_) => true,
        }
    }

    /// Returns how deep containers nest in this value, counting the value itself.
    fn depth(&self) -> u32 {
        match self {
            Value::List(items) | Value::Tuple(items) => items.depth,
            Value::Dict(dict) | Value::View(_, dict) => dict.depth,
            Value::Stream(_, depth) => *depth,
            Value::Object(Object::Method(method)) => method.0.depth() + 1,
            // The template passes the contents of a cycler or joiner, so the limit on steps bounds
            // them.
            Value::Object(Object::Cycler(held)) => deepest(held.0.iter()) + 1,
            Value::Object(Object::Joiner(held)) => held.0.depth() + 1,
            _ => 0,
        }
    }

    /// Returns the length of the value.
    ///
    /// # Errors
    /// A fault if the type has no length in Python.
    pub(super) fn len(&self, meter: &Meter) -> Result<usize> {
        Ok(match self {
            Value::Undefined(_) => 0,
            Value::Str(text) => {
                meter.spend(text.as_str().len() as u64)?;
                text.as_str().chars().count()
            }
            Value::List(items) | Value::Tuple(items) => items.values.len(),
            Value::Dict(dict) | Value::View(_, dict) => dict.pairs.len(),
            Value::Range(start, stop, step) => range_len(*start, *stop, *step),
            Value::Object(Object::Loop(state)) => state.items.len(),
            other => return fault(format!("object of type {:?} has no len()", other.type_name())),
        })
    }

    /// Returns the items of the value. A generator returns its items only once.
    ///
    /// # Errors
    /// A fault if the value is not iterable.
    pub(super) fn iterate(&self, meter: &Meter) -> Result<Vec<Value>> {
        match self {
            Value::Undefined(_) => Ok(Vec::new()),
            Value::Str(text) => {
                let letters = text.as_str();
                meter.items(letters.len())?;
                let one = |(at, c): (usize, char)| Value::Str(text.slice(at..at + c.len_utf8()));
                Ok(letters.char_indices().map(one).collect())
            }
            Value::List(items) | Value::Tuple(items) => {
                meter.items(items.values.len())?;
                Ok(items.values.clone())
            }
            Value::Dict(dict) | Value::View(View::Keys, dict) => {
                meter.items(dict.pairs.len())?;
                Ok(dict.pairs.iter().map(|(key, _)| key.clone()).collect())
            }
            Value::View(View::Values, dict) => {
                meter.items(dict.pairs.len())?;
                Ok(dict.pairs.iter().map(|(_, value)| value.clone()).collect())
            }
            Value::View(View::Items, dict) => {
                meter.items(dict.pairs.len().saturating_mul(4))?;
                let pair = |(key, value): &(Value, Value)| {
                    Value::tuple(vec![key.clone(), value.clone()], meter)
                };
                dict.pairs.iter().map(pair).collect()
            }
            Value::Range(start, stop, step) => {
                let len = range_len(*start, *stop, *step);
                meter.items(len)?;
                Ok((0..len).map(|i| Value::Int(start + step * i as i128)).collect())
            }
            Value::Stream(values, _) => Ok(values.borrow_mut().drain(..).collect()),
            // Python iterates over the rest of a `loop` object; no template does that.
            other => fault(format!("{:?} object is not iterable", other.type_name())),
        }
    }

    /// Checks that the value is hashable, so that it can be a dictionary key.
    ///
    /// # Errors
    /// A fault if it is not hashable.
    pub(super) fn check_key(&self) -> Result<()> {
        match self {
            Value::Tuple(items) => items.values.iter().try_for_each(Value::check_key),
            Value::List(_) | Value::Dict(_) | Value::View(..) => {
                Err(error(format!("unhashable type: '{}'", self.type_name())))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the length of a range.
pub(super) fn range_len(start: i128, stop: i128, step: i128) -> usize {
    let (from, to) = if step > 0 { (start, stop) } else { (stop, start) };
    let step = step.unsigned_abs();
    match to.checked_sub(from) {
        Some(span) if span > 0 && step > 0 => {
            usize::try_from((span as u128 - 1) / step + 1).unwrap_or(usize::MAX)
        }
        _ => 0,
    }
}

fn deepest<'a>(values: impl Iterator<Item = &'a Value>) -> u32 {
    values.map(Value::depth).max().unwrap_or(0)
}

fn checked_depth<'a>(values: impl Iterator<Item = &'a Value>) -> Result<u32> {
    let depth = deepest(values) + 1;
    match depth > MAX_DEPTH {
        true => fault(format!("values are nested more than {MAX_DEPTH} deep")),
        false => Ok(depth),
    }
}

fn items(values: Vec<Value>, meter: &Meter) -> Result<Rc<Items>> {
    meter.items(values.len())?;
    let depth = checked_depth(values.iter())?;
    Ok(Rc::new(Items { values, depth, is_group: false }))
}

#[cfg(test)]
fn from_json(json: &Json, depth: u32) -> Option<Value> {
    if depth >= MAX_DEPTH {
        return None;
    }
    Some(match json {
        Json::Null => Value::None,
        Json::Bool(is) => Value::Bool(*is),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::Int(number.into()),
            (_, Some(number)) => Value::Int(number.into()),
            _ => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::outside(text),
        Json::Array(values) => {
            let values: Option<Vec<Value>> =
                values.iter().map(|value| from_json(value, depth + 1)).collect();
            Value::list_of(values?)
        }
        Json::Object(pairs) => {
            let pair = |(key, value): (&String, &Json)| {
                Some((Value::outside(key), from_json(value, depth + 1)?))
            };
            let pairs: Vec<(Value, Value)> = pairs.iter().map(pair).collect::<Option<_>>()?;
            let depth = deepest(pairs.iter().map(|(_, value)| value)) + 1;
            Value::Dict(Rc::new(Dict { pairs, depth }))
        }
    })
}
