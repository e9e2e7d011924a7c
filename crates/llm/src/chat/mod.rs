//! Conversations: from messages to the prompt of a model, and its answers.
//!
//! A model is trained on one format of conversations, which its file carries as a Jinja template.
//! `template` loads it and renders messages to a [`Prompt`]. The file is untrusted: `jinja` runs it
//! with limits on steps, memory and names. The messages are untrusted too: `jinja` tracks their
//! bytes through the template, and `injection_guard` keeps text of messages from tokenising as control
//! tokens, so a message cannot end its turn and begin another. `conversation` holds a session and
//! runs only the tokens that are not in its KV cache.

mod calls;
mod conversation;
mod injection_guard;
mod jinja;
mod template;
mod time;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use conversation::{Chat, ChatOptions, Reply};
pub use template::{Prompt, Template};

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// Instructions on the model's behaviour; only as the first message.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// The result of a call made by the model.
    Tool,
}

impl Role {
    /// The name that templates use.
    pub fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Message {
    /// The author.
    pub role: Role,
    /// The text; never parsed for control tokens.
    pub content: String,
    /// Tool calls of an assistant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// In a result, the [`ToolCall::id`] that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// In a result, the tool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// Identifies it for its result; may be empty.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments as the model wrote them: normally a JSON object.
    pub arguments: String,
}

impl ToolCall {
    /// A call; `arguments` is normally a JSON object.
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> ToolCall {
        ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }
    }
}

impl Message {
    /// A message.
    pub fn new(role: Role, content: impl Into<String>) -> Message {
        let content = content.into();
        Message { role, content, tool_calls: Vec::new(), tool_call_id: None, name: None }
    }

    /// Bytes of all its texts.
    pub fn bytes(&self) -> usize {
        self.texts().map(str::len).sum()
    }

    /// All its texts.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let calls = self.tool_calls.iter();
        let calls = calls.flat_map(|call| [&call.id, &call.name, &call.arguments]);
        let result = [&self.tool_call_id, &self.name].into_iter().flatten();
        std::iter::once(&self.content).chain(calls).chain(result).map(String::as_str)
    }
}
