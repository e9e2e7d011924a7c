//! Calls of tools and their results, as a template wants them.
//!
//! Templates differ in what they read: arguments as an object or as the text that the model wrote,
//! no content beside a call as `none` or as an empty text; and many know no tools and leave them out
//! without a word. So each form is tried with a character in the place of every name, argument and
//! result that stands nowhere else: the form counts in which all of them come out.

use minijinja::Value;
use minijinja::value::ValueKind;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::fmt;

use super::marks::{Names, marked_text, unmark, unused_mark};
use super::template::Prompt;
use super::{Message, Role, ToolCall};
use warploom::error::{Error, Result};

/// Whether a conversation has calls of tools. Results that answer none are messages as others.
pub(super) fn have_tools(messages: &[Message]) -> bool {
    messages.iter().any(|message| !message.tool_calls.is_empty())
}

/// A character that stands in none of the texts, and is not `mark`.
///
/// # Errors
/// Invalid, where there is none.
pub(super) fn probe(texts: &[&str], mark: char) -> Result<char> {
    let mark = mark.to_string();
    unused_mark(texts.iter().copied().chain([mark.as_str()]))
}

/// How a template may want calls.
#[derive(Clone, Copy)]
struct Form {
    /// Arguments as the model wrote them, not as what they mean.
    arguments_as_text: bool,
    /// No content beside a call as an empty text, not as `none`.
    content_as_text: bool,
}

const FORMS: [Form; 4] = [
    Form { arguments_as_text: false, content_as_text: false },
    Form { arguments_as_text: false, content_as_text: true },
    Form { arguments_as_text: true, content_as_text: false },
    Form { arguments_as_text: true, content_as_text: true },
];

/// Messages as values, their texts marked or replaced.
struct Writer<'a> {
    names: &'a Names<'a>,
    mark: char,
    form: Form,
    /// In the place of names, arguments and results, with a number behind it.
    probe: Option<char>,
    /// Probes so far.
    count: usize,
    bytes: usize,
}

impl Writer<'_> {
    fn text(&mut self, text: &str) -> Value {
        let text = marked_text(text, self.names, self.mark);
        self.bytes += text.len();
        Value::from(text)
    }

    /// A text that must come out, or the next probe in its place.
    fn shown(&mut self, text: &str) -> Value {
        let Some(probe) = self.probe else { return self.text(text) };
        let text = probed(probe, self.count);
        self.count += 1;
        self.bytes += text.len();
        Value::from(text)
    }

    fn arguments(&mut self, text: &str) -> Value {
        let probe = self.probe.map(|probe| probed(probe, self.count));
        if let Some(probe) = probe {
            self.count += 1;
            self.bytes += probe.len();
            // Under a name that no template looks for.
            return match self.form.arguments_as_text {
                true => Value::from(probe),
                false => Value::from_pairs([("warploom_probe", Value::from(probe))]),
            };
        }
        if !self.form.arguments_as_text {
            self.bytes += text.len();
            let seed = Marked { names: self.names, mark: self.mark };
            let mut from = serde_json::Deserializer::from_str(text);
            let value = seed.deserialize(&mut from).ok().filter(|_| from.end().is_ok());
            // What is no object is the text that it is.
            if let Some(value) = value.filter(|v| v.kind() == ValueKind::Map) {
                return value;
            }
        }
        self.text(text)
    }

    fn call(&mut self, call: &ToolCall) -> Value {
        let name = self.shown(&call.name);
        let arguments = self.arguments(&call.arguments);
        let id = self.text(&call.id);
        let function = Value::from_pairs([("name", name), ("arguments", arguments)]);
        let kind = Value::from("function");
        Value::from_pairs([("id", id), ("type", kind), ("function", function)])
    }

    fn message(&mut self, message: &Message) -> Value {
        let mut fields = vec![("role", Value::from(message.role.name()))];
        let no_content = message.content.is_empty() && !message.tool_calls.is_empty();
        let content = match message.role {
            _ if no_content && !self.form.content_as_text => Value::from(()),
            Role::Tool => self.shown(&message.content),
            _ => self.text(&message.content),
        };
        fields.push(("content", content));
        if !message.tool_calls.is_empty() {
            let calls: Vec<Value> = message.tool_calls.iter().map(|c| self.call(c)).collect();
            fields.push(("tool_calls", Value::from(calls)));
        }
        if let Some(id) = &message.tool_call_id {
            fields.push(("tool_call_id", self.text(id)));
        }
        if let Some(name) = &message.name {
            fields.push(("name", self.text(name)));
        }
        Value::from_pairs(fields)
    }
}

fn probed(probe: char, number: usize) -> String {
    format!("{probe}{number}{probe}")
}

/// Renders a conversation with calls of tools: `text_of` gives the text of values of so many bytes.
///
/// # Errors
/// Unsupported, where the template leaves out a call or a result; what `text_of` says of the first
/// form, where no form gives a text.
pub(super) fn render(
    messages: &[Message],
    names: &Names<'_>,
    (mark, probe): (char, char),
    text_of: &mut dyn FnMut(Vec<Value>, usize) -> Result<String>,
) -> Result<Prompt> {
    let mut first: Option<Error> = None;
    for form in FORMS {
        let mut write = |probe: Option<char>| {
            let mut writer = Writer { names, mark, form, probe, count: 0, bytes: 0 };
            let values = messages.iter().map(|message| writer.message(message)).collect();
            text_of(values, writer.bytes).map(|text| (text, writer.count))
        };
        let missing = match write(Some(probe)) {
            Ok((text, count)) => (0..count).any(|number| !text.contains(&probed(probe, number))),
            Err(error) => {
                first.get_or_insert(error);
                continue;
            }
        };
        if missing {
            let text = "its chat template leaves out calls of tools, or their results";
            first.get_or_insert_with(|| Error::unsupported(text));
            continue;
        }
        match write(None) {
            Ok((text, _)) => {
                let (text, marks) = unmark(&text, mark);
                return Ok(Prompt { text, marks });
            }
            Err(error) => drop(first.get_or_insert(error)),
        }
    }
    Err(first.unwrap_or_else(|| Error::invalid("no form of the conversation was tried")))
}

/// Reads JSON as a value of templates, in its order and with marks in its texts.
#[derive(Clone, Copy)]
struct Marked<'a> {
    names: &'a Names<'a>,
    mark: char,
}

impl<'de> DeserializeSeed<'de> for Marked<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Marked<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::from(()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(marked_text(value, self.names, self.mark)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            all.push(item);
        }
        Ok(Value::from(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all: Vec<(String, Value)> = Vec::new();
        while let Some(key) = items.next_key::<String>()? {
            if all.len() >= 4096 {
                return Err(A::Error::custom("more than 4096 names in an object"));
            }
            all.push((marked_text(&key, self.names, self.mark), items.next_value_seed(self)?));
        }
        Ok(Value::from_pairs(all))
    }
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
