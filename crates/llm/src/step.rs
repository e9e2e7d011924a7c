//! A step of a session: what it runs, what it returns, and the one method that does it.
//!
//! [`Session::step`] is the only way to run a model. A [`StepRequest`] has two parts: a
//! [`StepInput`], which says the sequences and their tokens (a prompt of one sequence, one token of
//! each of several, or run-ahead decoding from the tokens that the device chose last), and an
//! [`Output`], which says what comes back. It borrows all of its parts, so a request costs nothing.
//! [`StepOutput`] is typed: logits as rows of f32, tokens as ids or the reason that there is none.
//! Generation, perplexity, chat and the server are layers over it.

use super::batch::params_words;
use super::decoder::DecoderOutput;
use super::session::Session;
use warploom::error::{Error, Result};
use warploom::sampling::{NoToken, SampleParams};

/// The sequences of a step and their tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepInput<'a> {
    /// Tokens of one sequence, which follow its cached positions: a prompt, a part of it, or one
    /// token. Long ones are split into chunks.
    Tokens {
        /// The sequence, from 0.
        sequence: usize,
        /// Its tokens.
        tokens: &'a [u32],
    },
    /// One token of each of several sequences, in one run: batched decoding.
    Batch(&'a [(usize, u32)]),
    /// Run-ahead decoding: one token after the other of each sequence, from the token that the
    /// device chose for it in the last step. Several runs are in flight, and none waits for the
    /// host.
    RunAhead {
        /// The sequences.
        sequences: &'a [usize],
        /// Tokens of each.
        count: usize,
    },
}

/// What a step returns.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Output<'a> {
    /// Nothing: the step only fills the KV cache.
    Nothing,
    /// The logits after the last token, one row for each sequence.
    Logits,
    /// The logits after every token, one row for each.
    AllLogits,
    /// The most probable next token, the lowest id among equals, chosen on the device.
    Greedy,
    /// A sampled next token, chosen on the device, with these parameters: one for each sequence; in
    /// run-ahead decoding one for each sequence of the first run, then of the next.
    /// [`Sampling::params`](super::Sampling::params) makes them.
    Sample(&'a [SampleParams]),
}

impl<'a> Output<'a> {
    /// The output of the graph that computes it.
    pub fn kind(&self) -> DecoderOutput {
        match self {
            Output::Nothing => DecoderOutput::Nothing,
            Output::Logits => DecoderOutput::Logits,
            Output::AllLogits => DecoderOutput::AllLogits,
            Output::Greedy => DecoderOutput::Greedy,
            Output::Sample(_) => DecoderOutput::Sample,
        }
    }

    /// The sampling parameters; empty for every other output.
    fn params(&self) -> &'a [SampleParams] {
        match self {
            Output::Sample(params) => params,
            _ => &[],
        }
    }

    /// The sampling parameters of `tokens` tokens as an input of a run; `None` for every other
    /// output.
    pub(super) fn params_input(&self) -> Option<Vec<u8>> {
        match self {
            Output::Sample(params) => Some(params_words(params)),
            _ => None,
        }
    }

    /// Refuses another number of sampling parameters than of chosen tokens.
    fn check(&self, tokens: usize) -> Result<()> {
        match self {
            Output::Sample(params) if params.len() != tokens => Err(Error::invalid(format!(
                "{} sampling parameters for {tokens} tokens to sample",
                params.len()
            ))),
            _ => Ok(()),
        }
    }
}

/// A step: sequences with their tokens, and the output wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepRequest<'a> {
    /// What is run.
    pub input: StepInput<'a>,
    /// What is returned.
    pub output: Output<'a>,
}

impl<'a> StepRequest<'a> {
    /// Runs tokens of one sequence: [`StepInput::Tokens`].
    pub fn tokens(sequence: usize, tokens: &'a [u32], output: Output<'a>) -> StepRequest<'a> {
        StepRequest { input: StepInput::Tokens { sequence, tokens }, output }
    }

    /// Runs one token of each of several sequences: [`StepInput::Batch`].
    pub fn batch(tokens: &'a [(usize, u32)], output: Output<'a>) -> StepRequest<'a> {
        StepRequest { input: StepInput::Batch(tokens), output }
    }

    /// Decodes `count` tokens of each sequence: [`StepInput::RunAhead`].
    pub fn run_ahead(sequences: &'a [usize], count: usize, output: Output<'a>) -> StepRequest<'a> {
        StepRequest { input: StepInput::RunAhead { sequences, count }, output }
    }
}

/// The next token of a sequence, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NextToken {
    /// The sequence.
    pub sequence: usize,
    /// The position of the token: the number of tokens before it.
    pub position: usize,
    /// Its id; [`NoToken`] if the logits give none. The cache holds the tokens of the step, but no
    /// run can go on from them.
    pub token: Result<u32, NoToken>,
}

impl NextToken {
    /// A token, for implementations of a scheduler's sequences other than [`Session`].
    pub fn new(sequence: usize, position: usize, token: Result<u32, NoToken>) -> NextToken {
        NextToken { sequence, position, token }
    }

    /// The id.
    ///
    /// # Errors
    /// Invalid, naming sequence and position, if there is no token.
    pub fn id(&self) -> Result<u32> {
        let named =
            |why: NoToken| why.at(self.position).context(format!("sequence {}", self.sequence));
        self.token.map_err(named)
    }
}

/// The result of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOutput {
    next: Vec<NextToken>,
    logits: Vec<f32>,
    /// Elements of a row of logits.
    width: usize,
}

impl StepOutput {
    /// Chosen tokens: one for each sequence, in the order of the request; in run-ahead decoding of
    /// the first run, then of the next.
    pub fn from_next(next: Vec<NextToken>) -> StepOutput {
        StepOutput { next, ..StepOutput::default() }
    }

    /// Rows of `width` logits each.
    pub fn from_logits(logits: Vec<f32>, width: usize) -> StepOutput {
        StepOutput { logits, width, ..StepOutput::default() }
    }

    /// The chosen tokens, each an id or the reason that there is none; empty if logits or nothing
    /// were wanted. Run-ahead decoding has one for each sequence of the first run, then of the next.
    pub fn next_tokens(&self) -> &[NextToken] {
        &self.next
    }

    /// The ids of the chosen tokens.
    ///
    /// # Errors
    /// Invalid, naming sequence and position, if one of them is missing.
    pub fn tokens(&self) -> Result<Vec<u32>> {
        self.next.iter().map(NextToken::id).collect()
    }

    /// The first chosen token, which is the only one of a step of one sequence.
    ///
    /// # Errors
    /// Invalid, if there is none: the logits give none, or the step was to choose none.
    pub fn token(&self) -> Result<u32> {
        match self.next.first() {
            Some(next) => next.id(),
            None => Err(Error::invalid("the output of a step that chose no token")),
        }
    }

    /// All rows of logits, one after the other; empty if tokens or nothing were wanted.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// The rows of logits: one for each sequence, or for each token ([`Output::AllLogits`]).
    pub fn rows(&self) -> std::slice::ChunksExact<'_, f32> {
        self.logits.chunks_exact(self.width.max(1))
    }

    /// The rows of logits, to be changed in place by a [`Sampler`](super::Sampler).
    pub fn rows_mut(&mut self) -> std::slice::ChunksExactMut<'_, f32> {
        self.logits.chunks_exact_mut(self.width.max(1))
    }

    /// All rows of logits, one after the other.
    pub fn into_logits(self) -> Vec<f32> {
        self.logits
    }
}

impl Session {
    /// Runs tokens through the model, behind the cached positions of their sequences, and returns
    /// the wanted output. Plans of a shape bucket are made on its first use. Blocks until the
    /// device is done.
    ///
    /// # Errors
    /// Invalid, with the cache unchanged, for an unknown sequence or one given twice, no tokens, an
    /// id outside the vocabulary, more tokens than the context has room for, a wrong number of
    /// sampling parameters, and in run-ahead decoding for a sequence whose last step chose no
    /// token, a step that meets logits without a next token, or an output that is no token. Errors
    /// of planning and of the device.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn step(&mut self, request: StepRequest<'_>) -> Result<StepOutput> {
        warploom::base::platform::block_on(self.step_async(request))
    }

    /// As `Session::step`, without blocking the caller's thread where the device allows it.
    ///
    /// # Errors
    /// As `Session::step`.
    pub async fn step_async(&mut self, request: StepRequest<'_>) -> Result<StepOutput> {
        let output = request.output;
        match request.input {
            StepInput::Tokens { sequence, tokens } => {
                output.check(1)?;
                self.run_tokens(sequence, tokens, output).await
            }
            StepInput::Batch(tokens) => {
                output.check(tokens.len())?;
                match tokens {
                    [(sequence, token)] => self.run_tokens(*sequence, &[*token], output).await,
                    _ => self.run_batch(tokens, output).await,
                }
            }
            StepInput::RunAhead { sequences, count } => {
                if !output.kind().is_token() {
                    return Err(Error::invalid(format!(
                        "run-ahead decoding with the output {:?}: each run goes on from a token, \
                         Greedy or Sample",
                        output.kind()
                    )));
                }
                output.check(sequences.len().saturating_mul(count))?;
                let params = output.params();
                match sequences {
                    [sequence] => self.run_ahead(*sequence, count, output.kind(), params).await,
                    _ => self.run_ahead_batch(sequences, count, output.kind(), params).await,
                }
            }
        }
    }

    /// The output of a run that returned `bytes`: of `sequences` after `past` positions each.
    pub(super) fn output_of(
        &mut self,
        kind: DecoderOutput,
        sequences: impl ExactSizeIterator<Item = usize>,
        bytes: &[u8],
    ) -> Result<StepOutput> {
        if !kind.is_token() {
            let width = self.model().config().vocabulary;
            return Ok(StepOutput::from_logits(bytemuck::pod_collect_to_vec(bytes), width));
        }
        let count = sequences.len();
        let (words, rest) = bytes.as_chunks::<4>();
        if words.len() != count || !rest.is_empty() {
            let text =
                format!("a run of {count} sequences returned {} bytes of tokens", bytes.len());
            return Err(Error::device(text));
        }
        let next = words.iter().zip(sequences).map(|(word, sequence)| {
            let token = NoToken::check(u32::from_le_bytes(*word));
            self.chosen[sequence] &= token.is_ok();
            NextToken { sequence, position: self.past[sequence], token }
        });
        Ok(StepOutput::from_next(next.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_tokens_are_those_of_the_step() {
        let mut logits = StepOutput::from_logits(vec![1.0, 2.0, 3.0, 4.0], 2);
        assert_eq!(logits.rows().collect::<Vec<_>>(), [[1.0, 2.0], [3.0, 4.0]]);
        logits.rows_mut().for_each(|row| row[0] = 0.0);
        assert!(logits.token().unwrap_err().to_string().contains("no token"));
        assert_eq!(logits.into_logits(), [0.0, 2.0, 0.0, 4.0]);
        let why = NoToken::NotFinite(3);
        let tokens = StepOutput::from_next(vec![
            NextToken::new(2, 7, Ok(5)),
            NextToken::new(4, 9, Err(why)),
        ]);
        assert_eq!(tokens.token().unwrap(), 5);
        assert_eq!((tokens.rows().count(), tokens.logits()), (0, [].as_slice()));
        let error = tokens.tokens().unwrap_err().to_string();
        assert!(error.contains("sequence 4") && error.contains("position 9"), "{error}");
    }

    #[test]
    fn each_sampled_token_has_its_parameters() {
        let params = [super::super::Sampling::default().params(0); 2];
        assert!(Output::Sample(&params).check(2).is_ok() && Output::Greedy.check(2).is_ok());
        let error = Output::Sample(&params).check(3).unwrap_err().to_string();
        assert!(error.contains("2 sampling parameters for 3 tokens"), "{error}");
    }
}
