//! From a prompt to text, a token at a time.

use std::ops::ControlFlow;
use std::time::Duration;

use super::sampler::{Sampler, Sampling};
use super::session::Session;
use super::tokenizer::EncodeOptions;
use super::utf8::Utf8Stream;
use crate::base::platform::Clock;
use crate::error::{Error, Result};
use crate::provider::DeviceKind;

/// Tokens that are handed to a GPU at once.
const TOKENS_AHEAD: usize = 8;

/// What to write and how.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// Most tokens to write.
    pub max_tokens: usize,
    /// How the next token is chosen.
    pub sampling: Sampling,
    /// Takes the names of control tokens in the prompt as these tokens.
    pub parse_special: bool,
    /// Goes on after the model's end tokens.
    pub ignore_stop: bool,
}

/// What happens while text is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// The prompt has been read; so many tokens.
    Prompt(usize),
    /// More text; whole characters only.
    Text(&'a str),
}

/// Why writing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model wrote an end token.
    Stop,
    /// As many tokens as were asked for.
    Length,
    /// The context is full.
    Context,
    /// The caller broke it off.
    Interrupted,
}

/// What was written, and how long it took.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The text, without the prompt.
    pub text: String,
    /// Its tokens, without an end token.
    pub tokens: Vec<u32>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Why it ended.
    pub finish: Finish,
    /// From the start to the first token.
    pub first_token: Duration,
    /// From the first token to the last.
    pub decode: Duration,
}

impl Generated {
    /// Tokens of the prompt a second, the first plan included.
    pub fn prefill_rate(&self) -> f64 {
        self.prompt_tokens as f64 / self.first_token.as_secs_f64().max(1e-9)
    }

    /// Tokens a second after the first one.
    pub fn decode_rate(&self) -> f64 {
        self.tokens.len().saturating_sub(1) as f64 / self.decode.as_secs_f64().max(1e-9)
    }
}

impl Session {
    /// Reads a prompt and writes on, telling `on_event` each piece of text.
    ///
    /// # Errors
    /// Invalid, where the prompt is empty or does not fit the context; what the device says.
    pub async fn generate(
        &mut self,
        prompt: &str,
        options: &GenerateOptions,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Generated> {
        let model = self.model().clone();
        let tokenizer = model.tokenizer();
        let encode = EncodeOptions { add_bos: true, parse_special: options.parse_special };
        let prompt_tokens = tokenizer.encode(prompt, encode)?;
        self.generate_tokens(&prompt_tokens, &[], options, on_event).await
    }

    /// As [`Session::generate`], from the tokens of a prompt. `before` is what the cache holds
    /// already, which the repetition penalty looks at.
    ///
    /// # Errors
    /// As [`Session::generate`].
    pub async fn generate_tokens(
        &mut self,
        prompt_tokens: &[u32],
        before: &[u32],
        options: &GenerateOptions,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
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
        let mut seen = [before, prompt_tokens].concat();
        let mut stream = Utf8Stream::new();
        let mut out = Generated {
            text: String::new(),
            tokens: Vec::new(),
            prompt_tokens: prompt_tokens.len(),
            finish: Finish::Length,
            first_token: Duration::ZERO,
            decode: Duration::ZERO,
        };
        let start = Clock::now();
        let on_device = options.sampling.wanted().is_token();
        let ahead = if on_device { self.tokens_ahead() } else { 1 };
        let mut next = prompt_tokens.to_vec();
        // Tokens that the device has chosen and run already, the next one last.
        let mut ready: Vec<u32> = Vec::new();
        let mut first: Option<Clock> = None;
        loop {
            if out.tokens.len() >= options.max_tokens {
                break;
            }
            let room = self.context() - self.past();
            if ready.is_empty() && next.len() > room {
                out.finish = Finish::Context;
                break;
            }
            let left = (options.max_tokens - out.tokens.len()).min(room);
            let token = match ready.pop() {
                Some(token) => token,
                None if first.is_some() && ahead > 1 => {
                    let count = ahead.min(left);
                    ready = self.choose_ahead(&options.sampling, seen.len(), count).await?;
                    ready.reverse();
                    ready.pop().ok_or_else(|| Error::device("a run ahead gave no token"))?
                }
                None => self.choose_next(&mut sampler, &next, &seen).await?,
            };
            if first.is_none() {
                out.first_token = start.elapsed();
                first = Some(Clock::now());
                if on_event(Event::Prompt(out.prompt_tokens)).is_break() {
                    out.finish = Finish::Interrupted;
                    break;
                }
            }
            if tokenizer.is_stop(token) && !options.ignore_stop {
                out.finish = Finish::Stop;
                break;
            }
            out.tokens.push(token);
            seen.push(token);
            let text = stream.push(tokenizer.token_bytes(token)?);
            out.text.push_str(&text);
            if !text.is_empty() && on_event(Event::Text(&text)).is_break() {
                out.finish = Finish::Interrupted;
                break;
            }
            next = vec![token];
        }
        // What was run for nothing is forgotten.
        self.truncate(self.past() - ready.len())?;
        out.decode = first.map_or(Duration::ZERO, |first| first.elapsed());
        let rest = stream.finish();
        out.text.push_str(&rest);
        if !rest.is_empty() {
            let _ = on_event(Event::Text(&rest));
        }
        Ok(out)
    }

    /// Tokens that are handed to the device at once. On a CPU nothing waits that could be
    /// spared, and what comes after the end of the text would be run for nothing.
    pub fn tokens_ahead(&self) -> usize {
        match self.device().profile().kind {
            DeviceKind::Cpu => 1,
            _ => TOKENS_AHEAD,
        }
    }

    /// As [`Session::generate`], blocking.
    ///
    /// # Errors
    /// As [`Session::generate`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn generate_blocking(
        &mut self,
        prompt: &str,
        options: &GenerateOptions,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Generated> {
        crate::base::platform::block_on(self.generate(prompt, options, on_event))
    }
}
