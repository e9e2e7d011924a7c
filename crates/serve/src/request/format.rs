//! Parses what an answer must look like: its format, and the tools that it may call.

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::fields::Fields;
use crate::tools::Tool;

/// Maximum number of tools.
const MAX_TOOLS: usize = 512;
/// Maximum bytes of the name of a tool or a schema.
const MAX_NAME: usize = 128;

/// The format of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ResponseFormat {
    Text,
    JsonObject,
    /// The schema, as JSON.
    JsonSchema(String),
}

/// Which tools the answer may or must call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    None,
    Auto,
    Required,
    /// The index of the tool.
    Named(usize),
}

/// Parses `response_format`.
pub(super) fn response_format(value: Option<Value>) -> Result<ResponseFormat, ApiError> {
    let Some(value) = value else { return Ok(ResponseFormat::Text) };
    let mut fields = Fields::new(value, "response_format")?;
    let kind = fields.text("type")?;
    let format = match kind.as_deref() {
        Some("text") => ResponseFormat::Text,
        Some("json_object") => match fields.take("schema") {
            None => ResponseFormat::JsonObject,
            // An extension of several servers.
            Some(schema @ Value::Object(_)) => ResponseFormat::JsonSchema(schema.to_string()),
            Some(_) => return Err(ApiError::field(fields.name("schema"), "must be an object")),
        },
        Some("json_schema") => json_schema(fields.take("json_schema"))?,
        _ => {
            let text = "must be text, json_object or json_schema";
            return Err(ApiError::field(fields.name("type"), text));
        }
    };
    fields.end()?;
    Ok(format)
}

fn json_schema(value: Option<Value>) -> Result<ResponseFormat, ApiError> {
    let path = "response_format.json_schema";
    let value = value.ok_or_else(|| ApiError::field(path, "is missing"))?;
    let mut fields = Fields::new(value, path)?;
    if let Some(name) = fields.text("name")? {
        check_name(&name, &fields.name("name"))?;
    }
    fields.text("description")?;
    // The schema is always followed.
    fields.optional_flag("strict")?;
    let schema = match fields.take("schema") {
        Some(schema @ (Value::Object(_) | Value::Bool(true))) => schema,
        Some(_) => return Err(ApiError::field(fields.name("schema"), "must be an object")),
        None => return Err(ApiError::field(fields.name("schema"), "is missing")),
    };
    fields.end()?;
    Ok(ResponseFormat::JsonSchema(schema.to_string()))
}

/// Parses `tools`.
pub(super) fn tools(value: Option<Value>) -> Result<Vec<Tool>, ApiError> {
    tools_by(value, "function.name", tool)
}

/// Parses a list of tools, each by `tool`; `name` is the path of the name in one.
pub(super) fn tools_by(
    value: Option<Value>,
    name: &str,
    tool: impl Fn(usize, Value) -> Result<Tool, ApiError>,
) -> Result<Vec<Tool>, ApiError> {
    let list = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() <= MAX_TOOLS => list,
        Some(_) => {
            let text = format!("must be a list of at most {MAX_TOOLS} tools");
            return Err(ApiError::field("tools", text));
        }
    };
    let mut tools: Vec<Tool> = Vec::new();
    for (index, value) in list.into_iter().enumerate() {
        let tool = tool(index, value)?;
        if tools.iter().any(|other| other.name == tool.name) {
            let text = format!("{:?} is the name of another tool", tool.name);
            return Err(ApiError::field(format!("tools[{index}].{name}"), text));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn tool(index: usize, value: Value) -> Result<Tool, ApiError> {
    let mut fields = Fields::new(value, format!("tools[{index}]"))?;
    if fields.text("type")?.as_deref() != Some("function") {
        let error =
            ApiError::field(fields.name("type"), "only tools of type function are supported");
        return Err(error.code("unsupported"));
    }
    let path = fields.name("function");
    let function = fields.take("function");
    let function = function.ok_or_else(|| ApiError::field(path.as_str(), "is missing"))?;
    // Other fields (`cache_control`) are for other servers.
    let mut function = Fields::new(function, path)?;
    function_tool(&mut function, "parameters")
}

/// Parses name, description and the schema of the arguments, in the field `schema`.
pub(super) fn function_tool(function: &mut Fields, schema: &str) -> Result<Tool, ApiError> {
    let name = function.text("name")?.unwrap_or_default();
    check_name(&name, &function.name("name"))?;
    let description = function.text("description")?;
    let strict = function.optional_flag("strict")?.unwrap_or(false);
    let parameters = match function.take(schema) {
        None => None,
        Some(schema @ Value::Object(_)) => Some(schema),
        Some(_) => return Err(ApiError::field(function.name(schema), "must be an object")),
    };
    let schema =
        parameters.clone().unwrap_or_else(|| json!({ "type": "object", "properties": {} }));
    let json = json!({
        "type": "function",
        "function": {
            "name": name,
            "description": description.unwrap_or_default(),
            "parameters": schema,
        },
    });
    Ok(Tool { name, parameters, strict, json: json.to_string() })
}

/// Checks a name: letters, digits and a few marks, none of which means something in a format.
pub(super) fn check_name(name: &str, field: &str) -> Result<(), ApiError> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "_-.:/".contains(c);
    match (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_fine) {
        true => Ok(()),
        false => {
            let text = format!("must be 1 to {MAX_NAME} letters, digits, _, -, ., : or /");
            Err(ApiError::field(field, text))
        }
    }
}

/// Parses `tool_choice`.
pub(super) fn choice(value: Option<Value>, tools: &[Tool]) -> Result<Choice, ApiError> {
    choice_by(value, tools, |mut fields| {
        let inside = fields.name("function");
        let function = fields.take("function");
        let function = function.ok_or_else(|| ApiError::field(inside.as_str(), "is missing"))?;
        named(&mut Fields::new(function, inside)?, tools)
    })
}

/// Parses `tool_choice`, an object by `named`.
pub(super) fn choice_by(
    value: Option<Value>,
    tools: &[Tool],
    named: impl Fn(Fields) -> Result<Choice, ApiError>,
) -> Result<Choice, ApiError> {
    let path = "tool_choice";
    let choice = match value {
        None if tools.is_empty() => return Ok(Choice::None),
        None => return Ok(Choice::Auto),
        Some(Value::String(word)) => match word.as_str() {
            "none" => return Ok(Choice::None),
            "auto" if tools.is_empty() => return Ok(Choice::None),
            "auto" => return Ok(Choice::Auto),
            "required" => Choice::Required,
            _ => {
                let text = "must be none, auto, required or an object with a function";
                return Err(ApiError::field(path, text));
            }
        },
        Some(value) => {
            let mut fields = Fields::new(value, path)?;
            if fields.text("type")?.as_deref() != Some("function") {
                let error = ApiError::field(fields.name("type"), "only function is supported");
                return Err(error.code("unsupported"));
            }
            named(fields)?
        }
    };
    match tools.is_empty() {
        true => Err(ApiError::field(path, "there are no tools")),
        false => Ok(choice),
    }
}

/// Parses the name of the tool that must be called.
pub(super) fn named(fields: &mut Fields, tools: &[Tool]) -> Result<Choice, ApiError> {
    let name = fields.text("name")?.unwrap_or_default();
    match tools.iter().position(|tool| tool.name == name) {
        Some(index) => Ok(Choice::Named(index)),
        None => {
            let shown: String = name.chars().take(MAX_NAME).collect();
            Err(ApiError::field(fields.name("name"), format!("there is no tool {shown:?}")))
        }
    }
}

/// Refuses an answer that must be a call and have a format. `field` is the one of the format.
pub(super) fn check_forced(
    choice: &Choice,
    format: &ResponseFormat,
    field: &str,
) -> Result<(), ApiError> {
    match matches!(choice, Choice::Required | Choice::Named(_)) && *format != ResponseFormat::Text {
        true => {
            let text = "cannot be combined with a tool_choice that forces a call";
            Err(ApiError::field(field, text))
        }
        false => Ok(()),
    }
}
