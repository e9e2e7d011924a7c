//! Turns a request into jobs: renders and encodes the prompt, and compiles the constraint.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde_json::{Map, Value};

use super::after;
use super::answer::Kind;
use super::body::Held;
use super::choice::Choice as Reply;
use super::constrain::{Plan, Wanted};
use super::error::{ApiError, no_model, refused, too_long};
use super::queue::Job;
use super::request::{self, Asked, ChatAsked, Choice, CompletionAsked, Text};
use super::service::Shared;
use super::tools::{Format, HARMONY, HERMES, Splitter, Thoughts, Tool, plain};
use warploom_llm::chat::{Message, Role, Template, TemplateInputs};
use warploom_llm::tokenizer::EncodeOptions;

/// Texts around reasoning, which may be control tokens.
const THOUGHT_MARKS: [&str; 2] = ["<think>", "</think>"];

/// A request that is ready to run.
pub(super) struct Prepared {
    /// A job for each answer.
    pub(super) jobs: Vec<Job>,
    pub(super) replies: Vec<Reply>,
    pub(super) about: About,
}

/// What the format of an answer depends on.
#[derive(Debug)]
pub(super) struct About {
    pub(super) kind: Kind,
    pub(super) stream: bool,
    /// Whether a stream ends with the token counts.
    pub(super) include_usage: bool,
    /// Number of answers for each prompt.
    pub(super) n: usize,
    /// Number of tokens of the first prompt.
    pub(super) prompt_tokens: usize,
    pub(super) max_tokens: Option<usize>,
    pub(super) stop: Vec<String>,
    /// Fields of the request that the answer repeats.
    pub(super) repeated: Map<String, Value>,
}

/// A request whose prompts are encoded.
struct Draft {
    kind: Kind,
    prompts: Vec<Vec<u32>>,
    /// For each prompt, the text with which its answers begin.
    echoes: Vec<String>,
    asked: Asked,
    repeated: Map<String, Value>,
    plan: Plan,
    thoughts: Thoughts,
    /// The format and the tools of calls that the answer may have.
    calls: Option<(&'static Format, Vec<Tool>)>,
}

impl Prepared {
    /// Parses and encodes a request.
    ///
    /// # Errors
    /// 400, naming the field that is not valid or not supported; 404 for another model.
    pub(super) async fn new(
        shared: &Arc<Shared>,
        kind: Kind,
        body: Held,
    ) -> Result<Prepared, ApiError> {
        let (owned, begin) = (shared.clone(), body.begin);
        let draft = shared.reading.run(move || Draft::new(&owned, kind, &body)).await?;
        if draft.plan.is_free() {
            return draft.into_jobs(shared, begin);
        }
        // Not at the same gate: other requests are parsed meanwhile.
        let owned = shared.clone();
        shared.compiling.run(move || draft.into_jobs(&owned, begin)).await
    }

    /// Returns the number of tokens of the prompt of a request, which is not run.
    ///
    /// # Errors
    /// As [`Prepared::new`].
    pub(super) async fn count(
        shared: &Arc<Shared>,
        kind: Kind,
        body: Held,
    ) -> Result<usize, ApiError> {
        let owned = shared.clone();
        let draft = shared.reading.run(move || Draft::new(&owned, kind, &body)).await?;
        Ok(draft.prompts.iter().map(Vec::len).sum())
    }
}

impl Draft {
    fn new(shared: &Shared, kind: Kind, body: &Held) -> Result<Draft, ApiError> {
        let (body, base) = (&body.text()?, &shared.options);
        let draft = match kind {
            Kind::Chat => chat(shared, kind, request::chat(body, base)?)?,
            Kind::Messages => chat(shared, kind, request::anthropic(body, base)?)?,
            Kind::Responses => {
                let (asked, repeated) = request::responses(body, base)?;
                Draft { repeated, ..chat(shared, kind, asked)? }
            }
            Kind::Completion => completion(shared, request::completion(body, base)?)?,
        };
        let field = kind.input_field();
        let nothing = match kind {
            Kind::Completion => "is empty",
            _ => "the model's chat template writes no text for them",
        };
        for prompt in &draft.prompts {
            if prompt.is_empty() {
                return Err(ApiError::field(field, nothing));
            }
            if prompt.len() > shared.context {
                return Err(too_long(field, &format!("{} tokens", prompt.len()), shared.context));
            }
        }
        Ok(draft)
    }

    fn into_jobs(self, shared: &Shared, begin: Instant) -> Result<Prepared, ApiError> {
        let asked = self.asked;
        let guard = self.plan.compile(shared)?;
        let count = self.prompts.len() * asked.n;
        if count > shared.queue.limit() {
            let text = format!("{count} answers, the queue holds {}", shared.queue.limit());
            return Err(ApiError::field("n", text));
        }
        let shown = shared.shown(self.thoughts, self.calls.as_ref().map(|(format, _)| *format));
        let mut job = Job::new(Vec::new(), after(begin, shared.options.time))
            .max_tokens(asked.max_tokens.flatten().unwrap_or(shared.context))
            .sampling(asked.sampling.clone())
            .stop(asked.stop.clone())
            .edits(asked.edits.clone())
            .logprobs(asked.logprobs)
            .ignore_end(asked.ignore_end)
            .guard(guard)
            .shown(Arc::new(shown));
        if asked.edits.min_tokens > 0 {
            job.edits.ends = shared.model.tokenizer().stop_tokens().collect();
        }
        let numbers = shared.call_numbers(count);
        let logprobs = asked.logprobs.is_some();
        let about = About {
            kind: self.kind,
            stream: asked.stream,
            include_usage: asked.include_usage,
            n: asked.n,
            prompt_tokens: self.prompts.first().map_or(0, Vec::len),
            max_tokens: asked.max_tokens.flatten(),
            stop: asked.stop,
            repeated: self.repeated,
        };
        let (mut jobs, mut replies) = (Vec::new(), Vec::new());
        for (prompt, echo) in self.prompts.into_iter().zip(self.echoes) {
            for answer in 0..asked.n {
                let mut job = job.clone();
                job.prompt = prompt.clone();
                // The answers to one prompt differ.
                job.sampling.seed = job.sampling.seed.wrapping_add(answer as u64);
                let index = jobs.len();
                jobs.push(job);
                replies.push(match self.kind {
                    Kind::Completion => Reply::plain(index, echo.clone(), logprobs),
                    _ => {
                        let splitter = Splitter::new(self.thoughts, self.calls.clone());
                        let format = self.calls.as_ref().map(|(format, _)| *format);
                        let number = numbers.wrapping_add((index as u64) << 16);
                        Reply::split(index, splitter, format, number, logprobs)
                    }
                });
            }
        }
        Ok(Prepared { jobs, replies, about })
    }
}

/// Prepares a chat.
fn chat(shared: &Shared, kind: Kind, chat: ChatAsked) -> Result<Draft, ApiError> {
    known(shared, &chat.asked)?;
    let template = shared.template.as_ref();
    let template = template.map_err(|text| ApiError::new(400, text.as_str()).code("no_chat"))?;
    let tools: &[Tool] = if chat.choice == Choice::None { &[] } else { &chat.tools };
    let is_plain = !shared.knows_tools && (!tools.is_empty() || plain::has_calls(&chat.messages));
    let format = match shared.knows_tools {
        true => Format::of_template(template.source()),
        false => Some(&HERMES),
    };
    let format = format.filter(|_| !tools.is_empty());
    if format.is_none() && !tools.is_empty() {
        let text = "are not supported by this model: the format of its calls is not known";
        return Err(ApiError::field("tools", text).code("unsupported"));
    }
    let variables = variables(template, &chat, kind.effort_field())?;
    let written = is_plain.then(|| plain::written(&chat.messages, tools));
    let messages = written.as_deref().unwrap_or(&chat.messages);
    let moved = (!shared.knows_system).then(|| without_system(messages));
    let messages = moved.as_deref().unwrap_or(messages);
    let json: Vec<String> = match is_plain {
        true => Vec::new(),
        false => tools.iter().map(|tool| tool.json.clone()).collect(),
    };
    let inputs = TemplateInputs::new(messages).tools(&json).variables(&variables);
    let (prompt, text) = render(shared, template, &inputs, kind.input_field())?;
    let thoughts = match template.source().contains(THOUGHT_MARKS[1]) {
        _ if HARMONY.is_known(template.source()) => Thoughts::Channels,
        true if text.trim_end().ends_with(THOUGHT_MARKS[0]) => Thoughts::Open,
        true => Thoughts::Maybe,
        false => Thoughts::None,
    };
    let calls = format.map(|format| (format, tools.to_vec()));
    let plan = Plan::new(Wanted {
        kind,
        format: chat.format,
        choice: chat.choice,
        parallel: chat.parallel,
        calls: calls.clone(),
        thoughts,
    });
    Ok(Draft {
        kind,
        prompts: vec![prompt],
        echoes: vec![String::new()],
        asked: chat.asked,
        repeated: Map::new(),
        plan,
        thoughts,
        calls,
    })
}

/// Moves system messages into the first message of the user, for a template that leaves them out.
fn without_system(messages: &[Message]) -> Vec<Message> {
    let (system, mut others): (Vec<_>, Vec<_>) =
        messages.iter().cloned().partition(|message| message.role == Role::System);
    if system.is_empty() {
        return others;
    }
    let mut text = system.into_iter().map(|message| message.content).collect::<Vec<_>>().join("\n");
    match others.iter_mut().find(|message| message.role == Role::User) {
        Some(user) => {
            text.push_str("\n\n");
            user.content.insert_str(0, &text);
        }
        None => others.insert(0, Message::new(Role::User, text)),
    }
    others
}

/// Returns the variables of the template, with the reasoning effort in the form that it knows.
/// `field` is that of the effort.
fn variables(
    template: &Template,
    chat: &ChatAsked,
    field: &str,
) -> Result<Vec<(String, String)>, ApiError> {
    let mut variables = chat.variables.clone();
    let Some(effort) = &chat.effort else { return Ok(variables) };
    let (name, value) = if template.source().contains("reasoning_effort") {
        ("reasoning_effort", Value::from(effort.as_str()).to_string())
    } else if template.source().contains("enable_thinking") {
        ("enable_thinking", (effort != "none").to_string())
    } else if ["none", "medium"].contains(&effort.as_str()) {
        return Ok(variables);
    } else {
        let error = ApiError::field(field, "is not supported by this model");
        return Err(error.code("unsupported"));
    };
    // A variable that the request sets itself has priority.
    if !variables.iter().any(|(known, _)| known == name) {
        variables.push((name.to_owned(), value));
    }
    Ok(variables)
}

/// Renders and encodes a conversation; returns its tokens and its text.
pub(super) fn render(
    shared: &Shared,
    template: &Template,
    inputs: &TemplateInputs<'_>,
    field: &str,
) -> Result<(Vec<u32>, String), ApiError> {
    // Checked before the template is rendered.
    let tools: usize = inputs.tools.iter().map(String::len).sum();
    check_size(shared, field, inputs.messages.iter().map(Message::bytes).sum())?;
    check_size(shared, "tools", tools)?;
    let tokenizer = shared.model.tokenizer();
    let prompt = template.render_with(&inputs.now(Some(SystemTime::now())), tokenizer);
    let prompt = prompt.map_err(|e| refused(field, inputs.messages, &e))?;
    check_size(shared, field, prompt.text.len())?;
    let tokens = prompt.encode(tokenizer, true);
    let tokens = tokens.map_err(|e| ApiError::field(field, e.to_string()))?;
    Ok((tokens, prompt.text))
}

/// Prepares a completion.
fn completion(shared: &Shared, completion: CompletionAsked) -> Result<Draft, ApiError> {
    known(shared, &completion.asked)?;
    let (mut prompts, mut echoes) = (Vec::new(), Vec::new());
    for text in completion.prompts {
        let (tokens, text) = prompt(shared, text)?;
        prompts.push(tokens);
        echoes.push(if completion.echo { text } else { String::new() });
    }
    Ok(Draft {
        kind: Kind::Completion,
        prompts,
        echoes,
        asked: completion.asked,
        repeated: Map::new(),
        plan: Plan::none(),
        thoughts: Thoughts::None,
        calls: None,
    })
}

/// Encodes the prompt of a completion; returns its tokens and its text.
fn prompt(shared: &Shared, text: Text) -> Result<(Vec<u32>, String), ApiError> {
    let tokenizer = shared.model.tokenizer();
    let wrong = |e: warploom::Error| ApiError::field("prompt", e.to_string());
    match text {
        Text::Tokens(tokens) => {
            check_tokens(shared, "prompt", &tokens)?;
            let text = tokenizer.decode(&tokens).map_err(wrong)?;
            Ok((tokens, text))
        }
        Text::Text(text) => {
            check_size(shared, "prompt", text.len())?;
            let options = EncodeOptions::default().add_bos(true).parse_special(true);
            let tokens = tokenizer.encode(&text, options).map_err(wrong)?;
            Ok((tokens, text))
        }
    }
}

/// Refuses a token outside the vocabulary.
pub(super) fn check_tokens(shared: &Shared, field: &str, tokens: &[u32]) -> Result<(), ApiError> {
    let size = shared.model.tokenizer().vocabulary();
    match tokens.iter().find(|id| **id as usize >= size) {
        None => Ok(()),
        Some(id) => {
            let text = format!("token {id} of a vocabulary of {size}");
            Err(ApiError::field(field, text))
        }
    }
}

fn known(shared: &Shared, asked: &Asked) -> Result<(), ApiError> {
    match &asked.model {
        Some(id) if *id != shared.name => Err(no_model(id)),
        _ => Ok(()),
    }
}

/// Refuses a text that would not fit the context even if all its tokens were the longest.
pub(super) fn check_size(shared: &Shared, field: &str, bytes: usize) -> Result<(), ApiError> {
    match bytes / shared.longest_token > shared.context {
        true => Err(too_long(field, &format!("{bytes} bytes"), shared.context)),
        false => Ok(()),
    }
}

impl Shared {
    /// Returns the control tokens that must be visible in an answer, so that its parts are found.
    fn shown(&self, thoughts: Thoughts, format: Option<&'static Format>) -> HashMap<u32, Arc<str>> {
        let thinks = matches!(thoughts, Thoughts::Maybe | Thoughts::Open);
        let marks = THOUGHT_MARKS.iter().copied().filter(|_| thinks);
        let channels = (thoughts == Thoughts::Channels).then_some(&HARMONY);
        let formats = channels.into_iter().chain(format);
        let names = marks.chain(formats.flat_map(Format::markers));
        let shown = names.filter_map(|name| Some((self.control(name)?, Arc::from(name))));
        shown.collect()
    }

    /// Returns the control token with this name.
    pub(super) fn control(&self, name: &str) -> Option<u32> {
        self.controls.get(name).copied()
    }

    /// Returns the first of `count` numbers from which the ids of calls are made.
    fn call_numbers(&self, count: usize) -> u64 {
        self.answers.fetch_add((count as u64) << 16, std::sync::atomic::Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_messages_come_before_what_the_user_says_first() {
        let [system, user, answer] = [Role::System, Role::User, Role::Assistant]
            .map(|role| move |text: &str| Message::new(role, text));
        for (messages, want) in [
            (vec![user("a"), answer("b")], vec![user("a"), answer("b")]),
            (vec![system("s"), user("a"), user("b")], vec![user("s\n\na"), user("b")]),
            (
                vec![system("s"), answer("b"), user("a"), system("t")],
                vec![answer("b"), user("s\nt\n\na")],
            ),
            (vec![system("s")], vec![user("s")]),
        ] {
            assert_eq!(without_system(&messages), want);
        }
    }
}
