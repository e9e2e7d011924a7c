//! Reads one call from text that arrives in pieces.
//!
//! As soon as the name is known, the arguments are passed on as they arrive. A call in another
//! order of keys, or with arguments that are no object, is read when it is whole.

use serde_json::Value;

use super::{Body, Format, Tool};

/// Maximum bytes before the arguments; a longer beginning is no call.
const MAX_HEAD: usize = 4096;

/// A part of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Begin(String),
    Arguments(String),
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// More text is needed.
    Open,
    /// The call is complete; the rest of the text follows it.
    Complete(String),
    /// The text is no call.
    NoCall,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before the arguments.
    Head,
    /// In the arguments.
    Arguments,
    /// After the arguments.
    Tail,
}

/// Where JSON ends: brackets and strings that are open.
#[derive(Clone, Copy, Debug, Default)]
struct Nesting {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Nesting {
    /// Advances by a byte; returns whether it closes the outermost bracket.
    fn closes(&mut self, byte: u8) -> bool {
        match (self.in_string, byte) {
            (true, _) if self.escaped => self.escaped = false,
            (true, b'\\') => self.escaped = true,
            (true, b'"') => self.in_string = false,
            (true, _) => {}
            (false, b'"') => self.in_string = true,
            (false, b'{' | b'[') => self.depth += 1,
            (false, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            (false, _) => {}
        }
        false
    }
}

/// A reader of the calls after one start marker.
#[derive(Debug)]
pub(super) struct Call {
    body: Body,
    end: &'static str,
    phase: Phase,
    /// The text that is not yet passed on; in the head, all of it.
    text: String,
    nesting: Nesting,
    /// Whether a part was passed on.
    began: bool,
    /// Whether an item of a list was complete.
    in_list: bool,
}

/// The beginning of a call: incomplete, wrong, or its name and the offset of its arguments.
enum Head {
    Open,
    Wrong,
    Found(String, usize),
}

impl Call {
    pub(super) fn new(format: &Format) -> Call {
        Call {
            body: format.body,
            end: format.end,
            phase: Phase::Head,
            text: String::new(),
            nesting: Nesting::default(),
            began: false,
            in_list: false,
        }
    }

    /// Returns the text of a call that did not begin.
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Appends text, and the parts that it completes to `parts`.
    pub(super) fn push(&mut self, text: &str, tools: &[Tool], parts: &mut Vec<Part>) -> Status {
        self.text.push_str(text);
        loop {
            match self.phase {
                Phase::Head => match self.head() {
                    Head::Open => return Status::Open,
                    Head::Wrong => return self.whole(tools, parts),
                    Head::Found(name, at) => {
                        // Without a marker, only the name of a tool makes a text a call.
                        if self.end.is_empty()
                            && matches!(self.body, Body::Json(_))
                            && !tools.iter().any(|tool| tool.name == name)
                        {
                            return Status::NoCall;
                        }
                        parts.push(Part::Begin(name));
                        self.text.drain(..at);
                        (self.began, self.phase) = (true, Phase::Arguments);
                        self.nesting = Nesting::default();
                    }
                },
                Phase::Arguments => {
                    let closes = |byte: u8| self.nesting.closes(byte);
                    let end = self.text.bytes().position(closes);
                    let rest = self.text.split_off(end.map_or(self.text.len(), |at| at + 1));
                    let arguments = std::mem::replace(&mut self.text, rest);
                    if !arguments.is_empty() {
                        parts.push(Part::Arguments(arguments));
                    }
                    if end.is_none() {
                        return Status::Open;
                    }
                    self.phase = Phase::Tail;
                }
                Phase::Tail => match self.tail() {
                    Some(status) => return status,
                    // Another item of the list.
                    None => self.phase = Phase::Head,
                },
            }
        }
    }

    /// Ends the text. Returns whether it is a call, even if it is not complete.
    pub(super) fn finish(&mut self, tools: &[Tool], parts: &mut Vec<Part>) -> bool {
        if !self.began && self.phase == Phase::Head {
            let end = self.end;
            self.text.push_str(end);
            if matches!(self.whole(tools, parts), Status::Complete(_)) {
                return true;
            }
            self.text.truncate(self.text.len() - end.len());
        }
        self.began
    }

    /// Reads the text before the arguments.
    fn head(&self) -> Head {
        let found = match self.body {
            Body::Json(key) => json_head(&self.text, key),
            Body::List(key) => {
                let text = self.text.trim_start();
                let open = if self.in_list { "," } else { "[" };
                match text.strip_prefix(open) {
                    Some(rest) => match json_head(rest, key) {
                        Head::Found(name, at) => {
                            Head::Found(name, self.text.len() - rest.len() + at)
                        }
                        other => other,
                    },
                    None if text.is_empty() => Head::Open,
                    None => Head::Wrong,
                }
            }
            Body::Named(mark) => named_head(&self.text, mark),
            // Read when they are whole. Harmony has a reader of its own.
            Body::Xml | Body::Harmony => match self.text.contains(self.end) {
                true => Head::Wrong,
                false => return Head::Open,
            },
        };
        match found {
            // The marker of the end is not part of a name.
            Head::Found(_, at) if !self.end.is_empty() && self.text[..at].contains(self.end) => {
                Head::Wrong
            }
            // A call without an order of its own may be whole before it is read.
            Head::Open if self.text.len() > MAX_HEAD && self.end.is_empty() => Head::Wrong,
            Head::Open if !self.end.is_empty() && self.text.contains(self.end) => Head::Wrong,
            other => other,
        }
    }

    /// Reads the text after the arguments; `None` if another call of a list follows.
    fn tail(&mut self) -> Option<Status> {
        if let Body::Named(_) = self.body {
            return Some(Status::Complete(std::mem::take(&mut self.text)));
        }
        if !self.end.is_empty() {
            let Some(at) = self.text.find(self.end) else { return Some(Status::Open) };
            let rest = self.text.split_off(at + self.end.len());
            self.text.clear();
            return Some(Status::Complete(rest));
        }
        let text = self.text.trim_start();
        let Some(rest) = text.strip_prefix('}') else {
            return Some(match text.is_empty() {
                true => Status::Open,
                // Other keys after the arguments are left out.
                false => Status::Complete(std::mem::take(&mut self.text)),
            });
        };
        if !matches!(self.body, Body::List(_)) {
            return Some(Status::Complete(rest.to_owned()));
        }
        let next = rest.trim_start();
        match next.chars().next() {
            None => Some(Status::Open),
            Some(',') => {
                (self.text, self.in_list) = (next.to_owned(), true);
                None
            }
            Some(other) => {
                let rest = next.strip_prefix(other).filter(|_| other == ']');
                Some(Status::Complete(rest.unwrap_or(next).to_owned()))
            }
        }
    }

    /// Reads a call that is not in the usual order, once it is whole.
    fn whole(&mut self, tools: &[Tool], parts: &mut Vec<Part>) -> Status {
        if self.began {
            // The end of a list that is not well formed.
            return Status::Complete(std::mem::take(&mut self.text));
        }
        if self.end.is_empty() {
            return Status::NoCall;
        }
        let Some(at) = self.text.find(self.end) else { return Status::Open };
        let body = &self.text[..at];
        let read = match self.body {
            Body::Xml => read_xml(body, tools),
            Body::Json(_) | Body::List(_) | Body::Named(_) | Body::Harmony => read_json(body),
        };
        let Some((name, arguments)) = read else { return Status::NoCall };
        parts.extend([Part::Begin(name), Part::Arguments(arguments)]);
        self.began = true;
        let rest = self.text.split_off(at + self.end.len());
        Status::Complete(rest)
    }
}

/// Reads `{"name": "..", KEY: ` up to the opening bracket of the arguments.
fn json_head(text: &str, key: &str) -> Head {
    let mut rest = text;
    for token in ["{", "\"name\"", ":"] {
        match expect(rest, token) {
            Ok(after) => rest = after,
            Err(head) => return head,
        }
    }
    rest = rest.trim_start();
    let mut names = serde_json::Deserializer::from_str(rest).into_iter::<String>();
    let name = match names.next() {
        Some(Ok(name)) => name,
        Some(Err(error)) if !error.is_eof() => return Head::Wrong,
        _ => return Head::Open,
    };
    rest = rest.get(names.byte_offset()..).unwrap_or_default();
    let quoted = format!("\"{key}\"");
    for token in [",", quoted.as_str(), ":"] {
        match expect(rest, token) {
            Ok(after) => rest = after,
            Err(head) => return head,
        }
    }
    rest = rest.trim_start();
    match rest.as_bytes().first() {
        Some(b'{') => Head::Found(name, text.len() - rest.len()),
        Some(_) => Head::Wrong,
        None => Head::Open,
    }
}

/// Returns the text after white space and a token.
fn expect<'a>(text: &'a str, token: &str) -> Result<&'a str, Head> {
    let text = text.trim_start();
    match text.strip_prefix(token) {
        Some(rest) => Ok(rest),
        None if token.starts_with(text) => Err(Head::Open),
        None => Err(Head::Wrong),
    }
}

/// Reads a name, the mark and the opening bracket of the arguments. An id between name and mark is
/// left out.
fn named_head(text: &str, mark: &str) -> Head {
    let Some(at) = text.find('{') else { return Head::Open };
    let head = text[..at].trim();
    let head = head.strip_suffix(mark).unwrap_or(head);
    let name = head.split("[CALL_ID]").next().unwrap_or_default().trim();
    match name.is_empty() || name.len() > MAX_HEAD || name.contains(char::is_whitespace) {
        true => Head::Wrong,
        false => Head::Found(name.to_owned(), at),
    }
}

/// Reads an object with the name and the arguments of a call.
fn read_json(text: &str) -> Option<(String, String)> {
    let value: Value = serde_json::from_str(text.trim()).ok()?;
    let name = value.get("name")?.as_str()?.to_owned();
    let arguments = value.get("arguments").or_else(|| value.get("parameters"));
    let arguments = match arguments {
        None | Some(Value::Null) => "{}".to_owned(),
        // Some models write them as a string that contains JSON.
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    Some((name, arguments))
}

/// Reads `<function=NAME>` with its parameters.
fn read_xml(text: &str, tools: &[Tool]) -> Option<(String, String)> {
    let (name, mut rest) = text.trim_start().strip_prefix("<function=")?.split_once('>')?;
    let name = name.trim();
    let tool = tools.iter().find(|tool| tool.name == name);
    let mut arguments = serde_json::Map::new();
    while let Some((_, after)) = rest.split_once("<parameter=") {
        let (key, after) = after.split_once('>')?;
        let ends = ["</parameter>", "<parameter=", "</function>"].map(|end| after.find(end));
        let end = ends.into_iter().flatten().min().unwrap_or(after.len());
        let value = after.get(..end)?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        let schema = tool.and_then(|tool| tool.parameters.as_ref());
        let schema = schema.and_then(|schema| schema.get("properties")?.get(key));
        arguments.insert(key.to_owned(), xml_value(value, schema));
        rest = after.get(end..)?;
    }
    Some((name.to_owned(), Value::Object(arguments).to_string()))
}

/// Converts the text of a parameter: JSON, unless its schema says that it is a string.
fn xml_value(text: &str, schema: Option<&Value>) -> Value {
    if schema.is_some_and(super::grammar::is_text) {
        return text.into();
    }
    serde_json::from_str(text.trim()).unwrap_or_else(|_| text.into())
}
