//! The interface through which a scheduler drives a session or a test double.

use warploom::Result;
use warploom_llm::{SavedPrefix, Session, StepOutput, StepRequest};

/// Sequences of tokens that a scheduler drives, each with its own KV cache.
pub trait Sequences {
    /// The first positions of a sequence, in host memory.
    type Saved;

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

    /// Returns whether a model has recurrent layers, whose states are those of one position.
    fn is_recurrent(&self) -> bool;

    /// Returns the largest number of positions of a sequence, up to `most`, from which a run can go
    /// on; see [`Session::resumable`].
    fn resumable(&self, sequence: usize, most: usize) -> usize;

    /// Holds the states of recurrent layers; see [`Session::hold_states`].
    ///
    /// # Errors
    /// Errors of the device.
    fn hold_states(&mut self, sequence: usize) -> Result<()>;

    /// Makes the first positions of one sequence the contents of another.
    ///
    /// # Errors
    /// Invalid if they are not resumable; errors of the device. The sequence `to` is empty then.
    fn copy_prefix(&mut self, from: usize, to: usize, positions: usize) -> Result<()>;

    /// Copies the first positions of a sequence to host memory.
    ///
    /// # Errors
    /// Same as [`Sequences::copy_prefix`].
    fn save_prefix(&mut self, sequence: usize, positions: usize) -> Result<Self::Saved>;

    /// Makes the first positions of a saved prefix the contents of a sequence.
    ///
    /// # Errors
    /// Invalid if it does not fit; errors of the device. The sequence is empty then.
    fn load_prefix(&mut self, sequence: usize, saved: &Self::Saved, positions: usize)
    -> Result<()>;

    /// Returns the size of a saved prefix in bytes.
    fn saved_bytes(saved: &Self::Saved) -> u64;

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
    type Saved = SavedPrefix;

    fn is_recurrent(&self) -> bool {
        self.model().config().is_recurrent()
    }

    fn resumable(&self, sequence: usize, most: usize) -> usize {
        Session::resumable(self, sequence, most)
    }

    fn hold_states(&mut self, sequence: usize) -> Result<()> {
        Session::hold_states(self, sequence)
    }

    fn copy_prefix(&mut self, from: usize, to: usize, positions: usize) -> Result<()> {
        Session::copy_prefix(self, from, to, positions)
    }

    fn save_prefix(&mut self, sequence: usize, positions: usize) -> Result<SavedPrefix> {
        Session::save_prefix(self, sequence, positions)
    }

    fn load_prefix(
        &mut self,
        sequence: usize,
        saved: &SavedPrefix,
        positions: usize,
    ) -> Result<()> {
        Session::load_prefix(self, sequence, saved, positions)
    }

    fn saved_bytes(saved: &SavedPrefix) -> u64 {
        saved.bytes()
    }

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
