//! Grammars of calls in a format, in the Lark syntax of the constraint's compiler.

use std::collections::HashMap;
use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::harmony::{CALL, CHANNEL, CONSTRAIN, END, MESSAGE, START};
use super::{Body, Format, Tool};
use warploom::{Error, Result};
use warploom_llm::structure::Grammar;

/// Maximum number of calls in one answer.
const MAX_CALLS: usize = 32;

/// What a grammar of calls is made from.
pub(crate) struct Calls<'a> {
    pub(crate) format: &'static Format,
    pub(crate) tools: &'a [Tool],
    /// For each tool, whether its schema is left out, so that any object is allowed.
    pub(crate) loose: &'a [bool],
    /// Whether several calls may follow each other.
    pub(crate) parallel: bool,
    /// Whether the text up to [`Calls::marker`] is already written.
    pub(crate) after_marker: bool,
    /// The control tokens by name.
    pub(crate) controls: &'a HashMap<String, u32>,
}

/// Returns a literal of a rule.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns whether a parameter is written as text instead of JSON.
pub(super) fn is_text(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("string")
}

/// Returns a marker: its control token, or its text.
fn mark(controls: &HashMap<String, u32>, text: &str) -> String {
    match controls.get(text) {
        Some(id) => format!("<[{id}]>"),
        None => literal(text),
    }
}

/// Returns what may be before a message of gpt-oss that is forced: one with reasoning.
fn analysis(controls: &HashMap<String, u32>) -> String {
    // Only a control token ends a text of any length.
    if !controls.contains_key(END) {
        return String::new();
    }
    let [channel, message, end, start] = [CHANNEL, MESSAGE, END, START].map(|m| mark(controls, m));
    format!("({channel} \"analysis\" {message} /(.|\\n)*/ {end} {start} \"assistant\")?")
}

/// Returns the rule of an answer of gpt-oss whose last message follows the rule `content`.
pub(crate) fn final_message(controls: &HashMap<String, u32>, content: &str) -> String {
    let [channel, message] = [CHANNEL, MESSAGE].map(|m| mark(controls, m));
    format!("{} {channel} \"final\" {message} {content}", analysis(controls))
}

impl Calls<'_> {
    /// Returns the text after which a call is certain, if the answer is not constrained before it.
    pub(crate) fn marker(&self) -> &'static str {
        match (self.format.body, self.format.start) {
            (Body::Harmony, _) => "<|channel|>commentary to=functions.",
            (_, "") => "{\"name\": \"",
            (_, start) => start,
        }
    }

    /// Returns the rule of an answer without calls, whose text follows the rule `content`.
    pub(crate) fn content(&self, content: &str) -> String {
        match self.format.body {
            Body::Harmony => final_message(self.controls, content),
            _ => content.to_owned(),
        }
    }

    /// Returns the grammar.
    ///
    /// # Errors
    /// Invalid if a schema is not one of an object.
    pub(crate) fn lark(&self) -> Result<String> {
        let mut rules = String::new();
        let names: Vec<String> = (0..self.tools.len()).map(|i| format!("call_{i}")).collect();
        let any = names.join(" | ");
        let repeated = |first: &str, more: &str| match self.parallel {
            true => format!("{first} ({more}){{0,{}}}", MAX_CALLS - 1),
            false => first.to_owned(),
        };
        let mark = self.mark(self.format.start);
        let start = match (self.format.body, self.after_marker) {
            (Body::List(_), after) => {
                let list = repeated("any", "\", \" any");
                format!("{} \" \"? \"[\" {list} \"]\"", if after { "" } else { &mark })
            }
            (_, true) => "any".to_owned(),
            (Body::Json(_), false) if self.format.start.is_empty() => "any".to_owned(),
            (Body::Named(_), false) => {
                let one = format!("{mark} any");
                repeated(&one, &one)
            }
            (Body::Harmony, false) => {
                let analysis = analysis(self.controls);
                format!("{analysis} {mark} \"commentary to=functions.\" any")
            }
            (Body::Json(_) | Body::Xml, false) => {
                repeated(&format!("{mark} any"), &format!("\"\\n\" {mark} any"))
            }
        };
        let _ = write!(rules, "start: {start}\nany: {any}\n");
        for (index, tool) in self.tools.iter().enumerate() {
            let call = self.call(index, tool, &mut rules)?;
            let _ = writeln!(rules, "call_{index}: {call}");
        }
        Ok(rules)
    }

    fn mark(&self, text: &str) -> String {
        mark(self.controls, text)
    }

    /// Returns the rule of one call, and adds the rules that it needs.
    fn call(&self, index: usize, tool: &Tool, rules: &mut String) -> Result<String> {
        let name = Value::from(tool.name.as_str()).to_string();
        match self.format.body {
            Body::Json(key) => {
                let arguments = self.arguments(index, tool)?;
                let head = format!("{{\"name\": {name}, \"{key}\": ");
                if self.format.start.is_empty() {
                    let from = if self.after_marker { self.marker().len() } else { 0 };
                    let head = literal(head.get(from..).unwrap_or_default());
                    return Ok(format!("{head} {arguments} \"}}\""));
                }
                let end = self.mark(self.format.end);
                Ok(format!("{} {arguments} \"}}\\n\" {end}", literal(&format!("\n{head}"))))
            }
            Body::List(key) => {
                let arguments = self.arguments(index, tool)?;
                let head = literal(&format!("{{\"name\": {name}, \"{key}\": "));
                Ok(format!("{head} {arguments} \"}}\""))
            }
            Body::Named(mark) => {
                let arguments = self.arguments(index, tool)?;
                Ok(format!("{} {} {arguments}", literal(&tool.name), self.mark(mark)))
            }
            Body::Harmony => {
                let arguments = self.arguments(index, tool)?;
                let [constrain, message, end] = [CONSTRAIN, MESSAGE, CALL].map(|m| self.mark(m));
                let name = literal(&tool.name);
                let kind = format!("(\" \" {constrain} \"json\" | \" json\")?");
                Ok(format!("{name} {kind} {message} {arguments} {end}"))
            }
            Body::Xml => {
                let head = literal(&format!("\n<function={}>\n", tool.name));
                let parameters = self.parameters(index, tool, rules)?;
                let end = self.mark(self.format.end);
                Ok(format!("{head} {parameters} \"</function>\\n\" {end}"))
            }
        }
    }

    /// Returns the schema of a tool's arguments, which is one of an object.
    fn schema(&self, index: usize, tool: &Tool) -> Result<Value> {
        let mut schema = match &tool.parameters {
            _ if self.loose.get(index) == Some(&true) => json!({ "type": "object" }),
            Some(schema) => schema.clone(),
            // As in the OpenAI API, a function without parameters has none.
            None => json!({ "type": "object", "additionalProperties": false }),
        };
        let Some(map) = schema.as_object_mut() else {
            return Err(Error::invalid("a schema must be an object"));
        };
        match map.get("type") {
            None => drop(map.insert("type".into(), "object".into())),
            Some(kind) if kind == "object" => {}
            Some(other) => {
                return Err(Error::invalid(format!("type must be \"object\", is {other}")));
            }
        }
        Ok(schema)
    }

    fn arguments(&self, index: usize, tool: &Tool) -> Result<String> {
        Grammar::lark_of_schema(&self.schema(index, tool)?.to_string())
    }

    /// Returns the parameters of a call in XML, in the order of the schema.
    fn parameters(&self, index: usize, tool: &Tool, rules: &mut String) -> Result<String> {
        let schema = self.schema(index, tool)?;
        let empty = Map::new();
        let object = |key: &str| schema.get(key).and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array);
        let is_required = |key: &str| required.is_some_and(|all| all.iter().any(|one| one == key));
        let mut all = Vec::new();
        for (number, (key, value)) in object("properties").unwrap_or(&empty).iter().enumerate() {
            if key.contains(['>', '<', '\n']) {
                return Err(Error::invalid(format!("{key:?} cannot be written as a parameter")));
            }
            let head = literal(&format!("<parameter={key}>\n"));
            let end = "\"\\n</parameter>\\n\"";
            let inside = match (is_text(value), value.get("enum").and_then(Value::as_array)) {
                (true, Some(choices)) => {
                    let texts = choices.iter().filter_map(Value::as_str).map(literal);
                    format!("({}) {end}", texts.collect::<Vec<_>>().join(" | "))
                }
                (true, None) => {
                    let rule = format!("text_{index}_{number}");
                    let _ = writeln!(rules, "{rule}[suffix={end}]: /(.|\\n)*/");
                    rule
                }
                (false, _) => {
                    let mut value = value.as_object().cloned().unwrap_or_default();
                    // What references point to.
                    for defined in ["$defs", "definitions"] {
                        if let Some(found) = schema.get(defined) {
                            value.insert(defined.into(), found.clone());
                        }
                    }
                    let value = Value::Object(value).to_string();
                    format!("{} {end}", Grammar::lark_of_schema(&value)?)
                }
            };
            let rule = format!("parameter_{index}_{number}");
            let _ = writeln!(rules, "{rule}: {head} {inside}");
            all.push(if is_required(key) { rule } else { format!("{rule}?") });
        }
        Ok(all.join(" "))
    }
}
