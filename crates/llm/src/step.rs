//! The step of a session: its request, its output, and the method that runs it.
//!
//! [`Session::step`] is the only way to run a model. A [`StepRequest`] has two parts: a
//! [`StepInput`] with the sequences and their tokens (a prompt of one sequence, one token of each
//! of several, or run-ahead decoding from the tokens that the device chose last), and an
//! [`Output`], which selects what the step returns. A request borrows its parts, so it allocates
//! nothing. [`StepOutput`] is typed: logits are rows of f32, tokens are ids or the reason why there
//! is none. Generation, perplexity, chat and the server are built on steps.

use super::batch::params_words;
use super::decoder::DecoderOutput;
use super::session::Session;
use warploom::{Error, Result};
use warploom_core::sampling::{NoToken, SampleParams};

/// The sequences of a step and their tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepInput<'a> {
    /// Tokens of one sequence, which follow its cached positions: a prompt, a part of a prompt, or
    /// one token. Long inputs are split into chunks.
    Tokens {
        /// Index of the sequence, from 0.
        sequence: usize,
        /// The tokens to run.
        tokens: &'a [u32],
    },
    /// Batched decoding: pairs of a sequence and its next token, all in one run.
    Batch(&'a [(usize, u32)]),
    /// Run-ahead decoding: several tokens of each sequence, starting from the token that the device
    /// chose in its last step. Several runs are in flight, and none waits for the host.
    RunAhead {
        /// Indices of the sequences.
        sequences: &'a [usize],
        /// Number of tokens to decode for each sequence.
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
    /// The logits after every token, one row for each token.
    AllLogits,
    /// The most probable next token, chosen on the device; ties go to the lowest id.
    Greedy,
    /// A next token, sampled on the device. There is one set of parameters for each sequence; for
    /// run-ahead decoding, first those of the first run, then those of the second, and so on.
    /// [`Sampling::params`](super::Sampling::params) computes them.
    Sample(&'a [SampleParams]),
}

impl<'a> Output<'a> {
    /// Returns the corresponding output of the decoder graph.
    pub fn kind(&self) -> DecoderOutput {
        match self {
            Output::Nothing => DecoderOutput::Nothing,
            Output::Logits => DecoderOutput::Logits,
            Output::AllLogits => DecoderOutput::AllLogits,
            Output::Greedy => DecoderOutput::Greedy,
            Output::Sample(_) => DecoderOutput::Sample,
        }
    }

    /// Returns the sampling parameters; empty unless this is [`Output::Sample`].
    fn params(&self) -> &'a [SampleParams] {
        match self {
            Output::Sample(params) => params,
            _ => &[],
        }
    }

    /// Returns the sampling parameters as the bytes of the input `sample_params`; `None` unless
    /// this is [`Output::Sample`].
    pub(super) fn params_input(&self) -> Option<Vec<u8>> {
        match self {
            Output::Sample(params) => Some(params_words(params)),
            _ => None,
        }
    }

    /// Returns an error if there are sampling parameters, but not exactly `tokens` of them.
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

/// A request for a step: sequences with their tokens, and the output to return.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepRequest<'a> {
    /// What to run.
    pub input: StepInput<'a>,
    /// What to return.
    pub output: Output<'a>,
}

impl<'a> StepRequest<'a> {
    /// Creates a request to run tokens of one sequence: [`StepInput::Tokens`].
    pub fn tokens(sequence: usize, tokens: &'a [u32], output: Output<'a>) -> StepRequest<'a> {
        StepRequest { input: StepInput::Tokens { sequence, tokens }, output }
    }

    /// Creates a request to run one token of each of several sequences: [`StepInput::Batch`].
    pub fn batch(tokens: &'a [(usize, u32)], output: Output<'a>) -> StepRequest<'a> {
        StepRequest { input: StepInput::Batch(tokens), output }
    }

    /// Creates a request to decode `count` tokens of each sequence: [`StepInput::RunAhead`].
    pub fn run_ahead(sequences: &'a [usize], count: usize, output: Output<'a>) -> StepRequest<'a> {
        StepRequest { input: StepInput::RunAhead { sequences, count }, output }
    }
}

/// The next token of a sequence, or the reason why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NextToken {
    /// Index of the sequence.
    pub sequence: usize,
    /// Position of the token: the number of tokens before it.
    pub position: usize,
    /// Id of the token, or the reason why the logits yield none. In that case the KV cache still
    /// holds the tokens of the step, but run-ahead decoding cannot continue from them.
    pub token: Result<u32, NoToken>,
}

impl NextToken {
    /// Creates the next token of a sequence, for implementations of the scheduler's `Sequences`
    /// trait other than [`Session`].
    pub fn new(sequence: usize, position: usize, token: Result<u32, NoToken>) -> NextToken {
        NextToken { sequence, position, token }
    }

    /// Returns the id.
    ///
    /// # Errors
    /// Invalid, naming sequence and position, if there is none.
    pub fn id(&self) -> Result<u32> {
        let named =
            |why: NoToken| why.at(self.position).context(format!("sequence {}", self.sequence));
        self.token.map_err(named)
    }
}

/// What a step returns: chosen tokens, rows of logits, or nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOutput {
    next: Vec<NextToken>,
    logits: Vec<f32>,
    /// Number of logits in a row.
    width: usize,
}

impl StepOutput {
    /// Creates an output of chosen tokens: one for each sequence, in the order of the request. For
    /// run-ahead decoding they are those of the first run, then those of the second, and so on.
    pub fn from_next(next: Vec<NextToken>) -> StepOutput {
        StepOutput { next, ..StepOutput::default() }
    }

    /// Creates an output of logits: rows of `width` elements, one after the other.
    pub fn from_logits(logits: Vec<f32>, width: usize) -> StepOutput {
        StepOutput { logits, width, ..StepOutput::default() }
    }

    /// Returns the chosen tokens, each an id or the reason why there is none, in the order of
    /// [`StepOutput::from_next`]. Empty if the step returned logits or nothing.
    pub fn next_tokens(&self) -> &[NextToken] {
        &self.next
    }

    /// Returns the ids of the chosen tokens.
    ///
    /// # Errors
    /// Invalid, naming sequence and position, if the logits yielded no token.
    pub fn tokens(&self) -> Result<Vec<u32>> {
        self.next.iter().map(NextToken::id).collect()
    }

    /// Returns the id of the first chosen token, for steps that choose only one.
    ///
    /// # Errors
    /// Invalid if the logits yielded no token, or if the step was not to choose one.
    pub fn token(&self) -> Result<u32> {
        match self.next.first() {
            Some(next) => next.id(),
            None => Err(Error::invalid("the output of a step that chose no token")),
        }
    }

    /// Returns all rows of logits, one after the other. Empty if the step returned tokens or
    /// nothing.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// Returns an iterator over the rows of logits: one for each sequence, or for each token
    /// ([`Output::AllLogits`]).
    pub fn rows(&self) -> std::slice::ChunksExact<'_, f32> {
        self.logits.chunks_exact(self.width.max(1))
    }

    /// Returns an iterator over the rows of logits that lets a [`Sampler`](super::Sampler) change
    /// them in place.
    pub fn rows_mut(&mut self) -> std::slice::ChunksExactMut<'_, f32> {
        self.logits.chunks_exact_mut(self.width.max(1))
    }

    /// Consumes the output and returns all rows of logits, one after the other.
    pub fn into_logits(self) -> Vec<f32> {
        self.logits
    }
}

impl Session {
    /// Runs tokens through the model, after the cached positions of their sequences, and returns
    /// the requested output. The plan for a shape bucket is made on its first use. Blocks until the
    /// device is done.
    ///
    /// # Errors
    /// Invalid, with the KV cache unchanged, if a sequence is unknown or occurs twice, there are no
    /// tokens, an id is outside the vocabulary, the tokens do not fit in the context, or the number
    /// of sampling parameters is wrong. In run-ahead decoding, also if the output is not a token,
    /// the last step of a sequence chose none, or a row of logits yields none. Also the errors of
    /// planning and of the device.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn step(&mut self, request: StepRequest<'_>) -> Result<StepOutput> {
        warploom_core::base::platform::block_on(self.step_async(request))
    }

    /// Same as `Session::step`, but without blocking the calling thread if the device allows it.
    ///
    /// # Errors
    /// Same as `Session::step`.
    pub async fn step_async(&mut self, request: StepRequest<'_>) -> Result<StepOutput> {
        loop {
            let before = self.checkpoint();
            match self.step_once(request).await {
                Err(error) if self.recoveries.covers(&error) => {
                    self.restore(before);
                    self.recover(error).await?;
                }
                done => {
                    if done.is_ok() {
                        self.progressed();
                    }
                    return done;
                }
            }
        }
    }

    async fn step_once(&mut self, request: StepRequest<'_>) -> Result<StepOutput> {
        let output = request.output;
        match request.input {
            StepInput::Tokens { sequence, tokens } => {
                output.check(1)?;
                self.check_sequence(sequence)?;
                self.check_tokens(sequence, tokens)?;
                self.catch_up(sequence).await?;
                self.run_tokens(sequence, tokens, output).await
            }
            StepInput::Batch(tokens) => {
                output.check(tokens.len())?;
                self.check_batch(tokens)?;
                for (sequence, _) in tokens {
                    self.catch_up(*sequence).await?;
                }
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
                self.check_run_ahead(sequences, count)?;
                for sequence in sequences {
                    self.catch_up(*sequence).await?;
                }
                match sequences {
                    [sequence] => self.run_ahead(*sequence, count, output.kind(), params).await,
                    _ => self.run_ahead_batch(sequences, count, output.kind(), params).await,
                }
            }
        }
    }

    /// Converts `bytes`, which a run of these sequences returned, to the output of the step.
    /// Sequences whose logits yielded no token are marked as having no chosen token.
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
