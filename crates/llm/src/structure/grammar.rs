//! The grammars that can be compiled, and their checks before the compiler sees them.

use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use warploom::{Error, Result};

/// Maximum size of the text of a grammar, in bytes.
pub const MAX_GRAMMAR: usize = 512 << 10;
/// Maximum nesting of brackets in an expression or a Lark grammar.
const MAX_NESTING: usize = 100;
/// White space between the tokens of JSON. It is bounded, because small models may repeat it without
/// an end.
const WHITE_SPACE: &str = r"[\x20\x0A\x09]{1,32}";
/// Key by which a schema sets options of the compiler.
const OPTIONS: &str = "x-guidance";

/// What an answer must follow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grammar {
    /// JSON that is valid by this JSON schema, given as JSON. Keys are written in the order of
    /// `properties`.
    JsonSchema(String),
    /// Any JSON object.
    JsonObject,
    /// A text that matches this regular expression from its beginning to its end.
    Regex(String),
    /// A grammar in the Lark syntax of `llguidance`, with the start rule `start`.
    Lark(String),
}

impl Grammar {
    /// Returns the text of the grammar.
    fn text(&self) -> &str {
        match self {
            Grammar::JsonSchema(text) | Grammar::Regex(text) | Grammar::Lark(text) => text,
            Grammar::JsonObject => "",
        }
    }

    /// Checks the grammar and converts it to the compiler's input.
    pub(super) fn prepare(&self) -> Result<TopLevelGrammar> {
        let bytes = self.text().len();
        if bytes > MAX_GRAMMAR {
            let text = format!("a grammar of {bytes} bytes, the limit is {MAX_GRAMMAR}");
            return Err(Error::invalid(text));
        }
        match self {
            Grammar::JsonSchema(text) => Ok(TopLevelGrammar::from_json_schema(schema(text)?)),
            Grammar::JsonObject => {
                Ok(TopLevelGrammar::from_json_schema(schema("{\"type\":\"object\"}")?))
            }
            Grammar::Regex(text) => {
                check_nesting(text)?;
                Ok(TopLevelGrammar::from_regex(text))
            }
            Grammar::Lark(text) => {
                check_nesting(text)?;
                Ok(TopLevelGrammar::from_lark(text.clone()))
            }
        }
    }

    /// Returns a JSON schema as a value of a Lark rule.
    ///
    /// # Errors
    /// Invalid if the text is no schema.
    pub fn lark_of_schema(text: &str) -> Result<String> {
        Ok(format!("%json {}", schema(text)?))
    }
}

/// Parses a schema and sets the options of the compiler.
fn schema(text: &str) -> Result<Value> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| Error::invalid(format!("the schema is no JSON: {error}")))?;
    let mut map = match value {
        Value::Object(map) => map,
        Value::Bool(true) => serde_json::Map::new(),
        _ => return Err(Error::invalid("a schema must be an object")),
    };
    if map.contains_key(OPTIONS) {
        return Err(Error::invalid(format!("the keyword {OPTIONS} is not supported")));
    }
    map.insert(OPTIONS.into(), json!({ "whitespace_pattern": WHITE_SPACE }));
    Ok(Value::Object(map))
}

/// Refuses brackets that are nested deeply, whether or not they are in a literal.
fn check_nesting(text: &str) -> Result<()> {
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    match deepest > MAX_NESTING {
        true => {
            let text = format!("brackets are nested {deepest} deep, the limit is {MAX_NESTING}");
            Err(Error::invalid(text))
        }
        false => Ok(()),
    }
}
