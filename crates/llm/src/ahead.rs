//! Tokens without the host: each run takes the token that the one before chose from the device's
//! memory, so several are under way at once: the device works on the next ones while the host reads one.

use std::collections::VecDeque;

use super::decoder::{Run, Wanted};
use super::session::{Kind, Session};
use warploom::draw::{Draw, NoToken};
use warploom::error::{Error, Result};
use warploom::provider::DeviceKind;
use warploom::runtime::Begun;

/// Runs under way on a GPU. What the host does for one, and its waking up, hides behind three of them;
/// at the end of a text the others were run for nothing.
const RUNS_AHEAD: usize = 4;

impl Session {
    /// Goes on from the token that the last run of a sequence chose: so many of the best tokens, one
    /// after another. That last run gave a token, best or drawn, or was one of these.
    ///
    /// # Errors
    /// Invalid, where the last run chose no token, `count` more positions do not fit the context, or one of these
    /// runs has no token to choose (the cache then is as before); what planning and the device say.
    pub async fn run_ahead(&mut self, sequence: usize, count: usize) -> Result<Vec<u32>> {
        self.go_on(sequence, Wanted::Token, vec![Vec::new(); count]).await
    }

    /// As [`Session::run_ahead`], but a token for each draw.
    ///
    /// # Errors
    /// As [`Session::run_ahead`].
    pub async fn draw_ahead(&mut self, sequence: usize, draws: &[Draw]) -> Result<Vec<u32>> {
        self.go_on(sequence, Wanted::Drawn, draws.iter().map(|draw| vec![draw.bytes()]).collect())
            .await
    }

    /// A run for each list of further inputs.
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

    /// Runs of a sequence that go on from the token of its last one.
    pub(super) fn ahead(&mut self, sequence: usize, wanted: Wanted) -> Result<Ahead<'_>> {
        self.check_sequence(sequence)?;
        if !self.chosen[sequence] {
            return Err(Error::invalid(format!(
                "sequence {sequence} has no token to go on from: its last run chose none"
            )));
        }
        let most = self.tokens_ahead();
        Ok(Ahead { session: self, sequence, wanted, most, running: VecDeque::new() })
    }

    /// Runs that are under way on the device at once, where it chooses the tokens. On a CPU nothing waits
    /// that could be spared, and what comes after the end of the text would be run for nothing.
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

/// Runs of one sequence of which each goes on from the token that the one before chose on the device.
/// Those that were not read when it is dropped are forgotten.
pub(super) struct Ahead<'s> {
    session: &'s mut Session,
    sequence: usize,
    wanted: Wanted,
    /// Runs under way at once.
    most: usize,
    running: VecDeque<Begun>,
}

impl Ahead<'_> {
    /// Whether a run has to be read before another begins.
    pub(super) fn is_full(&self) -> bool {
        self.running.len() >= self.most
    }

    /// Runs that were begun and not read.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// Positions of the context that no run has filled or is about to.
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

    /// Hands the next run to the device, with its inputs but the position.
    pub(super) async fn begin(&mut self, mut inputs: Vec<Vec<u8>>) -> Result<()> {
        self.check_room(1)?;
        let position = self.session.past[self.sequence] + self.running.len();
        inputs.insert(0, (position as i32).to_le_bytes().to_vec());
        let symbols = self.session.symbols(self.sequence, position);
        let kind = self.kind();
        // Unknown until all of them are read.
        self.session.chosen[self.sequence] = false;
        let instance = self.session.instance(kind).await?;
        self.running.push_back(instance.begin(symbols, inputs).await?);
        Ok(())
    }

    /// The token of the oldest run that was not read; `None` where there is none.
    pub(super) async fn next(&mut self) -> Result<Option<u32>> {
        let Some(begun) = self.running.pop_front() else { return Ok(None) };
        let kind = self.kind();
        let outputs = self.session.instance(kind).await?.end(begun).await?;
        let word = outputs.first().and_then(|bytes| bytes.first_chunk::<4>());
        let word = word.ok_or_else(|| Error::device("a run gave no token"))?;
        // The runs that went on from a word that is no token read the embedding of no token, zeros, and are dropped.
        let position = self.session.past[self.sequence] + 1;
        let token = NoToken::check(u32::from_le_bytes(*word))
            .map_err(|why| self.session.no_token(self.sequence, position, why))?;
        self.session.past[self.sequence] += 1;
        self.session.chosen[self.sequence] = self.running.is_empty();
        Ok(Some(token))
    }

    /// A run for each list of further inputs: their tokens.
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

    /// Waits for the runs that nobody wants any more, so that none of their failures is lost.
    pub(super) async fn finish(mut self) -> Result<()> {
        let kind = self.kind();
        while let Some(begun) = self.running.pop_front() {
            self.session.instance(kind).await?.end(begun).await?;
        }
        Ok(())
    }
}
