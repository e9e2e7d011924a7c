//! On-device sampling: the readback is 4 bytes per token, a token or the reason for its absence.

use super::decoder::Wanted;
use super::sampler::{Sampler, Sampling};
use super::session::Session;
use warploom::error::{Error, Result};
use warploom::sampling::{Draw, NoToken};

impl Session {
    /// Runs tokens of a sequence as [`Session::run_sequence`] does, and returns the best token
    /// after the last, or the reason for its absence: no run can then continue from it, but the
    /// cache holds the tokens of this run.
    ///
    /// # Errors
    /// As [`Session::run_sequence`].
    pub async fn best_sequence(
        &mut self,
        sequence: usize,
        tokens: &[u32],
    ) -> Result<Result<u32, NoToken>> {
        let bytes = self.run_pieces(sequence, tokens, Wanted::Token, None).await?;
        self.one_chosen(sequence, &bytes)
    }

    /// As [`Session::best_sequence`], but samples the token after the last.
    ///
    /// # Errors
    /// As [`Session::run_sequence`].
    pub async fn draw_sequence(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        draw: &Draw,
    ) -> Result<Result<u32, NoToken>> {
        let bytes = self.run_pieces(sequence, tokens, Wanted::Drawn, Some(draw)).await?;
        self.one_chosen(sequence, &bytes)
    }

    /// Runs one token of each of several sequences at once as [`Session::run_each`] does, and
    /// returns the best next token of each, in order, or the reason for its absence, which does not
    /// affect the other sequences.
    ///
    /// # Errors
    /// As [`Session::run_each`].
    pub async fn best_each(
        &mut self,
        tokens: &[(usize, u32)],
    ) -> Result<Vec<Result<u32, NoToken>>> {
        let bytes = self.run_rows(tokens, Wanted::Token, &[]).await?;
        let sequences: Vec<usize> = tokens.iter().map(|(sequence, _)| *sequence).collect();
        self.each_chosen(&sequences, &bytes)
    }

    /// As [`Session::best_each`], but samples the next token of each.
    ///
    /// # Errors
    /// As [`Session::run_each`].
    pub async fn draw_each(
        &mut self,
        tokens: &[(usize, u32, Draw)],
    ) -> Result<Vec<Result<u32, NoToken>>> {
        let draws: Vec<Draw> = tokens.iter().map(|(.., draw)| *draw).collect();
        let tokens: Vec<(usize, u32)> = tokens.iter().map(|(s, token, _)| (*s, *token)).collect();
        let bytes = self.run_rows(&tokens, Wanted::Drawn, &draws).await?;
        let sequences: Vec<usize> = tokens.iter().map(|(sequence, _)| *sequence).collect();
        self.each_chosen(&sequences, &bytes)
    }

    fn one_chosen(&mut self, sequence: usize, bytes: &[u8]) -> Result<Result<u32, NoToken>> {
        let chosen = self.each_chosen(&[sequence], bytes)?;
        chosen.first().copied().ok_or_else(|| Error::device("a run gave no token"))
    }

    /// The tokens of a run of these sequences. A sequence without one cannot continue.
    fn each_chosen(
        &mut self,
        sequences: &[usize],
        bytes: &[u8],
    ) -> Result<Vec<Result<u32, NoToken>>> {
        let words = words_of_run(sequences.len(), bytes)?;
        let chosen = words.into_iter().zip(sequences).map(|(word, sequence)| {
            let chosen = NoToken::check(word);
            self.chosen[*sequence] &= chosen.is_ok();
            chosen
        });
        Ok(chosen.collect())
    }

    /// Refuses a run of `count` tokens of each of these sequences if one of them has no chosen
    /// token; the cache is then unchanged.
    pub(super) fn check_chosen(
        &mut self,
        sequences: &[usize],
        count: usize,
        bytes: &[u8],
    ) -> Result<()> {
        let failed = self.each_chosen(sequences, bytes)?.into_iter().zip(sequences);
        let failed = failed.filter_map(|(chosen, sequence)| Some((chosen.err()?, *sequence)));
        let Some((why, sequence)) = failed.into_iter().next() else { return Ok(()) };
        let error = self.no_token(sequence, self.past[sequence], why);
        for sequence in sequences {
            self.truncate_sequence(*sequence, self.past[*sequence].saturating_sub(count))?;
        }
        Err(error)
    }

    /// The error of a sequence without a token at a position.
    pub(super) fn no_token(&self, sequence: usize, position: usize, why: NoToken) -> Error {
        match self.sequences() {
            1 => why.at(position),
            _ => why.at(position).context(format!("sequence {sequence}")),
        }
    }

    /// Runs tokens of the first sequence and chooses the next one, on the device unless that needs
    /// the host. `seen` is the text with those tokens.
    pub(super) async fn choose_next(
        &mut self,
        sampler: &mut Sampler,
        tokens: &[u32],
        seen: &[u32],
    ) -> Result<u32> {
        let chosen = match sampler.sampling().wanted() {
            Wanted::Token => self.best_sequence(0, tokens).await?,
            Wanted::Drawn => {
                let draw = sampler.sampling().draw(seen.len());
                self.draw_sequence(0, tokens, &draw).await?
            }
            wanted => {
                let bytes = self.run(tokens, wanted).await?;
                let token = sampler.sample(&mut bytemuck::pod_collect_to_vec(&bytes), seen);
                return token.map_err(|e| e.context(format!("position {}", seen.len())));
            }
        };
        chosen.map_err(|why| self.no_token(0, self.past_of(0), why))
    }

    /// As [`Session::best_sequence`], blocking.
    ///
    /// # Errors
    /// As [`Session::best_sequence`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn best_sequence_blocking(
        &mut self,
        sequence: usize,
        tokens: &[u32],
    ) -> Result<Result<u32, NoToken>> {
        warploom::base::platform::block_on(self.best_sequence(sequence, tokens))
    }

    /// As [`Session::best_each`], blocking.
    ///
    /// # Errors
    /// As [`Session::best_each`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn best_each_blocking(
        &mut self,
        tokens: &[(usize, u32)],
    ) -> Result<Vec<Result<u32, NoToken>>> {
        warploom::base::platform::block_on(self.best_each(tokens))
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
    ) -> Result<Result<u32, NoToken>> {
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
    ) -> Result<Vec<Result<u32, NoToken>>> {
        warploom::base::platform::block_on(self.draw_each(tokens))
    }
}

impl Sampling {
    /// The output a run needs for choosing the next token: the token itself if the device can
    /// choose it, which is a readback of 4 bytes.
    pub fn wanted(&self) -> Wanted {
        match (self.is_argmax(), self.penalises()) {
            (true, _) => Wanted::Token,
            (false, false) => Wanted::Drawn,
            (false, true) => Wanted::Logits,
        }
    }
}

/// The words chosen by a run of `sequences` sequences.
pub(super) fn words_of_run(sequences: usize, bytes: &[u8]) -> Result<Vec<u32>> {
    let words: Vec<u32> = bytemuck::pod_collect_to_vec(bytes);
    match words.len() == sequences {
        true => Ok(words),
        false => {
            let text = format!("a run of {sequences} sequences gave {} tokens", words.len());
            Err(Error::device(text))
        }
    }
}

/// Refuses an output that needs sampling parameters.
pub(super) fn check_undrawn(wanted: Wanted) -> Result<()> {
    match wanted {
        Wanted::Drawn => {
            Err(Error::invalid("a sampled token needs a draw: see Session::draw_sequence"))
        }
        _ => Ok(()),
    }
}
