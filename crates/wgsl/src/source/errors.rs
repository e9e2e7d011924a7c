//! Parses and validates WGSL, and reports errors in WGSL's terms, with file, line and column.

use std::panic::{AssertUnwindSafe, catch_unwind};

use naga::front::wgsl::ParseError;
use naga::valid::{Capabilities, ModuleInfo, SubgroupOperationSet, ValidationFlags, Validator};
use naga::{Module, Span};

use super::overrides::Settled;
use super::portable::{needs_extension, unknown_extension};
use super::scan::{is_word, without_comments, words};
use super::{invalid, portable};
use warploom_core::error::{Error, Result};

/// Maximum number of bytes of a source line that a message shows.
const SHOWN: usize = 160;

/// A position in a file: line and column from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub line: u32,
    /// The column, in bytes.
    pub column: u32,
}

impl Place {
    pub(super) fn at(text: &str, byte: usize) -> Place {
        let before = text.get(..byte).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        Place {
            line: before.matches('\n').count() as u32 + 1,
            column: (before.len() - start) as u32 + 1,
        }
    }
}

/// A source text with its file name, for messages.
#[derive(Debug)]
pub struct Words<'a> {
    file: &'a str,
    /// The text as written.
    original: &'a str,
    settled: Option<&'a Settled<'a>>,
}

impl<'a> Words<'a> {
    /// Creates a text without override values.
    pub fn new(file: &'a str, original: &'a str) -> Words<'a> {
        Words { file, original, settled: None }
    }

    /// Creates a text with its override values.
    pub fn settled(file: &'a str, original: &'a str, settled: &'a Settled<'a>) -> Words<'a> {
        Words { file, original, settled: Some(settled) }
    }

    /// Returns the text that the parser sees.
    pub fn text(&self) -> &str {
        self.settled.map_or(self.original, |settled| &settled.text)
    }

    /// Formats `file:line:column: what`, followed by that line. `at` is a byte offset in the parsed
    /// text; without one, the result is `file: what`.
    pub fn located(&self, at: Option<usize>, what: &str) -> String {
        let file = self.file;
        let Some(at) = at else { return format!("{file}: {what}") };
        let at = self.settled.map_or(at, |settled| settled.original(at));
        let Place { line, column } = Place::at(self.original, at);
        let shown = self.original.lines().nth(line as usize - 1).unwrap_or_default().trim();
        let mut end = shown.len().min(SHOWN);
        while !shown.is_char_boundary(end) {
            end -= 1;
        }
        let dots = if end < shown.len() { ".." } else { "" };
        format!("{file}:{line}:{column}: {what}\n  {}{dots}", &shown[..end])
    }

    /// Returns a compile error at a span of the parsed text.
    pub fn fail(&self, span: Option<Span>, what: &str) -> Error {
        let range = span.and_then(Span::to_range);
        let of = range.clone().map_or(String::new(), |range| self.values_in(range));
        let at = range.map(|range| range.start).or_else(|| self.first_named(what));
        Error::compile(self.located(at, &format!("{what}{of}")))
    }

    /// Returns the byte offset in the text of the first name that a message quotes.
    fn first_named(&self, what: &str) -> Option<usize> {
        let name = what.split('`').nth(1)?;
        let code = without_comments(self.text());
        words(&code).find(|(_, word)| *word == name).map(|(at, _)| at)
    }

    /// Returns the line, in the original text, of a byte offset in the parsed text.
    pub fn line(&self, at: usize) -> u32 {
        Place::at(self.original, self.settled.map_or(at, |settled| settled.original(at))).line
    }

    /// Returns an unsupported error at a span of the parsed text, for a valid construct that is not
    /// supported.
    pub fn refused(&self, span: Span, what: &str) -> Error {
        Error::unsupported(self.located(span.to_range().map(|range| range.start), what))
    }

    /// Returns the span of an entry point's `workgroup_size(..)`.
    pub fn size_of_workgroup(&self, entry: &str) -> Option<Span> {
        let code = without_comments(self.text());
        let (mut found, mut before) = (None, "");
        for (at, word) in words(&code) {
            match (before, word) {
                (_, "workgroup_size") => found = Some(at),
                ("fn", name) if name == entry => break,
                ("fn", _) => found = None,
                _ => {}
            }
            before = word;
        }
        let start = found?;
        let end = code[start..].find(')').map_or(code.len(), |end| start + end);
        Some(Span::from(start..end))
    }

    /// Formats the values of the overrides in a range of the text, for messages.
    pub fn values_in(&self, range: std::ops::Range<usize>) -> String {
        let Some(settled) = self.settled else { return String::new() };
        let part = self.text().get(range).unwrap_or_default();
        let mut found = Vec::new();
        for (_, word) in words(&without_comments(part)) {
            let value = settled.values.iter().find(|(name, _)| name == word);
            let described = value.map(|(name, value)| format!("override `{name}` is {value}"));
            found.extend(described.filter(|described| !found.contains(described)));
        }
        match found.is_empty() {
            true => String::new(),
            false => format!(": {}", found.join(", ")),
        }
    }

    /// Returns the value of an override.
    fn value_of(&self, name: &str) -> Option<&str> {
        let value = self.settled?.values.iter().find(|(known, _)| known == name);
        value.map(|(_, value)| value.as_str())
    }

    /// Returns the name of the variable, member or alias that is declared with the type at byte
    /// offset `at` of the text.
    pub fn declared_at(&self, at: usize) -> Option<String> {
        let code = without_comments(self.text());
        let before = code.get(..at)?;
        let start = before.rfind([';', '{', '}']).map_or(0, |at| at + 1);
        let part = &before[start..];
        if let Some(colon) = part.rfind(':') {
            let name = part[..colon].trim_end();
            let begin = name.bytes().rposition(|b| !is_word(b)).map_or(0, |at| at + 1);
            return Some(name[begin..].to_string()).filter(|name| !name.is_empty());
        }
        let alias = part.trim_start().strip_prefix("alias")?;
        alias.split('=').next().map(|name| name.trim().to_string())
    }
}

/// Parses a text without validation.
///
/// # Errors
/// Compile, with file, line and column, if the text is not valid.
pub fn parse_only(words: &Words) -> Result<Module> {
    let text = words.text();
    if let Some((at, what)) = too_deep(&without_comments(text)) {
        return Err(Error::compile(words.located(Some(at), &what)));
    }
    let parsed = guarded(words, || naga::front::wgsl::parse_str(text))?;
    parsed.map_err(|error| of_parser(words, &error))
}

/// Parses and validates a text with all capabilities of the validator; [`portable::not_portable`]
/// finds the features that a device may lack.
///
/// # Errors
/// Compile, with file, line and column, if the text is not valid.
pub fn parse(words: &Words) -> Result<(Module, ModuleInfo)> {
    let module = parse_only(words)?;
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    validator
        .subgroup_stages(naga::valid::ShaderStages::all())
        .subgroup_operations(SubgroupOperationSet::all());
    let checked = guarded(words, || validator.validate(&module).map_err(Box::new))?;
    match checked {
        Ok(info) => Ok((module, info)),
        Err(error) => Err(invalid::invalid_module(words, &module, &error)),
    }
}

/// Maximum number of unary operators in a row. Parsers, including those of drivers, recurse for
/// each of them, as they do for each operator of a statement and each `else if`.
const MAX_UNARY: usize = 64;
/// Maximum number of operators in a statement.
const MAX_OPERATORS: usize = 1024;
/// Maximum number of `else if` links in a function.
const MAX_ELSE_IF: usize = 200;

/// Returns the byte offset at which a text without comments first exceeds [`MAX_UNARY`],
/// [`MAX_OPERATORS`] or [`MAX_ELSE_IF`], with a message.
fn too_deep(code: &str) -> Option<(usize, String)> {
    let (mut unary, mut operators, mut chain) = (0, 0, 0);
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'-' | b'~' | b'!' | b'*' | b'&' => (unary, operators) = (unary + 1, operators + 1),
            b'+' | b'/' | b'%' | b'|' | b'^' => (unary, operators) = (0, operators + 1),
            b';' | b'{' | b'}' => (unary, operators) = (0, 0),
            _ if byte.is_ascii_whitespace() => {}
            _ => unary = 0,
        }
        let what = match () {
            () if unary > MAX_UNARY => format!("more than {MAX_UNARY} operators in a row"),
            () if operators > MAX_OPERATORS => {
                format!(
                    "more than {MAX_OPERATORS} operators in one statement: move parts into a let"
                )
            }
            () => continue,
        };
        return Some((at, what));
    }
    let mut before = "";
    for (at, word) in words(code) {
        match (before, word) {
            ("else", "if") => chain += 1,
            (_, "fn") => chain = 0,
            _ => {}
        }
        if chain > MAX_ELSE_IF {
            return Some((
                at,
                format!("more than {MAX_ELSE_IF} times `else if` in one function: use a switch"),
            ));
        }
        before = word;
    }
    None
}

/// Runs a parser function, and turns a panic of the parser into an error.
fn guarded<T>(words: &Words, run: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let what = panic.downcast_ref::<&str>().map(|what| what.to_string());
        let what = what.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        let what = format!("the WGSL compiler stopped at an internal error: {what}");
        Error::compile(words.located(None, &what))
    })
}

fn of_parser(words: &Words, error: &ParseError) -> Error {
    let code = without_comments(words.text());
    if let Some((at, what)) = needs_extension(&code).or_else(|| unknown_extension(&code)) {
        return Error::compile(words.located(Some(at), &what));
    }
    let label = error.labels().next().map(|(span, label)| (span, label.to_string()));
    let span = label.as_ref().map(|(span, _)| *span).filter(|span| span.is_defined());
    let message = error.message();
    if message.contains("array element count must be positive") {
        return Error::compile(no_elements(words, span));
    }
    if message.contains("enable extension is not enabled") {
        let name = message.split('`').nth(1).unwrap_or_default();
        return words.fail(span, &portable::extension(name));
    }
    if error.notes().any(|note| note.contains("recursion limit")) {
        let what =
            "brackets nest deeper here than compilers support: move parts into a let or an alias";
        return Error::compile(words.located(Some(deepest(&code)), what));
    }
    let mut what = in_wgsl(message);
    let own = plainer(message, label.as_ref().map_or("", |(_, label)| label));
    if let Some(own) = &own {
        what.clone_from(own);
    } else if let Some((_, label)) = &label {
        let label = in_wgsl(label);
        if label != "see msg" && !label.is_empty() && !what.contains(&label) {
            what = format!("{what}: {label}");
        }
    }
    let notes = error.notes().filter(|note| own.is_none() && !of_a_library(note)).map(in_wgsl);
    let notes: Vec<String> = notes.map(|note| format!("\n  {note}")).collect();
    let of = span.and_then(Span::to_range).map_or(String::new(), |range| words.values_in(range));
    let at = span.and_then(Span::to_range).map(|range| range.start);
    let at = at
        .or_else(|| message.contains("type is too large").then(|| largest(words, &code)).flatten());
    Error::compile(words.located(at, &format!("{what}{of}")) + &notes.concat())
}

/// Rewrites a parser message that concerns the parser itself in terms of the shader; `None` for
/// other messages.
fn plainer(message: &str, label: &str) -> Option<String> {
    if let Some(what) = message.strip_prefix("Not implemented as constant expression: ") {
        let name = what.split(' ').next().unwrap_or_default();
        let name = match name {
            "SmoothStep" => "smoothstep".into(),
            _ => name[..1.min(name.len())].to_lowercase() + name.get(1..).unwrap_or_default(),
        };
        return Some(format!("`{name}` of constants is not evaluated: pass a `var` of a function"));
    }
    if message.starts_with("failed to convert expression to a concrete type") {
        let ty = in_wgsl(label.rsplit(' ').next().unwrap_or_default());
        return Some(format!(
            "the numbers here have no concrete type ({ty}): give one of them a suffix, as in \
             1.0f or 1i"
        ));
    }
    if let Some(to) = message.strip_prefix("Cannot cast scalar components of expression") {
        let ty = to.rsplit('`').nth(1).unwrap_or_default();
        return Some(format!("this cannot be converted to `{ty}`"));
    }
    if message.contains("type is too large") {
        return Some("this type exceeds the limit of 2147483647 bytes".into());
    }
    None
}

/// Returns the byte offset of the most deeply nested opening bracket.
fn deepest(code: &str) -> usize {
    let (mut open, mut most) = (0_usize, (0, 0));
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' | b'<' => open += 1,
            b')' | b']' | b'}' | b'>' => open = open.saturating_sub(1),
            _ => {}
        }
        if open > most.0 {
            most = (open, at);
        }
    }
    most.1
}

/// Returns the byte offset of the largest array type in the text.
fn largest(settled: &Words, code: &str) -> Option<usize> {
    let arrays = words(code).filter(|(_, word)| *word == "array").map(|(at, _)| at);
    arrays.max_by_key(|at| {
        let rest = &code[*at..];
        let end = rest.find(['(', ';', '{', '=', ')']).unwrap_or(rest.len());
        let number = |word: &str| word.trim_end_matches(['u', 'i']).parse::<u64>().ok();
        let sizes = words(&rest[..end])
            .filter_map(|(_, word)| number(word).or_else(|| number(settled.value_of(word)?)));
        sizes.fold(1_u64, u64::saturating_mul)
    })
}

/// Returns the message for an array whose size is zero or negative.
fn no_elements(words: &Words, span: Option<Span>) -> String {
    let Some(range) = span.and_then(Span::to_range) else {
        return words.located(None, "an array has no elements");
    };
    let array = match words.declared_at(range.start) {
        Some(name) => format!("array `{name}`"),
        None => "this array".to_string(),
    };
    let size = words.text().get(range.clone()).unwrap_or_default().trim();
    let of = words.values_in(range.clone());
    let zero = size.trim_end_matches(['u', 'i']) == "0" || of.ends_with(&format!("`{size}` is 0"));
    let what = match zero {
        true => format!("{array} has 0 elements{of}"),
        false => format!("the size of {array}, {size}, is not from 1 to 4294967295{of}"),
    };
    words.located(Some(range.start), &what)
}

/// Returns whether a note refers to the parser library.
fn of_a_library(note: &str) -> bool {
    ["naga", "wgpu", "github.com", "file an issue"]
        .iter()
        .any(|word| note.to_lowercase().contains(word))
}

/// Removes the parser's own name and internal indices from a message.
pub(super) fn in_wgsl(message: &str) -> String {
    let message =
        message.replace("{AbstractFloat}", "AbstractFloat").replace("{AbstractInt}", "AbstractInt");
    let mut out = String::new();
    let mut rest = message.as_str();
    // ` [12]` is an internal index of the parser.
    while let Some((before, after)) = rest.split_once(" [") {
        match after.split_once(']') {
            Some((number, after)) if number.bytes().all(|b| b.is_ascii_digit()) => {
                out.push_str(before);
                rest = after;
            }
            _ => {
                out.push_str(before);
                out.push_str(" [");
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out.trim().trim_end_matches('.').to_string()
}
