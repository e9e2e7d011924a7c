//! From a prompt to text, one token at a time.

use std::ops::ControlFlow;
use std::time::Duration;

use super::run_ahead::RunAhead;
use super::sampler::{Sampler, Sampling};
use super::session::Session;
use super::tokenizer::{EncodeOptions, Tokenizer};
use super::utf8::Utf8Stream;
use warploom::base::platform::Clock;
use warploom::error::{Error, Result};

/// Generation settings.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GenerateOptions {
    /// Maximum tokens to generate.
    pub max_tokens: usize,
    /// How the next token is chosen.
    pub sampling: Sampling,
    /// Parses the names of control tokens in the prompt as these tokens.
    pub parse_special: bool,
    /// Continues after the model's end tokens.
    pub ignore_stop: bool,
}

/// At most 256 tokens with default sampling; the prompt is plain text, and an end token stops.
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

/// Events during generation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The prompt has been read; its number of tokens.
    Prompt(usize),
    /// More text, in whole characters.
    Text(&'a str),
}

/// Event callback, which returns whether to continue. `Send` on native builds, as the calling
/// futures are.
#[cfg(not(target_arch = "wasm32"))]
pub type OnEvent<'a> = dyn FnMut(Event<'_>) -> ControlFlow<()> + Send + 'a;
/// Event callback, which returns whether to continue.
#[cfg(target_arch = "wasm32")]
pub type OnEvent<'a> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 'a;

/// The reason generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finish {
    /// The model generated an end token.
    Stop,
    /// The maximum number of tokens was reached.
    Length,
    /// The context is full.
    Context,
    /// The caller interrupted it.
    Interrupted,
}

impl Finish {
    /// Its word in reports: `stop`, `length`, `context`, `interrupted`.
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
    /// Its tokens, without an end token.
    pub tokens: Vec<u32>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Why it ended.
    pub finish: Finish,
    /// Time from the start to the first token.
    pub first_token: Duration,
    /// Time from the first token to the last.
    pub decode: Duration,
}

impl Generated {
    /// Prompt tokens per second, including the first plan.
    pub fn prefill_rate(&self) -> f64 {
        self.prompt_tokens as f64 / self.first_token.as_secs_f64().max(1e-9)
    }

    /// Tokens per second after the first one.
    pub fn decode_rate(&self) -> f64 {
        self.tokens.len().saturating_sub(1) as f64 / self.decode.as_secs_f64().max(1e-9)
    }
}

impl Session {
    /// Reads a prompt and generates text, passing each part to `on_event`.
    ///
    /// # Errors
    /// Invalid, if the prompt is empty or does not fit the context; device errors.
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

    /// As [`Session::generate_async`], from the tokens of a prompt. `before` is the text already in
    /// the cache, for the repetition penalty.
    ///
    /// # Errors
    /// As [`Session::generate_async`].
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
        let token = self.choose_next(&mut sampler, prompt_tokens, &writer.seen).await?;
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

    /// Generates with a host round trip between the tokens.
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
        }
    }

    /// Generates with on-device sampling, run ahead of the host.
    async fn write_ahead(&mut self, writer: &mut Writer<'_>) -> Result<Finish> {
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
        // Drops the unused runs.
        ahead.finish().await?;
        Ok(finish)
    }

    /// As [`Session::generate_async`], blocking.
    ///
    /// # Errors
    /// As [`Session::generate_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn generate(
        &mut self,
        prompt: &str,
        options: &GenerateOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Generated> {
        warploom::base::platform::block_on(self.generate_async(prompt, options, on_event))
    }

    /// As [`Session::generate_tokens_async`], blocking.
    ///
    /// # Errors
    /// As [`Session::generate_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn generate_tokens(
        &mut self,
        prompt_tokens: &[u32],
        before: &[u32],
        options: &GenerateOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Generated> {
        let generated = self.generate_tokens_async(prompt_tokens, before, options, on_event);
        warploom::base::platform::block_on(generated)
    }
}

/// The text so far and its event callback.
struct Writer<'a> {
    tokenizer: &'a Tokenizer,
    options: &'a GenerateOptions,
    on_event: &'a mut OnEvent<'a>,
    /// The prompt with the text before and after it.
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

    /// Tokens that may still be generated.
    fn left(&self) -> usize {
        self.options.max_tokens.saturating_sub(self.out.tokens.len())
    }

    /// The first token: the prompt has been read.
    fn begin(&mut self, token: u32) -> Result<Option<Finish>> {
        if (self.on_event)(Event::Prompt(self.out.prompt_tokens)).is_break() {
            return Ok(Some(Finish::Interrupted));
        }
        self.take(token)
    }

    /// Takes the next token; returns the reason generation ends, if it does.
    fn take(&mut self, token: u32) -> Result<Option<Finish>> {
        if self.tokenizer.is_stop(token) && !self.options.ignore_stop {
            return Ok(Some(Finish::Stop));
        }
        self.out.tokens.push(token);
        self.seen.push(token);
        let text = self.stream.push(self.tokenizer.token_bytes(token)?);
        self.out.text.push_str(&text);
        let told = text.is_empty() || (self.on_event)(Event::Text(&text)).is_continue();
        Ok((!told).then_some(Finish::Interrupted))
    }

    /// The result; `first` is the time of the first token.
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
