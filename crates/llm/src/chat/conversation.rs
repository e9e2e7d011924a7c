//! A chat with a model on a device. The tokens of its messages and answers stay in the KV cache.

use std::time::SystemTime;

use super::template::{Prompt, Template};
use super::{Message, Role};
use crate::generate::{GenerateOptions, Generated, OnEvent};
use crate::sampler::Sampling;
use crate::session::Session;
use warploom::{Error, Result};
use warploom_core::base::platform;

/// Settings for an answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChatOptions {
    /// Maximum number of tokens in an answer.
    pub max_tokens: usize,
    /// How the next token is chosen.
    pub sampling: Sampling,
}

/// Answers of at most 512 tokens with default sampling.
impl Default for ChatOptions {
    fn default() -> ChatOptions {
        ChatOptions { max_tokens: 512, sampling: Sampling::default() }
    }
}

crate::setters!(ChatOptions { max_tokens: usize, sampling: Sampling });

/// An answer and its statistics.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reply {
    /// The answer and its timing. Its `prompt_tokens` counts only the tokens that were run.
    pub generated: Generated,
    /// Number of tokens of the conversation that were already in the cache.
    pub reused: usize,
    /// Number of oldest messages that are now left out of prompts because the context is full.
    pub left_out: usize,
}

/// The contents of the session's cache: tokens, their text, and the points at which both can be
/// split.
#[derive(Debug, Default)]
struct Cached {
    tokens: Vec<u32>,
    prompt: Prompt,
    /// Split points: the number of bytes of text and of tokens before each.
    cuts: Vec<(usize, usize)>,
}

impl Cached {
    /// Returns whether a prompt begins with the first `text` bytes of the cached text. The marks
    /// must agree too, so that message text never counts as template text.
    fn begins(&self, prompt: &Prompt, text: usize) -> bool {
        let marks = |p: &Prompt| p.marks.partition_point(|mark| *mark < text);
        let (ours, theirs) = (marks(&self.prompt), marks(prompt));
        prompt.text.as_bytes().starts_with(&self.prompt.text.as_bytes()[..text])
            && prompt.text.is_char_boundary(text)
            && self.prompt.marks[..ours] == prompt.marks[..theirs]
    }

    /// Returns the last split point before which a prompt agrees with the cached text, as numbers
    /// of bytes and tokens; both are 0 if there is none.
    fn common(&self, prompt: &Prompt) -> (usize, usize) {
        let found = self.cuts.iter().rev().find(|(text, _)| self.begins(prompt, *text));
        found.copied().unwrap_or_default()
    }

    /// Records the text of a prompt and its answer, whose tokens are now in the cache.
    fn remember(&mut self, prompt: Prompt, prompt_tokens: usize, answer: &Generated) {
        let cut = (prompt.text.len(), prompt_tokens);
        let mut cuts = std::mem::take(&mut self.cuts);
        cuts.retain(|(text, tokens)| {
            *text < cut.0 && *tokens < cut.1 && self.begins(&prompt, *text)
        });
        cuts.push(cut);
        self.prompt = prompt;
        self.prompt.text.push_str(&answer.text);
        // The text may be split after an answer only if all of its tokens were run.
        let (text, tokens) = (self.prompt.text.len(), self.tokens.len());
        if tokens == prompt_tokens + answer.tokens.len() && text > cut.0 {
            cuts.push((text, tokens));
        }
        self.cuts = cuts;
    }
}

/// A conversation with a model on a device. The KV cache is kept between answers, so that each
/// answer runs only new tokens.
pub struct Chat {
    session: Session,
    template: Template,
    messages: Vec<Message>,
    /// Number of messages after the system message that are no longer rendered.
    left_out: usize,
    cached: Cached,
    /// The time that the template sees; constant, because a change would invalidate the cache.
    now: Option<SystemTime>,
}

warploom_core::base::debug_as!(Chat, |this| session: this.session, messages: this.messages.len());

impl Chat {
    /// Begins a conversation with the model of `session` and the template of its file.
    ///
    /// # Errors
    /// Same as [`Template::of`].
    pub fn new(session: Session) -> Result<Chat> {
        let template = Template::of(session.model())?;
        Chat::with_template(session, template)
    }

    /// Begins a conversation with a custom template.
    ///
    /// # Errors
    /// None in practice: every session has a first sequence.
    pub fn with_template(mut session: Session, template: Template) -> Result<Chat> {
        session.truncate(0)?;
        let now = Some(platform::system_time());
        let (messages, cached) = (Vec::new(), Cached::default());
        Ok(Chat { session, template, messages, left_out: 0, cached, now })
    }

    /// Returns all messages so far, including those that no longer fit in the context.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the session that runs the model.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Ends the conversation and returns its session. The cache still holds the last prompt.
    pub fn into_session(self) -> Session {
        self.session
    }

    /// Returns the chat template.
    pub fn template(&self) -> &Template {
        &self.template
    }

    /// Replaces all messages. Nothing is run until the next answer, which reuses the cache of the
    /// common prefix.
    pub fn set_messages(&mut self, messages: Vec<Message>) {
        self.messages = messages;
        self.left_out = 0;
    }

    /// Drops all messages but the system message.
    pub fn reset(&mut self) {
        self.messages.truncate(self.first());
        self.left_out = 0;
    }

    /// Sets, replaces or removes the system message.
    pub fn set_system(&mut self, text: Option<&str>) {
        self.messages.drain(..self.first());
        if let Some(text) = text {
            self.messages.insert(0, Message::new(Role::System, text));
        }
    }

    /// Returns the text of the system message, if there is one.
    pub fn system(&self) -> Option<&str> {
        self.messages.first().filter(|m| m.role == Role::System).map(|m| m.content.as_str())
    }

    /// Removes the last turn: the user's last message and all messages after it. Returns the text
    /// of the user's message; `None` if there is none.
    pub fn undo(&mut self) -> Option<String> {
        let at = self.messages.iter().rposition(|m| m.role == Role::User)?;
        let mut taken = self.messages.drain(at..);
        let said = taken.next().map(|message| message.content);
        drop(taken);
        self.left_out = self.left_out.min(self.messages.len() - self.first());
        said
    }

    /// Returns the index of the first message that prompts may leave out.
    fn first(&self) -> usize {
        usize::from(self.system().is_some())
    }

    /// Returns the tokens of the conversation as the model would read it now. If `answer` is set,
    /// they end with the beginning of the model's turn.
    ///
    /// # Errors
    /// Same as [`Template::render`] and [`Prompt::encode`].
    pub fn tokens(&self, answer: bool) -> Result<Vec<u32>> {
        let prompt = self.write_down(answer)?;
        prompt.encode(self.session.model().tokenizer(), true)
    }

    fn write_down(&self, answer: bool) -> Result<Prompt> {
        let (system, rest) = self.messages.split_at(self.first());
        let written = [system, &rest[self.left_out..]].concat();
        self.template.render(&written, answer, self.session.model().tokenizer(), self.now)
    }

    /// Appends a user message and generates the answer, passing its text to `on_event` as it
    /// arrives. After an error the conversation is unchanged.
    ///
    /// # Errors
    /// Same as [`Chat::answer_async`].
    pub async fn send_async(
        &mut self,
        text: &str,
        options: &ChatOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Reply> {
        let (count, left_out) = (self.messages.len(), self.left_out);
        self.messages.push(Message::new(Role::User, text));
        let reply = self.answer_async(options, on_event).await;
        if reply.is_err() {
            self.messages.truncate(count);
            self.left_out = left_out;
        }
        reply
    }

    /// Generates the model's turn after the last message. If `on_event` interrupts the answer, the
    /// text up to that point is kept.
    ///
    /// If the conversation leaves less room than the answer may take (or a quarter of the context,
    /// if that is less), the prompt leaves out the oldest turns until it fills at most half of the
    /// context. The system message and the last turn always stay.
    ///
    /// # Errors
    /// Invalid if the conversation is empty or its last turn does not fit in the context. Also the
    /// errors of [`Template::render`], [`Prompt::encode`] and [`Session::generate_tokens_async`].
    pub async fn answer_async(
        &mut self,
        options: &ChatOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Reply> {
        let (prompt, tokens) = self.fitting(options.max_tokens)?;
        // At least one token is run, because the cache holds no logits.
        let same = tokens.iter().zip(&self.cached.tokens).take_while(|(a, b)| a == b).count();
        let reused = same.min(self.session.past()).min(tokens.len().saturating_sub(1));
        self.session.truncate(reused)?;
        self.cached.tokens.truncate(reused);
        let generate = GenerateOptions {
            max_tokens: options.max_tokens,
            sampling: options.sampling.clone(),
            ..GenerateOptions::default()
        };
        let (before, new) = tokens.split_at(reused);
        let result = self.session.generate_tokens_async(new, before, &generate, on_event).await;
        // Tokens that were run are in the cache, even after a later error.
        let mut all = tokens;
        let prompt_tokens = all.len();
        if let Ok(generated) = &result {
            all.extend_from_slice(&generated.tokens);
        }
        all.truncate(self.session.past());
        let ran_prompt = all.len() >= prompt_tokens;
        self.cached.cuts.retain(|(_, tokens)| *tokens <= reused);
        self.cached.tokens = all;
        let generated = match result {
            Ok(generated) => generated,
            Err(error) => {
                self.cached.cuts.clear();
                return Err(error);
            }
        };
        if ran_prompt {
            self.cached.remember(prompt, prompt_tokens, &generated);
        }
        self.messages.push(Message::new(Role::Assistant, generated.text.as_str()));
        Ok(Reply { generated, reused, left_out: self.left_out })
    }

    /// Renders and encodes the conversation, leaving out old turns as needed.
    fn fitting(&mut self, max_tokens: usize) -> Result<(Prompt, Vec<u32>)> {
        let context = self.session.context();
        let mut limit = context - max_tokens.min(context / 4).max(1);
        loop {
            let prompt = self.write_down(true)?;
            let tokens = self.encode(&prompt)?;
            if tokens.is_empty() {
                return Err(Error::invalid(match self.messages.is_empty() {
                    true => "the conversation is empty",
                    false => "the model's chat template writes no text for the conversation",
                }));
            }
            if tokens.len() <= limit {
                return Ok((prompt, tokens));
            }
            limit = context / 2;
            if !self.leave_out() {
                if tokens.len() < context {
                    return Ok((prompt, tokens));
                }
                return Err(Error::invalid(format!(
                    "the last message takes {} tokens with the messages that must stay before \
                     it, the context has {context} positions",
                    tokens.len()
                )));
            }
        }
    }

    /// Leaves out the oldest turn that is still rendered, up to the next user message; returns
    /// false if it is the last turn.
    fn leave_out(&mut self) -> bool {
        let from = self.first() + self.left_out;
        let later = self.messages.iter().enumerate().skip(from + 1);
        let next = later.filter(|(_, m)| m.role == Role::User).map(|(index, _)| index).next();
        match next {
            Some(index) => self.left_out = index - self.first(),
            None => return false,
        }
        true
    }

    /// Encodes a prompt. Reuses the cached tokens of its prefix, because the same text can have
    /// more than one tokenisation.
    fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>> {
        let tokenizer = self.session.model().tokenizer();
        let (text, tokens) = self.cached.common(prompt);
        if text == 0 {
            return prompt.encode(tokenizer, true);
        }
        let mut all = self.cached.tokens[..tokens].to_vec();
        let before = all.last().copied();
        all.extend(tokenizer.encode_from(&prompt.text, text, before, &prompt.marks, true)?);
        Ok(all)
    }

    /// Blocking version of [`Chat::send_async`].
    ///
    /// # Errors
    /// Same as [`Chat::send_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn send(
        &mut self,
        text: &str,
        options: &ChatOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Reply> {
        platform::block_on(self.send_async(text, options, on_event))
    }

    /// Blocking version of [`Chat::answer_async`].
    ///
    /// # Errors
    /// Same as [`Chat::answer_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn answer(&mut self, options: &ChatOptions, on_event: &mut OnEvent<'_>) -> Result<Reply> {
        platform::block_on(self.answer_async(options, on_event))
    }
}
