//! Parses requests for OpenAI's interface of responses.
//!
//! Nothing is kept between requests: a client sends the earlier items again, whose tokens are
//! cached.

use serde_json::{Map, Value, json};

use super::common::{Asked, sampling};
use super::format::{check_forced, check_name, choice_by, function_tool, named, tools_by};
use super::{ChatAsked, ResponseFormat, effort_of, items, object};
use crate::ServeOptions;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::tools::Tool;
use warploom_llm::chat::{Message, Role};

/// Parses the body of a request for `/v1/responses`; returns also the fields that the response
/// repeats.
///
/// # Errors
/// 400, naming the field that is not valid.
pub(crate) fn responses(
    body: &[u8],
    base: &ServeOptions,
) -> Result<(ChatAsked, Map<String, Value>), ApiError> {
    let mut fields = object(body)?;
    let mut repeated = repeated(&fields);
    let instructions = fields.text("instructions")?;
    let mut messages = items::input(fields.take("input"))?;
    if let Some(text) = instructions {
        messages.insert(0, Message::new(Role::System, text));
    }
    let mut asked = Asked::one(sampling(&mut fields, base)?);
    asked.model = fields.text("model")?;
    asked.max_tokens = fields.limit("max_output_tokens", 1)?;
    asked.stream = fields.flag("stream")?;
    repeated.insert("temperature".into(), asked.sampling.temperature.into());
    repeated.insert("top_p".into(), asked.sampling.top_p.into());
    let tools = tools_by(fields.take("tools"), "name", tool)?;
    let choice = fields.take("tool_choice");
    let choice = choice_by(choice, &tools, |mut fields| named(&mut fields, &tools))?;
    let format = text(fields.take("text"))?;
    check_forced(&choice, &format, "text.format")?;
    let parallel = fields.optional_flag("parallel_tool_calls")?.unwrap_or(true);
    let effort = reasoning(fields.take("reasoning"))?;
    for name in ["previous_response_id", "conversation"] {
        if fields.take(name).is_some() {
            let text = "is not supported: no response is kept, send the earlier items as input";
            return Err(ApiError::field(name, text).code("unsupported"));
        }
    }
    include(fields.take("include"))?;
    for (name, fine) in [
        ("background", vec![json!(false)]),
        ("truncation", vec![json!("disabled")]),
        ("top_logprobs", vec![json!(0)]),
        ("max_tool_calls", vec![]),
        ("prompt", vec![]),
        ("context_management", vec![json!([])]),
    ] {
        fields.only(name, &fine)?;
    }
    fields.ignore(&[
        // A response says that it is not stored.
        "store",
        "stream_options",
        "metadata",
        "user",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "client_metadata",
    ]);
    fields.end()?;
    let variables = Vec::new();
    let chat = ChatAsked { messages, asked, format, tools, choice, parallel, variables, effort };
    Ok((chat, repeated))
}

/// Returns the fields that a response repeats, with the values of absent ones.
fn repeated(fields: &Fields) -> Map<String, Value> {
    let absent = [
        ("instructions", Value::Null),
        ("max_output_tokens", Value::Null),
        ("metadata", json!({})),
        ("parallel_tool_calls", json!(true)),
        ("reasoning", json!({ "effort": null, "summary": null })),
        ("text", json!({ "format": { "type": "text" } })),
        ("tool_choice", json!("auto")),
        ("tools", json!([])),
        ("user", Value::Null),
    ];
    let each = absent
        .into_iter()
        .map(|(name, absent)| (name.to_owned(), fields.get(name).cloned().unwrap_or(absent)));
    each.collect()
}

fn tool(index: usize, value: Value) -> Result<Tool, ApiError> {
    let mut fields = Fields::new(value, format!("tools[{index}]"))?;
    match fields.text("type")?.as_deref() {
        Some("function") => function_tool(&mut fields, "parameters"),
        _ => {
            let text = "only tools of type function are supported";
            Err(ApiError::field(fields.name("type"), text).code("unsupported"))
        }
    }
}

/// Parses `text`: the format of the answer.
fn text(value: Option<Value>) -> Result<ResponseFormat, ApiError> {
    let Some(value) = value else { return Ok(ResponseFormat::Text) };
    let mut text = Fields::new(value, "text")?;
    text.only("verbosity", &[json!("medium")])?;
    let path = text.name("format");
    let format = text.take("format");
    text.end()?;
    let Some(format) = format else { return Ok(ResponseFormat::Text) };
    let mut format = Fields::new(format, path)?;
    let kind = format.text("type")?;
    let parsed = match kind.as_deref() {
        Some("text") => ResponseFormat::Text,
        Some("json_object") => ResponseFormat::JsonObject,
        Some("json_schema") => {
            if let Some(name) = format.text("name")? {
                check_name(&name, &format.name("name"))?;
            }
            format.text("description")?;
            // The schema is always followed.
            format.optional_flag("strict")?;
            match format.take("schema") {
                Some(schema @ Value::Object(_)) => ResponseFormat::JsonSchema(schema.to_string()),
                _ => return Err(ApiError::field(format.name("schema"), "must be an object")),
            }
        }
        _ => {
            let text = "must be text, json_object or json_schema";
            return Err(ApiError::field(format.name("type"), text));
        }
    };
    format.end()?;
    Ok(parsed)
}

/// Parses `reasoning`: the effort. Summaries are not written, the reasoning itself is.
fn reasoning(value: Option<Value>) -> Result<Option<String>, ApiError> {
    let Some(value) = value else { return Ok(None) };
    let mut fields = Fields::new(value, "reasoning")?;
    fields.ignore(&["summary", "generate_summary"]);
    let effort = effort_of(&mut fields, "effort")?;
    fields.end()?;
    Ok(effort)
}

/// Accepts outputs that are always there or never.
fn include(value: Option<Value>) -> Result<(), ApiError> {
    let list = match value {
        None => return Ok(()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(ApiError::field("include", "must be a list")),
    };
    // Reasoning is not encrypted: a client sends its text back.
    let unknown = list.iter().position(|item| item != "reasoning.encrypted_content");
    match unknown {
        None => Ok(()),
        Some(index) => {
            let error = ApiError::field(format!("include[{index}]"), "is not supported");
            Err(error.code("unsupported"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Choice;

    fn parsed(value: Value) -> Result<(ChatAsked, Map<String, Value>), String> {
        let parsed = responses(value.to_string().as_bytes(), &ServeOptions::default());
        parsed.map_err(|error| error.message)
    }

    fn with(name: &str, value: Value) -> Value {
        let mut all = json!({ "input": "x" });
        all[name] = value;
        all
    }

    #[test]
    fn what_is_asked_for_is_taken_and_repeated() {
        let tools = json!([{"type": "function", "name": "look", "description": "Looks.",
            "parameters": {"type": "object"}, "strict": true}]);
        let (got, repeated) = parsed(json!({
            "model": "m", "input": [{"role": "user", "content": "x"}], "instructions": "Be brief.",
            "max_output_tokens": 7, "temperature": 0.5, "stream": true, "store": true, "tools": tools,
            "tool_choice": {"type": "function", "name": "look"}, "parallel_tool_calls": false,
            "reasoning": {"effort": "low", "summary": "auto"}, "metadata": {"a": "b"},
            "include": ["reasoning.encrypted_content"], "truncation": "disabled", "user": "me",
        }))
        .unwrap();
        let want = [Message::new(Role::System, "Be brief."), Message::new(Role::User, "x")];
        assert_eq!(got.messages, want);
        assert_eq!((got.choice, got.parallel), (Choice::Named(0), false));
        assert_eq!(got.effort.as_deref(), Some("low"));
        assert!(got.tools[0].strict && got.tools[0].json.contains("Looks."));
        assert_eq!((got.asked.max_tokens, got.asked.stream), (Some(Some(7)), true));
        assert_eq!(repeated["instructions"], "Be brief.");
        assert_eq!((&repeated["tools"], &repeated["metadata"]), (&tools, &json!({ "a": "b" })));
        assert_eq!(repeated["temperature"], 0.5);
        let (got, repeated) = parsed(with("input", json!("x"))).unwrap();
        assert_eq!((got.choice, got.asked.max_tokens), (Choice::None, None));
        assert_eq!((&repeated["tools"], &repeated["user"]), (&json!([]), &Value::Null));
    }

    #[test]
    fn formats_are_read() {
        let format = |value| parsed(with("text", json!({ "format": value }))).unwrap().0.format;
        let schema = json!({ "type": "json_schema", "name": "n", "strict": true, "schema": { "type": "object" } });
        assert_eq!(format(schema), ResponseFormat::JsonSchema("{\"type\":\"object\"}".into()));
        assert_eq!(format(json!({ "type": "json_object" })), ResponseFormat::JsonObject);
        assert_eq!(format(json!({ "type": "text" })), ResponseFormat::Text);
    }

    #[test]
    fn what_is_wrong_or_not_supported_is_named() {
        let rows = [
            (json!({ "model": "m" }), "input: must be a string or a list"),
            (
                with("max_output_tokens", json!(0)),
                "max_output_tokens: must be an integer of at least 1",
            ),
            (
                with("previous_response_id", json!("resp_1")),
                "previous_response_id: is not supported: no",
            ),
            (with("conversation", json!("c")), "conversation: is not supported"),
            (with("background", json!(true)), "background: is not supported"),
            (with("truncation", json!("auto")), "truncation: is not supported"),
            (with("include", json!(["file_search_call.results"])), "include[0]: is not supported"),
            (with("tools", json!([{ "type": "web_search" }])), "tools[0].type: only tools of type"),
            (with("tools", json!([{ "type": "function" }])), "tools[0].name: must be 1 to"),
            (with("tool_choice", json!("required")), "tool_choice: there are no tools"),
            (with("tool_choice", json!({ "type": "mcp" })), "tool_choice.type: only function"),
            (
                with("text", json!({ "format": { "type": "xml" } })),
                "text.format.type: must be text",
            ),
            (
                with("text", json!({ "format": { "type": "json_schema" } })),
                "text.format.schema: must",
            ),
            (with("text", json!({ "verbosity": "high" })), "text.verbosity: is not supported"),
            (with("reasoning", json!({ "effort": "vast" })), "reasoning.effort: must be one of"),
            (with("top_logprobs", json!(3)), "top_logprobs: is not supported"),
            (with("n", json!(2)), "n: is not a known field"),
        ];
        for (value, words) in rows {
            let got = parsed(value.clone()).err().unwrap_or_default();
            assert!(got.starts_with(words), "{value}: {got:?}");
        }
    }
}
