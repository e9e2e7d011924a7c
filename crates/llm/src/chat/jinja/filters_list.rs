//! Jinja2's filters of sequences.

use std::cmp::Ordering;
use std::rc::Rc;

use super::attributes::item;
use super::call::{Given, count_of, wanted};
use super::eval::Run;
use super::meter::{Meter, Result, error, fault};
use super::ops::{self, defined};
use super::print::{str_into, text_of};
use super::text::Builder;
use super::value::{Items, Value};

/// The argument `attribute` of a filter, split at dots.
pub(super) struct Path(Vec<Value>);

impl Path {
    pub(super) fn of(attribute: &Value, meter: &Meter) -> Result<Path> {
        Ok(Path(match attribute {
            Value::None => Vec::new(),
            Value::Str(text) => {
                let digits =
                    |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
                let part = |part: &str| match part.parse() {
                    Ok(number) if digits(part) => Value::Int(number),
                    _ => Value::from(part),
                };
                meter.items(text.as_str().len())?;
                text.as_str().split('.').map(part).collect()
            }
            other => vec![other.clone()],
        }))
    }

    pub(super) fn get(
        &self,
        value: &Value,
        default: Option<&Value>,
        meter: &Meter,
    ) -> Result<Value> {
        let mut value = value.clone();
        for part in &self.0 {
            value = item(&value, part, meter)?;
            if let Some(default) = default.filter(|_| value.is_undefined()) {
                value = default.clone();
            }
        }
        Ok(value)
    }
}

/// Converts a string to lower case, unless `case_sensitive` is set.
fn folded(value: Value, case_sensitive: bool) -> Value {
    match &value {
        Value::Str(text) if !case_sensitive => {
            Value::Str(text.derive(&text.as_str().to_lowercase()))
        }
        _ => value,
    }
}

fn is_true(value: Option<Value>) -> bool {
    value.is_some_and(|value| value.is_true())
}

/// Sorts key-value pairs by key, with Python's order and errors, and returns the values.
pub(super) fn sorted(
    mut pairs: Vec<(Value, Value)>,
    reverse: bool,
    meter: &Meter,
) -> Result<Vec<Value>> {
    meter.items(pairs.len())?;
    let mut failed = None;
    pairs.sort_by(|(a, _), (b, _)| {
        if failed.is_some() {
            return Ordering::Equal;
        }
        let order = ops::ordered(a, b, "<", meter);
        let order = order.unwrap_or_else(|e| {
            failed = Some(e);
            None
        });
        let order = order.unwrap_or(Ordering::Equal);
        if reverse { order.reverse() } else { order }
    });
    match failed {
        Some(e) => Err(e),
        None => Ok(pairs.into_iter().map(|(_, value)| value).collect()),
    }
}

impl Run<'_> {
    pub(super) fn list_filter(
        &mut self,
        name: &str,
        value: &Value,
        given: &Given,
    ) -> Result<Value> {
        let meter = self.meter;
        match name {
            "batch" => batch(value, given, meter),
            "dictsort" => dictsort(value, given, meter),
            "first" | "last" => edge(name, value, given, meter),
            "groupby" => groupby(value, given, meter),
            "items" => {
                given.bind(name, [])?;
                match value {
                    Value::Undefined(_) => Value::stream(Vec::new(), meter),
                    Value::Dict(dict) => {
                        let view = Value::View(super::value::View::Items, dict.clone());
                        Value::stream(view.iterate(meter)?, meter)
                    }
                    _ => fault("can only get item pairs from a mapping"),
                }
            }
            "join" => join(value, given, meter),
            "list" => {
                given.bind(name, [])?;
                Value::list(value.iterate(meter)?, meter)
            }
            "map" => self.map(value, given),
            "max" | "min" => extreme(name, value, given, meter),
            "select" | "reject" | "selectattr" | "rejectattr" => self.select(name, value, given),
            "reverse" => reverse(value, given, meter),
            "slice" => slices(value, given, meter),
            "sort" => sort(value, given, meter),
            "sum" => sum(value, given, meter),
            _ => unique(value, given, meter),
        }
    }

    fn map(&mut self, value: &Value, given: &Given) -> Result<Value> {
        let meter = self.meter;
        let items = value.iterate(meter)?;
        let mut made = Vec::new();
        match given.positional.split_first() {
            None => {
                let [attribute, default] = given.bind("map", ["attribute", "default"])?;
                let path = Path::of(&wanted(attribute, "map")?, meter)?;
                for item in items {
                    made.push(path.get(&item, default.as_ref(), meter)?);
                }
            }
            Some((filter, rest)) => {
                let filter = text_of(filter, meter)?;
                let given = Given { positional: rest.to_vec(), named: given.named.clone() };
                for item in items {
                    made.push(self.filter(filter.as_str(), &item, &given)?);
                }
            }
        }
        Value::stream(made, meter)
    }

    fn select(&mut self, name: &str, value: &Value, given: &Given) -> Result<Value> {
        let meter = self.meter;
        let mut rest = given.positional.as_slice();
        let mut path = None;
        if name.ends_with("attr") {
            let Some((attribute, more)) = rest.split_first() else {
                return fault("missing parameter for attribute name");
            };
            path = Some(Path::of(attribute, meter)?);
            rest = more;
        }
        let wants = name.starts_with("select");
        let mut kept = Vec::new();
        for item in value.iterate(meter)? {
            let tested = match &path {
                Some(path) => path.get(&item, None, meter)?,
                None => item.clone(),
            };
            let holds = match rest.split_first() {
                None => tested.is_true(),
                Some((test, rest)) => {
                    let test = text_of(test, meter)?;
                    let given = Given { positional: rest.to_vec(), named: given.named.clone() };
                    self.test(test.as_str(), &tested, &given)?
                }
            };
            if holds == wants {
                kept.push(item);
            }
        }
        Value::stream(kept, meter)
    }
}

fn batch(value: &Value, given: &Given, meter: &Meter) -> Result<Value> {
    let [count, fill] = given.bind("batch", ["linecount", "fill_with"])?;
    let count = count_of(&wanted(count, "batch")?, "batch")?;
    let fill = fill.filter(|fill| !matches!(fill, Value::None));
    let mut lists = Vec::new();
    let mut items = value.iterate(meter)?.into_iter().peekable();
    while items.peek().is_some() {
        // A count of 0 is an error below; here the loop must end.
        let mut list: Vec<Value> = items.by_ref().take(count.max(1)).collect();
        if let Some(fill) = fill.as_ref().filter(|_| list.len() < count) {
            meter.items(count)?;
            list.resize(count, fill.clone());
        }
        lists.push(Value::list(list, meter)?);
    }
    if count == 0 {
        return fault("batch: a count of 0");
    }
    Value::stream(lists, meter)
}

fn slices(value: &Value, given: &Given, meter: &Meter) -> Result<Value> {
    let [count, fill] = given.bind("slice", ["slices", "fill_with"])?;
    let count = count_of(&wanted(count, "slice")?, "slice")?;
    let fill = fill.filter(|fill| !matches!(fill, Value::None));
    let items = value.iterate(meter)?;
    if count == 0 {
        return fault("slice: a count of 0");
    }
    meter.items(count)?;
    let (each, longer) = (items.len() / count, items.len() % count);
    let mut lists = Vec::new();
    let mut items = items.into_iter();
    for number in 0..count {
        let len = each + usize::from(number < longer);
        let mut list: Vec<Value> = items.by_ref().take(len).collect();
        list.extend(fill.iter().filter(|_| number >= longer).cloned());
        lists.push(Value::list(list, meter)?);
    }
    Value::stream(lists, meter)
}

fn dictsort(value: &Value, given: &Given, meter: &Meter) -> Result<Value> {
    let [case, by, reverse] = given.bind("dictsort", ["case_sensitive", "by", "reverse"])?;
    let case = is_true(case);
    let by = by.unwrap_or_else(|| Value::from("key"));
    let at = match by.as_text().map(|text| text.as_str()) {
        Some("key") => 0,
        Some("value") => 1,
        _ => return fault("dictsort: you can only sort by either \"key\" or \"value\""),
    };
    defined(value)?;
    let Value::Dict(dict) = value else {
        return fault(format!("'{}' object has no attribute 'items'", value.type_name()));
    };
    let view = Value::View(super::value::View::Items, dict.clone());
    let pairs = view.iterate(meter)?.into_iter().map(|pair| {
        let key = item(&pair, &Value::Int(at), meter)?;
        Ok((folded(key, case), pair))
    });
    let pairs = pairs.collect::<Result<_>>()?;
    Value::list(sorted(pairs, is_true(reverse), meter)?, meter)
}

fn edge(name: &str, value: &Value, given: &Given, meter: &Meter) -> Result<Value> {
    given.bind(name, [])?;
    let empty = || Value::undefined(format!("No {name} item, sequence was empty."));
    if let Value::Stream(items, _) = value {
        return match name {
            "first" => Ok(items.borrow_mut().pop_front().unwrap_or_else(empty)),
            _ => fault("'generator' object is not reversible"),
        };
    }
    let items = value.iterate(meter)?;
    let found = if name == "first" { items.first() } else { items.last() };
    Ok(found.cloned().unwrap_or_else(empty))
}

fn groupby(value: &Value, given: &Given, meter: &Meter) -> Result<Value> {
    let names = ["attribute", "default", "case_sensitive"];
    let [attribute, default, case] = given.bind("groupby", names)?;
    let path = Path::of(&wanted(attribute, "groupby")?, meter)?;
    let (default, case) = (default.filter(|d| !matches!(d, Value::None)), is_true(case));
    let key = |item: &Value| Ok(folded(path.get(item, default.as_ref(), meter)?, case));
    let items = value.iterate(meter)?;
    let keyed: Vec<(Value, Value)> =
        items.into_iter().map(|item| Ok((key(&item)?, item))).collect::<Result<_>>()?;
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for item in sorted(keyed, false, meter)? {
        let here = key(&item)?;
        match groups.last_mut() {
            Some((last, list)) if ops::equal(last, &here, meter)? => list.push(item),
            _ => groups.push((here, vec![item])),
        }
    }
    let mut made = Vec::new();
    for (_, list) in groups {
        // The key of the first item, in its original case.
        let key = path.get(&list[0], default.as_ref(), meter)?;
        let pair = Value::tuple(vec![key, Value::list(list, meter)?], meter)?;
        let Value::Tuple(pair) = pair else { continue };
        let (values, depth) = (pair.values.clone(), pair.depth);
        made.push(Value::Tuple(Rc::new(Items { values, depth, is_group: true })));
    }
    Value::list(made, meter)
}

fn join(value: &Value, given: &Given, meter: &Meter) -> Result<Value> {
    let [between, attribute] = given.bind("join", ["d", "attribute"])?;
    let between = text_of(&between.unwrap_or_else(|| Value::from("")), meter)?;
    let path = match attribute.filter(|a| !matches!(a, Value::None)) {
        Some(attribute) => Some(Path::of(&attribute, meter)?),
        None => None,
    };
    let mut out = Builder::default();
    for (index, item) in value.iterate(meter)?.into_iter().enumerate() {
        if index > 0 {
            out.text(&between);
        }
        let item = match &path {
            Some(path) => path.get(&item, None, meter)?,
            None => item,
        };
        str_into(&mut out, &item, meter)?;
    }
    Ok(Value::Str(out.finish(meter)?))
}

fn extreme(name: &str, value: &Value, given: &Given, meter: &Meter) -> Result<Value> {
    let [case, attribute] = given.bind(name, ["case_sensitive", "attribute"])?;
    let path = Path::of(&attribute.unwrap_or(Value::None), meter)?;
    let case = is_true(case);
    let mut best: Option<(Value, Value)> = None;
    for item in value.iterate(meter)? {
        let key = folded(path.get(&item, None, meter)?, case);
        let better = match &best {
            None => true,
            Some((known, _)) if name == "max" => {
                ops::ordered(&key, known, ">", meter)? == Some(Ordering::Greater)
            }
            Some((known, _)) => ops::ordered(&key, known, "<", meter)? == Some(Ordering::Less),
        };
        if better {
            best = Some((key, item));
        }
    }
    let empty = || Value::undefined("No aggregated item, sequence was empty.");
    Ok(best.map_or_else(empty, |(_, item)| item))
}

fn reverse(value: &Value, given: &Given, meter: &Meter) -> Result<Value> {
    given.bind("reverse", [])?;
    if let Value::Str(_) = value {
        let back = [None, None, Some(Value::Int(-1))];
        return super::attributes::slice(value, &back, meter);
    }
    let mut items = value.iterate(meter)?;
    items.reverse();
    Value::stream(items, meter)
}

fn sort(value: &Value, given: &Given, meter: &Meter) -> Result<Value> {
    let names = ["reverse", "case_sensitive", "attribute"];
    let [reverse, case, attribute] = given.bind("sort", names)?;
    let case = is_true(case);
    let paths: Vec<Path> = match &attribute {
        Some(Value::Str(text)) => {
            let part = |part: &str| Path::of(&Value::from(part), meter);
            text.as_str().split(',').map(part).collect::<Result<_>>()?
        }
        other => vec![Path::of(&other.clone().unwrap_or(Value::None), meter)?],
    };
    let mut pairs = Vec::new();
    for item in value.iterate(meter)? {
        let keys = paths.iter().map(|path| Ok(folded(path.get(&item, None, meter)?, case)));
        pairs.push((Value::list(keys.collect::<Result<_>>()?, meter)?, item));
    }
    Value::list(sorted(pairs, is_true(reverse), meter)?, meter)
}

fn sum(value: &Value, given: &Given, meter: &Meter) -> Result<Value> {
    let [attribute, start] = given.bind("sum", ["attribute", "start"])?;
    let path = Path::of(&attribute.unwrap_or(Value::None), meter)?;
    let mut total = start.unwrap_or(Value::Int(0));
    if matches!(total, Value::Str(_)) {
        return fault("sum() can't sum strings [use ''.join(seq) instead]");
    }
    for item in value.iterate(meter)? {
        let item = path.get(&item, None, meter)?;
        total = ops::binary(super::ast::Binary::Add, &total, &item, meter)?;
    }
    Ok(total)
}

fn unique(value: &Value, given: &Given, meter: &Meter) -> Result<Value> {
    let [case, attribute] = given.bind("unique", ["case_sensitive", "attribute"])?;
    let path = Path::of(&attribute.unwrap_or(Value::None), meter)?;
    let case = is_true(case);
    let mut seen: Vec<Value> = Vec::new();
    let mut kept = Vec::new();
    for item in value.iterate(meter)? {
        let key = folded(path.get(&item, None, meter)?, case);
        key.check_key().map_err(|_| error("unique: an item that cannot be a key"))?;
        let mut known = false;
        for other in &seen {
            known = known || ops::equal(other, &key, meter)?;
        }
        if !known {
            seen.push(key);
            kept.push(item);
        }
    }
    Value::stream(kept, meter)
}
