//! Run-ahead decoding: each run reads the token chosen by the previous run from device memory, so
//! several runs are in flight and the device computes the next tokens while the host reads one.

use std::collections::VecDeque;

use super::decoder::{Run, Wanted};
use super::session::{Kind, Session};
use warploom::error::{Error, Result};
use warploom::provider::DeviceKind;
use warploom::runtime::Begun;
use warploom::sampling::{Draw, NoToken};

/// Runs in flight on a GPU. Three hide the host's work and wake-up latency for one; at the end of a
/// text the others are wasted.
const RUNS_AHEAD: usize = 4;

impl Session {
    /// Continues from the token chosen by the last run of a sequence: `count` best tokens in
    /// sequence. That last run must have chosen a token, best or sampled.
    ///
    /// # Errors
    /// Invalid, if the last run chose no token, `count` more positions exceed the context, or a run
    /// has no token to choose (the cache is then unchanged); errors of planning and of the device.
    pub async fn run_ahead(&mut self, sequence: usize, count: usize) -> Result<Vec<u32>> {
        self.go_on(sequence, Wanted::Token, vec![Vec::new(); count]).await
    }

    /// As [`Session::run_ahead`], but samples one token per draw.
    ///
    /// # Errors
    /// As [`Session::run_ahead`].
    pub async fn draw_ahead(&mut self, sequence: usize, draws: &[Draw]) -> Result<Vec<u32>> {
        self.go_on(sequence, Wanted::Drawn, draws.iter().map(|draw| vec![draw.bytes()]).collect())
            .await
    }

    /// One run per list of further inputs.
    async fn go_on(
        &mut self,
        sequence: usize,
        wanted: Wanted,
        inputs: Vec<Vec<Vec<u8>>>,
    ) -> Result<Vec<u32>> {
        let mut ahead = self.ahead(sequence, wanted)?;
        ahead.check_room(inputs.len())?;
        let past = ahead.session.past[sequence];
        let tokens = ahead.all(inputs).await;
        drop(ahead);
        if tokens.is_err() {
            self.past[sequence] = past;
            self.chosen[sequence] = false;
        }
        tokens
    }

    /// Runs of a sequence that continue from the token of its last one.
    pub(super) fn ahead(&mut self, sequence: usize, wanted: Wanted) -> Result<Ahead<'_>> {
        self.check_sequence(sequence)?;
        if !self.chosen[sequence] {
            return Err(Error::invalid(format!(
                "sequence {sequence} has no token to continue from: its last run chose none"
            )));
        }
        let most = self.tokens_ahead();
        Ok(Ahead { session: self, sequence, wanted, most, running: VecDeque::new() })
    }

    /// Runs in flight at once if the device chooses the tokens. On a CPU there is no wait to hide,
    /// and runs after the end of the text would be wasted.
    pub fn tokens_ahead(&self) -> usize {
        match self.device().profile().kind {
            DeviceKind::Cpu => 1,
            _ => RUNS_AHEAD,
        }
    }

    /// As [`Session::run_ahead`], blocking.
    ///
    /// # Errors
    /// As [`Session::run_ahead`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn run_ahead_blocking(&mut self, sequence: usize, count: usize) -> Result<Vec<u32>> {
        warploom::base::platform::block_on(self.run_ahead(sequence, count))
    }

    /// As [`Session::draw_ahead`], blocking.
    ///
    /// # Errors
    /// As [`Session::draw_ahead`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn draw_ahead_blocking(&mut self, sequence: usize, draws: &[Draw]) -> Result<Vec<u32>> {
        warploom::base::platform::block_on(self.draw_ahead(sequence, draws))
    }
}

/// Runs of one sequence, each continuing from the token that the previous one chose on the device.
/// Runs not read when it is dropped are discarded.
pub(super) struct Ahead<'s> {
    session: &'s mut Session,
    sequence: usize,
    wanted: Wanted,
    /// Maximum runs in flight.
    most: usize,
    running: VecDeque<Begun>,
}

impl Ahead<'_> {
    /// Whether a run must be read before another begins.
    pub(super) fn is_full(&self) -> bool {
        self.running.len() >= self.most
    }

    /// Runs begun and not read.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// Free positions of the context after the runs in flight.
    pub(super) fn room(&self) -> usize {
        self.session.context() - self.session.past[self.sequence] - self.running.len()
    }

    fn check_room(&self, count: usize) -> Result<()> {
        if count <= self.room() {
            return Ok(());
        }
        let (past, context) = (self.session.past[self.sequence], self.session.context());
        Err(Error::invalid(format!(
            "{count} tokens after {past} do not fit a context of {context} positions"
        )))
    }

    fn kind(&self) -> Kind {
        Kind { run: Run::Ahead, class: 0, wanted: self.wanted }
    }

    /// Submits the next run, with all its inputs but the position.
    pub(super) async fn begin(&mut self, mut inputs: Vec<Vec<u8>>) -> Result<()> {
        self.check_room(1)?;
        let position = self.session.past[self.sequence] + self.running.len();
        inputs.insert(0, (position as i32).to_le_bytes().to_vec());
        let symbols = self.session.symbols(self.sequence, position);
        let kind = self.kind();
        // Unknown until all of them are read.
        self.session.chosen[self.sequence] = false;
        let instance = self.session.instance(kind).await?;
        self.running.push_back(instance.begin_async(symbols, inputs).await?);
        Ok(())
    }

    /// The token of the oldest unread run; `None` if there is none.
    pub(super) async fn next(&mut self) -> Result<Option<u32>> {
        let Some(begun) = self.running.pop_front() else { return Ok(None) };
        let kind = self.kind();
        let outputs = self.session.instance(kind).await?.end_async(begun).await?;
        let word = outputs.first().and_then(|bytes| bytes.first_chunk::<4>());
        let word = word.ok_or_else(|| Error::device("a run gave no token"))?;
        // Runs that continued from an invalid token read a zero embedding, and are dropped.
        let position = self.session.past[self.sequence] + 1;
        let token = NoToken::check(u32::from_le_bytes(*word))
            .map_err(|why| self.session.no_token(self.sequence, position, why))?;
        self.session.past[self.sequence] += 1;
        self.session.chosen[self.sequence] = self.running.is_empty();
        Ok(Some(token))
    }

    /// The tokens of one run per list of further inputs.
    async fn all(&mut self, inputs: Vec<Vec<Vec<u8>>>) -> Result<Vec<u32>> {
        let mut tokens = Vec::with_capacity(inputs.len());
        for inputs in inputs {
            if self.is_full() {
                tokens.extend(self.next().await?);
            }
            self.begin(inputs).await?;
        }
        while let Some(token) = self.next().await? {
            tokens.push(token);
        }
        Ok(tokens)
    }

    /// Waits for the remaining runs, so that none of their failures is lost.
    pub(super) async fn finish(mut self) -> Result<()> {
        let kind = self.kind();
        while let Some(begun) = self.running.pop_front() {
            self.session.instance(kind).await?.end_async(begun).await?;
        }
        Ok(())
    }
}
