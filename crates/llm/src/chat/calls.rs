//! Tool calls and their results, in the form that a template expects.
//!
//! Templates differ: they expect arguments as an object or as the model's text, and the missing
//! content of a message with calls as `none` or as an empty string. Many do not support tools and
//! omit calls silently. So each form is first rendered with a unique probe in place of each tool
//! name, each call's arguments and each result; a form is accepted if all probes appear in the
//! output.

use super::jinja::{Rendered, Value};
use super::{Message, Role, ToolCall};
use warploom::{Error, Result};

/// Returns whether a conversation has tool calls. Results without a call are ordinary messages.
pub(super) fn have_tools(messages: &[Message]) -> bool {
    messages.iter().any(|message| !message.tool_calls.is_empty())
}

/// The private-use plane of Unicode from which the probe character is taken.
const PROBES: std::ops::RangeInclusive<char> = '\u{f0000}'..='\u{ffffd}';

/// Returns a character in [`PROBES`] that occurs in none of the texts.
///
/// # Errors
/// Invalid if the texts contain every character in [`PROBES`].
pub(super) fn probe<'a>(texts: impl Iterator<Item = &'a str>) -> Result<char> {
    let mut used: Vec<char> = texts.flat_map(str::chars).filter(|c| PROBES.contains(c)).collect();
    used.sort_unstable();
    used.dedup();
    let free = PROBES.zip(used.iter().map(Some).chain(std::iter::repeat(None)));
    let found = free.into_iter().find(|(probe, used)| Some(probe) != *used);
    found.map(|(probe, _)| probe).ok_or_else(|| {
        Error::invalid("the messages hold every character of a private plane of Unicode")
    })
}

/// A form in which a template may expect tool calls.
#[derive(Clone, Copy)]
struct Form {
    /// Whether arguments are the model's text instead of a parsed object.
    arguments_as_text: bool,
    /// Whether the missing content of a message with calls is an empty string instead of `none`.
    content_as_text: bool,
}

/// An empty text comes first: where a template takes both, it writes `none` as a word.
const FORMS: [Form; 4] = [
    Form { arguments_as_text: false, content_as_text: true },
    Form { arguments_as_text: false, content_as_text: false },
    Form { arguments_as_text: true, content_as_text: true },
    Form { arguments_as_text: true, content_as_text: false },
];

/// Converts messages to template values. With `probe`, it writes a numbered probe in place of each
/// string that must appear in the output.
struct Writer {
    form: Form,
    /// The character that delimits probe numbers; `None` for the final render, without probes.
    probe: Option<char>,
    /// Number of probes so far.
    count: usize,
    bytes: usize,
}

impl Writer {
    fn text(&mut self, text: &str) -> Value {
        self.bytes += text.len();
        Value::outside(text)
    }

    /// Converts a string that must appear in the output; while probing, returns the next probe
    /// instead.
    fn shown(&mut self, text: &str) -> Value {
        let Some(probe) = self.probe else { return self.text(text) };
        let text = probed(probe, self.count);
        self.count += 1;
        self.bytes += text.len();
        Value::outside(&text)
    }

    fn arguments(&mut self, text: &str) -> Value {
        let probe = self.probe.map(|probe| probed(probe, self.count));
        if let Some(probe) = probe {
            self.count += 1;
            self.bytes += probe.len();
            // In an object, the probe has a key that no template uses.
            return match self.form.arguments_as_text {
                true => Value::outside(&probe),
                false => Value::dict_of(vec![("warploom_probe", Value::outside(&probe))]),
            };
        }
        if !self.form.arguments_as_text {
            self.bytes += text.len();
            // Arguments that are not an object stay text.
            if let Some(value @ Value::Dict(_)) = Value::outside_json(text) {
                return value;
            }
        }
        self.text(text)
    }

    fn call(&mut self, call: &ToolCall) -> Value {
        let name = self.shown(&call.name);
        let arguments = self.arguments(&call.arguments);
        let id = self.text(&call.id);
        let function = Value::dict_of(vec![("name", name), ("arguments", arguments)]);
        let kind = Value::own("function");
        Value::dict_of(vec![("id", id), ("type", kind), ("function", function)])
    }

    fn message(&mut self, message: &Message) -> Value {
        let mut fields = vec![("role", Value::own(message.role.name()))];
        let no_content = message.content.is_empty() && !message.tool_calls.is_empty();
        let content = match message.role {
            _ if no_content && !self.form.content_as_text => Value::None,
            Role::Tool => self.shown(&message.content),
            _ => self.text(&message.content),
        };
        fields.push(("content", content));
        if !message.tool_calls.is_empty() {
            let calls: Vec<Value> = message.tool_calls.iter().map(|c| self.call(c)).collect();
            fields.push(("tool_calls", Value::list_of(calls)));
        }
        if let Some(id) = &message.tool_call_id {
            fields.push(("tool_call_id", self.text(id)));
        }
        if let Some(name) = &message.name {
            fields.push(("name", self.text(name)));
        }
        if let Some(reasoning) = &message.reasoning_content {
            fields.push(("reasoning_content", self.text(reasoning)));
            // The name in the template of gpt-oss, which refuses both before a call.
            if message.content.is_empty() || message.tool_calls.is_empty() {
                fields.push(("thinking", self.text(reasoning)));
            }
        }
        Value::dict_of(fields)
    }
}

pub(super) fn probed(probe: char, number: usize) -> String {
    format!("{probe}{number}{probe}")
}

/// Returns whether a rendered text contains a probe, as it is or in JSON of ASCII characters
/// (`tojson(ensure_ascii=True)`).
pub(super) fn has_probe(text: &str, probe: char, number: usize) -> bool {
    let mut units = [0; 2];
    let units = probe.encode_utf16(&mut units);
    let escaped: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
    text.contains(&probed(probe, number)) || text.contains(&format!("{escaped}{number}{escaped}"))
}

/// Renders a conversation with tool calls, in the first form that the template accepts. `run`
/// renders messages that were converted to values; its second argument is their size in bytes.
///
/// # Errors
/// Unsupported if the template omits a call or a result; the first error of `run` if every form
/// fails.
pub(super) fn render(
    messages: &[Message],
    probe: char,
    run: &mut dyn FnMut(Vec<Value>, usize) -> Result<Rendered>,
) -> Result<Rendered> {
    let (mut first, mut left_out): (Option<Error>, bool) = (None, false);
    for form in FORMS {
        let mut write = |probe: Option<char>| {
            let mut writer = Writer { form, probe, count: 0, bytes: 0 };
            let values = messages.iter().map(|message| writer.message(message)).collect();
            run(values, writer.bytes).map(|written| (written, writer.count))
        };
        let missing = match write(Some(probe)) {
            Ok((written, count)) => {
                (0..count).any(|number| !has_probe(&written.text, probe, number))
            }
            Err(error) => {
                first.get_or_insert(error);
                continue;
            }
        };
        if missing {
            left_out = true;
            continue;
        }
        match write(None) {
            Ok((written, _)) => return Ok(written),
            Err(error) => drop(first.get_or_insert(error)),
        }
    }
    // If some form renders without the calls, the template omits them; the errors of other forms
    // only mean that it does not expect those forms.
    if left_out {
        let text = "its chat template leaves out calls of tools, or their results";
        return Err(Error::unsupported(text));
    }
    Err(first.unwrap_or_else(|| Error::invalid("no form of the conversation was tried")))
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
