//! Greedy tokens without the host: each run takes the token that the one before chose from the
//! device's memory, so several can be handed over at once and the device never waits in between.

use super::decoder::{Run, Wanted};
use super::session::{Kind, Session};
use crate::error::{Error, Result};

impl Session {
    /// Goes on from the token that the last run of a sequence chose: so many of the best tokens, one
    /// after another. That last run gave [`Wanted::Token`], or was one of these.
    ///
    /// # Errors
    /// Invalid, where the last run chose no token, or `count` more positions do not fit the context
    /// (the cache then is as before); what planning and the device say.
    pub async fn run_ahead(&mut self, sequence: usize, count: usize) -> Result<Vec<u32>> {
        self.check_sequence(sequence)?;
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
            .map(|position| {
                let input = (position as i32).to_le_bytes().to_vec();
                (self.symbols(sequence, position), vec![input])
            })
            .collect();
        // Unknown until all of them are done.
        self.chosen[sequence] = false;
        let kind = Kind { run: Run::Ahead, class: 0, wanted: Wanted::Token };
        let instance = self.instance(kind).await?;
        let mut tokens = Vec::with_capacity(count);
        for outputs in instance.read_all(args).await? {
            let word = outputs.first().and_then(|bytes| bytes.first_chunk::<4>());
            let word = word.ok_or_else(|| Error::device("a run gave no token"))?;
            tokens.push(u32::from_le_bytes(*word));
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
}
