//! One of the answers of a request, as its parts arrive.

use super::logits::Logprob;
use super::queue::{Done, Piece};
use super::tools::{Delta, Format, Splitter};
use warploom_llm::chat::ToolCall;

/// A part of an answer, of one kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Block {
    Reasoning(String),
    Content(String),
    Call(ToolCall),
}

/// One of the answers of a request.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) index: usize,
    /// Separates the text; `None` if all of it is content.
    splitter: Option<Splitter>,
    format: Option<&'static Format>,
    /// A number from which the ids of calls are made.
    number: u64,
    /// Number of prompt tokens that were cached, once the answer has begun.
    cached: usize,
    blocks: Vec<Block>,
    /// Log probabilities, if wanted.
    logprobs: Option<Vec<Logprob>>,
    /// Number of log probabilities that were sent.
    sent: usize,
    done: Option<Done>,
}

impl Choice {
    /// Creates a choice whose text is all content and begins with `echo`.
    pub(super) fn plain(index: usize, echo: String, logprobs: bool) -> Choice {
        let echo = (!echo.is_empty()).then_some(Block::Content(echo));
        Choice {
            index,
            splitter: None,
            format: None,
            number: 0,
            cached: 0,
            blocks: echo.into_iter().collect(),
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

    /// Returns the parts in the order in which the model wrote them.
    pub(super) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    pub(super) fn content(&self) -> String {
        let texts = self.blocks.iter().filter_map(|block| match block {
            Block::Content(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    pub(super) fn reasoning(&self) -> String {
        let texts = self.blocks.iter().filter_map(|block| match block {
            Block::Reasoning(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    pub(super) fn calls(&self) -> impl DoubleEndedIterator<Item = &ToolCall> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Call(call) => Some(call),
            _ => None,
        })
    }

    pub(super) fn has_called(&self) -> bool {
        self.calls().next().is_some()
    }

    /// Returns the number of prompt tokens that were cached; 0 before the answer has begun.
    pub(super) fn cached(&self) -> usize {
        self.cached
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
        let id = self.calls().next_back().map_or("", |call| call.id.as_str());
        (self.calls().count().saturating_sub(1), id)
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
            Piece::Started { cached_tokens } => {
                self.cached = cached_tokens;
                Vec::new()
            }
            Piece::Failed(_) => Vec::new(),
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
        match (delta, self.blocks.last_mut()) {
            (Delta::Content(text), Some(Block::Content(all)))
            | (Delta::Reasoning(text), Some(Block::Reasoning(all))) => all.push_str(text),
            (Delta::Content(text), _) => self.blocks.push(Block::Content(text.clone())),
            (Delta::Reasoning(text), _) => self.blocks.push(Block::Reasoning(text.clone())),
            (Delta::Call(name), _) => {
                let number = self.number.wrapping_add(self.calls().count() as u64);
                let id = self.format.map_or(String::new(), |format| format.id(number));
                self.blocks.push(Block::Call(ToolCall::new(id, name.as_str(), "")));
            }
            (Delta::Arguments(text), Some(Block::Call(call))) => call.arguments.push_str(text),
            (Delta::Arguments(_), _) => {}
        }
    }
}
