//! Formats answers for OpenAI's interface of responses.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Event, Writer};
use crate::choice::{Block, Choice};
use crate::error::ApiError;
use crate::logits::Logprob;
use crate::queue::{Done, Ended};
use crate::tools::Delta;
use warploom_llm::tokenizer::{EncodeOptions, Tokenizer};

/// The response to a request, which has one answer.
pub(super) struct Responses {
    number: u64,
    created: u64,
    model: String,
    /// Fields of the request, which the response repeats.
    repeated: Map<String, Value>,
    tokenizer: Arc<Tokenizer>,
    /// Number of events that were sent.
    sequence: u64,
    /// Index of the item that is streamed.
    open: Option<usize>,
}

/// How far an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// It begins: its text is empty.
    Begun,
    Completed,
    /// It was cut off.
    Incomplete,
}

impl Progress {
    fn word(self) -> &'static str {
        match self {
            Progress::Begun => "in_progress",
            Progress::Completed => "completed",
            Progress::Incomplete => "incomplete",
        }
    }
}

impl Responses {
    pub(super) fn new(
        number: u64,
        created: u64,
        model: String,
        repeated: Map<String, Value>,
        tokenizer: Arc<Tokenizer>,
    ) -> Responses {
        Responses { number, created, model, repeated, tokenizer, sequence: 0, open: None }
    }

    /// Returns an event with its number.
    fn event(&mut self, name: &'static str, mut value: Value) -> Event {
        value["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        Event::named(name, value)
    }

    /// Returns the response; `choice` is its answer once it has ended.
    fn response(&self, status: &str, choice: Option<&Choice>) -> Value {
        let details = match choice.and_then(Choice::done) {
            Some(done) if done.ended == Ended::Length => json!({ "reason": "max_output_tokens" }),
            _ => Value::Null,
        };
        let mut response = json!({
            "id": format!("resp_{:016x}", self.number),
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": details,
            "model": self.model,
            "output": choice.map_or_else(Vec::new, |choice| self.items(choice)),
            "previous_response_id": null,
            // Nothing is kept: a client sends the earlier items again.
            "store": false,
            "truncation": "disabled",
            "usage": choice.map_or(Value::Null, |choice| self.usage(choice)),
        });
        for (name, value) in &self.repeated {
            response[name] = value.clone();
        }
        response
    }

    fn items(&self, choice: &Choice) -> Vec<Value> {
        let count = choice.blocks().len();
        let items = choice.blocks().iter().enumerate();
        let item = |(index, block): (usize, &Block)| {
            self.item(index, block, progress(choice, index + 1 == count))
        };
        items.map(item).collect()
    }

    fn usage(&self, choice: &Choice) -> Value {
        let Some(done) = choice.done() else { return Value::Null };
        let (input, output) = (done.prompt_tokens, done.completion_tokens);
        json!({
            "input_tokens": input,
            "input_tokens_details": { "cached_tokens": done.cached_tokens },
            "output_tokens": output,
            "output_tokens_details": { "reasoning_tokens": self.reasoning_tokens(choice) },
            "total_tokens": input + output,
        })
    }

    /// Counts the tokens of the reasoning by encoding its text.
    fn reasoning_tokens(&self, choice: &Choice) -> usize {
        let text = choice.reasoning();
        self.tokenizer.encode(&text, EncodeOptions::default()).map_or(0, |tokens| tokens.len())
    }

    fn id(&self, index: usize, block: &Block) -> String {
        let kind = match block {
            Block::Content(_) => "msg",
            Block::Reasoning(_) => "rs",
            Block::Call(_) => "fc",
        };
        format!("{kind}_{:016x}{index:04x}", self.number)
    }

    /// Returns an item of the output.
    fn item(&self, index: usize, block: &Block, progress: Progress) -> Value {
        let parts = |block| match progress {
            Progress::Begun => json!([]),
            _ => json!([part(block, false)]),
        };
        let mut item = match block {
            Block::Content(_) => {
                json!({ "type": "message", "role": "assistant", "content": parts(block) })
            }
            Block::Reasoning(_) => {
                json!({ "type": "reasoning", "summary": [], "content": parts(block) })
            }
            Block::Call(call) => {
                let written = progress != Progress::Begun;
                let arguments = if written { call.arguments.as_str() } else { "" };
                json!({
                    "type": "function_call",
                    "call_id": call.id,
                    "name": call.name,
                    "arguments": arguments,
                })
            }
        };
        item["id"] = self.id(index, block).into();
        item["status"] = progress.word().into();
        item
    }

    /// Returns an event about an item, or about its only part if it has parts.
    fn of_item(
        &mut self,
        name: &'static str,
        index: usize,
        block: &Block,
        mut value: Value,
    ) -> Event {
        value["item_id"] = self.id(index, block).into();
        value["output_index"] = index.into();
        if !matches!(block, Block::Call(_)) {
            value["content_index"] = 0.into();
        }
        self.event(name, value)
    }

    /// Begins an item.
    fn begin_item(&mut self, index: usize, block: &Block) -> Vec<Event> {
        self.open = Some(index);
        let added =
            json!({ "output_index": index, "item": self.item(index, block, Progress::Begun) });
        let mut events = vec![self.event("response.output_item.added", added)];
        if !matches!(block, Block::Call(_)) {
            let part = json!({ "part": part(block, true) });
            events.push(self.of_item("response.content_part.added", index, block, part));
        }
        events
    }

    /// Ends the item that is streamed, if there is one.
    fn end_item(&mut self, choice: &Choice, progress: Progress) -> Vec<Event> {
        let Some(index) = self.open.take() else { return Vec::new() };
        let Some(block) = choice.blocks().get(index) else { return Vec::new() };
        let (name, value) = match block {
            Block::Content(text) => {
                ("response.output_text.done", json!({ "text": text, "logprobs": [] }))
            }
            Block::Reasoning(text) => ("response.reasoning_text.done", json!({ "text": text })),
            Block::Call(call) => (
                "response.function_call_arguments.done",
                json!({ "name": call.name, "arguments": call.arguments }),
            ),
        };
        let mut events = vec![self.of_item(name, index, block, value)];
        if !matches!(block, Block::Call(_)) {
            let part = json!({ "part": part(block, false) });
            events.push(self.of_item("response.content_part.done", index, block, part));
        }
        let done = json!({ "output_index": index, "item": self.item(index, block, progress) });
        events.push(self.event("response.output_item.done", done));
        events
    }
}

impl Writer for Responses {
    fn whole(&self, choices: &[Choice]) -> Value {
        let choice = choices.first();
        self.response(status(choice), choice)
    }

    fn begin(&mut self, _: &[Choice]) -> Vec<Event> {
        ["response.created", "response.in_progress"]
            .map(|name| {
                let response = json!({ "response": self.response("in_progress", None) });
                self.event(name, response)
            })
            .into()
    }

    fn part(&mut self, choice: &Choice, delta: &Delta, _: &[Logprob]) -> Vec<Event> {
        let Some((index, block)) = choice.blocks().iter().enumerate().next_back() else {
            return Vec::new();
        };
        let mut events = Vec::new();
        if self.open != Some(index) {
            events.extend(self.end_item(choice, Progress::Completed));
            events.extend(self.begin_item(index, block));
        }
        let (name, value) = match delta {
            Delta::Content(text) => {
                ("response.output_text.delta", json!({ "delta": text, "logprobs": [] }))
            }
            Delta::Reasoning(text) => ("response.reasoning_text.delta", json!({ "delta": text })),
            Delta::Arguments(text) => {
                ("response.function_call_arguments.delta", json!({ "delta": text }))
            }
            Delta::Call(_) => return events,
        };
        events.push(self.of_item(name, index, block, value));
        events
    }

    fn last(&mut self, choice: &Choice, _: &Done, _: &[Logprob]) -> Vec<Event> {
        self.end_item(choice, progress(choice, true))
    }

    fn end(&mut self, choices: &[Choice]) -> Vec<Event> {
        let choice = choices.first();
        let name = match status(choice) {
            "incomplete" => "response.incomplete",
            _ => "response.completed",
        };
        let response = json!({ "response": self.whole(choices) });
        vec![self.event(name, response)]
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Event> {
        let mut response = self.response("failed", None);
        let code = error.code.unwrap_or("server_error");
        response["error"] = json!({ "code": code, "message": error.message });
        vec![self.event("response.failed", json!({ "response": response }))]
    }
}

/// Returns the status of an answer that has ended.
fn status(choice: Option<&Choice>) -> &'static str {
    match choice.and_then(Choice::done) {
        Some(done) if done.ended == Ended::Length => "incomplete",
        _ => "completed",
    }
}

/// Returns how far an item of an answer that has ended is.
fn progress(choice: &Choice, is_last: bool) -> Progress {
    match choice.done() {
        Some(done) if done.ended == Ended::Length && is_last => Progress::Incomplete,
        _ => Progress::Completed,
    }
}

/// Returns the part of an item of text; a stream begins it without the text.
fn part(block: &Block, is_empty: bool) -> Value {
    let shown = |text: &str| if is_empty { String::new() } else { text.to_owned() };
    match block {
        Block::Content(text) => json!({
            "type": "output_text",
            "text": shown(text),
            "annotations": [],
            "logprobs": [],
        }),
        Block::Reasoning(text) => json!({ "type": "reasoning_text", "text": shown(text) }),
        Block::Call(_) => Value::Null,
    }
}
