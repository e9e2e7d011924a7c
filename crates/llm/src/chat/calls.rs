//! Tool calls and their results, in the form that a template expects.
//!
//! Templates differ: they read arguments as an object or as the model's text, and no content in a
//! message with calls as `none` or as an empty string. Many do not support tools and omit them
//! silently. So each form is tried with a unique probe character in place of every name, argument
//! and result: a form is accepted if all probes appear in the output.

use super::jinja::{Rendered, Value};
use super::{Message, Role, ToolCall};
use warploom::error::{Error, Result};

/// Whether a conversation has tool calls. Results without a call are ordinary messages.
pub(super) fn have_tools(messages: &[Message]) -> bool {
    messages.iter().any(|message| !message.tool_calls.is_empty())
}

/// The private use plane from which probes are taken.
const PROBES: std::ops::RangeInclusive<char> = '\u{f0000}'..='\u{ffffd}';

/// A character that occurs in none of the texts.
///
/// # Errors
/// Invalid, if they contain every candidate.
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

/// A form of calls that a template may expect.
#[derive(Clone, Copy)]
struct Form {
    /// Arguments as the model's text instead of a parsed value.
    arguments_as_text: bool,
    /// No content in a message with calls as an empty string instead of `none`.
    content_as_text: bool,
}

const FORMS: [Form; 4] = [
    Form { arguments_as_text: false, content_as_text: false },
    Form { arguments_as_text: false, content_as_text: true },
    Form { arguments_as_text: true, content_as_text: false },
    Form { arguments_as_text: true, content_as_text: true },
];

/// Converts messages to values, with some texts replaced by probes.
struct Writer {
    form: Form,
    /// Replaces names, arguments and results, followed by a number.
    probe: Option<char>,
    /// Probes so far.
    count: usize,
    bytes: usize,
}

impl Writer {
    fn text(&mut self, text: &str) -> Value {
        self.bytes += text.len();
        Value::outside(text)
    }

    /// A text that must appear in the output, or the next probe in its place.
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
            // Under a name that no template uses.
            return match self.form.arguments_as_text {
                true => Value::outside(&probe),
                false => Value::dict_of(vec![("warploom_probe", Value::outside(&probe))]),
            };
        }
        if !self.form.arguments_as_text {
            self.bytes += text.len();
            // Arguments that are no object stay text.
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
        Value::dict_of(fields)
    }
}

fn probed(probe: char, number: usize) -> String {
    format!("{probe}{number}{probe}")
}

/// Renders a conversation with tool calls: `run` renders values of the given number of bytes.
///
/// # Errors
/// Unsupported, if the template omits a call or a result; the error of `run` for the first form, if
/// every form fails.
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
                (0..count).any(|number| !written.text.contains(&probed(probe, number)))
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
    // A template that renders some form without the calls is the cause; errors of the other forms
    // only say that it does not expect them.
    if left_out {
        let text = "its chat template leaves out calls of tools, or their results";
        return Err(Error::unsupported(text));
    }
    Err(first.unwrap_or_else(|| Error::invalid("no form of the conversation was tried")))
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
