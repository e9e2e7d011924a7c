//! The grammars that can be compiled, and their checks before the compiler sees them.

use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use warploom::{Error, Result};

/// Maximum size of the text of a grammar, in bytes.
pub const MAX_GRAMMAR: usize = 512 << 10;
/// Maximum nesting of brackets in an expression or a Lark grammar.
const MAX_NESTING: usize = 100;
/// White space that may stand between two tokens of JSON: one space. Small models would otherwise
/// repeat it up to any bound.
const WHITE_SPACE: &str = r"\x20";
/// Maximum number of `pattern`s in a schema that may require several of them at once: the compiler
/// needs time that is exponential in their number, which its limits do not cover. 20 took 4 seconds.
const MAX_JOINED_PATTERNS: usize = 12;
/// Maximum number of keys of `patternProperties`, which the compiler compares in pairs.
const MAX_PATTERN_KEYS: usize = 64;

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
    let mut patterns = Patterns::default();
    map.iter().for_each(|(_, value)| patterns.count(value));
    patterns.count_object(&map);
    patterns.check()?;
    map.insert(OPTIONS.into(), json!({ "whitespace_pattern": WHITE_SPACE }));
    Ok(Value::Object(map))
}

/// The regular expressions of a schema.
#[derive(Default)]
struct Patterns {
    patterns: usize,
    keys: usize,
    /// Whether several patterns may apply to one string.
    joined: bool,
}

impl Patterns {
    fn count(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.count(item)),
            Value::Object(map) => {
                self.count_object(map);
                map.values().for_each(|value| self.count(value));
            }
            _ => {}
        }
    }

    fn count_object(&mut self, map: &serde_json::Map<String, Value>) {
        self.patterns += usize::from(map.get("pattern").is_some_and(Value::is_string));
        let keys = map.get("patternProperties").and_then(Value::as_object);
        self.keys += keys.map_or(0, serde_json::Map::len);
        let applied = ["pattern", "allOf", "anyOf", "oneOf", "$ref"];
        let applied = applied.iter().filter(|name| map.contains_key(**name)).count();
        self.joined |= applied > 1 || map.contains_key("allOf");
    }

    fn check(&self) -> Result<()> {
        if self.joined && self.patterns > MAX_JOINED_PATTERNS {
            return Err(Error::invalid(format!(
                "{} keywords pattern together with allOf or the like, the limit is \
                 {MAX_JOINED_PATTERNS}",
                self.patterns
            )));
        }
        if self.keys > MAX_PATTERN_KEYS {
            return Err(Error::invalid(format!(
                "{} keys of patternProperties, the limit is {MAX_PATTERN_KEYS}",
                self.keys
            )));
        }
        Ok(())
    }
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
