//! Loads the chat template of a model, and renders messages with it.

use std::sync::Arc;
use std::time::SystemTime;

use super::injection_guard::Names;
use super::jinja::{self, Fault, Input, Rendered, Value};
use super::{Message, Role, calls};
use crate::model::Model;
use crate::tokenizer::{EncodeOptions, Tokenizer};
use warploom::{Error, Result};
use warploom_models::gguf::Gguf;

/// Maximum size of a template, in bytes; existing ones have up to 30,000.
const MAX_TEMPLATE: usize = 128 << 10;

/// The ChatML template, for files that have no template, but ChatML's two tokens.
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + \
                      message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if \
                      add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
const CHATML_TOKENS: [&str; 2] = ["<|im_start|>", "<|im_end|>"];

/// Variables of templates with the text of a special token, and the GGUF keys of its id.
const TOKENS: [(&str, &str); 7] = [
    ("bos_token", "bos_token_id"),
    ("eos_token", "eos_token_id"),
    ("unk_token", "unknown_token_id"),
    // Misspelt in the format.
    ("sep_token", "seperator_token_id"),
    ("pad_token", "padding_token_id"),
    ("cls_token", "cls_token_id"),
    ("mask_token", "mask_token_id"),
];
/// Those that are empty rather than undefined if a file does not have them.
const USUAL: [&str; 2] = ["bos_token", "eos_token"];

/// A model's chat template: its format for conversations.
#[derive(Clone, Debug)]
pub struct Template {
    source: String,
    tree: Arc<jinja::Ast>,
    /// Variables with the text of a special token.
    tokens: Vec<(&'static str, String)>,
    is_default: bool,
}

/// A rendered conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prompt {
    /// The text, with control tokens written as their names.
    pub text: String,
    /// Byte offsets in `text`, ascending, at which no control token may begin, and which none may
    /// span, because the text there comes from a message.
    pub marks: Vec<usize>,
}

/// What a template is rendered with.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TemplateInputs<'a> {
    /// The conversation.
    pub messages: &'a [Message],
    /// Whether the prompt ends with the beginning of the model's turn.
    pub answer: bool,
    /// The tools that the model may call, each as JSON in OpenAI's form.
    pub tools: &'a [String],
    /// More variables of the template: names, and values as JSON.
    pub variables: &'a [(String, String)],
    /// The UTC time that the template sees.
    pub now: Option<SystemTime>,
}

impl<'a> TemplateInputs<'a> {
    /// Creates inputs that end with the beginning of the model's turn, without tools.
    pub fn new(messages: &'a [Message]) -> TemplateInputs<'a> {
        TemplateInputs { messages, answer: true, ..TemplateInputs::default() }
    }

    /// Sets [`TemplateInputs::tools`].
    #[must_use]
    pub fn tools(mut self, tools: &'a [String]) -> TemplateInputs<'a> {
        self.tools = tools;
        self
    }

    /// Sets [`TemplateInputs::variables`].
    #[must_use]
    pub fn variables(mut self, variables: &'a [(String, String)]) -> TemplateInputs<'a> {
        self.variables = variables;
        self
    }

    /// Sets [`TemplateInputs::now`].
    #[must_use]
    pub fn now(mut self, now: Option<SystemTime>) -> TemplateInputs<'a> {
        self.now = now;
        self
    }
}

impl Prompt {
    /// Encodes the prompt. Names of control tokens become control tokens, except at the marks.
    ///
    /// # Errors
    /// Same as [`Tokenizer::encode`].
    pub fn encode(&self, tokenizer: &Tokenizer, add_bos: bool) -> Result<Vec<u32>> {
        let options = EncodeOptions { add_bos, parse_special: true };
        tokenizer.encode_marked(&self.text, &self.marks, options)
    }
}

impl Template {
    /// Parses a Jinja template, without running it.
    ///
    /// # Errors
    /// Bad file if the template is too long, or, naming the line, if its syntax is invalid, it is
    /// nested too deeply or it uses an unsupported statement.
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
            tokens: vec![("bos_token", String::new()), ("eos_token", String::new())],
            is_default: false,
        })
    }

    /// Sets the variables `bos_token` and `eos_token` of the template.
    #[must_use]
    pub fn with_tokens(mut self, bos: &str, eos: &str) -> Template {
        self.tokens = vec![("bos_token", bos.to_owned()), ("eos_token", eos.to_owned())];
        self
    }

    /// Returns the template of a model's file, or ChatML if the file has none but its vocabulary
    /// has ChatML's two tokens.
    ///
    /// # Errors
    /// Same as [`Template::new`], naming the file; unsupported if the file has neither a template
    /// nor ChatML's tokens, or only templates for other uses.
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
                        "{}: no tokenizer.chat_template, and its vocabulary has no {} and {}: \
                         this model has no chat format",
                        file.name(),
                        CHATML_TOKENS[0],
                        CHATML_TOKENS[1]
                    )));
                }
                Template { is_default: true, ..Template::new(CHATML)? }
            }
        };
        template.tokens.clear();
        for (variable, key) in TOKENS {
            let text = token_text(file, &format!("tokenizer.ggml.{key}"))?;
            // Absent variables are undefined, but for the two that every template may use.
            if !text.is_empty() || USUAL.contains(&variable) {
                template.tokens.push((variable, text));
            }
        }
        Ok(template)
    }

    /// Returns the source of the template.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns whether the file has no template and this is ChatML instead.
    pub fn is_default(&self) -> bool {
        self.is_default
    }

    /// Renders messages to a prompt. If `answer` is set, the prompt ends with the beginning of the
    /// model's turn. `now` is the UTC time that the template sees.
    ///
    /// # Errors
    /// Same as [`Template::render_with`].
    pub fn render(
        &self,
        messages: &[Message],
        answer: bool,
        tokenizer: &Tokenizer,
        now: Option<SystemTime>,
    ) -> Result<Prompt> {
        let inputs = TemplateInputs { messages, answer, now, ..TemplateInputs::default() };
        self.render_with(&inputs, tokenizer)
    }

    /// Renders messages, tools and variables to a prompt.
    ///
    /// # Errors
    /// Invalid, with the template's message, if the template refuses the messages (for example
    /// their order), or if a tool or a variable is no JSON or is nested too deeply; unsupported if
    /// it omits tool calls or their results; bad file if it fails or exceeds its limits.
    pub fn render_with(
        &self,
        inputs: &TemplateInputs<'_>,
        tokenizer: &Tokenizer,
    ) -> Result<Prompt> {
        let messages = inputs.messages;
        let mut run = |values, bytes| self.run(values, bytes, inputs);
        let written = if calls::have_tools(messages) {
            let texts = messages.iter().flat_map(Message::texts);
            let texts = texts.chain(inputs.tools.iter().map(String::as_str));
            let probe = calls::probe(texts.chain([self.source.as_str()]))?;
            calls::render(messages, probe, &mut run)?
        } else {
            let said = messages.iter().map(|message| {
                let mut fields = vec![
                    ("role", Value::own(message.role.name())),
                    ("content", Value::outside(&message.content)),
                ];
                if let Some(reasoning) = &message.reasoning_content {
                    fields.push(("reasoning_content", Value::outside(reasoning)));
                    // The name in the template of gpt-oss.
                    fields.push(("thinking", Value::outside(reasoning)));
                }
                Value::dict_of(fields)
            });
            let bytes = |message: &Message| {
                message.content.len() + message.reasoning_content.as_ref().map_or(0, String::len)
            };
            run(said.collect(), messages.iter().map(bytes).sum())?
        };
        let marks = Names::new(tokenizer).marks(&written.text, &written.outside);
        Ok(Prompt { text: written.text, marks })
    }

    /// Returns whether the template writes a system message, or refuses it with an error of its own.
    pub fn knows_system(&self, tokenizer: &Tokenizer) -> bool {
        let Ok(probe) = calls::probe([self.source.as_str()].into_iter()) else { return true };
        let text = calls::probed(probe, 0);
        let messages = [Message::new(Role::System, &text), Message::new(Role::User, "x")];
        let now = Some(SystemTime::UNIX_EPOCH);
        let written = self.render(&messages, true, tokenizer, now);
        written.map_or(true, |prompt| calls::has_probe(&prompt.text, probe, 0))
    }

    /// Returns whether the template writes the tools that it is given.
    pub fn knows_tools(&self, tokenizer: &Tokenizer) -> bool {
        let Ok(probe) = calls::probe([self.source.as_str()].into_iter()) else { return false };
        let name = calls::probed(probe, 0);
        let tools = [format!(
            "{{\"type\":\"function\",\"function\":{{\"name\":\"{name}\",\"description\":\"d\",\
             \"parameters\":{{\"type\":\"object\",\"properties\":{{}}}}}}}}"
        )];
        let messages = [Message::new(Role::User, "x")];
        let now = Some(SystemTime::UNIX_EPOCH);
        let inputs = TemplateInputs {
            messages: &messages,
            answer: true,
            tools: &tools,
            now,
            variables: &[],
        };
        self.render_with(&inputs, tokenizer)
            .is_ok_and(|prompt| calls::has_probe(&prompt.text, probe, 0))
    }

    /// Runs the template on messages that were converted to values. `bytes` is their size, which
    /// scales the limits.
    fn run(
        &self,
        messages: Vec<Value>,
        bytes: usize,
        inputs: &TemplateInputs<'_>,
    ) -> Result<Rendered> {
        let count = messages.len() + inputs.tools.len();
        let outside = |what: &str, json: &str| {
            let value = Value::outside_json(json);
            value.ok_or_else(|| Error::invalid(format!("{what}: no JSON, or nested too deeply")))
        };
        let tools = inputs.tools.iter().enumerate();
        let tools = tools.map(|(index, tool)| outside(&format!("tools[{index}]"), tool));
        let tools = tools.collect::<Result<Vec<Value>>>()?;
        let sizes = inputs.variables.iter().map(|(_, json)| json.len());
        let bytes = bytes + inputs.tools.iter().map(String::len).chain(sizes).sum::<usize>();
        // `transformers` passes None for absent values, not undefined.
        let mut names = vec![
            ("messages", Value::list_of(messages)),
            ("tools", if tools.is_empty() { Value::None } else { Value::list_of(tools) }),
            ("documents", Value::None),
            ("add_generation_prompt", Value::Bool(inputs.answer)),
        ];
        names.extend(self.tokens.iter().map(|(name, text)| (*name, Value::own(text))));
        for (name, json) in inputs.variables {
            if names.iter().any(|(known, _)| known == name) {
                return Err(Error::invalid(format!("{name}: the template sets it")));
            }
            names.push((name.as_str(), outside(name, json)?));
        }
        let input = Input { names, messages: count, bytes, now: inputs.now };
        jinja::render(&self.tree, input).map_err(|fault| match fault {
            Fault::Raised(message) => Error::invalid(format!("chat template: {message}")),
            Fault::Failed(what, None) => Error::bad_file(format!("chat template: {what}")),
            Fault::Failed(what, Some(line)) => {
                Error::bad_file(format!("chat template: line {line}: {what}"))
            }
        })
    }
}

/// Returns the error for a file that has only templates for other uses.
pub(super) fn named_only<'a>(names: impl Iterator<Item = &'a str>) -> Error {
    let names: Vec<&str> = names.collect();
    Error::unsupported(format!(
        "tokenizer.chat_template: there is no default chat template, only: {}",
        names.join(", ")
    ))
}

/// Returns the text of the token whose id is the value of `key`; empty if either is missing.
fn token_text(file: &Gguf, key: &str) -> Result<String> {
    let Some(id) = file.find_u32(key)? else { return Ok(String::new()) };
    let mut tokens = file.strings("tokenizer.ggml.tokens")?;
    Ok(tokens.nth(id as usize).unwrap_or_default().to_owned())
}
