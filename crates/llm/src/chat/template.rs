//! The template of a model, and what it makes of messages.

use std::sync::Arc;
use std::time::SystemTime;

use super::jinja::{self, Fault, Input, Rendered, Value};
use super::marks::Names;
use super::{Message, calls};
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
    tree: Arc<jinja::Ast>,
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
    /// Bad file, with the line, where it is none, too long or too deep, or has a statement that is
    /// not supported.
    pub fn new(source: &str) -> Result<Template> {
        if source.len() > MAX_TEMPLATE {
            return Err(Error::bad_file(format!(
                "chat template: {} bytes, the limit is {MAX_TEMPLATE}",
                source.len()
            )));
        }
        let tree = jinja::parse(source)
            .map_err(|e| Error::bad_file(format!("chat template: line {}: {}", e.line, e.what)))?;
        Ok(Template {
            source: source.to_owned(),
            tree: Arc::new(tree),
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
    /// Those of [`Template::new`], naming the file; unsupported where there is neither, or there are
    /// templates for other uses alone.
    pub fn of(model: &Model) -> Result<Template> {
        let file = model.file();
        let name = |e: Error| e.context(file.name());
        let mut template = match file.find_str("tokenizer.chat_template")? {
            Some(source) => Template::new(source).map_err(name)?,
            None => {
                if let Some(named) = file.find_strings("tokenizer.chat_templates")? {
                    return Err(named_only(named).context(file.name()));
                }
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
        let mut run = |values, bytes| self.run(values, bytes, answer, now);
        let written = if calls::have_tools(messages) {
            let texts = messages.iter().flat_map(Message::texts);
            let probe = calls::probe(texts.chain([self.source.as_str()]))?;
            calls::render(messages, probe, &mut run)?
        } else {
            let said = messages.iter().map(|message| {
                Value::dict_of(vec![
                    ("role", Value::own(message.role.name())),
                    ("content", Value::outside(&message.content)),
                ])
            });
            run(said.collect(), messages.iter().map(|message| message.content.len()).sum())?
        };
        let marks = Names::new(tokenizer).marks(&written.text, &written.outside);
        Ok(Prompt { text: written.text, marks })
    }

    /// Runs the template on messages as values, of so many bytes.
    fn run(
        &self,
        messages: Vec<Value>,
        bytes: usize,
        answer: bool,
        now: Option<SystemTime>,
    ) -> Result<Rendered> {
        let count = messages.len();
        // What `transformers` passes where it is not given is None, not undefined.
        let names = vec![
            ("messages", Value::list_of(messages)),
            ("tools", Value::None),
            ("documents", Value::None),
            ("add_generation_prompt", Value::Bool(answer)),
            ("bos_token", Value::own(&self.bos)),
            ("eos_token", Value::own(&self.eos)),
        ];
        let input = Input { names, messages: count, bytes, now };
        jinja::render(&self.tree, input).map_err(|fault| match fault {
            Fault::Raised(message) => Error::invalid(format!("chat template: {message}")),
            Fault::Failed(what, None) => Error::bad_file(format!("chat template: {what}")),
            Fault::Failed(what, Some(line)) => {
                Error::bad_file(format!("chat template: line {line}: {what}"))
            }
        })
    }
}

/// Why a file with templates for other uses alone has none that could be taken.
pub(super) fn named_only<'a>(names: impl Iterator<Item = &'a str>) -> Error {
    let names: Vec<&str> = names.collect();
    Error::unsupported(format!(
        "tokenizer.chat_template: there is no default chat template, only: {}",
        names.join(", ")
    ))
}

/// The name of a token whose id is a metadata value; empty where there is none.
fn token_text(file: &Gguf, key: &str) -> Result<String> {
    let Some(id) = file.find_u32(key)? else { return Ok(String::new()) };
    let mut tokens = file.strings("tokenizer.ggml.tokens")?;
    Ok(tokens.nth(id as usize).unwrap_or_default().to_owned())
}
