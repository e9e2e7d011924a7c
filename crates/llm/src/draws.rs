//! Tokens that are drawn where the logits are: what comes back is 4 bytes for each.

use super::decoder::Wanted;
use super::sampler::{Sampler, Sampling};
use super::session::Session;
use warploom::draw::{Draw, nothing_drawn};
use warploom::error::{Error, Result};

impl Session {
    /// Runs tokens of a sequence as [`Session::run_sequence`] does, and draws the one after the last:
    /// `None` where none can be drawn, because a logit is NaN or plus infinity or every token is
    /// forbidden.
    ///
    /// # Errors
    /// As [`Session::run_sequence`].
    pub async fn draw_sequence(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        draw: &Draw,
    ) -> Result<Option<u32>> {
        let bytes = self.run_pieces(sequence, tokens, Wanted::Drawn, Some(draw)).await?;
        let drawn = self.drawn(&[sequence], &bytes)?;
        Ok(drawn.first().copied().flatten())
    }

    /// Runs one token of each of several sequences at once as [`Session::run_each`] does, and draws
    /// the next of each, in their order: `None` where none can be drawn.
    ///
    /// # Errors
    /// As [`Session::run_each`].
    pub async fn draw_each(&mut self, tokens: &[(usize, u32, Draw)]) -> Result<Vec<Option<u32>>> {
        let draws: Vec<Draw> = tokens.iter().map(|(.., draw)| *draw).collect();
        let tokens: Vec<(usize, u32)> = tokens.iter().map(|(s, token, _)| (*s, *token)).collect();
        let bytes = self.run_rows(&tokens, Wanted::Drawn, &draws).await?;
        let sequences: Vec<usize> = tokens.iter().map(|(sequence, _)| *sequence).collect();
        self.drawn(&sequences, &bytes)
    }

    /// The tokens of a run of these sequences. Where there is none, nothing can go on from it.
    fn drawn(&mut self, sequences: &[usize], bytes: &[u8]) -> Result<Vec<Option<u32>>> {
        let words: Vec<u32> = bytemuck::pod_collect_to_vec(bytes);
        if words.len() != sequences.len() {
            let text =
                format!("a run of {} sequences gave {} tokens", sequences.len(), words.len());
            return Err(Error::device(text));
        }
        let drawn = words.into_iter().zip(sequences).map(|(word, sequence)| {
            self.chosen[*sequence] &= word != Draw::NONE;
            (word != Draw::NONE).then_some(word)
        });
        Ok(drawn.collect())
    }

    /// Runs tokens of the first sequence and chooses the one after the last, on the device where that
    /// needs nothing from the host. `seen` is the text with those tokens.
    pub(super) async fn choose_next(
        &mut self,
        sampler: &mut Sampler,
        tokens: &[u32],
        seen: &[u32],
    ) -> Result<u32> {
        let wanted = sampler.sampling().wanted();
        if wanted == Wanted::Drawn {
            let draw = sampler.sampling().draw(seen.len());
            return self.draw_sequence(0, tokens, &draw).await?.ok_or_else(nothing_drawn);
        }
        let bytes = self.run(tokens, wanted).await?;
        let short = || Error::device(format!("a run gave {} bytes", bytes.len()));
        match wanted {
            Wanted::Token => {
                let word = bytes.first_chunk::<4>().ok_or_else(short)?;
                Ok(u32::from_le_bytes(*word))
            }
            _ => sampler.sample(&mut bytemuck::pod_collect_to_vec(&bytes), seen),
        }
    }

    /// As [`Session::draw_sequence`], blocking.
    ///
    /// # Errors
    /// As [`Session::draw_sequence`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn draw_sequence_blocking(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        draw: &Draw,
    ) -> Result<Option<u32>> {
        warploom::base::platform::block_on(self.draw_sequence(sequence, tokens, draw))
    }

    /// As [`Session::draw_each`], blocking.
    ///
    /// # Errors
    /// As [`Session::draw_each`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn draw_each_blocking(
        &mut self,
        tokens: &[(usize, u32, Draw)],
    ) -> Result<Vec<Option<u32>>> {
        warploom::base::platform::block_on(self.draw_each(tokens))
    }
}

impl Sampling {
    /// What a run has to give for the next token to be chosen: the token itself wherever the device
    /// can do that, which then sends 4 bytes.
    pub fn wanted(&self) -> Wanted {
        match (self.is_argmax(), self.penalises()) {
            (true, _) => Wanted::Token,
            (false, false) => Wanted::Drawn,
            (false, true) => Wanted::Logits,
        }
    }
}

/// Refuses what needs to be told how to draw.
pub(super) fn check_undrawn(wanted: Wanted) -> Result<()> {
    match wanted {
        Wanted::Drawn => {
            Err(Error::invalid("a drawn token needs a draw: see Session::draw_sequence"))
        }
        _ => Ok(()),
    }
}
