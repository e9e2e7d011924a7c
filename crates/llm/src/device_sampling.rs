//! The next token of a text, chosen on the device if that is possible: the readback is then 4 bytes,
//! a token or the reason for its absence.

use super::decoder::DecoderOutput;
use super::sampler::{Sampler, Sampling};
use super::session::Session;
use super::step::{Output, StepRequest};
use warploom::error::{Error, Result};
use warploom::sampling::NoToken;

impl Session {
    /// Runs tokens of the first sequence and chooses the next one, on the device unless that needs
    /// the host. `seen` is the text with those tokens.
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

    /// The error of a sequence without a token at a position.
    pub(super) fn no_token(&self, sequence: usize, position: usize, why: NoToken) -> Error {
        match self.sequences() {
            1 => why.at(position),
            _ => why.at(position).context(format!("sequence {sequence}")),
        }
    }
}

impl Sampling {
    /// The output that a run needs for choosing the next token: the token itself if the device can
    /// choose it, which is a readback of 4 bytes; otherwise logits.
    pub fn output_kind(&self) -> DecoderOutput {
        match (self.is_argmax(), self.penalises()) {
            (true, _) => DecoderOutput::Greedy,
            (false, false) => DecoderOutput::Sample,
            (false, true) => DecoderOutput::Logits,
        }
    }

    /// The same as the output of a step, with the parameters of its tokens.
    pub fn output<'a>(&self, params: &'a [warploom::sampling::SampleParams]) -> Output<'a> {
        match self.output_kind() {
            DecoderOutput::Greedy => Output::Greedy,
            DecoderOutput::Sample => Output::Sample(params),
            _ => Output::Logits,
        }
    }
}
