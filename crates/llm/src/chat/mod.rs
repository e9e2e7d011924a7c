//! Conversations: renders messages to a prompt, and generates the model's answers.
//!
//! A model is trained on one conversation format, which its file stores as a Jinja template.
//! `template` loads it and renders messages to a [`Prompt`]; `calls` writes tool calls in the form
//! that the template expects. The template is untrusted: `jinja` limits its steps, its memory and
//! the names that it can access. The messages are untrusted too: `jinja` tracks their bytes through
//! the template, and `injection_guard` keeps the text of messages from being tokenised as control
//! tokens, so that a message cannot end its turn and begin another. `conversation` owns a session
//! and runs only the tokens that are not in its KV cache.

mod calls;
mod conversation;
mod filled;
mod injection_guard;
mod jinja;
mod template;
mod time;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use conversation::{Chat, ChatOptions, Reply};
pub(crate) use filled::filled;
pub use template::{Prompt, Template, TemplateInputs};

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// Instructions for the model's behaviour; expected only as the first message.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool that the model called; the message is its result.
    Tool,
}

impl Role {
    /// Returns the name of the role in templates.
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
    /// Tool calls that the assistant made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// In a tool result, the [`ToolCall::id`] of its call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// In a tool result, the name of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the assistant thought before its text, for templates that write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
}

/// A tool call by the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// Identifier by which the result refers to the call; may be empty.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments as the model wrote them: normally a JSON object.
    pub arguments: String,
}

impl ToolCall {
    /// Creates a call; `arguments` is normally a JSON object.
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> ToolCall {
        ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }
    }
}

impl Message {
    /// Creates a message without tool calls.
    pub fn new(role: Role, content: impl Into<String>) -> Message {
        let content = content.into();
        let (tool_calls, tool_call_id, name) = (Vec::new(), None, None);
        Message { role, content, tool_calls, tool_call_id, name, reasoning_content: None }
    }

    /// Returns the size of all strings of the message, in bytes.
    pub fn bytes(&self) -> usize {
        self.texts().map(str::len).sum()
    }

    /// Yields all strings of the message.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let calls = self.tool_calls.iter();
        let calls = calls.flat_map(|call| [&call.id, &call.name, &call.arguments]);
        let others = [&self.tool_call_id, &self.name, &self.reasoning_content];
        let others = others.into_iter().flatten();
        std::iter::once(&self.content).chain(calls).chain(others).map(String::as_str)
    }
}
