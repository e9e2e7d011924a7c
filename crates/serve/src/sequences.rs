//! The interface through which a scheduler drives a session or a test double.

use warploom::Result;
use warploom_llm::{Session, StepOutput, StepRequest};

/// Sequences of tokens that a scheduler drives, each with its own KV cache.
pub trait Sequences {
    /// Returns the number of sequences.
    fn sequences(&self) -> usize;

    /// Returns the number of positions of each sequence.
    fn context(&self) -> usize;

    /// Returns the number of filled positions of a sequence.
    fn past_of(&self, sequence: usize) -> usize;

    /// Drops the positions of a sequence from `past` on.
    ///
    /// # Errors
    /// Invalid if fewer than `past` positions are filled.
    fn truncate(&mut self, sequence: usize, past: usize) -> Result<()>;

    /// Runs tokens of one sequence, or one token of each of several, and returns the requested
    /// output.
    ///
    /// # Errors
    /// Errors of the device.
    fn step(&mut self, request: StepRequest<'_>) -> Result<StepOutput>;

    /// Returns the bytes that a token stands for.
    ///
    /// # Errors
    /// Invalid if the vocabulary has no such token.
    fn bytes_of(&self, token: u32) -> Result<&[u8]>;

    /// Returns whether a token ends an answer.
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
