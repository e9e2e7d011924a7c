//! The interface that a scheduler drives: a session, or a test double.

use warploom::error::Result;
use warploom::sampling::{Draw, NoToken};
use warploom_llm::{Session, Wanted};

/// The token of a sequence, or why it has none.
pub type Chosen = Result<u32, NoToken>;

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

    /// Appends tokens to a sequence and returns the requested output after the last: nothing or
    /// logits `[v]` f32, as little-endian bytes.
    ///
    /// # Errors
    /// Device errors.
    fn run_one(&mut self, sequence: usize, tokens: &[u32], wanted: Wanted) -> Result<Vec<u8>>;

    /// Appends a token to each of several: logits `[n, v]` f32.
    ///
    /// # Errors
    /// Device errors.
    fn run_each(&mut self, tokens: &[(usize, u32)], wanted: Wanted) -> Result<Vec<u8>>;

    /// As [`Sequences::run_one`], but returns the best next token, or why there is none.
    ///
    /// # Errors
    /// Device errors.
    fn best_one(&mut self, sequence: usize, tokens: &[u32]) -> Result<Chosen>;

    /// As [`Sequences::run_each`], but returns the best next token of each.
    ///
    /// # Errors
    /// Device errors.
    fn best_each(&mut self, tokens: &[(usize, u32)]) -> Result<Vec<Chosen>>;

    /// As [`Sequences::run_one`], but samples the next token.
    ///
    /// # Errors
    /// Device errors.
    fn draw_one(&mut self, sequence: usize, tokens: &[u32], draw: &Draw) -> Result<Chosen>;

    /// As [`Sequences::run_each`], but samples the next token of each.
    ///
    /// # Errors
    /// Device errors.
    fn draw_each(&mut self, tokens: &[(usize, u32, Draw)]) -> Result<Vec<Chosen>>;

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

    fn run_one(&mut self, sequence: usize, tokens: &[u32], wanted: Wanted) -> Result<Vec<u8>> {
        self.run_sequence_blocking(sequence, tokens, wanted)
    }

    fn run_each(&mut self, tokens: &[(usize, u32)], wanted: Wanted) -> Result<Vec<u8>> {
        self.run_each_blocking(tokens, wanted)
    }

    fn best_one(&mut self, sequence: usize, tokens: &[u32]) -> Result<Chosen> {
        self.best_sequence_blocking(sequence, tokens)
    }

    fn best_each(&mut self, tokens: &[(usize, u32)]) -> Result<Vec<Chosen>> {
        self.best_each_blocking(tokens)
    }

    fn draw_one(&mut self, sequence: usize, tokens: &[u32], draw: &Draw) -> Result<Chosen> {
        self.draw_sequence_blocking(sequence, tokens, draw)
    }

    fn draw_each(&mut self, tokens: &[(usize, u32, Draw)]) -> Result<Vec<Chosen>> {
        self.draw_each_blocking(tokens)
    }

    fn bytes_of(&self, token: u32) -> Result<&[u8]> {
        self.model().tokenizer().token_bytes(token)
    }

    fn is_stop(&self, token: u32) -> bool {
        self.model().tokenizer().is_stop(token)
    }
}
