//! Parses the items of the input of a response.
//!
//! An item is a message, reasoning, a call or the result of a call, which clients write or send
//! back from earlier responses. Reasoning and calls belong to the answer of the assistant in which
//! they were written, so that items that follow each other become one message.

use serde_json::Value;

use crate::error::ApiError;
use crate::fields::Fields;
use warploom_llm::chat::{Message, Role, ToolCall};

/// Maximum items of the input of a response.
const MAX_ITEMS: usize = 65_536;
/// Maximum bytes of the name of a tool in a call.
const MAX_NAME: usize = 256;

/// Parses the input of a response.
///
/// # Errors
/// 400, naming the item that is not valid or not supported.
pub(super) fn input(value: Option<Value>) -> Result<Vec<Message>, ApiError> {
    let list = match value {
        Some(Value::String(text)) => return Ok(vec![Message::new(Role::User, text)]),
        Some(Value::Array(list)) if (1..=MAX_ITEMS).contains(&list.len()) => list,
        _ => {
            let text = format!("must be a string or a list of 1 to {MAX_ITEMS} items");
            return Err(ApiError::field("input", text));
        }
    };
    let mut all = Vec::new();
    for (index, value) in list.into_iter().enumerate() {
        item(&mut all, Fields::new(value, format!("input[{index}]"))?)?;
    }
    Ok(all)
}

fn item(all: &mut Vec<Message>, mut fields: Fields) -> Result<(), ApiError> {
    match fields.text("type")?.as_deref() {
        None | Some("message") => {
            let message = message(&mut fields)?;
            match all.last_mut().filter(|last| is_open(last) && message.role == Role::Assistant) {
                // The reasoning before it.
                Some(last) => last.content = message.content,
                None => all.push(message),
            }
        }
        Some("reasoning") => {
            let mut message = Message::new(Role::Assistant, "");
            message.reasoning_content = reasoning(&mut fields)?;
            all.push(message);
        }
        Some("function_call") => {
            let name = fields.name("name");
            let called = required(&mut fields, "name")?;
            if !(1..=MAX_NAME).contains(&called.len()) {
                let text = format!("must be a string of 1 to {MAX_NAME} bytes");
                return Err(ApiError::field(name, text));
            }
            let id = required(&mut fields, "call_id")?;
            let arguments = required(&mut fields, "arguments")?;
            let call = ToolCall::new(id, called, arguments);
            match all.last_mut().filter(|last| last.role == Role::Assistant) {
                Some(last) => last.tool_calls.push(call),
                None => {
                    let mut message = Message::new(Role::Assistant, "");
                    message.tool_calls.push(call);
                    all.push(message);
                }
            }
        }
        Some("function_call_output") => {
            let id = required(&mut fields, "call_id")?;
            let name = fields.name("output");
            let text = texts(&name, fields.take("output"), Role::Tool)?;
            let calls = all.iter().rev().flat_map(|message| &message.tool_calls);
            let name = calls.into_iter().find(|call| call.id == id).map(|call| call.name.clone());
            let mut message = Message::new(Role::Tool, text);
            (message.tool_call_id, message.name) = (Some(id), name);
            all.push(message);
        }
        Some(kind) => {
            let shown: String = kind.chars().take(40).collect();
            let error = ApiError::field(fields.name("type"), format!("{shown:?} is not supported"));
            return Err(error.code("unsupported"));
        }
    }
    Ok(())
}

/// Returns whether a message is reasoning whose text follows.
fn is_open(message: &Message) -> bool {
    let is_empty = message.content.is_empty() && message.tool_calls.is_empty();
    message.role == Role::Assistant && message.reasoning_content.is_some() && is_empty
}

fn required(fields: &mut Fields, name: &str) -> Result<String, ApiError> {
    let path = fields.name(name);
    fields.text(name)?.ok_or_else(|| ApiError::field(path, "is missing"))
}

fn message(fields: &mut Fields) -> Result<Message, ApiError> {
    let role = match fields.text("role")?.as_deref() {
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        _ => {
            let text = "must be system, developer, user or assistant";
            return Err(ApiError::field(fields.name("role"), text));
        }
    };
    let name = fields.name("content");
    Ok(Message::new(role, texts(&name, fields.take("content"), role)?))
}

/// Parses a string, or a list of parts, which are joined by line ends.
fn texts(path: &str, value: Option<Value>, role: Role) -> Result<String, ApiError> {
    let parts = match value {
        Some(Value::String(text)) => return Ok(text),
        Some(Value::Array(parts)) => parts,
        _ => return Err(ApiError::field(path, "must be a string or a list of parts of text")),
    };
    let each = parts.into_iter().enumerate().map(|(index, part)| {
        let mut part = Fields::new(part, format!("{path}[{index}]"))?;
        match part.text("type")?.as_deref() {
            Some("input_text" | "output_text" | "text") => required(&mut part, "text"),
            Some("refusal") if role == Role::Assistant => required(&mut part, "refusal"),
            _ => {
                let error = ApiError::field(part.name("type"), "only parts of text are read");
                Err(error.code("unsupported"))
            }
        }
    });
    Ok(each.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// Parses reasoning: its text, or else its summary. What is encrypted is for another server.
fn reasoning(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    for name in ["content", "summary"] {
        let path = fields.name(name);
        let parts = match fields.take(name) {
            None => continue,
            Some(Value::Array(parts)) => parts,
            Some(_) => return Err(ApiError::field(path, "must be a list")),
        };
        let each = parts.into_iter().enumerate().map(|(index, part)| {
            let mut part = Fields::new(part, format!("{path}[{index}]"))?;
            required(&mut part, "text")
        });
        let text = each.collect::<Result<Vec<_>, _>>()?.join("\n");
        if !text.is_empty() {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn items_become_messages() {
        let got = input(Some(json!([
            {"role": "developer", "content": "Be brief."},
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x",
             "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
             "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "see", "arguments": "{\"at\":1}"},
            {"type": "function_call_output", "call_id": "c1", "output": "red"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "blue"}]},
            {"type": "function_call", "call_id": "c3", "name": "look", "arguments": "{}"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}]},
            {"role": "user", "content": "so?"},
        ])))
        .unwrap();
        let says = |role, text: &str| Message::new(role, text);
        let mut first = says(Role::Assistant, "I look.");
        first.reasoning_content = Some("hm".into());
        first.tool_calls =
            vec![ToolCall::new("c1", "look", "{}"), ToolCall::new("c2", "see", "{\"at\":1}")];
        let result = |id: &str, name: &str, text: &str| {
            let mut message = says(Role::Tool, text);
            (message.tool_call_id, message.name) = (Some(id.into()), Some(name.into()));
            message
        };
        let mut second = says(Role::Assistant, "");
        second.tool_calls = vec![ToolCall::new("c3", "look", "{}")];
        let mut third = says(Role::Assistant, "");
        third.reasoning_content = Some("short".into());
        let want = [
            says(Role::System, "Be brief."),
            says(Role::User, "a\nb"),
            first,
            result("c1", "look", "red"),
            result("c2", "see", "blue"),
            second,
            third,
            says(Role::User, "so?"),
        ];
        assert_eq!(got, want);
        assert_eq!(input(Some("x".into())).unwrap(), [says(Role::User, "x")]);
    }

    #[test]
    fn what_is_wrong_or_not_supported_is_named() {
        let rows = [
            (json!([]), "input: must be a string or a list"),
            (json!(7), "input: must be a string or a list"),
            (json!([3]), "input[0]: must be an object, is 3"),
            (json!([{"role": "tool", "content": "x"}]), "input[0].role: must be system"),
            (json!([{"role": "user"}]), "input[0].content: must be a string"),
            (
                json!([{"role": "user", "content": [{"type": "input_image"}]}]),
                "input[0].content[0].type: only parts of text",
            ),
            (json!([{"type": "item_reference", "id": "x"}]), "input[0].type: \"item_reference\""),
            (json!([{"type": "function_call", "call_id": "a"}]), "input[0].name: is missing"),
            (
                json!([{"type": "function_call", "call_id": "a", "name": "", "arguments": "{}"}]),
                "input[0].name: must be a string of 1",
            ),
            (
                json!([{"type": "function_call_output", "output": "x"}]),
                "input[0].call_id: is missing",
            ),
            (json!([{"type": "function_call_output", "call_id": "a"}]), "input[0].output: must be"),
            (json!([{"type": "reasoning", "content": "x"}]), "input[0].content: must be a list"),
        ];
        for (value, words) in rows {
            let got = input(Some(value.clone())).unwrap_err().message;
            assert!(got.starts_with(words), "{value}: {got:?}");
        }
    }
}
