//! Formats answers for two of OpenAI's interfaces, chat and completions.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::{Event, Kind, Writer};
use crate::choice::Choice;
use crate::error::ApiError;
use crate::logits::Logprob;
use crate::queue::{Done, Ended};
use crate::tools::Delta;

/// Fields shared by all objects of an answer.
pub(super) struct OpenAi {
    pub(super) kind: Kind,
    pub(super) id: String,
    /// Creation time, in seconds since the Unix epoch.
    pub(super) created: u64,
    pub(super) model: String,
    /// Whether a stream ends with the token counts.
    pub(super) include_usage: bool,
    /// Number of answers for each prompt.
    pub(super) n: usize,
}

/// The least log probability in JSON, which has no infinity.
const LEAST: f32 = -9999.0;

fn finish_reason(choice: &Choice, done: &Done) -> &'static str {
    match done.ended {
        Ended::Stop if choice.has_called() => "tool_calls",
        Ended::Stop => "stop",
        Ended::Length => "length",
    }
}

fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Returns the log probabilities of a chat.
fn chat_logprobs(list: &[Logprob]) -> Value {
    let one = |bytes: &[u8], logprob: f32| json!({ "token": text_of(bytes), "logprob": logprob.max(LEAST), "bytes": bytes });
    let each = list.iter().map(|entry| {
        let mut value = one(&entry.bytes, entry.logprob);
        let top = entry.top.iter().map(|(_, bytes, logprob)| one(bytes, *logprob));
        value["top_logprobs"] = top.collect();
        value
    });
    json!({ "content": each.collect::<Value>(), "refusal": null })
}

/// Returns the log probabilities of a completion. `offset` is the number of characters before.
fn completion_logprobs(list: &[Logprob], mut offset: usize) -> Value {
    let mut offsets = Vec::new();
    for entry in list {
        offsets.push(offset);
        offset += text_of(&entry.bytes).chars().count();
    }
    let top = list.iter().map(|entry| {
        let all = entry.top.iter();
        let pair = |(_, bytes, logprob): &(u32, Vec<u8>, f32)| {
            (text_of(bytes).into_owned(), Value::from(logprob.max(LEAST)))
        };
        Value::Object(all.map(pair).collect::<Map<String, Value>>())
    });
    json!({
        "tokens": list.iter().map(|entry| text_of(&entry.bytes)).collect::<Vec<_>>(),
        "token_logprobs": list.iter().map(|entry| entry.logprob.max(LEAST)).collect::<Vec<_>>(),
        "top_logprobs": top.collect::<Value>(),
        "text_offset": offsets,
    })
}

impl Writer for OpenAi {
    fn whole(&self, choices: &[Choice]) -> Value {
        let list: Value = choices.iter().map(|choice| self.choice(choice)).collect();
        let object = if self.is_chat() { "chat.completion" } else { "text_completion" };
        let mut whole = self.object(object, list);
        whole["usage"] = self.usage(choices);
        whole
    }

    fn begin(&mut self, choices: &[Choice]) -> Vec<Event> {
        choices.iter().filter_map(|choice| self.first(choice)).map(Event::plain).collect()
    }

    fn part(&mut self, choice: &Choice, delta: &Delta, logprobs: &[Logprob]) -> Vec<Event> {
        vec![Event::plain(self.chunk_of_part(choice, delta, logprobs))]
    }

    fn last(&mut self, choice: &Choice, done: &Done, logprobs: &[Logprob]) -> Vec<Event> {
        vec![Event::plain(self.chunk_of_end(choice, done, logprobs))]
    }

    fn end(&mut self, choices: &[Choice]) -> Vec<Event> {
        let counts = self.counts(choices).map(Event::plain);
        counts.into_iter().chain([Event::text("[DONE]")]).collect()
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Event> {
        vec![Event::plain(error.to_json())]
    }
}

impl OpenAi {
    fn is_chat(&self) -> bool {
        self.kind == Kind::Chat
    }

    fn choice(&self, choice: &Choice) -> Value {
        let mut value = match self.is_chat() {
            true => json!({ "message": message(choice) }),
            false => json!({ "text": choice.content() }),
        };
        value["index"] = choice.index.into();
        value["logprobs"] = match choice.logprobs() {
            None => Value::Null,
            Some(list) if self.is_chat() => chat_logprobs(list),
            Some(list) => completion_logprobs(list, 0),
        };
        let reason = choice.done().map(|done| finish_reason(choice, done));
        value["finish_reason"] = reason.into();
        value
    }

    fn usage(&self, choices: &[Choice]) -> Value {
        let done = || choices.iter().filter_map(Choice::done);
        // The answers to one prompt count it once.
        let prompts = || done().step_by(self.n.max(1));
        let prompt: usize = prompts().map(|done| done.prompt_tokens).sum();
        let cached: usize = prompts().map(|done| done.cached_tokens).sum();
        let completion: usize = done().map(|done| done.completion_tokens).sum();
        json!({
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": { "cached_tokens": cached },
        })
    }

    fn object(&self, object: &str, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    fn chunk(&self, choices: Value) -> Value {
        let object = if self.is_chat() { "chat.completion.chunk" } else { "text_completion" };
        let mut chunk = self.object(object, choices);
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// Returns a chunk with one choice; `value` holds its delta or its text.
    fn of_choice(&self, index: usize, mut value: Value, logprobs: Value, reason: Value) -> Value {
        value["index"] = index.into();
        value["logprobs"] = logprobs;
        value["finish_reason"] = reason;
        self.chunk(json!([value]))
    }

    /// Returns the first object of a choice in a stream: the role, or the echo of the prompt.
    fn first(&self, choice: &Choice) -> Option<Value> {
        let value = match self.is_chat() {
            true => json!({ "delta": { "role": "assistant", "content": "" } }),
            false if choice.blocks().is_empty() => return None,
            false => json!({ "text": choice.content() }),
        };
        Some(self.of_choice(choice.index, value, Value::Null, Value::Null))
    }

    /// Returns an object of a stream with a part of a choice. `call` is the index of its last call.
    fn chunk_of_part(&self, choice: &Choice, delta: &Delta, logprobs: &[Logprob]) -> Value {
        let value = match (self.is_chat(), delta) {
            (false, Delta::Content(text)) => json!({ "text": text }),
            (_, Delta::Content(text)) => json!({ "delta": { "content": text } }),
            (_, Delta::Reasoning(text)) => json!({ "delta": { "reasoning_content": text } }),
            (_, Delta::Call(name)) => {
                let (index, id) = choice.last_call();
                let function = json!({ "name": name, "arguments": "" });
                let call =
                    json!({ "index": index, "id": id, "type": "function", "function": function });
                json!({ "delta": { "tool_calls": [call] } })
            }
            (_, Delta::Arguments(text)) => {
                let (index, _) = choice.last_call();
                let call = json!({ "index": index, "function": { "arguments": text } });
                json!({ "delta": { "tool_calls": [call] } })
            }
        };
        self.of_choice(choice.index, value, self.logprobs(choice, logprobs), Value::Null)
    }

    fn logprobs(&self, choice: &Choice, list: &[Logprob]) -> Value {
        match (list.is_empty(), self.is_chat()) {
            (true, _) => Value::Null,
            (false, true) => chat_logprobs(list),
            (false, false) => completion_logprobs(list, choice.offset_of(list)),
        }
    }

    /// Returns the last object of a choice in a stream, with the finish reason.
    fn chunk_of_end(&self, choice: &Choice, done: &Done, logprobs: &[Logprob]) -> Value {
        let value = if self.is_chat() { json!({ "delta": {} }) } else { json!({ "text": "" }) };
        let logprobs = self.logprobs(choice, logprobs);
        self.of_choice(choice.index, value, logprobs, finish_reason(choice, done).into())
    }

    /// Returns the object that ends a stream with the token counts, if requested.
    fn counts(&self, choices: &[Choice]) -> Option<Value> {
        if !self.include_usage {
            return None;
        }
        let mut last = self.chunk(json!([]));
        last["usage"] = self.usage(choices);
        Some(last)
    }
}

/// Returns the message of a chat.
fn message(choice: &Choice) -> Value {
    let (content, reasoning) = (choice.content(), choice.reasoning());
    // Clients take a missing content for an answer that consists of calls.
    let content = match content.is_empty() && choice.has_called() {
        true => Value::Null,
        false => content.into(),
    };
    let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.into();
    }
    if choice.has_called() {
        let each = choice.calls().map(|call| {
            let function = json!({ "name": call.name, "arguments": call.arguments });
            json!({ "id": call.id, "type": "function", "function": function })
        });
        message["tool_calls"] = each.collect();
    }
    message
}
