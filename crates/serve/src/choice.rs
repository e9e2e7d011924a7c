//! One of the answers of a request, as its parts arrive.

use super::logits::Logprob;
use super::queue::{Done, Piece};
use super::tools::{Delta, Format, Splitter};
use warploom_llm::chat::ToolCall;

/// One of the answers of a request.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) index: usize,
    /// Separates the text; `None` if all of it is content.
    splitter: Option<Splitter>,
    format: Option<&'static Format>,
    /// A number from which the ids of calls are made.
    number: u64,
    content: String,
    reasoning: String,
    calls: Vec<ToolCall>,
    /// Log probabilities, if wanted.
    logprobs: Option<Vec<Logprob>>,
    /// Number of log probabilities that were sent.
    sent: usize,
    done: Option<Done>,
}

impl Choice {
    /// Creates a choice whose text is all content and begins with `echo`.
    pub(super) fn plain(index: usize, echo: String, logprobs: bool) -> Choice {
        Choice {
            index,
            splitter: None,
            format: None,
            number: 0,
            content: echo,
            reasoning: String::new(),
            calls: Vec::new(),
            logprobs: logprobs.then(Vec::new),
            sent: 0,
            done: None,
        }
    }

    /// Creates a choice whose text is separated. `number` must differ from that of all others.
    pub(super) fn split(
        index: usize,
        splitter: Splitter,
        format: Option<&'static Format>,
        number: u64,
        logprobs: bool,
    ) -> Choice {
        let plain = Choice::plain(index, String::new(), logprobs);
        Choice { splitter: Some(splitter), format, number, ..plain }
    }

    pub(super) fn content(&self) -> &str {
        &self.content
    }

    pub(super) fn reasoning(&self) -> &str {
        &self.reasoning
    }

    pub(super) fn calls(&self) -> &[ToolCall] {
        &self.calls
    }

    pub(super) fn has_called(&self) -> bool {
        !self.calls.is_empty()
    }

    pub(super) fn logprobs(&self) -> Option<&[Logprob]> {
        self.logprobs.as_deref()
    }

    /// Returns the end of the answer, if it has ended.
    pub(super) fn done(&self) -> Option<&Done> {
        self.done.as_ref()
    }

    /// Returns index and id of the last call.
    pub(super) fn last_call(&self) -> (usize, &str) {
        let id = self.calls.last().map_or("", |call| call.id.as_str());
        (self.calls.len().saturating_sub(1), id)
    }

    /// Returns the log probabilities that were not sent yet, and counts them as sent.
    pub(super) fn unsent(&mut self) -> Vec<Logprob> {
        let list = self.logprobs.as_deref().unwrap_or_default();
        let rest = list.get(self.sent..).unwrap_or_default().to_vec();
        self.sent = list.len();
        rest
    }

    /// Returns the number of characters before the last entries, which are `rest`.
    pub(super) fn offset_of(&self, rest: &[Logprob]) -> usize {
        let list = self.logprobs.as_deref().unwrap_or_default();
        let before = list.get(..self.sent.saturating_sub(rest.len())).unwrap_or_default();
        let count = |entry: &Logprob| String::from_utf8_lossy(&entry.bytes).chars().count();
        before.iter().map(count).sum()
    }

    /// Takes a part of the answer that is no failure; returns what is new.
    pub(super) fn take(&mut self, piece: Piece) -> Vec<Delta> {
        match piece {
            Piece::Started | Piece::Failed(_) => Vec::new(),
            Piece::Logprob(logprob) => {
                if let Some(list) = &mut self.logprobs {
                    list.push(*logprob);
                }
                Vec::new()
            }
            Piece::Text(text) => match &mut self.splitter {
                Some(splitter) => splitter.push(&text),
                None => vec![Delta::Content(text)],
            },
            Piece::Done(done) => {
                self.done = Some(done);
                self.splitter.as_mut().map_or(Vec::new(), Splitter::finish)
            }
        }
    }

    /// Appends a part to the answer. A call gets its id here.
    pub(super) fn add(&mut self, delta: &Delta) {
        match delta {
            Delta::Content(text) => self.content.push_str(text),
            Delta::Reasoning(text) => self.reasoning.push_str(text),
            Delta::Call(name) => {
                let number = self.number.wrapping_add(self.calls.len() as u64);
                let id = self.format.map_or(String::new(), |format| format.id(number));
                self.calls.push(ToolCall::new(id, name.as_str(), ""));
            }
            Delta::Arguments(text) => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments.push_str(text);
                }
            }
        }
    }
}
