//! The interface that a scheduler drives: a session, or a test double.

use warploom::error::Result;
use warploom_llm::{Session, StepOutput, StepRequest};

/// Sequences of tokens, each with its own KV cache, driven by a scheduler.
pub trait Sequences {
    /// Number of sequences.
    fn sequences(&self) -> usize;

    /// Positions of each sequence.
    fn context(&self) -> usize;

    /// Filled positions of a sequence.
    fn past_of(&self, sequence: usize) -> usize;

    /// Drops positions of a sequence from `past` on.
    ///
    /// # Errors
    /// Invalid, if fewer are filled.
    fn truncate(&mut self, sequence: usize, past: usize) -> Result<()>;

    /// Appends tokens to one sequence, or one token to each of several, and returns the wanted
    /// output of each.
    ///
    /// # Errors
    /// Device errors.
    fn step(&mut self, request: StepRequest<'_>) -> Result<StepOutput>;

    /// The bytes of a token.
    ///
    /// # Errors
    /// Invalid, for an id outside the vocabulary.
    fn bytes_of(&self, token: u32) -> Result<&[u8]>;

    /// Whether a token ends an answer.
    fn is_stop(&self, token: u32) -> bool;
}

impl Sequences for Session {
    fn sequences(&self) -> usize {
        Session::sequences(self)
    }

    fn context(&self) -> usize {
        Session::context(self)
    }

    fn past_of(&self, sequence: usize) -> usize {
        Session::past_of(self, sequence)
    }

    fn truncate(&mut self, sequence: usize, past: usize) -> Result<()> {
        self.truncate_sequence(sequence, past)
    }

    fn step(&mut self, request: StepRequest<'_>) -> Result<StepOutput> {
        Session::step(self, request)
    }

    fn bytes_of(&self, token: u32) -> Result<&[u8]> {
        self.model().tokenizer().token_bytes(token)
    }

    fn is_stop(&self, token: u32) -> bool {
        self.model().tokenizer().is_stop(token)
    }
}
