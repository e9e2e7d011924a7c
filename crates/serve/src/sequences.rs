//! What a scheduler drives: a session, or what stands for one in a test.

use warploom::draw::{Draw, NoToken};
use warploom::error::Result;
use warploom_llm::{Session, Wanted};

/// The token of a sequence, or why it has none.
pub type Chosen = Result<u32, NoToken>;

/// What a scheduler drives: sequences of tokens, each with a cache of its own.
pub trait Sequences {
    /// How many there are.
    fn sequences(&self) -> usize;

    /// Positions of each.
    fn context(&self) -> usize;

    /// Positions of one that are filled.
    fn past_of(&self, sequence: usize) -> usize;

    /// Forgets positions of one from `past` on.
    ///
    /// # Errors
    /// Invalid, when fewer are filled.
    fn truncate(&mut self, sequence: usize, past: usize) -> Result<()>;

    /// Appends tokens to one, and gives what is wanted after the last: nothing or logits `[v]` f32, as
    /// little-endian bytes.
    ///
    /// # Errors
    /// What the device says.
    fn run_one(&mut self, sequence: usize, tokens: &[u32], wanted: Wanted) -> Result<Vec<u8>>;

    /// Appends a token to each of several: logits `[n, v]` f32.
    ///
    /// # Errors
    /// What the device says.
    fn run_each(&mut self, tokens: &[(usize, u32)], wanted: Wanted) -> Result<Vec<u8>>;

    /// As [`Sequences::run_one`], and gives the best next token, or why there is none.
    ///
    /// # Errors
    /// What the device says.
    fn best_one(&mut self, sequence: usize, tokens: &[u32]) -> Result<Chosen>;

    /// As [`Sequences::run_each`], and gives the best next token of each.
    ///
    /// # Errors
    /// What the device says.
    fn best_each(&mut self, tokens: &[(usize, u32)]) -> Result<Vec<Chosen>>;

    /// As [`Sequences::run_one`], and draws the next token.
    ///
    /// # Errors
    /// What the device says.
    fn draw_one(&mut self, sequence: usize, tokens: &[u32], draw: &Draw) -> Result<Chosen>;

    /// As [`Sequences::run_each`], and draws the next token of each.
    ///
    /// # Errors
    /// What the device says.
    fn draw_each(&mut self, tokens: &[(usize, u32, Draw)]) -> Result<Vec<Chosen>>;

    /// The bytes that a token stands for.
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
