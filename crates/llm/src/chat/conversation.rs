//! A conversation on a device, kept in the KV cache.

use std::time::SystemTime;

use super::template::{Prompt, Template};
use super::{Message, Role};
use crate::generate::{GenerateOptions, Generated, OnEvent};
use crate::sampler::Sampling;
use crate::session::Session;
use warploom::error::{Error, Result};

/// Settings of answers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChatOptions {
    /// Maximum tokens of an answer.
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
    /// The answer and its timing. Its prompt counts only the tokens that were run.
    pub generated: Generated,
    /// Tokens of the conversation already in the cache.
    pub reused: usize,
    /// The total of messages dropped so far for lack of room, oldest first.
    pub left_out: usize,
}

/// The contents of the session's cache: tokens, their text, and the positions at which text and
/// tokens may be split together.
#[derive(Debug, Default)]
struct Cached {
    tokens: Vec<u32>,
    prompt: Prompt,
    /// Lengths of text and tokens.
    cuts: Vec<(usize, usize)>,
}

impl Cached {
    /// Whether a prompt begins with the first `text` bytes. The marks must agree too, so that
    /// message text never counts as template text.
    fn begins(&self, prompt: &Prompt, text: usize) -> bool {
        let marks = |p: &Prompt| p.marks.partition_point(|mark| *mark < text);
        let (ours, theirs) = (marks(&self.prompt), marks(prompt));
        prompt.text.as_bytes().starts_with(&self.prompt.text.as_bytes()[..text])
            && prompt.text.is_char_boundary(text)
            && self.prompt.marks[..ours] == prompt.marks[..theirs]
    }

    /// The longest common prefix with a prompt: its split position.
    fn common(&self, prompt: &Prompt) -> (usize, usize) {
        let found = self.cuts.iter().rev().find(|(text, _)| self.begins(prompt, *text));
        found.copied().unwrap_or_default()
    }

    /// Stores the text of a prompt and an answer that the tokens now hold.
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

/// A conversation with a model on a device. Its KV cache is kept: an answer runs only new tokens.
pub struct Chat {
    session: Session,
    template: Template,
    messages: Vec<Message>,
    /// Messages after a system message that are no longer rendered.
    left_out: usize,
    cached: Cached,
    /// The time that the template sees; constant, because a change would invalidate the cache.
    now: Option<SystemTime>,
}

warploom::base::debug_as!(Chat, |this| session: this.session, messages: this.messages.len());

impl Chat {
    /// A conversation with the model of `session` and the template of its file.
    ///
    /// # Errors
    /// Those of [`Template::of`].
    pub fn new(session: Session) -> Result<Chat> {
        let template = Template::of(session.model())?;
        Chat::with_template(session, template)
    }

    /// A conversation with a custom template.
    ///
    /// # Errors
    /// Only errors that opening the session would have reported.
    pub fn with_template(mut session: Session, template: Template) -> Result<Chat> {
        session.truncate(0)?;
        #[cfg(not(target_arch = "wasm32"))]
        let now = Some(SystemTime::now());
        #[cfg(target_arch = "wasm32")]
        let now = None;
        let (messages, cached) = (Vec::new(), Cached::default());
        Ok(Chat { session, template, messages, left_out: 0, cached, now })
    }

    /// All messages so far, including those that no longer fit the context.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The template.
    pub fn template(&self) -> &Template {
        &self.template
    }

    /// Replaces the conversation. Nothing is run; the common prefix stays cached.
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

    /// The system message.
    pub fn system(&self) -> Option<&str> {
        self.messages.first().filter(|m| m.role == Role::System).map(|m| m.content.as_str())
    }

    /// Removes the last turn: the user's last message and all after it. Returns that message.
    pub fn undo(&mut self) -> Option<String> {
        let at = self.messages.iter().rposition(|m| m.role == Role::User)?;
        let mut taken = self.messages.drain(at..);
        let said = taken.next().map(|message| message.content);
        drop(taken);
        self.left_out = self.left_out.min(self.messages.len() - self.first());
        said
    }

    /// Index of the first message that may be dropped.
    fn first(&self) -> usize {
        usize::from(self.system().is_some())
    }

    /// The tokens of the conversation as the model reads it now.
    ///
    /// # Errors
    /// Those of [`Template::render`] and of encoding.
    pub fn tokens(&self, answer: bool) -> Result<Vec<u32>> {
        let prompt = self.write_down(answer)?;
        prompt.encode(self.session.model().tokenizer(), true)
    }

    fn write_down(&self, answer: bool) -> Result<Prompt> {
        let (system, rest) = self.messages.split_at(self.first());
        let written = [system, &rest[self.left_out..]].concat();
        self.template.render(&written, answer, self.session.model().tokenizer(), self.now)
    }

    /// Appends a user message and generates the answer, passing each part to `on_event`. After an
    /// error the conversation is unchanged.
    ///
    /// # Errors
    /// Those of [`Chat::answer_async`].
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

    /// Generates the model's turn after the last message. An answer interrupted by `on_event` is
    /// kept up to there.
    ///
    /// If the conversation leaves less room than the answer may take (or a quarter of the context,
    /// if that is less), the oldest turns are dropped until it fills at most half of the context.
    /// The system message and the last message always stay.
    ///
    /// # Errors
    /// Invalid, if there is no message, or the last message alone does not fit the context; those
    /// of [`Template::render`]; device errors.
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

    /// The prompt and its tokens, with old turns dropped as needed.
    fn fitting(&mut self, max_tokens: usize) -> Result<(Prompt, Vec<u32>)> {
        let context = self.session.context();
        let mut limit = context - max_tokens.min(context / 4).max(1);
        loop {
            let prompt = self.write_down(true)?;
            let tokens = self.encode(&prompt)?;
            if tokens.is_empty() {
                return Err(Error::invalid("the conversation is empty"));
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

    /// Drops the oldest turn: up to the next user message. False if it is the last.
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

    /// The tokens of a prompt. Reuses the cached tokens of its prefix, because a text can have more
    /// than one tokenisation.
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

    /// As [`Chat::send_async`], blocking.
    ///
    /// # Errors
    /// As [`Chat::send_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn send(
        &mut self,
        text: &str,
        options: &ChatOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Reply> {
        warploom::base::platform::block_on(self.send_async(text, options, on_event))
    }

    /// As [`Chat::answer_async`], blocking.
    ///
    /// # Errors
    /// As [`Chat::answer_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn answer(&mut self, options: &ChatOptions, on_event: &mut OnEvent<'_>) -> Result<Reply> {
        warploom::base::platform::block_on(self.answer_async(options, on_event))
    }
}
