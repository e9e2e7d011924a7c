//! Separates an answer that arrives in pieces into reasoning, content and calls.

use super::call::{Call, Part, Status};
use super::harmony::Harmony;
use super::{Format, Tool, partial};

const THINK: &str = "<think>";
const END_OF_THOUGHT: &str = "</think>";
/// A control token that Llama 3 may write before a call.
pub(super) const PYTHON_TAG: &str = "<|python_tag|>";

/// How an answer may begin with reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thoughts {
    /// It has none: `<think>` is text.
    None,
    /// It may begin with `<think>`.
    Maybe,
    /// The prompt ends with `<think>`.
    Open,
    /// It consists of messages in channels ([`Harmony`]).
    Channels,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Delta {
    Reasoning(String),
    Content(String),
    /// A call begins: the name of the function.
    Call(String),
    /// More of the arguments of the last call.
    Arguments(String),
}

#[derive(Debug)]
enum State {
    /// Before the first text that is not white space.
    Begin,
    Thinking,
    Content,
    Call(Call),
}

/// Separates an answer into its parts.
#[derive(Debug)]
pub(crate) enum Splitter {
    Marked(Marked),
    Harmony(Harmony),
}

impl Splitter {
    /// Creates a splitter. Without `calls`, calls are text.
    pub(crate) fn new(thoughts: Thoughts, calls: Option<(&'static Format, Vec<Tool>)>) -> Splitter {
        match thoughts {
            Thoughts::Channels => Splitter::Harmony(Harmony::new(calls.is_some())),
            _ => Splitter::Marked(Marked::new(thoughts, calls)),
        }
    }

    /// Appends text; returns the parts that are certain.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Delta> {
        match self {
            Splitter::Marked(marked) => marked.push(text),
            Splitter::Harmony(harmony) => harmony.push(text),
        }
    }

    /// Ends the answer; returns the parts that were held back.
    pub(crate) fn finish(&mut self) -> Vec<Delta> {
        match self {
            Splitter::Marked(marked) => marked.finish(),
            Splitter::Harmony(harmony) => harmony.finish(),
        }
    }
}

/// Separates an answer whose reasoning and calls stand between marks.
#[derive(Debug)]
pub(crate) struct Marked {
    state: State,
    calls: Option<(&'static Format, Vec<Tool>)>,
    /// Text whose meaning is not yet certain.
    held: String,
    /// Whether white space is left out until other text arrives.
    at_start: bool,
    /// Whether there was a call, after which others may follow.
    called: bool,
    /// Whether content was written since the beginning or the last call.
    wrote: bool,
}

impl Marked {
    fn new(thoughts: Thoughts, calls: Option<(&'static Format, Vec<Tool>)>) -> Marked {
        let state = match thoughts {
            Thoughts::None | Thoughts::Channels => State::Content,
            Thoughts::Maybe => State::Begin,
            Thoughts::Open => State::Thinking,
        };
        let held = String::new();
        Marked { state, calls, held, at_start: false, called: false, wrote: false }
    }

    fn push(&mut self, text: &str) -> Vec<Delta> {
        let mut out = Vec::new();
        self.held.push_str(text);
        while self.advance(&mut out) {}
        out
    }

    fn finish(&mut self) -> Vec<Delta> {
        let mut out = Vec::new();
        let held = std::mem::take(&mut self.held);
        match std::mem::replace(&mut self.state, State::Content) {
            State::Thinking => reasoning(&mut out, &held),
            State::Begin | State::Content => self.content(&mut out, &held),
            State::Call(mut call) => {
                let (tools, start) = match &self.calls {
                    Some((format, tools)) => (tools.as_slice(), format.start),
                    None => (&[][..], ""),
                };
                let mut parts = Vec::new();
                if call.finish(tools, &mut parts) {
                    self.parts(&mut out, parts);
                } else {
                    let text = format!("{start}{}", call.into_text());
                    self.content(&mut out, &text);
                }
            }
        }
        out
    }

    /// Handles the text that is held; returns whether there is more to do.
    fn advance(&mut self, out: &mut Vec<Delta>) -> bool {
        match &mut self.state {
            State::Begin => {
                let text = self.held.trim_start();
                if let Some(rest) = text.strip_prefix(THINK) {
                    self.held = rest.to_owned();
                    (self.state, self.at_start) = (State::Thinking, true);
                    return true;
                }
                if THINK.starts_with(text) {
                    return false;
                }
                self.state = State::Content;
                true
            }
            State::Thinking => self.think(out),
            State::Content => self.read_content(out),
            State::Call(_) => self.read_call(out),
        }
    }

    fn think(&mut self, out: &mut Vec<Delta>) -> bool {
        if self.at_start {
            self.held = self.held.trim_start().to_owned();
            self.at_start = self.held.is_empty();
        }
        if let Some(at) = self.held.find(END_OF_THOUGHT) {
            reasoning(out, self.held[..at].trim_end());
            self.held.drain(..at + END_OF_THOUGHT.len());
            (self.state, self.at_start) = (State::Content, true);
            return true;
        }
        // White space before the end is left out.
        let certain = self.held.len() - partial(&self.held, END_OF_THOUGHT);
        let certain = self.held[..certain].trim_end().len();
        reasoning(out, &self.held[..certain]);
        self.held.drain(..certain);
        false
    }

    fn read_content(&mut self, out: &mut Vec<Delta>) -> bool {
        let Some((format, _)) = &self.calls else {
            let held = std::mem::take(&mut self.held);
            self.content(out, &held);
            return false;
        };
        let format = *format;
        if format.start.is_empty() {
            return self.read_bare(out, format);
        }
        if let Some(at) = self.held.find(format.start) {
            let rest = self.held.split_off(at + format.start.len());
            let before = std::mem::replace(&mut self.held, rest);
            self.content(out, before[..at].trim_end());
            self.state = State::Call(Call::new(format));
            return true;
        }
        // White space before a call is left out.
        let certain = self.held.len() - partial(&self.held, format.start);
        let certain = self.held[..certain].trim_end().len();
        let rest = self.held.split_off(certain);
        let text = std::mem::replace(&mut self.held, rest);
        self.content(out, &text);
        false
    }

    /// Looks for a call without a marker, which begins the answer or follows another call.
    fn read_bare(&mut self, out: &mut Vec<Delta>, format: &'static Format) -> bool {
        let may_begin = !self.wrote;
        let mut text = self.held.trim_start();
        if self.called {
            text = text.trim_start_matches([';', ' ', '\n']);
        }
        if may_begin && PYTHON_TAG.starts_with(text) {
            return false;
        }
        let bare = text.strip_prefix(PYTHON_TAG).unwrap_or(text).trim_start();
        if may_begin && bare.is_empty() {
            return false;
        }
        if may_begin && bare.starts_with('{') {
            self.held = bare.to_owned();
            self.state = State::Call(Call::new(format));
            return true;
        }
        let held = std::mem::take(&mut self.held);
        self.content(out, &held);
        false
    }

    fn read_call(&mut self, out: &mut Vec<Delta>) -> bool {
        let State::Call(call) = &mut self.state else { return false };
        let Some((format, tools)) = &self.calls else { return false };
        let text = std::mem::take(&mut self.held);
        let mut parts = Vec::new();
        let status = call.push(&text, tools, &mut parts);
        let start = format.start;
        self.parts(out, parts);
        match status {
            Status::Open => false,
            Status::Complete(rest) => {
                (self.held, self.state) = (rest, State::Content);
                (self.at_start, self.wrote) = (true, false);
                true
            }
            Status::NoCall => {
                let state = std::mem::replace(&mut self.state, State::Content);
                let State::Call(call) = state else { return false };
                match start {
                    "" => self.content(out, &call.into_text()),
                    // The marker is text; another one may follow.
                    _ => {
                        self.content(out, start);
                        self.held = call.into_text();
                    }
                }
                true
            }
        }
    }

    fn parts(&mut self, out: &mut Vec<Delta>, parts: Vec<Part>) {
        self.called |= !parts.is_empty();
        out.extend(parts.into_iter().map(|part| match part {
            Part::Begin(name) => Delta::Call(name),
            Part::Arguments(text) => Delta::Arguments(text),
        }));
    }

    /// Appends content, without the white space after reasoning or a call.
    fn content(&mut self, out: &mut Vec<Delta>, text: &str) {
        let text = if self.at_start { text.trim_start() } else { text };
        if !text.is_empty() {
            (self.at_start, self.wrote) = (false, true);
            out.push(Delta::Content(text.to_owned()));
        }
    }
}

fn reasoning(out: &mut Vec<Delta>, text: &str) {
    if !text.is_empty() {
        out.push(Delta::Reasoning(text.to_owned()));
    }
}
