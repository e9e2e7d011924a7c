//! Tokens without the host: each run takes the token that the one before chose from the device's
//! memory, so several can be handed over at once and the device never waits in between.

use super::decoder::{Run, Wanted};
use super::session::{Kind, Session};
use crate::draw::{Draw, nothing_drawn};
use crate::error::{Error, Result};

impl Session {
    /// Goes on from the token that the last run of a sequence chose: so many of the best tokens, one
    /// after another. That last run gave a token, best or drawn, or was one of these.
    ///
    /// # Errors
    /// Invalid, where the last run chose no token, or `count` more positions do not fit the context
    /// (the cache then is as before); what planning and the device say.
    pub async fn run_ahead(&mut self, sequence: usize, count: usize) -> Result<Vec<u32>> {
        self.go_on(sequence, Wanted::Token, vec![Vec::new(); count]).await
    }

    /// As [`Session::run_ahead`], but a token for each draw.
    ///
    /// # Errors
    /// As [`Session::run_ahead`]; invalid, where no token can be drawn (the cache then is as before).
    pub async fn draw_ahead(&mut self, sequence: usize, draws: &[Draw]) -> Result<Vec<u32>> {
        let words = |draw: &Draw| vec![bytemuck::cast_slice(&draw.words()).to_vec()];
        self.go_on(sequence, Wanted::Drawn, draws.iter().map(words).collect()).await
    }

    /// A run for each list of further inputs.
    async fn go_on(
        &mut self,
        sequence: usize,
        wanted: Wanted,
        inputs: Vec<Vec<Vec<u8>>>,
    ) -> Result<Vec<u32>> {
        self.check_sequence(sequence)?;
        let count = inputs.len();
        if !self.chosen[sequence] {
            return Err(Error::invalid(format!(
                "sequence {sequence} has no token to go on from: its last run chose none"
            )));
        }
        let (past, context) = (self.past[sequence], self.context());
        if count > context - past {
            return Err(Error::invalid(format!(
                "{count} tokens after {past} do not fit a context of {context} positions"
            )));
        }
        let args: Vec<_> = (past..past + count)
            .zip(inputs)
            .map(|(position, mut inputs)| {
                inputs.insert(0, (position as i32).to_le_bytes().to_vec());
                (self.symbols(sequence, position), inputs)
            })
            .collect();
        // Unknown until all of them are done.
        self.chosen[sequence] = false;
        let kind = Kind { run: Run::Ahead, class: 0, wanted };
        let instance = self.instance(kind).await?;
        let mut tokens = Vec::with_capacity(count);
        for outputs in instance.read_all(args).await? {
            let word = outputs.first().and_then(|bytes| bytes.first_chunk::<4>());
            let word = word.ok_or_else(|| Error::device("a run gave no token"))?;
            match u32::from_le_bytes(*word) {
                Draw::NONE if wanted == Wanted::Drawn => return Err(nothing_drawn()),
                token => tokens.push(token),
            }
        }
        self.past[sequence] += count;
        self.chosen[sequence] = true;
        Ok(tokens)
    }

    /// As [`Session::run_ahead`], blocking.
    ///
    /// # Errors
    /// As [`Session::run_ahead`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn run_ahead_blocking(&mut self, sequence: usize, count: usize) -> Result<Vec<u32>> {
        crate::base::platform::block_on(self.run_ahead(sequence, count))
    }

    /// As [`Session::draw_ahead`], blocking.
    ///
    /// # Errors
    /// As [`Session::draw_ahead`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn draw_ahead_blocking(&mut self, sequence: usize, draws: &[Draw]) -> Result<Vec<u32>> {
        crate::base::platform::block_on(self.draw_ahead(sequence, draws))
    }
}
