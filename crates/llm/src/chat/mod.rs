//! Conversations: from messages to what a model reads, and on from there.
//!
//! A model is trained on one way to write a conversation down, and its file carries that way as a
//! Jinja template. `template` loads it, and turns messages into a [`Prompt`]. The file is not
//! trusted: `jinja` runs it with bounds on steps, memory and names. The messages are not trusted
//! either: `jinja` follows their bytes through the template, and `marks` keeps the names of control
//! tokens over those from becoming control tokens, so a message cannot end its turn and begin
//! another. `conversation` holds a session and runs only what its cache does not hold yet.

mod calls;
mod conversation;
mod jinja;
mod marks;
mod template;
mod time;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use conversation::{Chat, ChatOptions, Reply};
pub use template::{Prompt, Template};

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// How the model should behave; only first.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a call that the model asked for.
    Tool,
}

impl Role {
    /// The name that templates know.
    pub fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// What somebody says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who.
    pub role: Role,
    /// What; never read as control tokens.
    pub content: String,
    /// The calls of tools that an assistant makes with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Of a result, the [`ToolCall::id`] that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Of a result, the tool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// What its result refers to; may be empty.
    pub id: String,
    /// The tool.
    pub name: String,
    /// What the model wrote as arguments: an object in JSON, where it did right.
    pub arguments: String,
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

    /// All texts that came with it.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let calls = self.tool_calls.iter();
        let calls = calls.flat_map(|call| [&call.id, &call.name, &call.arguments]);
        let result = [&self.tool_call_id, &self.name].into_iter().flatten();
        std::iter::once(&self.content).chain(calls).chain(result).map(String::as_str)
    }
}
