//! Parses the messages of a conversation, which clients write or send back from earlier answers.
//!
//! `role`, `content` and `tool_calls` are read, in the message of a tool also `tool_call_id` and
//! `name`, and in that of the assistant also `reasoning_content` or `reasoning`. A field that
//! contains more input for the model (`images`, `audio`) or changes the request (`prefix`) is
//! refused by name unless it is empty. All other fields are meant for other programs (`id`,
//! `cache_control`, `annotations`) and are ignored. A part of `content` must be text, and its other
//! fields are ignored.

use serde_json::Value;

use super::error::ApiError;
use super::fields::{Fields, is_empty};
use warploom_llm::chat::{Message, Role, ToolCall};

/// Fields that contain more input for the model or change the request.
const REFUSED: [&str; 14] = [
    "audio",
    "attachments",
    "continue",
    "documents",
    "file",
    "files",
    "function_call",
    "image",
    "image_url",
    "images",
    "input_audio",
    "partial",
    "prefix",
    "videos",
];
/// Maximum tool calls in a message.
const MAX_CALLS: usize = 128;
const MAX_NAME: usize = 256;

/// Parses the message at `index` of `messages`.
///
/// # Errors
/// 400, naming the field that is not valid.
pub(super) fn message(index: usize, value: Value) -> Result<Message, ApiError> {
    let path = format!("messages[{index}]");
    let mut fields = Fields::new(value, path.as_str())?;
    let role = match fields.text("role")?.as_deref() {
        // `developer` is the name of the system role in newer interfaces.
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::Tool,
        _ => {
            let text = "must be system, developer, user, assistant or tool";
            return Err(ApiError::field(fields.name("role"), text));
        }
    };
    for name in REFUSED {
        if fields.take(name).is_some_and(|value| !is_empty(&value)) {
            return Err(unsupported(fields.name(name)));
        }
    }
    let calls = match fields.take("tool_calls") {
        Some(value) if !is_empty(&value) && role != Role::Assistant => {
            let text = "is of messages with the role assistant only";
            return Err(ApiError::field(fields.name("tool_calls"), text));
        }
        value => calls(&fields.name("tool_calls"), value)?,
    };
    let content = match fields.take("content") {
        // An assistant message may have calls only, a refusal, or no content.
        None if role == Role::Assistant => fields.text("refusal")?.unwrap_or_default(),
        value => content(&path, role, value)?,
    };
    let mut message = Message::new(role, content);
    message.tool_calls = calls;
    if role == Role::Tool {
        message.tool_call_id = fields.text("tool_call_id")?;
        message.name = fields.text("name")?;
    }
    if role == Role::Assistant {
        let reasoning = ["reasoning_content", "reasoning"].map(|name| fields.take(name));
        let texts = reasoning.into_iter().flatten().filter_map(|value| match value {
            Value::String(text) if !text.is_empty() => Some(text),
            // Other servers have lists of parts and objects here.
            _ => None,
        });
        message.reasoning_content = texts.into_iter().next();
    }
    Ok(message)
}

fn unsupported(name: String) -> ApiError {
    ApiError::field(name, "is not supported").code("unsupported")
}

/// Parses the content of a message: a string, or text parts, which are joined by line ends.
fn content(path: &str, role: Role, value: Option<Value>) -> Result<String, ApiError> {
    let parts = match value {
        Some(Value::String(text)) => return Ok(text),
        Some(Value::Array(parts)) => parts,
        _ => {
            let text = "must be a string or a list of parts of text";
            return Err(ApiError::field(format!("{path}.content"), text));
        }
    };
    let texts = parts.into_iter().enumerate().map(|(index, part)| {
        let mut part = Fields::new(part, format!("{path}.content[{index}]"))?;
        let field = match part.text("type")?.as_deref() {
            Some("text") => "text",
            Some("refusal") if role == Role::Assistant => "refusal",
            _ => {
                let error = ApiError::field(part.name("type"), "only parts of type text are read");
                return Err(error.code("unsupported"));
            }
        };
        let name = part.name(field);
        part.text(field)?.ok_or_else(|| ApiError::field(name, "is missing"))
    });
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// Parses the tool calls that an assistant made, in OpenAI's format.
fn calls(path: &str, value: Option<Value>) -> Result<Vec<ToolCall>, ApiError> {
    let list = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() <= MAX_CALLS => list,
        Some(_) => {
            let text = format!("must be a list of at most {MAX_CALLS} calls");
            return Err(ApiError::field(path, text));
        }
    };
    let each = list.into_iter().enumerate().map(|(index, value)| {
        let mut call = Fields::new(value, format!("{path}[{index}]"))?;
        let kind = call.text("type")?;
        if kind.as_deref().is_some_and(|kind| kind != "function") {
            return Err(unsupported(call.name("type")));
        }
        let id = call.text("id")?.unwrap_or_default();
        let inside = call.name("function");
        let Some(function) = call.take("function") else {
            return Err(ApiError::field(inside, "is missing"));
        };
        let mut function = Fields::new(function, inside)?;
        let named = function.name("name");
        let name = function.text("name")?.filter(|n| (1..=MAX_NAME).contains(&n.len()));
        let name = name.ok_or_else(|| {
            ApiError::field(named, format!("must be a string of 1 to {MAX_NAME} bytes"))
        })?;
        let arguments = match function.take("arguments") {
            None => "{}".to_owned(),
            Some(Value::String(text)) => text,
            // Some clients send back the parsed object.
            Some(value @ Value::Object(_)) => value.to_string(),
            Some(_) => {
                let text = "must be a string with JSON";
                return Err(ApiError::field(function.name("arguments"), text));
            }
        };
        Ok(ToolCall::new(id, name, arguments))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn says(role: Role, text: &str) -> Message {
        Message::new(role, text)
    }

    fn thinks(text: &str, reasoning: &str) -> Message {
        let mut message = says(Role::Assistant, text);
        message.reasoning_content = Some(reasoning.into());
        message
    }

    #[test]
    fn what_clients_send_back_is_read_or_ignored() {
        use Role::{Assistant, System, Tool, User};
        let rows = [
            (json!({"role": "user", "content": "x", "name": "ann"}), says(User, "x")),
            (json!({"role": "system", "content": "x", "name": 7}), says(System, "x")),
            (
                json!({"role": "user", "content": "x", "id": 7, "opts": {"visible": false}}),
                says(User, "x"),
            ),
            (
                json!({"role": "user", "content": "x", "timestamp": 1.5, "metadata": {"a": [1]}}),
                says(User, "x"),
            ),
            (
                json!({"role": "assistant", "content": "x", "reasoning_content": ["y"]}),
                says(Assistant, "x"),
            ),
            (
                json!({"role": "assistant", "content": "x", "reasoning": "y", "thinking_blocks": [{}]}),
                thinks("x", "y"),
            ),
            (
                json!({"role": "assistant", "content": "x", "provider_specific_fields": {"z": 1}}),
                says(Assistant, "x"),
            ),
            (json!({"role": "assistant", "content": null}), says(Assistant, "")),
            (json!({"role": "assistant"}), says(Assistant, "")),
            (
                json!({"role": "assistant", "content": null, "refusal": "No."}),
                says(Assistant, "No."),
            ),
            (
                json!({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}),
                says(Assistant, "No."),
            ),
            (
                json!({"role": "assistant", "content": "x", "refusal": null, "audio": null, "annotations": [],
                       "tool_calls": [], "function_call": null, "prefix": false}),
                says(Assistant, "x"),
            ),
            (
                json!({"role": "user", "images": [], "content": [
                    {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
                    {"type": "text", "text": "b", "annotations": [], "citations": null}]}),
                says(User, "a\nb"),
            ),
            (json!({"role": "tool", "content": "x", "tool_call_id": null}), says(Tool, "x")),
        ];
        for (value, want) in rows {
            assert_eq!(message(3, value.clone()).unwrap(), want, "{value}");
        }
    }

    #[test]
    fn calls_and_their_results_are_read() {
        let call = |id: &str, name: &str, arguments: &str| ToolCall::new(id, name, arguments);
        let value = json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "index": 0, "function": {"name": "w", "arguments": "{\"a\":1}"}},
            {"function": {"name": "v", "arguments": {"b": 2}}},
            {"id": "c3", "function": {"name": "u"}}]});
        let got = message(0, value).unwrap();
        assert_eq!(got.content, "");
        let want =
            [call("c1", "w", "{\"a\":1}"), call("", "v", "{\"b\":2}"), call("c3", "u", "{}")];
        assert_eq!(got.tool_calls, want);
        let value = json!({"role": "tool", "tool_call_id": "c1", "name": "w", "content": [{"type": "text", "text": "sunny"}]});
        let got = message(0, value).unwrap();
        assert_eq!(
            (got.content.as_str(), got.tool_call_id.as_deref(), got.name.as_deref()),
            ("sunny", Some("c1"), Some("w"))
        );
    }

    #[test]
    fn what_would_be_left_out_is_refused_by_name() {
        let user = |name: &str, value: Value| {
            let mut all = json!({"role": "user", "content": "x"});
            all[name] = value;
            all
        };
        let called = |call: Value| json!({"role": "assistant", "tool_calls": [call]});
        let rows = [
            (user("images", json!(["aa"])), "messages[2].images: is not supported"),
            (user("audio", json!({"id": "a"})), "messages[2].audio: is not supported"),
            (user("files", json!("a.txt")), "messages[2].files: is not supported"),
            (
                user("function_call", json!({"name": "f"})),
                "messages[2].function_call: is not supported",
            ),
            (user("prefix", json!(true)), "messages[2].prefix: is not supported"),
            (user("content", Value::Null), "messages[2].content: must be a string"),
            (
                user("content", json!(["x"])),
                "messages[2].content[0]: must be an object, is a string",
            ),
            (
                user("content", json!([{"type": "image_url"}])),
                "messages[2].content[0].type: only parts of type text",
            ),
            (
                user("content", json!([{"type": "refusal", "refusal": "x"}])),
                "messages[2].content[0].type: only",
            ),
            (user("content", json!([{"type": "text"}])), "messages[2].content[0].text: is missing"),
            (user("role", json!("king")), "messages[2].role: must be system"),
            (
                user("tool_calls", json!([1])),
                "messages[2].tool_calls: is of messages with the role assistant",
            ),
            (called(json!(1)), "messages[2].tool_calls[0]: must be an object, is 1"),
            (called(json!({"type": "custom"})), "messages[2].tool_calls[0].type: is not supported"),
            (called(json!({})), "messages[2].tool_calls[0].function: is missing"),
            (
                called(json!({"function": {}})),
                "messages[2].tool_calls[0].function.name: must be a string of 1",
            ),
            (
                called(json!({"function": {"name": "f", "arguments": 3}})),
                "messages[2].tool_calls[0].function.arguments: must be a string with JSON",
            ),
            (json!({"role": "assistant", "content": 5}), "messages[2].content: must be a string"),
            (json!({"role": "tool", "tool_call_id": "a"}), "messages[2].content: must be a string"),
            (
                json!({"role": "assistant", "tool_calls": "x"}),
                "messages[2].tool_calls: must be a list",
            ),
        ];
        for (value, words) in rows {
            let got = message(2, value.clone()).unwrap_err().message;
            assert!(got.starts_with(words), "{value}: {got:?}");
        }
    }
}
