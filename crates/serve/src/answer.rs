//! Formats answers as JSON for OpenAI's two interfaces, chat and completions.

use serde_json::{Value, json};

use super::queue::{Done, Ended};

/// The requested interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Chat,
    Completion,
}

/// Fields shared by all objects of an answer.
pub(super) struct Answer<'a> {
    pub(super) kind: Kind,
    pub(super) id: String,
    /// Creation time, in seconds since the Unix epoch.
    pub(super) created: u64,
    pub(super) model: &'a str,
    /// Whether a stream ends with the token counts.
    pub(super) include_usage: bool,
}

fn finish_reason(done: &Done) -> &'static str {
    match done.ended {
        Ended::Stop => "stop",
        Ended::Length => "length",
    }
}

fn usage(done: &Done) -> Value {
    json!({
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.completion_tokens,
        "total_tokens": done.prompt_tokens + done.completion_tokens,
        "prompt_tokens_details": { "cached_tokens": done.cached_tokens },
    })
}

impl Answer<'_> {
    /// Returns an answer that is not streamed, as a single object.
    pub(super) fn whole(&self, text: &str, done: &Done) -> Value {
        let mut choice = match self.kind {
            Kind::Chat => json!({
                "message": { "role": "assistant", "content": text, "refusal": null },
            }),
            Kind::Completion => json!({ "text": text }),
        };
        choice["index"] = 0.into();
        choice["logprobs"] = Value::Null;
        choice["finish_reason"] = finish_reason(done).into();
        let object = match self.kind {
            Kind::Chat => "chat.completion",
            Kind::Completion => "text_completion",
        };
        let mut whole = self.object(object, json!([choice]));
        whole["usage"] = usage(done);
        whole
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
        let object = match self.kind {
            Kind::Chat => "chat.completion.chunk",
            Kind::Completion => "text_completion",
        };
        let mut chunk = self.object(object, choices);
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// Returns the first object of a chat stream, with the role. Returns `None` for completions,
    /// whose streams begin with text.
    pub(super) fn first(&self) -> Option<Value> {
        let delta = json!({ "role": "assistant", "content": "" });
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": null });
        (self.kind == Kind::Chat).then(|| self.chunk(json!([choice])))
    }

    /// Returns an object of a stream with more text.
    pub(super) fn text(&self, text: &str) -> Value {
        let mut choice = match self.kind {
            Kind::Chat => json!({ "delta": { "content": text } }),
            Kind::Completion => json!({ "text": text }),
        };
        choice["index"] = 0.into();
        choice["logprobs"] = Value::Null;
        choice["finish_reason"] = Value::Null;
        self.chunk(json!([choice]))
    }

    /// Returns the last objects of a stream: the finish reason and, if requested, the token counts.
    pub(super) fn last(&self, done: &Done) -> Vec<Value> {
        let mut choice = match self.kind {
            Kind::Chat => json!({ "delta": {} }),
            Kind::Completion => json!({ "text": "" }),
        };
        choice["index"] = 0.into();
        choice["logprobs"] = Value::Null;
        choice["finish_reason"] = finish_reason(done).into();
        let mut all = vec![self.chunk(json!([choice]))];
        if self.include_usage {
            let mut last = self.chunk(json!([]));
            last["usage"] = usage(done);
            all.push(last);
        }
        all
    }
}
