//! The template of a model, and what it makes of messages.

use std::time::SystemTime;

use minijinja::{Value, context};

use super::marks::{Names, marked, unmark, unused_mark};
use super::sandbox::{Failure, Sandbox};
use super::{Message, calls, rewrite};
use crate::model::Model;
use crate::tokenizer::{EncodeOptions, Tokenizer};
use warploom::error::{Error, Result};
use warploom_models::gguf::Gguf;

/// Longest template, bytes; those in use have up to 30,000.
const MAX_TEMPLATE: usize = 128 << 10;

/// For files without a template whose vocabulary has its two tokens.
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + \
                      message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if \
                      add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
const CHATML_TOKENS: [&str; 2] = ["<|im_start|>", "<|im_end|>"];

/// How a model wants a conversation written down.
#[derive(Clone, Debug)]
pub struct Template {
    source: String,
    guarded: String,
    bos: String,
    eos: String,
    is_default: bool,
}

/// A conversation as a model reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The text, control tokens by name.
    pub text: String,
    /// Offsets in `text` at which no control token begins, and which none spans: what stands
    /// there came from a message.
    pub marks: Vec<usize>,
}

impl Prompt {
    /// Its tokens.
    ///
    /// # Errors
    /// Those of [`Tokenizer::encode`].
    pub fn encode(&self, tokenizer: &Tokenizer, add_bos: bool) -> Result<Vec<u32>> {
        let options = EncodeOptions { add_bos, parse_special: true };
        tokenizer.encode_marked(&self.text, &self.marks, options)
    }
}

impl Template {
    /// A template in Jinja. Nothing is run yet.
    ///
    /// # Errors
    /// Bad file, with the line, where it is none, too long or too deep; unsupported, naming it,
    /// for a statement that no chat template needs.
    pub fn new(source: &str) -> Result<Template> {
        if source.len() > MAX_TEMPLATE {
            return Err(Error::bad_file(format!(
                "chat template: {} bytes, the limit is {MAX_TEMPLATE}",
                source.len()
            )));
        }
        Ok(Template {
            source: source.to_owned(),
            guarded: rewrite::guarded(source)?,
            bos: String::new(),
            eos: String::new(),
            is_default: false,
        })
    }

    /// With the texts that `bos_token` and `eos_token` stand for.
    #[must_use]
    pub fn with_tokens(mut self, bos: &str, eos: &str) -> Template {
        (self.bos, self.eos) = (bos.to_owned(), eos.to_owned());
        self
    }

    /// The template of a model's file; ChatML where it has none but the two tokens of that.
    ///
    /// # Errors
    /// Those of [`Template::new`], naming the file; unsupported where there is neither.
    pub fn of(model: &Model) -> Result<Template> {
        let file = model.file();
        let name = |e: Error| e.context(file.name());
        let mut template = match file.find_str("tokenizer.chat_template")? {
            Some(source) => Template::new(source).map_err(name)?,
            None => {
                let names: Vec<&str> = model.tokenizer().control_names().collect();
                if !CHATML_TOKENS.iter().all(|token| names.contains(token)) {
                    return Err(Error::unsupported(format!(
                        "{}: no tokenizer.chat_template, and its vocabulary has no {} and {}: this \
                         model is not made for chat",
                        file.name(),
                        CHATML_TOKENS[0],
                        CHATML_TOKENS[1]
                    )));
                }
                Template { is_default: true, ..Template::new(CHATML)? }
            }
        };
        template.bos = token_text(file, "tokenizer.ggml.bos_token_id")?;
        template.eos = token_text(file, "tokenizer.ggml.eos_token_id")?;
        Ok(template)
    }

    /// The template as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the file had none, and this is ChatML.
    pub fn is_default(&self) -> bool {
        self.is_default
    }

    /// Writes messages down; `answer` begins the model's turn behind them. `now` is what the
    /// template may know of the time, in UTC.
    ///
    /// # Errors
    /// Invalid, with the template's own words, where it refuses the messages (their order, say);
    /// unsupported, where it leaves out calls of tools or their results; bad file where it fails, or
    /// goes beyond its bounds.
    pub fn render(
        &self,
        messages: &[Message],
        answer: bool,
        tokenizer: &Tokenizer,
        now: Option<SystemTime>,
    ) -> Result<Prompt> {
        let texts = messages.iter().flat_map(Message::texts);
        let texts: Vec<&str> = texts.chain([self.source.as_str()]).collect();
        let mark = unused_mark(texts.iter().copied())?;
        let names = Names::new(tokenizer);
        if calls::have_tools(messages) {
            let probe = calls::probe(&texts, mark)?;
            return calls::render(messages, &names, (mark, probe), &mut |values, bytes| {
                self.text_of(values, answer, bytes, now)
            });
        }
        let mut bytes = 0;
        let values: Vec<Value> = messages
            .iter()
            .map(|message| {
                let content = marked(message, &names, mark);
                bytes += content.len();
                context! { role => message.role.name(), content => content }
            })
            .collect();
        let text = self.text_of(values, answer, bytes, now)?;
        let (text, marks) = unmark(&text, mark);
        Ok(Prompt { text, marks })
    }

    /// The text of messages as values, of so many bytes, with marks.
    fn text_of(
        &self,
        values: Vec<Value>,
        answer: bool,
        bytes: usize,
        now: Option<SystemTime>,
    ) -> Result<String> {
        let count = values.len();
        let context = context! {
            messages => values,
            add_generation_prompt => answer,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        let sandbox = Sandbox::new(count, bytes, now);
        sandbox.render(&self.guarded, context).map_err(|failure| match failure {
            Failure::Raised(message) => Error::invalid(format!("chat template: {message}")),
            Failure::Refused(message) => Error::bad_file(format!("chat template: {message}")),
        })
    }
}

/// The name of a token whose id is a metadata value; empty where there is none.
fn token_text(file: &Gguf, key: &str) -> Result<String> {
    let Some(id) = file.find_u32(key)? else { return Ok(String::new()) };
    let mut tokens = file.strings("tokenizer.ggml.tokens")?;
    Ok(tokens.nth(id as usize).unwrap_or_default().to_owned())
}
