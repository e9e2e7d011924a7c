//! Parses requests for Anthropic's interface, messages.
//!
//! A block of content must be text, reasoning, a call or its result; others (`image`, `document`,
//! calls of the server's own tools) are refused by name. Fields that only accelerate a request or
//! mark it (`cache_control`, `metadata`) have no effect: all prompts are cached here.

use serde_json::{Value, json};

use super::common::{Asked, sampling, stop};
use super::format::{check_forced, function_tool, named, tools_by};
use super::{ChatAsked, Choice, ResponseFormat, object};
use crate::ServeOptions;
use crate::error::ApiError;
use crate::fields::{Fields, is_empty};
use crate::tools::Tool;
use warploom_llm::chat::{Message, Role, ToolCall};

/// Maximum blocks of content of one message.
const MAX_BLOCKS: usize = 4096;
/// Maximum bytes of the name of a tool in a call.
const MAX_NAME: usize = 256;

/// Parses the body of a request for `/v1/messages`, or for the number of its tokens.
///
/// # Errors
/// 400, naming the field that is not valid.
pub(crate) fn anthropic(body: &[u8], base: &ServeOptions) -> Result<ChatAsked, ApiError> {
    let mut fields = object(body)?;
    let messages = messages(&mut fields)?;
    let mut asked = Asked::one(sampling(&mut fields, base)?);
    asked.model = fields.text("model")?;
    asked.max_tokens = fields.limit("max_tokens", 1)?;
    asked.stream = fields.flag("stream")?;
    asked.stop = stop("stop_sequences", fields.take("stop_sequences"))?;
    let tools = tools_by(fields.take("tools"), "name", tool)?;
    let (choice, parallel) = choice(fields.take("tool_choice"), &tools)?;
    let thinks = thinking(fields.take("thinking"))?;
    let (effort, format) = output(&mut fields)?;
    check_forced(&choice, &format, "output_config.format")?;
    context_management(fields.take("context_management"))?;
    for name in ["mcp_servers", "container", "fallbacks"] {
        fields.only(name, &[json!([])])?;
    }
    fields.only("speed", &[json!("standard")])?;
    fields.ignore(&[
        "metadata",
        "service_tier",
        "cache_control",
        "inference_geo",
        "betas",
        "diagnostics",
        "user_profile_id",
        "workspace_id",
    ]);
    fields.end()?;
    let effort = match thinks {
        Some(false) => Some("none".to_owned()),
        Some(true) => effort.or(Some("medium".to_owned())),
        None => effort,
    };
    let variables = Vec::new();
    Ok(ChatAsked { messages, asked, format, tools, choice, parallel, variables, effort })
}

/// Parses `system` and `messages`.
fn messages(fields: &mut Fields) -> Result<Vec<Message>, ApiError> {
    let mut all = Vec::new();
    if let Some(system) = fields.take("system") {
        all.push(Message::new(Role::System, texts("system", system)?));
    }
    let list = match fields.take("messages") {
        Some(Value::Array(list)) if !list.is_empty() => list,
        _ => return Err(ApiError::field("messages", "must be a list with at least one message")),
    };
    let last = list.len() - 1;
    for (index, value) in list.into_iter().enumerate() {
        let path = format!("messages[{index}]");
        let mut fields = Fields::new(value, path.as_str())?;
        let role = fields.text("role")?;
        let name = fields.name("content");
        let content = fields.take("content");
        let content = content.ok_or_else(|| ApiError::field(name.as_str(), "is missing"))?;
        match role.as_deref() {
            Some("user") => user(&mut all, &name, content)?,
            Some("assistant") if index == last => {
                let text = "the last message has the role assistant: to continue an answer is not \
                            supported";
                return Err(ApiError::field(path, text).code("unsupported"));
            }
            Some("assistant") => all.push(assistant(&name, content)?),
            Some("system") => all.push(Message::new(Role::System, texts(&name, content)?)),
            _ => return Err(ApiError::field(fields.name("role"), "must be user or assistant")),
        }
    }
    Ok(all)
}

/// Returns the blocks of a content, each with its type; a string is one block of text.
fn blocks(path: &str, content: Value) -> Result<Vec<(String, Fields)>, ApiError> {
    let list = match content {
        Value::String(text) => vec![json!({ "type": "text", "text": text })],
        Value::Array(list) if list.len() <= MAX_BLOCKS => list,
        _ => {
            let text = format!("must be a string or a list of at most {MAX_BLOCKS} blocks");
            return Err(ApiError::field(path, text));
        }
    };
    let each = list.into_iter().enumerate().map(|(index, block)| {
        let mut block = Fields::new(block, format!("{path}[{index}]"))?;
        Ok((block.text("type")?.unwrap_or_default(), block))
    });
    each.collect()
}

fn unsupported(block: &Fields, kind: &str) -> ApiError {
    let shown: String = kind.chars().take(40).collect();
    let text = format!("{shown:?} is not supported here");
    ApiError::field(block.name("type"), text).code("unsupported")
}

fn required(block: &mut Fields, name: &str) -> Result<String, ApiError> {
    let path = block.name(name);
    block.text(name)?.ok_or_else(|| ApiError::field(path, "is missing"))
}

/// Parses a content that is text alone; blocks are joined by line ends.
fn texts(path: &str, content: Value) -> Result<String, ApiError> {
    let each = blocks(path, content)?.into_iter().map(|(kind, mut block)| match kind.as_str() {
        "text" => required(&mut block, "text"),
        _ => Err(unsupported(&block, &kind)),
    });
    Ok(each.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// Appends what a user says: texts, and results of calls, which are messages of their own.
fn user(all: &mut Vec<Message>, path: &str, content: Value) -> Result<(), ApiError> {
    let mut texts = Vec::new();
    let begin = all.len();
    for (kind, mut block) in blocks(path, content)? {
        match kind.as_str() {
            "text" => texts.push(required(&mut block, "text")?),
            "tool_result" => {
                flush(all, &mut texts);
                let result = result(&mut block, all)?;
                all.push(result);
            }
            _ => return Err(unsupported(&block, &kind)),
        }
    }
    if all.len() == begin || !texts.is_empty() {
        all.push(Message::new(Role::User, texts.join("\n")));
    }
    Ok(())
}

fn flush(all: &mut Vec<Message>, texts: &mut Vec<String>) {
    if !texts.is_empty() {
        all.push(Message::new(Role::User, std::mem::take(texts).join("\n")));
    }
}

/// Parses the result of a call, whose name is that of the call before.
fn result(block: &mut Fields, before: &[Message]) -> Result<Message, ApiError> {
    let id = required(block, "tool_use_id")?;
    let path = block.name("content");
    let text = block.take("content").map_or(Ok(String::new()), |content| texts(&path, content))?;
    let is_error = block.flag("is_error")?;
    let calls = before.iter().rev().flat_map(|message| &message.tool_calls);
    let name = calls.into_iter().find(|call| call.id == id).map(|call| call.name.clone());
    // Templates have no place for it.
    let text = if is_error { format!("Error: {text}") } else { text };
    let mut message = Message::new(Role::Tool, text);
    (message.tool_call_id, message.name) = (Some(id), name);
    Ok(message)
}

/// Parses an earlier answer.
fn assistant(path: &str, content: Value) -> Result<Message, ApiError> {
    let (mut texts, mut thoughts) = (Vec::new(), Vec::new());
    let mut message = Message::new(Role::Assistant, "");
    for (kind, mut block) in blocks(path, content)? {
        match kind.as_str() {
            "text" => texts.push(required(&mut block, "text")?),
            "thinking" => thoughts.push(required(&mut block, "thinking")?),
            // Only the server that wrote it can read it.
            "redacted_thinking" => {}
            "tool_use" => {
                let name = block.name("name");
                let called = required(&mut block, "name")?;
                if !(1..=MAX_NAME).contains(&called.len()) {
                    let text = format!("must be a string of 1 to {MAX_NAME} bytes");
                    return Err(ApiError::field(name, text));
                }
                let id = required(&mut block, "id")?;
                let input = match block.take("input") {
                    None => json!({}),
                    Some(input @ Value::Object(_)) => input,
                    Some(_) => {
                        return Err(ApiError::field(block.name("input"), "must be an object"));
                    }
                };
                message.tool_calls.push(ToolCall::new(id, called, input.to_string()));
            }
            _ => return Err(unsupported(&block, &kind)),
        }
    }
    message.content = texts.join("\n");
    let thoughts = thoughts.join("\n");
    message.reasoning_content = (!thoughts.is_empty()).then_some(thoughts);
    Ok(message)
}

fn tool(index: usize, value: Value) -> Result<Tool, ApiError> {
    let mut fields = Fields::new(value, format!("tools[{index}]"))?;
    match fields.text("type")?.as_deref() {
        None | Some("custom") => function_tool(&mut fields, "input_schema"),
        Some(kind) => Err(unsupported(&fields, kind)),
    }
}

/// Parses `tool_choice`; returns the choice, and whether the answer may have several calls.
fn choice(value: Option<Value>, tools: &[Tool]) -> Result<(Choice, bool), ApiError> {
    let auto = if tools.is_empty() { Choice::None } else { Choice::Auto };
    let Some(value) = value else { return Ok((auto, true)) };
    let mut fields = Fields::new(value, "tool_choice")?;
    let parallel = !fields.flag("disable_parallel_tool_use")?;
    let choice = match fields.text("type")?.as_deref() {
        Some("auto") => auto,
        Some("none") => Choice::None,
        Some("any") if !tools.is_empty() => Choice::Required,
        Some("tool") if !tools.is_empty() => named(&mut fields, tools)?,
        Some("any" | "tool") => return Err(ApiError::field("tool_choice", "there are no tools")),
        _ => {
            let text = "must be auto, any, tool or none";
            return Err(ApiError::field(fields.name("type"), text));
        }
    };
    fields.end()?;
    Ok((choice, parallel))
}

/// Parses `thinking`: whether the model thinks, if the request says so. A budget is a target of
/// Anthropic's models, and no limit.
fn thinking(value: Option<Value>) -> Result<Option<bool>, ApiError> {
    let Some(value) = value else { return Ok(None) };
    let mut fields = Fields::new(value, "thinking")?;
    let thinks = match fields.text("type")?.as_deref() {
        Some("enabled") => Some(true),
        Some("disabled") => Some(false),
        // The model decides.
        Some("adaptive") => None,
        _ => {
            let text = "must be enabled, disabled or adaptive";
            return Err(ApiError::field(fields.name("type"), text));
        }
    };
    fields.ignore(&["budget_tokens", "display"]);
    fields.end()?;
    Ok(thinks)
}

/// Parses the effort and the format of the answer.
fn output(fields: &mut Fields) -> Result<(Option<String>, ResponseFormat), ApiError> {
    let (mut effort, mut format) = (None, fields.take("output_format"));
    let mut path = "output_format".to_owned();
    if let Some(value) = fields.take("output_config") {
        let mut config = Fields::new(value, "output_config")?;
        effort = match config.text("effort")?.as_deref() {
            None => None,
            Some(known @ ("low" | "medium" | "high" | "xhigh")) => Some(known.to_owned()),
            Some("max") => Some("xhigh".to_owned()),
            Some(_) => {
                let text = "must be low, medium, high, xhigh or max";
                return Err(ApiError::field(config.name("effort"), text));
            }
        };
        if let Some(value) = config.take("format") {
            (format, path) = (Some(value), config.name("format"));
        }
        config.end()?;
    }
    let Some(value) = format else { return Ok((effort, ResponseFormat::Text)) };
    let mut format = Fields::new(value, path)?;
    if format.text("type")?.as_deref() != Some("json_schema") {
        return Err(ApiError::field(format.name("type"), "must be json_schema"));
    }
    let name = format.name("schema");
    let schema = match format.take("schema") {
        Some(schema @ Value::Object(_)) => schema,
        _ => return Err(ApiError::field(name, "must be an object")),
    };
    format.end()?;
    Ok((effort, ResponseFormat::JsonSchema(schema.to_string())))
}

/// Accepts changes to the conversation that chat templates make by themselves: they leave earlier
/// reasoning out.
fn context_management(value: Option<Value>) -> Result<(), ApiError> {
    let Some(value) = value else { return Ok(()) };
    let mut fields = Fields::new(value, "context_management")?;
    let edits = fields.take("edits").unwrap_or_else(|| json!([]));
    fields.end()?;
    let kinds = edits.as_array().map_or(&[][..], Vec::as_slice).iter();
    let fine =
        |edit: &Value| edit["type"].as_str().is_some_and(|k| k.starts_with("clear_thinking"));
    match is_empty(&edits) || (edits.is_array() && kinds.clone().all(fine)) {
        true => Ok(()),
        false => {
            Err(ApiError::field("context_management.edits", "is not supported").code("unsupported"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(value: Value) -> Result<ChatAsked, String> {
        let parsed = anthropic(value.to_string().as_bytes(), &ServeOptions::default());
        parsed.map_err(|error| error.message)
    }

    fn with(name: &str, value: Value) -> Value {
        let mut all = json!({ "max_tokens": 9, "messages": [{ "role": "user", "content": "x" }] });
        all[name] = value;
        all
    }

    #[test]
    fn a_conversation_with_calls_is_read() {
        let got = parsed(json!({
            "model": "m", "max_tokens": 9, "stop_sequences": ["a", "b"], "stream": true,
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}},
                    {"type": "tool_use", "id": "c2", "name": "see"}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "red"}]},
                    {"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": true},
                    {"type": "text", "text": "so?"}, {"type": "text", "text": "well?"}]}],
            "tools": [{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}, "cache_control": null},
                      {"name": "see", "type": "custom", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
            "thinking": {"type": "disabled"}, "metadata": {"user_id": "u"},
        }));
        let got = got.unwrap();
        let mut answer = Message::new(Role::Assistant, "I look.");
        answer.reasoning_content = Some("hm".into());
        answer.tool_calls =
            vec![ToolCall::new("c1", "look", "{\"at\":1}"), ToolCall::new("c2", "see", "{}")];
        let result = |id: &str, name: &str, text: &str| {
            let mut message = Message::new(Role::Tool, text);
            (message.tool_call_id, message.name) = (Some(id.into()), Some(name.into()));
            message
        };
        let want = [
            Message::new(Role::System, "Be brief."),
            Message::new(Role::User, "one"),
            answer,
            result("c2", "see", "red"),
            result("c1", "look", "Error: no"),
            Message::new(Role::User, "so?\nwell?"),
        ];
        assert_eq!(got.messages, want);
        assert_eq!((got.choice, got.parallel), (Choice::Required, false));
        assert_eq!(got.effort.as_deref(), Some("none"));
        assert_eq!(got.tools.len(), 2);
        assert!(got.tools[0].json.contains("Looks."));
        let asked = got.asked;
        assert_eq!((asked.max_tokens, asked.stream), (Some(Some(9)), true));
        assert_eq!((asked.model.as_deref(), asked.stop.len()), (Some("m"), 2));
    }

    #[test]
    fn formats_and_effort_are_read() {
        let schema = json!({ "type": "json_schema", "schema": { "type": "object" } });
        for value in [
            with("output_format", schema.clone()),
            with("output_config", json!({ "format": schema, "effort": "max" })),
        ] {
            let got = parsed(value).unwrap();
            assert_eq!(got.format, ResponseFormat::JsonSchema("{\"type\":\"object\"}".into()));
        }
        let effort = |value| parsed(value).unwrap().effort;
        assert_eq!(
            effort(with("output_config", json!({ "effort": "low" }))).as_deref(),
            Some("low")
        );
        let enabled = json!({ "type": "enabled", "budget_tokens": 1024 });
        assert_eq!(effort(with("thinking", enabled)).as_deref(), Some("medium"));
        assert_eq!(effort(with("thinking", json!({ "type": "adaptive" }))), None);
        let edits = json!({ "edits": [{ "type": "clear_thinking_20251015", "keep": "all" }] });
        assert!(parsed(with("context_management", edits)).is_ok());
    }

    #[test]
    fn what_is_wrong_or_not_supported_is_named() {
        let said =
            |content: Value| with("messages", json!([{ "role": "user", "content": content }]));
        let rows = [
            (with("messages", json!([])), "messages: must be a list"),
            (
                with("messages", json!([{ "role": "king", "content": "x" }])),
                "messages[0].role: must be user",
            ),
            (with("messages", json!([{ "role": "user" }])), "messages[0].content: is missing"),
            (
                with("messages", json!([{ "role": "assistant", "content": "x" }])),
                "messages[0]: the last message has the role assistant",
            ),
            (
                said(json!([{ "type": "image", "source": {} }])),
                "messages[0].content[0].type: \"image\" is not",
            ),
            (said(json!([{ "type": "text" }])), "messages[0].content[0].text: is missing"),
            (said(json!(7)), "messages[0].content: must be a string or a list"),
            (
                said(json!([{ "type": "tool_result" }])),
                "messages[0].content[0].tool_use_id: is missing",
            ),
            (
                said(
                    json!([{ "type": "tool_result", "tool_use_id": "a", "content": [{ "type": "image" }] }]),
                ),
                "messages[0].content[0].content[0].type: \"image\"",
            ),
            (with("system", json!([{ "type": "image" }])), "system[0].type: \"image\""),
            (with("max_tokens", json!(0)), "max_tokens: must be an integer of at least 1"),
            (with("stop_sequences", json!([""])), "stop_sequences: must be"),
            (
                with("tools", json!([{ "type": "web_search_20250305", "name": "web_search" }])),
                "tools[0].type: \"web_search_20250305\" is not supported",
            ),
            (
                with("tools", json!([{ "name": "a b", "input_schema": {} }])),
                "tools[0].name: must be",
            ),
            (
                with("tools", json!([{ "name": "a", "input_schema": 3 }])),
                "tools[0].input_schema: must be",
            ),
            (with("tool_choice", json!({ "type": "any" })), "tool_choice: there are no tools"),
            (with("tool_choice", json!({ "type": "maybe" })), "tool_choice.type: must be"),
            (with("thinking", json!({ "type": "much" })), "thinking.type: must be"),
            (with("output_config", json!({ "effort": "huge" })), "output_config.effort: must be"),
            (with("output_format", json!({ "type": "text" })), "output_format.type: must be"),
            (with("mcp_servers", json!([{}])), "mcp_servers: is not supported"),
            (
                with(
                    "context_management",
                    json!({ "edits": [{ "type": "clear_tool_uses_20250919" }] }),
                ),
                "context_management.edits: is not supported",
            ),
            (with("n", json!(2)), "n: is not a known field"),
        ];
        for (value, words) in rows {
            let got = parsed(value.clone()).err().unwrap_or_default();
            assert!(got.starts_with(words), "{value}: {got:?}");
        }
    }
}
