//! Tools, calls and results as ordinary messages, for chat templates that know none.

use super::{HERMES, Tool};
use warploom_llm::chat::{Message, Role, ToolCall};

/// Returns whether a conversation contains calls or their results.
pub(crate) fn has_calls(messages: &[Message]) -> bool {
    messages.iter().any(|message| message.role == Role::Tool || !message.tool_calls.is_empty())
}

/// Writes calls as text of the assistant, results as text of the user, and tools into the system
/// message, in the format of Hermes.
pub(crate) fn written(messages: &[Message], tools: &[Tool]) -> Vec<Message> {
    let mut all: Vec<Message> = Vec::new();
    for message in messages {
        let content = &message.content;
        match message.role {
            Role::Tool => {
                let text = format!("<tool_response>\n{content}\n</tool_response>");
                // Results of several calls are one turn.
                match all.last_mut().filter(|last| is_result(last)) {
                    Some(last) => last.content = format!("{}\n{text}", last.content),
                    None => all.push(Message::new(Role::User, text)),
                }
            }
            Role::Assistant => {
                let calls = message.tool_calls.iter().map(call);
                let content = (!content.is_empty()).then(|| content.clone());
                let parts: Vec<String> = content.into_iter().chain(calls).collect();
                all.push(Message::new(Role::Assistant, parts.join("\n")));
            }
            _ => all.push(message.clone()),
        }
    }
    if !tools.is_empty() {
        let text = introduction(tools);
        match all.first_mut().filter(|first| first.role == Role::System) {
            Some(first) => first.content = format!("{}\n\n{text}", first.content),
            None => all.insert(0, Message::new(Role::System, text)),
        }
    }
    all
}

fn is_result(message: &Message) -> bool {
    message.role == Role::User && message.content.starts_with("<tool_response>\n")
}

fn call(call: &ToolCall) -> String {
    let name = serde_json::Value::from(call.name.as_str());
    let arguments = &call.arguments;
    let (start, end) = (HERMES.start, HERMES.end);
    format!("{start}\n{{\"name\": {name}, \"arguments\": {arguments}}}\n{end}")
}

fn introduction(tools: &[Tool]) -> String {
    let list: Vec<&str> = tools.iter().map(|tool| tool.json.as_str()).collect();
    let (list, start, end) = (list.join("\n"), HERMES.start, HERMES.end);
    format!(
        "You may call functions. Their signatures:\n<tools>\n{list}\n</tools>\nTo call a function, \
         write:\n{start}\n{{\"name\": <function-name>, \"arguments\": <args-json-object>}}\n{end}"
    )
}
