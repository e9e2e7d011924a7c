//! Formats answers for Anthropic's interface, messages.

use serde_json::{Value, json};

use super::{Event, Writer};
use crate::choice::{Block, Choice};
use crate::error::ApiError;
use crate::logits::Logprob;
use crate::prepare::About;
use crate::queue::{Done, Ended};
use crate::tools::Delta;

/// The message of a request, which has one answer.
pub(super) struct Messages {
    id: String,
    model: String,
    /// Strings that end the answer.
    stop: Vec<String>,
    max_tokens: Option<usize>,
    prompt_tokens: usize,
    /// Index of the block that is streamed.
    open: Option<usize>,
}

impl Messages {
    pub(super) fn new(number: u64, model: String, about: &About) -> Messages {
        Messages {
            id: format!("msg_{number:016x}"),
            model,
            stop: about.stop.clone(),
            max_tokens: about.max_tokens,
            prompt_tokens: about.prompt_tokens,
            open: None,
        }
    }

    /// Returns the message, with the end of its answer if it has ended.
    fn message(&self, content: Value, choice: Option<&Choice>) -> Value {
        let (reason, stop) = self.end_of(choice);
        let written = choice.and_then(Choice::done).map_or(0, |done| done.completion_tokens);
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": stop,
            "usage": self.usage(choice.map_or(0, Choice::cached), written),
        })
    }

    /// Returns why an answer has ended, and the stop string that ended it.
    fn end_of(&self, choice: Option<&Choice>) -> (Value, Value) {
        let Some((choice, done)) = choice.and_then(|choice| Some((choice, choice.done()?))) else {
            return (Value::Null, Value::Null);
        };
        let stop = done.stop_string.and_then(|index| self.stop.get(index));
        let is_full = self.max_tokens.is_none_or(|most| done.completion_tokens < most);
        let reason = match done.ended {
            Ended::Stop if stop.is_some() => "stop_sequence",
            Ended::Stop if choice.has_called() => "tool_use",
            Ended::Stop => "end_turn",
            Ended::Length if is_full => "model_context_window_exceeded",
            Ended::Length => "max_tokens",
        };
        (reason.into(), stop.map_or(Value::Null, |stop| stop.as_str().into()))
    }

    /// Returns the token counts; those of the input do not contain what was cached.
    fn usage(&self, cached: usize, written: usize) -> Value {
        json!({
            "input_tokens": self.prompt_tokens.saturating_sub(cached),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": written,
        })
    }

    fn close(&mut self) -> Option<Event> {
        let index = self.open.take()?;
        Some(Event::named("content_block_stop", json!({ "index": index })))
    }
}

impl Writer for Messages {
    fn whole(&self, choices: &[Choice]) -> Value {
        let choice = choices.first();
        let blocks = choice.map_or(&[][..], Choice::blocks);
        self.message(blocks.iter().map(whole).collect(), choice)
    }

    fn begin(&mut self, choices: &[Choice]) -> Vec<Event> {
        let cached = choices.first().map_or(0, Choice::cached);
        let mut message = self.message(json!([]), None);
        message["usage"] = self.usage(cached, 0);
        vec![Event::named("message_start", json!({ "message": message }))]
    }

    fn part(&mut self, choice: &Choice, delta: &Delta, _: &[Logprob]) -> Vec<Event> {
        let Some((index, block)) = choice.blocks().iter().enumerate().next_back() else {
            return Vec::new();
        };
        let mut events = Vec::new();
        if self.open != Some(index) {
            events.extend(self.close());
            let start = json!({ "index": index, "content_block": empty(block) });
            events.push(Event::named("content_block_start", start));
            self.open = Some(index);
        }
        let delta = match delta {
            Delta::Content(text) => json!({ "type": "text_delta", "text": text }),
            Delta::Reasoning(text) => json!({ "type": "thinking_delta", "thinking": text }),
            Delta::Arguments(text) => json!({ "type": "input_json_delta", "partial_json": text }),
            Delta::Call(_) => return events,
        };
        let delta = json!({ "index": index, "delta": delta });
        events.push(Event::named("content_block_delta", delta));
        events
    }

    fn last(&mut self, choice: &Choice, done: &Done, _: &[Logprob]) -> Vec<Event> {
        let (reason, stop) = self.end_of(Some(choice));
        let delta = json!({
            "delta": { "stop_reason": reason, "stop_sequence": stop },
            "usage": self.usage(done.cached_tokens, done.completion_tokens),
        });
        self.close().into_iter().chain([Event::named("message_delta", delta)]).collect()
    }

    fn end(&mut self, _: &[Choice]) -> Vec<Event> {
        vec![Event::named("message_stop", json!({}))]
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Event> {
        vec![Event::named("error", error.to_anthropic())]
    }
}

/// Returns a block of content.
fn whole(block: &Block) -> Value {
    match block {
        Block::Content(text) => json!({ "type": "text", "text": text }),
        // Nothing is signed here: a client may send any reasoning back.
        Block::Reasoning(text) => {
            json!({ "type": "thinking", "thinking": text, "signature": "" })
        }
        Block::Call(call) => {
            // Arguments that were cut off by `max_tokens` are no JSON.
            let input = serde_json::from_str(&call.arguments).ok();
            let input = input.filter(Value::is_object).unwrap_or_else(|| json!({}));
            json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
        }
    }
}

/// Returns a block of content without its text, as a stream begins it.
fn empty(block: &Block) -> Value {
    match block {
        Block::Content(_) => json!({ "type": "text", "text": "" }),
        Block::Reasoning(_) => json!({ "type": "thinking", "thinking": "", "signature": "" }),
        Block::Call(call) => {
            json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": {} })
        }
    }
}
