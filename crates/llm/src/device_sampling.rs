//! Chooses the next token of a text, on the device if possible. Only 4 bytes are then read back: a
//! token, or the reason that there is none.

use super::decoder::DecoderOutput;
use super::sampler::{Sampler, Sampling};
use super::session::Session;
use super::step::{Output, StepRequest};
use warploom::{Error, Result};
use warploom_core::sampling::NoToken;

impl Session {
    /// Runs tokens of the first sequence and chooses the next one, on the device unless the
    /// sampling needs the host. `seen` holds all tokens of the text, up to and including `tokens`.
    pub(super) async fn choose_next(
        &mut self,
        sampler: &mut Sampler,
        tokens: &[u32],
        seen: &[u32],
    ) -> Result<u32> {
        let params = [sampler.sampling().params(seen.len())];
        let output = sampler.sampling().output(&params);
        let mut out = self.step_async(StepRequest::tokens(0, tokens, output)).await?;
        if output.kind().is_token() {
            let next = out.next_tokens().first();
            let next = next.ok_or_else(|| Error::device("a run returned no token"))?;
            return next.token.map_err(|why| self.no_token(0, next.position, why));
        }
        let row = out.rows_mut().next().unwrap_or_default();
        let token = sampler.sample(row, seen);
        token.map_err(|e| e.context(format!("position {}", seen.len())))
    }

    /// Returns the error for a position of a sequence at which no token could be chosen.
    pub(super) fn no_token(&self, sequence: usize, position: usize, why: NoToken) -> Error {
        match self.sequences() {
            1 => why.at(position),
            _ => why.at(position).context(format!("sequence {sequence}")),
        }
    }
}

impl Sampling {
    /// Returns what a run must output so that the next token can be chosen: the token itself, a
    /// readback of 4 bytes, if the device can choose it; otherwise logits.
    pub fn output_kind(&self) -> DecoderOutput {
        match (self.is_argmax(), self.penalises()) {
            (true, _) => DecoderOutput::Greedy,
            (false, false) => DecoderOutput::Sample,
            (false, true) => DecoderOutput::Logits,
        }
    }

    /// Returns [`Sampling::output_kind`] as the output of a step, with `params` if tokens are
    /// sampled.
    pub fn output<'a>(&self, params: &'a [warploom_core::sampling::SampleParams]) -> Output<'a> {
        match self.output_kind() {
            DecoderOutput::Greedy => Output::Greedy,
            DecoderOutput::Sample => Output::Sample(params),
            _ => Output::Logits,
        }
    }
}
