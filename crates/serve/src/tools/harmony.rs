//! Separates an answer in the harmony format of gpt-oss, which consists of messages:
//! `<|channel|>analysis<|message|>..<|end|><|start|>assistant<|channel|>final<|message|>..`.
//!
//! The channel `analysis` is reasoning. A message with a recipient (`to=functions.NAME`) is a call;
//! all others are content. The marks are control tokens, which the scheduler shows as text.

use super::{Delta, partial};

pub(super) const CHANNEL: &str = "<|channel|>";
pub(super) const MESSAGE: &str = "<|message|>";
pub(super) const CONSTRAIN: &str = "<|constrain|>";
pub(super) const CALL: &str = "<|call|>";
pub(super) const END: &str = "<|end|>";
pub(super) const START: &str = "<|start|>";
/// The recipient of a call, before the name of the tool.
pub(super) const RECIPIENT: &str = "to=functions.";

/// Maximum bytes of a head; a longer one is content.
const MAX_HEAD: usize = 4096;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Content,
    Arguments,
}

#[derive(Debug)]
enum State {
    /// In the head of a message, up to [`MESSAGE`].
    Head,
    Body(Kind),
}

/// Separates an answer in the harmony format.
#[derive(Debug)]
pub(crate) struct Harmony {
    state: State,
    /// Whether messages to tools are calls; otherwise they are content.
    has_tools: bool,
    /// Text whose meaning is not yet certain.
    held: String,
    /// Kind of the last message, to separate two of one kind.
    last: Option<Kind>,
    /// Whether anything was written of the message.
    wrote: bool,
}

impl Harmony {
    pub(super) fn new(has_tools: bool) -> Harmony {
        let (state, held) = (State::Head, String::new());
        Harmony { state, has_tools, held, last: None, wrote: false }
    }

    /// Appends text; returns the parts that are certain.
    pub(super) fn push(&mut self, text: &str) -> Vec<Delta> {
        self.held.push_str(text);
        let mut out = Vec::new();
        while self.advance(&mut out) {}
        out
    }

    /// Ends the answer; returns the parts that were held back. A head without a message is none.
    pub(super) fn finish(&mut self) -> Vec<Delta> {
        let mut out = Vec::new();
        let held = std::mem::take(&mut self.held);
        if let State::Body(kind) = self.state {
            self.write(kind, &held, &mut out);
        }
        out
    }

    /// Handles the text that is held; returns whether there is more to do.
    fn advance(&mut self, out: &mut Vec<Delta>) -> bool {
        match self.state {
            State::Head => self.head(out),
            State::Body(kind) => self.body(kind, out),
        }
    }

    fn head(&mut self, out: &mut Vec<Delta>) -> bool {
        if let Some(at) = self.held.find(MESSAGE) {
            let rest = self.held.split_off(at + MESSAGE.len());
            let head = std::mem::replace(&mut self.held, rest);
            self.begin(&head[..at], out);
            return true;
        }
        // A model that writes no messages at all, or a head that never ends.
        let text = self.held.trim_start();
        let begins = ["assistant", START, CHANNEL, RECIPIENT, MESSAGE];
        let may_begin = begins.iter().any(|b| b.starts_with(text) || text.starts_with(b));
        if may_begin && self.held.len() <= MAX_HEAD {
            return false;
        }
        self.start(Kind::Content, out);
        // Not found again as the mark of a head.
        if let Some(rest) = self.held.trim_start().strip_prefix(CHANNEL) {
            self.held = rest.to_owned();
            self.write(Kind::Content, CHANNEL, out);
        }
        true
    }

    /// Begins the message with this head.
    fn begin(&mut self, head: &str, out: &mut Vec<Delta>) {
        let name = head.split_once(RECIPIENT).map(|(_, rest)| {
            let end = rest.find(|c: char| c.is_whitespace() || c == '<').unwrap_or(rest.len());
            &rest[..end]
        });
        match name.filter(|name| self.has_tools && !name.is_empty()) {
            Some(name) => {
                out.push(Delta::Call(name.to_owned()));
                self.start(Kind::Arguments, out);
            }
            None if channel(head) == "analysis" => self.start(Kind::Reasoning, out),
            None => self.start(Kind::Content, out),
        }
    }

    fn start(&mut self, kind: Kind, out: &mut Vec<Delta>) {
        let repeats = kind != Kind::Arguments && self.last == Some(kind) && self.wrote;
        (self.state, self.wrote) = (State::Body(kind), false);
        if repeats {
            self.write(kind, "\n", out);
        }
        self.last = Some(kind);
    }

    fn body(&mut self, kind: Kind, out: &mut Vec<Delta>) -> bool {
        let marks = [END, CALL, START, CHANNEL];
        let found = marks.iter().filter_map(|mark| Some((self.held.find(mark)?, *mark))).min();
        match found {
            Some((at, mark)) => {
                let rest = self.held.split_off(at + mark.len());
                let text = std::mem::replace(&mut self.held, rest);
                self.write(kind, &text[..at], out);
                // The mark of a channel belongs to the head.
                if mark == CHANNEL {
                    self.held.insert_str(0, CHANNEL);
                }
                self.state = State::Head;
                true
            }
            None => {
                let held = marks.iter().map(|mark| partial(&self.held, mark)).max().unwrap_or(0);
                let rest = self.held.split_off(self.held.len() - held);
                let text = std::mem::replace(&mut self.held, rest);
                self.write(kind, &text, out);
                false
            }
        }
    }

    fn write(&mut self, kind: Kind, text: &str, out: &mut Vec<Delta>) {
        if text.is_empty() {
            return;
        }
        self.wrote = true;
        let text = text.to_owned();
        out.push(match kind {
            Kind::Reasoning => Delta::Reasoning(text),
            Kind::Content => Delta::Content(text),
            Kind::Arguments => Delta::Arguments(text),
        });
    }
}

/// Returns the channel of a head.
fn channel(head: &str) -> &str {
    let rest = head.split_once(CHANNEL).map_or("", |(_, rest)| rest).trim_start();
    let end = rest.find(|c: char| c.is_whitespace() || c == '<').unwrap_or(rest.len());
    &rest[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Separates a text that arrives in pieces of `size` characters; joins neighbours of one kind.
    fn separated(text: &str, size: usize, has_tools: bool) -> Vec<Delta> {
        let mut harmony = Harmony::new(has_tools);
        let chars: Vec<char> = text.chars().collect();
        let mut all = Vec::new();
        for piece in chars.chunks(size) {
            all.extend(harmony.push(&piece.iter().collect::<String>()));
        }
        all.extend(harmony.finish());
        let mut joined: Vec<Delta> = Vec::new();
        for delta in all {
            match (joined.last_mut(), &delta) {
                (Some(Delta::Content(all)), Delta::Content(more))
                | (Some(Delta::Reasoning(all)), Delta::Reasoning(more))
                | (Some(Delta::Arguments(all)), Delta::Arguments(more)) => all.push_str(more),
                _ => joined.push(delta),
            }
        }
        joined
    }

    #[test]
    fn messages_are_separated_however_the_text_is_cut() {
        let reasoning = |text: &str| Delta::Reasoning(text.into());
        let content = |text: &str| Delta::Content(text.into());
        let call =
            |name: &str, text: &str| [Delta::Call(name.into()), Delta::Arguments(text.into())];
        let [name, arguments] = call("look", "{\"a\": 1}");
        let rows = [
            (
                "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
                vec![reasoning("Hm."), content("Yes.")],
            ),
            (
                "<|channel|>analysis<|message|>I look.<|end|><|start|>assistant<|channel|>commentary \
                 to=functions.look <|constrain|>json<|message|>{\"a\": 1}<|call|>",
                vec![reasoning("I look."), name.clone(), arguments.clone()],
            ),
            (
                " to=functions.look<|channel|>commentary json<|message|>{\"a\": 1}",
                vec![name.clone(), arguments.clone()],
            ),
            (
                "<|channel|>commentary<|message|>First I look.<|end|><|start|>assistant<|channel|>commentary \
                 to=functions.look<|message|>{\"a\": 1}",
                vec![content("First I look."), name, arguments],
            ),
            (
                "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>Two.",
                vec![reasoning("One.\nTwo.")],
            ),
            // Marks that are missing, and a mark that is cut.
            (
                "<|channel|>final<|message|>Yes.<|channel|>final<|message|>No.",
                vec![content("Yes.\nNo.")],
            ),
            ("<|channel|>final<|message|>a <|en", vec![content("a <|en")]),
            ("<|channel|>final", vec![]),
            ("<|channel|>final<|message|>", vec![]),
            ("Just a text.", vec![content("Just a text.")]),
            ("", vec![]),
        ];
        for (text, want) in rows {
            for size in 1..=text.chars().count().max(1) {
                assert_eq!(separated(text, size, true), want, "{text:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn without_tools_a_call_is_content() {
        let text = "<|channel|>commentary to=functions.look<|message|>{}";
        assert_eq!(separated(text, 3, false), [Delta::Content("{}".into())]);
    }

    #[test]
    fn a_head_that_never_ends_is_content() {
        let text = format!("<|channel|>{}", "x".repeat(2 * MAX_HEAD));
        assert_eq!(separated(&text, 100, true), [Delta::Content(text)]);
    }
}
