//! When a constraint applies to an answer: from its beginning, or from a marker in its text on.

use warploom::Result;
use warploom_llm::structure::Constraint;

/// Where a constraint begins to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Begin {
    /// At the first token.
    Start,
    /// After this text, wherever it occurs.
    After(String),
    /// After this text, if the answer begins with it, except for white space.
    AfterFirst(String),
}

/// A constraint of an answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Guard {
    /// What the text must follow.
    pub constraint: Constraint,
    /// Where it begins to apply.
    pub begin: Begin,
    /// Whether the answer goes on when the constraint is complete, and the constraint applies again
    /// at the next marker. Otherwise the answer ends. Without effect for [`Begin::Start`].
    pub repeats: bool,
}

impl Guard {
    /// Creates a guard that applies from the first token on.
    pub fn new(constraint: Constraint) -> Guard {
        Guard { constraint, begin: Begin::Start, repeats: false }
    }
}

warploom_llm::setters!(Guard { begin: Begin, repeats: bool });

#[derive(Debug)]
enum State {
    /// Looks for the marker in the text, of which the end is kept.
    Waiting(Vec<u8>),
    On(Constraint),
    /// The marker cannot occur any more.
    Off,
    /// The answer is complete.
    Finished,
}

/// A guard with its position in an answer.
#[derive(Debug)]
pub(super) struct Watch {
    /// The constraint for the next marker, if there may be one.
    next: Option<Constraint>,
    begin: Begin,
    repeats: bool,
    state: State,
}

impl Watch {
    pub(super) fn new(guard: Guard) -> Watch {
        let Guard { constraint, begin, repeats } = guard;
        let (next, state) = match begin {
            Begin::Start => (None, State::On(constraint)),
            _ => (Some(constraint), State::Waiting(Vec::new())),
        };
        Watch { next, begin, repeats, state }
    }

    /// Returns whether the next token is constrained.
    pub(super) fn is_on(&self) -> bool {
        matches!(self.state, State::On(_))
    }

    /// Returns whether the answer must end.
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.state, State::Finished)
    }

    /// Forbids the tokens that may not follow.
    pub(super) fn mask(&mut self, logits: &mut [f32]) -> Result<()> {
        match &mut self.state {
            State::On(constraint) => constraint.mask(logits),
            _ => Ok(()),
        }
    }

    /// Advances by a token and its text.
    pub(super) fn accept(&mut self, token: u32, text: &[u8]) -> Result<()> {
        match &mut self.state {
            State::On(constraint) => {
                constraint.accept(token)?;
                self.settle();
            }
            State::Waiting(seen) => {
                seen.extend_from_slice(text);
                self.look();
            }
            State::Off | State::Finished => {}
        }
        Ok(())
    }

    /// Advances by the tokens that must follow, and returns them.
    pub(super) fn accept_forced(&mut self) -> Result<Vec<u32>> {
        let State::On(constraint) = &mut self.state else { return Ok(Vec::new()) };
        let tokens = constraint.accept_forced()?;
        self.settle();
        Ok(tokens)
    }

    /// Leaves a constraint that is complete.
    fn settle(&mut self) {
        if matches!(&self.state, State::On(constraint) if constraint.is_finished()) {
            self.state = match self.next {
                Some(_) => State::Waiting(Vec::new()),
                None => State::Finished,
            };
        }
    }

    /// Looks for the marker in the text that was seen.
    fn look(&mut self) {
        let State::Waiting(seen) = &mut self.state else { return };
        let rest = match &self.begin {
            Begin::Start => return,
            Begin::After(marker) => {
                let marker = marker.as_bytes();
                match seen.windows(marker.len().max(1)).position(|part| part == marker) {
                    Some(at) => seen.split_off(at + marker.len()),
                    None => {
                        // A marker may begin in the last bytes.
                        let keep = seen.len().min(marker.len().saturating_sub(1));
                        seen.drain(..seen.len() - keep);
                        return;
                    }
                }
            }
            Begin::AfterFirst(marker) => {
                let text = seen.trim_ascii_start();
                match text.strip_prefix(marker.as_bytes()) {
                    Some(rest) => rest.to_vec(),
                    None => {
                        if !marker.as_bytes().starts_with(text) {
                            self.state = State::Off;
                        }
                        return;
                    }
                }
            }
        };
        let constraint = match self.repeats || !rest.is_empty() {
            true => self.next.clone(),
            false => self.next.take(),
        };
        let Some(mut constraint) = constraint else { return };
        // Text after the marker in the same token. If it does not follow the grammar, the marker
        // was plain text.
        self.state = match rest.is_empty() || constraint.accept_text(&rest) {
            true => State::On(constraint),
            false => State::Waiting(rest),
        };
        if self.is_on() && !self.repeats {
            self.next = None;
        }
        self.settle();
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
