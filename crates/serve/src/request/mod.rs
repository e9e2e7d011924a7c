//! Parses the JSON of requests.

mod anthropic;
mod common;
mod format;
mod items;
mod responses;

#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use super::ServeOptions;
use super::error::ApiError;
use super::fields::Fields;
use super::message::message;
use super::tools::Tool;
use warploom_llm::chat::Message;

pub(super) use anthropic::anthropic;
pub(super) use common::Asked;
pub(super) use format::{Choice, ResponseFormat};
pub(super) use responses::responses;

/// Default maximum tokens of a completion, as in the OpenAI API.
const COMPLETION_TOKENS: usize = 16;
/// Maximum number of most probable tokens to report.
const MAX_TOP_LOGPROBS: usize = 20;
/// Maximum number of answers of one request.
const MAX_ANSWERS: usize = 128;
/// Maximum number of template variables.
const MAX_VARIABLES: usize = 32;

/// A request for `/v1/chat/completions`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ChatAsked {
    pub(super) messages: Vec<Message>,
    pub(super) asked: Asked,
    pub(super) format: ResponseFormat,
    pub(super) tools: Vec<Tool>,
    pub(super) choice: Choice,
    /// Whether the answer may have several calls.
    pub(super) parallel: bool,
    /// Variables of the chat template: names, and values as JSON.
    pub(super) variables: Vec<(String, String)>,
    pub(super) effort: Option<String>,
}

/// A request for `/v1/completions`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CompletionAsked {
    pub(super) prompts: Vec<Text>,
    pub(super) asked: Asked,
    /// Whether the answer begins with the prompt.
    pub(super) echo: bool,
}

/// The prompt of a completion.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Text {
    Text(String),
    Tokens(Vec<u32>),
}

/// Parses a body as a JSON object.
///
/// # Errors
/// 400 if the body is not an object, with line and column if it is not JSON.
pub(super) fn object(body: &[u8]) -> Result<Fields, ApiError> {
    // Some clients write a byte order mark, which a reader may ignore.
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::new(400, format!("the body is no JSON: {error}")))?;
    Fields::new(value, "")
}

/// Parses the body of a request for `/v1/chat/completions`.
///
/// # Errors
/// 400, naming the field that is not valid.
pub(super) fn chat(body: &[u8], base: &ServeOptions) -> Result<ChatAsked, ApiError> {
    let mut fields = object(body)?;
    let messages = messages(&mut fields)?;
    let mut asked = common::common(&mut fields, base)?;
    asked.logprobs = chat_logprobs(&mut fields)?;
    let tools = format::tools(fields.take("tools"))?;
    let choice = format::choice(fields.take("tool_choice"), &tools)?;
    let format = format::response_format(fields.take("response_format"))?;
    format::check_forced(&choice, &format, "response_format")?;
    let calls = matches!(choice, Choice::Required | Choice::Named(_));
    let constrained = calls || format != ResponseFormat::Text;
    if constrained && asked.edits.min_tokens > 0 {
        let text = "cannot be combined with response_format or a forced call";
        return Err(ApiError::field("min_tokens", text));
    }
    let parallel = fields.optional_flag("parallel_tool_calls")?.unwrap_or(true);
    let variables = variables(fields.take("chat_template_kwargs"))?;
    let effort = effort_of(&mut fields, "reasoning_effort")?;
    for (name, fine) in [
        ("functions", vec![json!([])]),
        ("function_call", vec![json!("none"), json!("auto")]),
        ("modalities", vec![json!(["text"])]),
        ("audio", vec![]),
        ("prediction", vec![]),
        ("web_search_options", vec![]),
        ("verbosity", vec![json!("medium")]),
        // Fields of other servers that change the answer.
        ("structured_outputs", vec![]),
        ("guided_json", vec![]),
        ("guided_regex", vec![]),
        ("guided_choice", vec![]),
        ("guided_grammar", vec![]),
        ("grammar", vec![json!("")]),
        ("add_generation_prompt", vec![json!(true)]),
        ("continue_final_message", vec![json!(false)]),
        ("echo", vec![json!(false)]),
    ] {
        fields.only(name, &fine)?;
    }
    fields.end()?;
    Ok(ChatAsked { messages, asked, format, tools, choice, parallel, variables, effort })
}

/// Parses the messages of a conversation.
pub(super) fn messages(fields: &mut Fields) -> Result<Vec<Message>, ApiError> {
    match fields.take("messages") {
        Some(Value::Array(list)) if !list.is_empty() => {
            let messages = list.into_iter().enumerate();
            messages.map(|(index, value)| message(index, value)).collect()
        }
        _ => Err(ApiError::field("messages", "must be a list with at least one message")),
    }
}

/// Returns how many of the most probable tokens are wanted; `None` if no log probabilities are.
fn chat_logprobs(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    let wanted = fields.flag("logprobs")?;
    let top = fields.count_to("top_logprobs", 0, MAX_TOP_LOGPROBS)?;
    match (wanted, top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(ApiError::field("top_logprobs", "is for logprobs: true")),
    }
}

/// Parses the variables of the chat template.
fn variables(value: Option<Value>) -> Result<Vec<(String, String)>, ApiError> {
    let path = "chat_template_kwargs";
    let map = match value {
        None => return Ok(Vec::new()),
        Some(Value::Object(map)) if map.len() <= MAX_VARIABLES => map,
        Some(_) => {
            let text = format!("must be an object with at most {MAX_VARIABLES} variables");
            return Err(ApiError::field(path, text));
        }
    };
    let is_name = |name: &str| {
        let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if let Some((name, _)) = map.iter().find(|(name, _)| !is_name(name)) {
        let shown: String = name.chars().take(40).collect();
        return Err(ApiError::field(path, format!("{shown:?} is not the name of a variable")));
    }
    Ok(map.into_iter().map(|(name, value)| (name, value.to_string())).collect())
}

/// Parses the reasoning effort, in the field `name`.
fn effort_of(fields: &mut Fields, name: &str) -> Result<Option<String>, ApiError> {
    let known = ["none", "minimal", "low", "medium", "high", "xhigh"];
    match fields.text(name)? {
        Some(effort) if !known.contains(&effort.as_str()) => {
            let text = format!("must be one of {}", known.join(", "));
            Err(ApiError::field(fields.name(name), text))
        }
        effort => Ok(effort),
    }
}

/// Parses the body of a request for `/v1/completions`.
///
/// # Errors
/// 400, naming the field that is not valid.
pub(super) fn completion(body: &[u8], base: &ServeOptions) -> Result<CompletionAsked, ApiError> {
    let mut fields = object(body)?;
    let prompts = prompts(fields.take("prompt"))?;
    let mut asked = common::common(&mut fields, base)?;
    asked.max_tokens = asked.max_tokens.or(Some(Some(COMPLETION_TOKENS)));
    asked.logprobs = fields.count_to("logprobs", 0, MAX_TOP_LOGPROBS)?;
    let echo = fields.flag("echo")?;
    if echo && asked.logprobs.is_some() {
        let text = "is not supported together with logprobs";
        return Err(ApiError::field("echo", text).code("unsupported"));
    }
    if prompts.len().saturating_mul(asked.n) > MAX_ANSWERS {
        let text = format!(
            "{} prompts and n of {}: more than {MAX_ANSWERS} answers",
            prompts.len(),
            asked.n
        );
        return Err(ApiError::field("prompt", text));
    }
    for (name, fine) in [
        ("suffix", vec![json!("")]),
        ("best_of", vec![json!(1), json!(asked.n)]),
        ("response_format", vec![json!({ "type": "text" })]),
    ] {
        fields.only(name, &fine)?;
    }
    fields.end()?;
    Ok(CompletionAsked { prompts, asked, echo })
}

/// Parses prompts: a string, a list of tokens, or a list of these.
fn prompts(value: Option<Value>) -> Result<Vec<Text>, ApiError> {
    let wrong =
        || ApiError::field("prompt", "must be a string, a list of tokens, or a list of these");
    let list = match value {
        Some(Value::String(text)) => return Ok(vec![Text::Text(text)]),
        Some(Value::Array(list))
            if list.len() <= MAX_ANSWERS || list.first().is_some_and(Value::is_u64) =>
        {
            list
        }
        Some(Value::Array(list)) => {
            let text = format!("{} prompts, the limit is {MAX_ANSWERS}", list.len());
            return Err(ApiError::field("prompt", text));
        }
        _ => return Err(wrong()),
    };
    if let Some(tokens) = tokens(&list) {
        return Ok(vec![Text::Tokens(tokens)]);
    }
    let each = list.into_iter().map(|item| match item {
        Value::String(text) => Ok(Text::Text(text)),
        Value::Array(inner) => tokens(&inner).map(Text::Tokens).ok_or_else(wrong),
        _ => Err(wrong()),
    });
    each.collect()
}

pub(super) fn tokens(list: &[Value]) -> Option<Vec<u32>> {
    let one = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    list.iter().map(one).collect()
}
