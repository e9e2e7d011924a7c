//! Formats answers in the interfaces of the API, whole or as events of a stream.

mod anthropic;
mod openai;
mod responses;

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use serde_json::Value;

use super::choice::Choice;
use super::error::ApiError;
use super::logits::Logprob;
use super::prepare::About;
use super::queue::Done;
use super::service::Shared;
use super::tools::Delta;

/// The requested interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// OpenAI's chat completions.
    Chat,
    /// OpenAI's completions.
    Completion,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Messages,
}

impl Kind {
    /// Returns the field of the request with the input of the model.
    pub(super) fn input_field(self) -> &'static str {
        match self {
            Kind::Chat | Kind::Messages => "messages",
            Kind::Completion => "prompt",
            Kind::Responses => "input",
        }
    }

    /// Returns the field of the request with the reasoning effort.
    pub(super) fn effort_field(self) -> &'static str {
        match self {
            Kind::Chat | Kind::Completion => "reasoning_effort",
            Kind::Responses => "reasoning.effort",
            Kind::Messages => "output_config.effort",
        }
    }

    /// Returns the field of the request with the schema of the answer.
    pub(super) fn schema_field(self) -> &'static str {
        match self {
            Kind::Chat | Kind::Completion => "response_format.json_schema.schema",
            Kind::Responses => "text.format.schema",
            Kind::Messages => "output_config.format.schema",
        }
    }

    /// Returns the field of a tool with the schema of its arguments.
    pub(super) fn parameters_field(self) -> &'static str {
        match self {
            Kind::Chat | Kind::Completion => "function.parameters",
            Kind::Responses => "parameters",
            Kind::Messages => "input_schema",
        }
    }
}

/// An event of a stream.
#[derive(Debug, PartialEq)]
pub(super) struct Event {
    name: Option<&'static str>,
    data: String,
}

impl Event {
    fn plain(value: Value) -> Event {
        Event { name: None, data: value.to_string() }
    }

    fn text(data: &str) -> Event {
        Event { name: None, data: data.to_owned() }
    }

    /// An event with a name, which the data repeat as their type.
    fn named(name: &'static str, mut value: Value) -> Event {
        value["type"] = name.into();
        Event { name: Some(name), data: value.to_string() }
    }

    /// Returns events in the format of a stream.
    pub(super) fn written(events: &[Event]) -> String {
        let mut text = String::new();
        for event in events {
            if let Some(name) = event.name {
                let _ = writeln!(text, "event: {name}");
            }
            let _ = write!(text, "data: {}\n\n", event.data);
        }
        text
    }
}

/// Formats the answers of one request.
pub(super) trait Writer: Send + Sync {
    /// Returns the answers that are not streamed, as a single object.
    fn whole(&self, choices: &[Choice]) -> Value;

    /// Returns the events before the first part.
    fn begin(&mut self, choices: &[Choice]) -> Vec<Event>;

    /// Returns the events of a part, which the choice contains already.
    fn part(&mut self, choice: &Choice, delta: &Delta, logprobs: &[Logprob]) -> Vec<Event>;

    /// Returns the events of the end of a choice.
    fn last(&mut self, choice: &Choice, done: &Done, logprobs: &[Logprob]) -> Vec<Event>;

    /// Returns the events after all choices.
    fn end(&mut self, choices: &[Choice]) -> Vec<Event>;

    /// Returns the events of an error in the middle, the last ones.
    fn failed(&mut self, error: &ApiError) -> Vec<Event>;
}

/// Returns the writer of the answers to a request.
pub(super) fn writer(shared: &Shared, about: About) -> Box<dyn Writer> {
    let number = shared.answers.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let created = now.map_or(0, |time| time.as_secs());
    let model = shared.name.clone();
    let chat = |name: &str| openai::OpenAi {
        kind: about.kind,
        id: format!("{name}-{number:016x}"),
        created,
        model: model.clone(),
        include_usage: about.include_usage,
        n: about.n,
    };
    match about.kind {
        Kind::Chat => Box::new(chat("chatcmpl")),
        Kind::Completion => Box::new(chat("cmpl")),
        Kind::Messages => Box::new(anthropic::Messages::new(number, model, &about)),
        Kind::Responses => {
            let tokenizer = shared.model.shared_tokenizer().clone();
            Box::new(responses::Responses::new(number, created, model, about.repeated, tokenizer))
        }
    }
}
