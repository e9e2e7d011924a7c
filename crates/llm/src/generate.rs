//! Generates text from a prompt, one token at a time.

use std::ops::ControlFlow;
use std::time::Duration;

use super::run_ahead::RunAhead;
use super::sampler::{Sampler, Sampling};
use super::session::Session;
use super::shape_buckets::CLASSES;
use super::step::{Output, StepRequest};
use super::tokenizer::{EncodeOptions, Tokenizer};
use super::utf8::Utf8Stream;
use warploom::provider::DeviceKind;
use warploom::{Error, Result};
use warploom_core::base::platform::{self, BROWSER, Clock};

/// Settings for text generation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GenerateOptions {
    /// Maximum number of tokens to generate.
    pub max_tokens: usize,
    /// How the next token is chosen.
    pub sampling: Sampling,
    /// Whether names of control tokens in the prompt are parsed as control tokens.
    pub parse_special: bool,
    /// Whether generation continues after the model's end tokens.
    pub ignore_stop: bool,
}

/// At most 256 tokens with default sampling; the prompt is plain text, and generation stops at an
/// end token.
impl Default for GenerateOptions {
    fn default() -> GenerateOptions {
        GenerateOptions {
            max_tokens: 256,
            sampling: Sampling::default(),
            parse_special: false,
            ignore_stop: false,
        }
    }
}

crate::setters!(GenerateOptions {
    max_tokens: usize,
    sampling: Sampling,
    parse_special: bool,
    ignore_stop: bool,
});

/// An event during generation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A part of a long prompt has been processed.
    Progress {
        /// Number of prompt tokens processed so far.
        done: usize,
        /// Total number of prompt tokens.
        total: usize,
    },
    /// The whole prompt has been processed. Holds its number of tokens.
    Prompt(usize),
    /// The next token was chosen. Its text follows, at once or with a later token's.
    Token(u32),
    /// The next chunk of generated text, in complete characters.
    Text(&'a str),
}

/// Event callback; returns whether to continue. `Send` on native builds, like the futures that call
/// it.
#[cfg(not(target_arch = "wasm32"))]
pub type OnEvent<'a> = dyn FnMut(Event<'_>) -> ControlFlow<()> + Send + 'a;
/// Event callback; returns whether to continue.
#[cfg(target_arch = "wasm32")]
pub type OnEvent<'a> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 'a;

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finish {
    /// The model generated an end token.
    Stop,
    /// The maximum number of tokens was reached.
    Length,
    /// The context is full.
    Context,
    /// The event callback returned `Break`.
    Interrupted,
}

impl Finish {
    /// Returns the name for reports: `stop`, `length`, `context` or `interrupted`.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::Context => "context",
            Finish::Interrupted => "interrupted",
        }
    }
}

/// The generated text and its timing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Generated {
    /// The text, without the prompt.
    pub text: String,
    /// The tokens of the text, without the end token that stopped generation.
    pub tokens: Vec<u32>,
    /// Number of tokens in the prompt.
    pub prompt_tokens: usize,
    /// Why generation ended.
    pub finish: Finish,
    /// Time from the start to the first token.
    pub first_token: Duration,
    /// Time from the first token to the end of generation.
    pub decode: Duration,
}

impl Generated {
    /// Returns the number of prompt tokens per second until the first token, including the time to
    /// make plans.
    pub fn prefill_rate(&self) -> f64 {
        self.prompt_tokens as f64 / self.first_token.as_secs_f64().max(1e-9)
    }

    /// Returns the number of tokens per second after the first token.
    pub fn decode_rate(&self) -> f64 {
        self.tokens.len().saturating_sub(1) as f64 / self.decode.as_secs_f64().max(1e-9)
    }
}

impl Session {
    /// Runs a prompt after the cached positions of the first sequence and generates text, passing
    /// it to `on_event` as it arrives.
    ///
    /// # Errors
    /// Invalid if the prompt is empty, cannot be encoded or does not fit in the context, if a
    /// sampling setting is out of range, or if the logits yield no token; device errors.
    pub async fn generate_async(
        &mut self,
        prompt: &str,
        options: &GenerateOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Generated> {
        let model = self.model().clone();
        let tokenizer = model.tokenizer();
        let encode = EncodeOptions { add_bos: true, parse_special: options.parse_special };
        let prompt_tokens = tokenizer.encode(prompt, encode)?;
        self.generate_tokens_async(&prompt_tokens, &[], options, on_event).await
    }

    /// Same as [`Session::generate_async`], for a prompt given as tokens. `before` holds the tokens
    /// already in the cache, for the repetition penalty.
    ///
    /// # Errors
    /// Same as [`Session::generate_async`].
    pub async fn generate_tokens_async(
        &mut self,
        prompt_tokens: &[u32],
        before: &[u32],
        options: &GenerateOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Generated> {
        let model = self.model().clone();
        let tokenizer = model.tokenizer();
        if prompt_tokens.is_empty() {
            return Err(Error::invalid("the prompt is empty"));
        }
        let room = self.context() - self.past();
        if prompt_tokens.len() > room {
            return Err(Error::invalid(format!(
                "the prompt has {} tokens, the context of {} positions has room for {room}",
                prompt_tokens.len(),
                self.context()
            )));
        }
        let mut sampler = Sampler::new(options.sampling.clone())?;
        let mut writer = Writer::new(tokenizer, options, prompt_tokens, before, on_event);
        let start = Clock::now();
        if options.max_tokens == 0 {
            return Ok(writer.end(Finish::Length, Clock::now()));
        }
        let Some(rest) = self.run_early(prompt_tokens, &mut writer).await? else {
            return Ok(writer.end(Finish::Interrupted, Clock::now()));
        };
        let token = self.choose_next(&mut sampler, rest, &writer.seen).await?;
        writer.out.first_token = start.elapsed();
        let first = Clock::now();
        let ended = match writer.begin(token)? {
            Some(finish) => finish,
            None if options.sampling.output_kind().is_token() && self.runs_ahead() > 1 => {
                self.write_ahead(&mut writer).await?
            }
            None => self.write_on(&mut writer, &mut sampler).await?,
        };
        Ok(writer.end(ended, first))
    }

    /// Runs all chunks of a prompt but the last, and reports each; returns the rest of the prompt,
    /// or `None` if the callback interrupts.
    async fn run_early<'t>(
        &mut self,
        prompt: &'t [u32],
        writer: &mut Writer<'_>,
    ) -> Result<Option<&'t [u32]>> {
        let most = self.prompt_chunk();
        let mut rest = prompt;
        while rest.len() > most {
            let (chunk, after) = rest.split_at(most);
            self.step_async(StepRequest::tokens(0, chunk, Output::Nothing)).await?;
            rest = after;
            let (done, total) = (prompt.len() - rest.len(), prompt.len());
            if (writer.on_event)(Event::Progress { done, total }).is_break() {
                return Ok(None);
            }
            give_way().await;
        }
        Ok(Some(rest))
    }

    /// Returns the number of prompt tokens that are run at a time.
    fn prompt_chunk(&self) -> usize {
        match self.device().profile().kind {
            // The only thread of a browser answers nothing while the CPU computes a chunk.
            DeviceKind::Cpu if BROWSER => CLASSES[2].1,
            _ => CLASSES[3].1,
        }
    }

    /// Generates with a host round trip for each token.
    async fn write_on(&mut self, writer: &mut Writer<'_>, sampler: &mut Sampler) -> Result<Finish> {
        loop {
            if writer.left() == 0 {
                return Ok(Finish::Length);
            }
            if self.past() == self.context() {
                return Ok(Finish::Context);
            }
            let last = &writer.seen[writer.seen.len().saturating_sub(1)..];
            let token = self.choose_next(sampler, last, &writer.seen).await?;
            if let Some(finish) = writer.take(token)? {
                return Ok(finish);
            }
            give_way().await;
        }
    }

    /// Generates by run-ahead decoding, with on-device sampling. After a recovery from a lost
    /// device, continues from the last token that was read.
    async fn write_ahead(&mut self, writer: &mut Writer<'_>) -> Result<Finish> {
        loop {
            let read = self.past();
            let done = self.write_ahead_until_lost(writer).await;
            if self.past() > read {
                self.progressed();
            }
            match done {
                Err(error) if self.recoveries.covers(&error) => self.recover(error).await?,
                done => return done,
            }
        }
    }

    async fn write_ahead_until_lost(&mut self, writer: &mut Writer<'_>) -> Result<Finish> {
        let sampling = &writer.options.sampling;
        let mut ahead = RunAhead::new(self, 0, sampling.output_kind())?;
        let finish = loop {
            let left = writer.left();
            if left == 0 {
                break Finish::Length;
            }
            while !ahead.is_full() && ahead.running() < left && ahead.room() > 0 {
                let params = sampling.params(writer.seen.len() + ahead.running());
                ahead.begin((!sampling.is_argmax()).then_some(&params)).await?;
            }
            let Some(token) = ahead.next().await? else { break Finish::Context };
            if let Some(finish) = writer.take(token)? {
                break finish;
            }
        };
        // Drops the unused runs. If the device is lost there, the next step reports it.
        match ahead.finish().await {
            Err(error) if !error.is_device_lost() => Err(error),
            _ => Ok(finish),
        }
    }

    /// Blocking version of [`Session::generate_async`].
    ///
    /// # Errors
    /// Same as [`Session::generate_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn generate(
        &mut self,
        prompt: &str,
        options: &GenerateOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Generated> {
        platform::block_on(self.generate_async(prompt, options, on_event))
    }

    /// Blocking version of [`Session::generate_tokens_async`].
    ///
    /// # Errors
    /// Same as [`Session::generate_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn generate_tokens(
        &mut self,
        prompt_tokens: &[u32],
        before: &[u32],
        options: &GenerateOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Generated> {
        let generated = self.generate_tokens_async(prompt_tokens, before, options, on_event);
        platform::block_on(generated)
    }
}

/// Lets other futures run on a browser's single thread: the CPU provider computes in place there,
/// so no wait yields.
async fn give_way() {
    if BROWSER {
        platform::let_others_run().await;
    }
}

/// Collects the generated text and passes it to the event callback.
struct Writer<'a> {
    tokenizer: &'a Tokenizer,
    options: &'a GenerateOptions,
    on_event: &'a mut OnEvent<'a>,
    /// The tokens before the prompt, of the prompt, and generated after it.
    seen: Vec<u32>,
    stream: Utf8Stream,
    out: Generated,
}

impl<'a> Writer<'a> {
    fn new(
        tokenizer: &'a Tokenizer,
        options: &'a GenerateOptions,
        prompt: &[u32],
        before: &[u32],
        on_event: &'a mut OnEvent<'a>,
    ) -> Writer<'a> {
        let out = Generated {
            text: String::new(),
            tokens: Vec::new(),
            prompt_tokens: prompt.len(),
            finish: Finish::Length,
            first_token: Duration::ZERO,
            decode: Duration::ZERO,
        };
        let seen = [before, prompt].concat();
        Writer { tokenizer, options, on_event, seen, stream: Utf8Stream::new(), out }
    }

    /// Returns the number of tokens that may still be generated.
    fn left(&self) -> usize {
        self.options.max_tokens.saturating_sub(self.out.tokens.len())
    }

    /// Reports that the prompt has been processed, then appends the first token. Returns why
    /// generation ends, if it does.
    fn begin(&mut self, token: u32) -> Result<Option<Finish>> {
        if (self.on_event)(Event::Prompt(self.out.prompt_tokens)).is_break() {
            return Ok(Some(Finish::Interrupted));
        }
        self.take(token)
    }

    /// Appends the next token; returns why generation ends, if it does.
    fn take(&mut self, token: u32) -> Result<Option<Finish>> {
        if self.tokenizer.is_stop(token) && !self.options.ignore_stop {
            return Ok(Some(Finish::Stop));
        }
        self.out.tokens.push(token);
        self.seen.push(token);
        let broken = (self.on_event)(Event::Token(token)).is_break();
        let text = self.stream.push(self.tokenizer.token_bytes(token)?);
        self.out.text.push_str(&text);
        let goes_on = text.is_empty() || (self.on_event)(Event::Text(&text)).is_continue();
        Ok((broken || !goes_on).then_some(Finish::Interrupted))
    }

    /// Flushes the rest of the text and returns the result; `first` is the time of the first token.
    fn end(mut self, finish: Finish, first: Clock) -> Generated {
        self.out.finish = finish;
        self.out.decode = first.elapsed();
        let rest = self.stream.finish();
        self.out.text.push_str(&rest);
        if !rest.is_empty() {
            let _ = (self.on_event)(Event::Text(&rest));
        }
        self.out
    }
}
