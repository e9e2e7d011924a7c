//! Checks the arguments of calls, and evaluates the functions that a template can call.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::eval::Run;
use super::meter::{Fault, Meter, NODE, Result, error, fault};
use super::ops;
use super::print::text_of;
use super::value::{Function, Object, Value};
use crate::chat::time;

/// Maximum length of a range.
const MAX_RANGE: usize = 100_000;

/// The arguments of a call.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) positional: Vec<Value>,
    pub(super) named: Vec<(Rc<str>, Value)>,
}

impl Given {
    /// Binds the arguments to the named parameters; `None` for a parameter without an argument.
    ///
    /// # Errors
    /// A fault for too many arguments, an unknown name, or a parameter that is given twice.
    pub(super) fn bind<const N: usize>(
        &self,
        what: &str,
        names: [&str; N],
    ) -> Result<[Option<Value>; N]> {
        let mut bound: [Option<Value>; N] = std::array::from_fn(|_| None);
        if self.positional.len() > N {
            let count = self.positional.len();
            return fault(format!("{what}: {count} arguments, at most {N} are known"));
        }
        for (place, value) in bound.iter_mut().zip(&self.positional) {
            *place = Some(value.clone());
        }
        for (name, value) in &self.named {
            match names.iter().position(|known| **known == **name) {
                Some(at) if bound[at].is_none() => bound[at] = Some(value.clone()),
                Some(_) => return fault(format!("{what}: the argument {name:?} twice")),
                None => return fault(format!("{what}: no argument {name:.40?} is known")),
            }
        }
        Ok(bound)
    }

    /// Returns the arguments of a function that takes `least` to `most` positional ones and no
    /// named ones.
    pub(super) fn between(&self, what: &str, least: usize, most: usize) -> Result<&[Value]> {
        let count = self.positional.len();
        match self.named.first() {
            Some((name, _)) => fault(format!("{what}: no argument {name:.40?} is known")),
            None if !(least..=most).contains(&count) => {
                fault(format!("{what}: {count} arguments, not {least} to {most}"))
            }
            None => Ok(&self.positional),
        }
    }
}

/// Returns a required argument, or a fault if it is missing.
pub(super) fn wanted(value: Option<Value>, what: &str) -> Result<Value> {
    value.ok_or_else(|| error(format!("{what}: an argument is missing")))
}

/// Converts a value to a count; negative values become 0.
pub(super) fn count_of(value: &Value, what: &str) -> Result<usize> {
    ops::defined(value)?;
    let number = value.as_int().ok_or_else(|| error(format!("{what}: not an integer")))?;
    Ok(usize::try_from(number.max(0)).unwrap_or(usize::MAX))
}

/// Returns the key-value pairs that the arguments of `dict` describe.
pub(super) fn pairs_of(given: &Given, meter: &Meter) -> Result<Vec<(Value, Value)>> {
    let mut pairs = Vec::new();
    match given.positional.as_slice() {
        [] => {}
        [Value::Dict(dict)] => {
            meter.items(dict.pairs.len().saturating_mul(2))?;
            pairs.extend_from_slice(&dict.pairs);
        }
        [other] => {
            ops::defined(other)?;
            for pair in other.iterate(meter)? {
                let mut pair = pair.iterate(meter)?;
                match (pair.len(), pair.pop(), pair.pop()) {
                    (2, Some(value), Some(key)) => ops::put(&mut pairs, key, value, meter)?,
                    _ => return fault("dict: an element that is not a pair"),
                }
            }
        }
        more => return fault(format!("dict expected at most 1 argument, got {}", more.len())),
    }
    for (name, value) in &given.named {
        ops::put(&mut pairs, Value::from(&**name), value.clone(), meter)?;
    }
    Ok(pairs)
}

impl Run<'_> {
    pub(super) fn function(&mut self, function: Function, given: &Given) -> Result<Value> {
        let meter = self.meter;
        match function {
            Function::Range => range(given),
            Function::Dict => Value::dict(pairs_of(given, meter)?, meter),
            Function::Namespace => {
                let pairs = pairs_of(given, meter)?;
                meter.spend(4 * NODE)?;
                let mut names: Vec<(Rc<str>, Value)> = Vec::new();
                for (key, value) in pairs {
                    let Value::Str(name) = &key else {
                        return fault("namespace: a name that is not text");
                    };
                    check_name(name.as_str())?;
                    names.push((name.as_str().into(), value));
                }
                let names = Rc::new(RefCell::new(names));
                self.namespaces.push(names.clone());
                Ok(Value::Object(Object::Namespace(names)))
            }
            Function::Cycler => {
                if given.positional.is_empty() || !given.named.is_empty() {
                    return fault("cycler: at least one item has to be provided");
                }
                // The depth of the cycler is checked when it is put into a container.
                let items = Value::list(given.positional.clone(), meter)?.iterate(meter)?;
                Ok(Value::Object(Object::Cycler(Rc::new((items, Cell::new(0))))))
            }
            Function::Joiner => {
                let [sep] = given.bind("joiner", ["sep"])?;
                let sep = sep.unwrap_or_else(|| Value::from(", "));
                Ok(Value::Object(Object::Joiner(Rc::new((sep, Cell::new(false))))))
            }
            Function::RaiseException => {
                let [message] = given.bind("raise_exception", ["message"])?;
                let message = text_of(&wanted(message, "raise_exception")?, meter)?;
                Err(Fault::Raised(message.as_str().chars().take(500).collect()))
            }
            Function::StrftimeNow => {
                let [format] = given.bind("strftime_now", ["format"])?;
                let format = wanted(format, "strftime_now")?;
                let Value::Str(format) = &format else {
                    return fault("strftime_now: the format is not text");
                };
                let Some(now) = self.now else { return fault("strftime_now: there is no clock") };
                match time::format(now, format.as_str()) {
                    Ok(text) => Ok(Value::Str(format.derive(&text))),
                    Err(what) => fault(what),
                }
            }
            Function::Lipsum => fault("lipsum is not supported: it is random"),
        }
    }
}

/// Refuses the name of an attribute that a namespace cannot have: one that begins with `_`.
pub(super) fn check_name(name: &str) -> Result<()> {
    match name.starts_with('_') {
        true => fault(format!("namespace: a name that begins with _, {name:.40?}")),
        false => Ok(()),
    }
}

fn range(given: &Given) -> Result<Value> {
    let args = given.between("range", 1, 3)?;
    let number = |value: &Value| {
        ops::defined(value)?;
        let kind = value.type_name();
        let number = value.as_int();
        number.ok_or_else(|| error(format!("'{kind}' object cannot be interpreted as an integer")))
    };
    let numbers: Vec<i128> = args.iter().map(number).collect::<Result<_>>()?;
    let (start, stop, step) = match *numbers.as_slice() {
        [stop] => (0, stop, 1),
        [start, stop] => (start, stop, 1),
        [start, stop, step, ..] => (start, stop, step),
        [] => (0, 0, 1),
    };
    if step == 0 {
        return fault("range: a step of 0");
    }
    let far = [start, stop, step].iter().any(|n| n.unsigned_abs() > 1 << 62);
    if far || super::value::range_len(start, stop, step) > MAX_RANGE {
        return fault(format!("range beyond the limit of {MAX_RANGE} numbers"));
    }
    Ok(Value::Range(start, stop, step))
}
