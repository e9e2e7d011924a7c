//! Where a rewritten template runs: what it may call, and what it may spend.
//!
//! Instructions are counted by minijinja. Bytes are counted here, by `_w`, which stands at every
//! value that grows or is walked through ([`super::rewrite`]): a value is refused beyond a weight,
//! and so is the sum of all that was weighed, which bounds time and memory. Filters whose result is
//! larger than what goes in are our own, and look before they write. There are no files, no
//! imports, no methods that change a value, and no names but those listed here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use minijinja::value::{Kwargs, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value, filters, tests};

use super::json;
use super::time;

/// Of a value, besides its text: about what it takes in memory.
const NODE: u64 = 32;
/// Weight that one value may have, besides that of the conversation.
const MAX_VALUE: u64 = 512 << 10;
/// Weight of everything that is looked at, besides the share of the conversation.
const MAX_TOTAL: u64 = 64 << 20;
/// Weight of everything that is written, also into variables.
const MAX_WRITTEN: u64 = 4 << 20;
/// Instructions, besides those for each message.
const MAX_STEPS: u64 = 200_000;
const STEPS_PER_MESSAGE: u64 = 10_000;
/// Values in values.
const MAX_DEPTH: usize = 32;
/// Namespaces can be chained without being looked at, so their number is bounded.
const MAX_NAMESPACES: u64 = 256;
/// Levels of macros (each counts 4) and recursive loops; a level takes stack.
const MAX_RECURSION: usize = 100;
/// Characters that `strip` looks for.
const MAX_STRIPPED: usize = 64;
const MAX_INDENT: usize = 64;

/// What a render may still spend.
struct Budget {
    value: u64,
    total: AtomicU64,
    written: AtomicU64,
    namespaces: AtomicU64,
    /// What `raise_exception` was called with.
    raised: Mutex<Option<String>>,
}

fn refuse(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.into())
}

fn take(from: &AtomicU64, amount: u64, what: &str) -> Result<(), Error> {
    let left = from.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(amount));
    left.map(drop).map_err(|_| refuse(format!("{what} goes beyond the limit of a template")))
}

impl Budget {
    /// The weight of a value: what it would take written out, without sharing.
    fn weigh(&self, value: &Value) -> Result<u64, Error> {
        let mut left = self.value;
        weigh(value, MAX_DEPTH, &mut left)?;
        let weight = self.value - left;
        self.spend(weight)?;
        Ok(weight)
    }

    fn spend(&self, weight: u64) -> Result<(), Error> {
        take(&self.total, weight, "all that is computed together")
    }

    /// Refuses a text before it is made.
    fn fits(&self, bytes: Option<usize>) -> Result<(), Error> {
        match bytes {
            Some(bytes) if bytes as u64 <= self.value => self.spend(bytes as u64),
            _ => Err(too_heavy()),
        }
    }

    /// The filter `_w`: the value, if it may be; what is computed lazily is computed.
    fn check(&self, value: Value) -> Result<Value, Error> {
        if value.kind() != ValueKind::Iterable {
            self.weigh(&value)?;
            return Ok(value);
        }
        let mut left = self.value;
        let mut items = Vec::new();
        for item in value.try_iter()?.checked() {
            let item = item?;
            weigh(&item, MAX_DEPTH - 1, &mut left)?;
            items.push(item);
        }
        self.spend(self.value - left)?;
        Ok(Value::from(items))
    }
}

fn too_heavy() -> Error {
    refuse("a value goes beyond the limit of a template")
}

fn weigh(value: &Value, depth: usize, left: &mut u64) -> Result<(), Error> {
    let own = NODE + value.as_str().map_or(0, |text| text.len() as u64);
    *left = left.checked_sub(own).ok_or_else(too_heavy)?;
    let pairs = match value.kind() {
        ValueKind::Map => true,
        ValueKind::Seq | ValueKind::Iterable => false,
        _ => return Ok(()),
    };
    let Some(depth) = depth.checked_sub(1) else {
        return Err(refuse(format!("values are nested more than {MAX_DEPTH} deep")));
    };
    for item in value.try_iter()?.checked() {
        let item = item?;
        weigh(&item, depth, left)?;
        if pairs {
            weigh(&value.get_item(&item)?, depth, left)?;
        }
    }
    Ok(())
}

/// The environment of one render, and what `raise_exception` said in it.
pub(super) struct Sandbox {
    env: Environment<'static>,
    budget: Arc<Budget>,
}

impl Sandbox {
    /// For a conversation of so many messages and bytes; `now` is what `strftime_now` tells.
    pub(super) fn new(messages: usize, bytes: usize, now: Option<SystemTime>) -> Sandbox {
        let (count, bytes) = (messages as u64, bytes as u64);
        let input = bytes + count * 8 * NODE;
        let budget = Arc::new(Budget {
            value: MAX_VALUE + 4 * input,
            total: AtomicU64::new(MAX_TOTAL + (16 + 4 * count) * input),
            written: AtomicU64::new(MAX_WRITTEN + 16 * input),
            namespaces: AtomicU64::new(MAX_NAMESPACES),
            raised: Mutex::new(None),
        });
        let mut env = Environment::empty();
        env.set_fuel(Some(MAX_STEPS + STEPS_PER_MESSAGE * count));
        env.set_recursion_limit(MAX_RECURSION);
        env.set_auto_escape_callback(|_| AutoEscape::None);
        let limits = budget.clone();
        env.set_formatter(move |out, _, value| {
            let weight = limits.weigh(value)?;
            take(&limits.written, weight, "the text")?;
            write!(out, "{value}").map_err(Error::from)
        });
        add_filters(&mut env);
        add_growing(&mut env, &budget);
        add_tests(&mut env);
        add_functions(&mut env, &budget, now);
        let limits = budget.clone();
        env.set_unknown_method_callback(move |state, value, method, args| {
            method_of(&limits, state, value, method, args)
        });
        Sandbox { env, budget }
    }

    /// Renders a guarded template.
    ///
    /// # Errors
    /// The message of `raise_exception`, apart from all else that goes wrong.
    pub(super) fn render(&self, template: &str, context: Value) -> Result<String, Failure> {
        self.env.render_named_str("chat", template, context).map_err(|error| {
            let mut raised = self.budget.raised.lock().unwrap_or_else(PoisonError::into_inner);
            match (raised.take(), error.kind()) {
                (Some(message), _) => Failure::Raised(message),
                (None, ErrorKind::OutOfFuel) => {
                    Failure::Refused("it runs for longer than the limit of a template".into())
                }
                (None, kind) => Failure::Refused(match error.detail() {
                    Some(detail) => format!("{kind}: {detail}"),
                    None => kind.to_string(),
                }),
            }
        })
    }
}

/// Why there is no text.
pub(super) enum Failure {
    /// The template itself refuses the conversation.
    Raised(String),
    /// The template is at fault.
    Refused(String),
}

/// Filters whose result is hardly larger than what goes in.
fn add_filters(env: &mut Environment<'static>) {
    env.add_filter("abs", filters::abs);
    env.add_filter("attr", filters::attr);
    env.add_filter("bool", filters::bool);
    env.add_filter("capitalize", filters::capitalize);
    env.add_filter("count", filters::length);
    env.add_filter("d", filters::default);
    env.add_filter("default", filters::default);
    env.add_filter("dictsort", filters::dictsort);
    env.add_filter("first", filters::first);
    env.add_filter("float", filters::float);
    env.add_filter("int", filters::int);
    env.add_filter("items", filters::items);
    env.add_filter("last", filters::last);
    env.add_filter("length", filters::length);
    env.add_filter("list", filters::list);
    env.add_filter("lower", filters::lower);
    env.add_filter("map", filters::map);
    env.add_filter("max", filters::max);
    env.add_filter("min", filters::min);
    env.add_filter("reject", filters::reject);
    env.add_filter("rejectattr", filters::rejectattr);
    env.add_filter("reverse", filters::reverse);
    env.add_filter("round", filters::round);
    env.add_filter("safe", |value: Value| value);
    env.add_filter("select", filters::select);
    env.add_filter("selectattr", filters::selectattr);
    env.add_filter("sort", filters::sort);
    env.add_filter("string", |value: &Value| value.to_string());
    env.add_filter("title", filters::title);
    env.add_filter("unique", filters::unique);
    env.add_filter("upper", filters::upper);
}

/// Filters that look at what they will make.
fn add_growing(env: &mut Environment<'static>, budget: &Arc<Budget>) {
    let limits = budget.clone();
    env.add_filter("_w", move |value: Value| limits.check(value));
    let limits = budget.clone();
    env.add_filter("_mul", move |a: &Value, b: &Value| multiply(&limits, a, b));
    let limits = budget.clone();
    env.add_filter(
        "join",
        move |values: &Value, between: Option<&str>, attribute: Option<&str>| {
            join(&limits, values, between.unwrap_or_default(), attribute)
        },
    );
    let limits = budget.clone();
    env.add_filter("replace", move |text: &Value, from: &str, to: &str, count: Option<i64>| {
        replace(&limits, &text_of(text), from, to, count)
    });
    env.add_filter("trim", |text: &Value, chars: Option<&str>| {
        strip(&text_of(text), chars, true, true)
    });
    let limits = budget.clone();
    env.add_filter(
        "indent",
        move |text: &Value, width: Option<usize>, first: Option<bool>, blank: Option<bool>| {
            let (first, blank) = (first.unwrap_or(false), blank.unwrap_or(false));
            indent(&limits, &text_of(text), width.unwrap_or(4), first, blank)
        },
    );
    let limits = budget.clone();
    env.add_filter("tojson", move |value: &Value, options: Kwargs| {
        let text = json::to_json(value, &options)?;
        limits.spend(text.len() as u64)?;
        Ok::<String, Error>(text)
    });
}

fn add_tests(env: &mut Environment<'static>) {
    env.add_test("boolean", tests::is_boolean);
    env.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    env.add_test("defined", tests::is_defined);
    env.add_test("divisibleby", tests::is_divisibleby);
    env.add_test("eq", tests::is_eq);
    env.add_test("equalto", tests::is_eq);
    env.add_test("even", tests::is_even);
    env.add_test("false", tests::is_false);
    env.add_test("float", tests::is_float);
    env.add_test("ge", tests::is_ge);
    env.add_test("gt", tests::is_gt);
    env.add_test("in", tests::is_in);
    env.add_test("integer", tests::is_integer);
    env.add_test("iterable", tests::is_iterable);
    env.add_test("le", tests::is_le);
    env.add_test("lower", tests::is_lower);
    env.add_test("lt", tests::is_lt);
    env.add_test("mapping", tests::is_mapping);
    env.add_test("ne", tests::is_ne);
    env.add_test("none", tests::is_none);
    env.add_test("number", tests::is_number);
    env.add_test("odd", tests::is_odd);
    env.add_test("sequence", tests::is_sequence);
    env.add_test("string", tests::is_string);
    env.add_test("true", tests::is_true);
    env.add_test("undefined", tests::is_undefined);
    env.add_test("upper", tests::is_upper);
}

fn add_functions(env: &mut Environment<'static>, budget: &Arc<Budget>, now: Option<SystemTime>) {
    env.add_function("range", minijinja::functions::range);
    env.add_function("dict", minijinja::functions::dict);
    let limits = budget.clone();
    env.add_function("namespace", move |values: Option<ValueOrKwargs>| {
        take(&limits.namespaces, 1, "the number of namespaces")?;
        minijinja::functions::namespace(values)
    });
    let limits = budget.clone();
    env.add_function("raise_exception", move |message: &Value| -> Result<Value, Error> {
        let message: String = text_of(message).chars().take(500).collect();
        *limits.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(message.clone());
        Err(refuse(message))
    });
    env.add_function("strftime_now", move |format: &str| match now {
        Some(now) => time::format(now, format).map_err(refuse),
        None => Err(refuse("strftime_now: there is no clock")),
    });
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn multiply(budget: &Budget, a: &Value, b: &Value) -> Result<Value, Error> {
    let text = a.as_str().map(|text| (text, b)).or_else(|| b.as_str().map(|text| (text, a)));
    if let Some((text, times)) = text {
        let times = times.as_i64().ok_or_else(|| refuse("a text times what is no integer"))?;
        let times = usize::try_from(times).unwrap_or(0);
        budget.fits(text.len().checked_mul(times))?;
        return Ok(Value::from(text.repeat(times)));
    }
    if a.kind() != ValueKind::Number || b.kind() != ValueKind::Number {
        return Err(refuse(format!("{} times {} is not supported", a.kind(), b.kind())));
    }
    if a.is_integer()
        && b.is_integer()
        && let (Some(a), Some(b)) = (a.as_i64(), b.as_i64())
    {
        let product = a.checked_mul(b);
        return product.map(Value::from).ok_or_else(|| refuse(format!("{a} times {b} overflows")));
    }
    let float = |v: &Value| f64::try_from(v.clone());
    Ok(Value::from(float(a)? * float(b)?))
}

fn join(
    budget: &Budget,
    values: &Value,
    between: &str,
    attribute: Option<&str>,
) -> Result<String, Error> {
    let mut out = String::new();
    for (index, value) in values.try_iter()?.checked().enumerate() {
        let value = value?;
        let value = match attribute {
            Some(name) => value.get_attr(name)?,
            None => value,
        };
        if index > 0 {
            out.push_str(between);
        }
        match value.as_str() {
            Some(text) => out.push_str(text),
            None => out.push_str(&value.to_string()),
        }
        if out.len() as u64 > budget.value {
            return Err(too_heavy());
        }
    }
    budget.spend(out.len() as u64)?;
    Ok(out)
}

fn replace(
    budget: &Budget,
    text: &str,
    from: &str,
    to: &str,
    count: Option<i64>,
) -> Result<String, Error> {
    let most = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let found = text.matches(from).take(most).count();
    let added = found.checked_mul(to.len());
    budget.fits(added.and_then(|added| added.checked_add(text.len())))?;
    Ok(text.replacen(from, to, most))
}

fn strip(text: &str, chars: Option<&str>, start: bool, end: bool) -> Result<String, Error> {
    let chars: Option<Vec<char>> = chars.map(|chars| chars.chars().collect());
    if chars.as_ref().is_some_and(|chars| chars.len() > MAX_STRIPPED) {
        return Err(refuse(format!("strip: more than {MAX_STRIPPED} characters")));
    }
    let goes = |c: char| match &chars {
        Some(chars) => chars.contains(&c),
        None => c.is_whitespace(),
    };
    let text = if start { text.trim_start_matches(goes) } else { text };
    Ok(if end { text.trim_end_matches(goes) } else { text }.to_owned())
}

fn indent(
    budget: &Budget,
    text: &str,
    width: usize,
    first: bool,
    blank: bool,
) -> Result<String, Error> {
    if width > MAX_INDENT {
        return Err(refuse(format!("indent: a width of {width}, the limit is {MAX_INDENT}")));
    }
    let lines = text.matches('\n').count() + 1;
    budget.fits(lines.checked_mul(width).and_then(|added| added.checked_add(text.len())))?;
    let mut out = String::new();
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            out.push('\n');
        }
        if (index > 0 || first) && (blank || !line.trim().is_empty()) {
            out.extend(std::iter::repeat_n(' ', width));
        }
        out.push_str(line);
    }
    Ok(out)
}

/// Methods of Python's strings, lists and dictionaries, none of which changes its value.
fn method_of(
    budget: &Budget,
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let argument = |index: usize| args.get(index).and_then(|arg| arg.as_str());
    let Some(text) = value.as_str() else {
        return minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args);
    };
    match (method, argument(0), argument(1)) {
        ("join", _, _) => match args {
            [values] => join(budget, values, text, None).map(Value::from),
            _ => Err(refuse("join takes one argument")),
        },
        ("replace", Some(from), Some(to)) => {
            let count = args.get(2).and_then(Value::as_i64);
            replace(budget, text, from, to, count).map(Value::from)
        }
        ("strip", chars, _) => strip(text, chars, true, true).map(Value::from),
        ("lstrip", chars, _) => strip(text, chars, true, false).map(Value::from),
        ("rstrip", chars, _) => strip(text, chars, false, true).map(Value::from),
        ("removeprefix", Some(part), _) => Ok(Value::from(text.strip_prefix(part).unwrap_or(text))),
        ("removesuffix", Some(part), _) => Ok(Value::from(text.strip_suffix(part).unwrap_or(text))),
        ("rsplit", Some(between), _) if !between.is_empty() => {
            let most = args.get(1).and_then(Value::as_i64).and_then(|n| usize::try_from(n).ok());
            let mut parts: Vec<&str> = match most {
                Some(most) => text.rsplitn(most.saturating_add(1), between).collect(),
                None => text.rsplit(between).collect(),
            };
            parts.reverse();
            Ok(parts.into_iter().map(Value::from).collect())
        }
        // Its widths could make anything of any size.
        ("format", _, _) => Err(refuse("the method format is not supported")),
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}
