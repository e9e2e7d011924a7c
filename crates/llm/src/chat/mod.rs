//! Conversations: from messages to what a model reads, and on from there.
//!
//! A model is trained on one way to write a conversation down, and its file carries that way as a
//! Jinja template. `template` loads it, and turns messages into a [`Prompt`]. The file is not
//! trusted: `tags` looks at its size, `rewrite` puts checks into it and `sandbox` runs it with
//! bounds on steps, memory and names. The messages are not trusted either: `marks` keeps the names
//! of control tokens in them from becoming control tokens, so a message cannot end its turn and
//! begin another. `conversation` holds a session and runs only what its cache does not hold yet.

mod conversation;
mod json;
mod marks;
mod rewrite;
mod sandbox;
mod tags;
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
}

impl Message {
    /// A message.
    pub fn new(role: Role, content: impl Into<String>) -> Message {
        Message { role, content: content.into() }
    }
}
