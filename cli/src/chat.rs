//! Runs `warploom chat`: a conversation on the terminal or over pipes.

use crate::Exit;
use crate::chat_args::ChatArgs;
use crate::chat_commands::{self, HELP, Line};
use crate::engine::Loaded;
use crate::generate::sampled;
use crate::progress::{Progress, tell};
use crate::{interrupt, numbers, output, units};
use anyhow::{Context, bail};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use serde_json::{Value, json};
use std::io::{BufRead, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;
use warploom::runtime::KeepAlive;
use warploom_llm::chat::{Chat, ChatOptions, Message, Reply};
use warploom_llm::sampler::Sampling;
use warploom_llm::{Event, Finish};

/// Assumed number of tokens of the first turn, for prewarming its plans.
const FIRST_TURN: usize = 32;
/// Maximum size in bytes of a file for `/load`.
const MAX_FILE: u64 = 64 << 20;

pub(crate) fn run(args: &ChatArgs) -> anyhow::Result<Exit> {
    interrupt::listen()?;
    let loaded = {
        let progress = Progress::new(args.quiet);
        let sampling = args.choice.sampling(&args.place, 0);
        let show = &mut |done, total| progress.set(done, total);
        Loaded::open(&args.place, |_| Some(FIRST_TURN), &sampling, show)?
    };
    let mut input = Input::new(args)?;
    let screen = Screen {
        json: args.json,
        quiet: args.quiet,
        dim: std::io::stderr().is_terminal() && std::io::stdout().is_terminal(),
    };
    if !args.quiet {
        tell(loaded.startup_line());
    }
    let ready = json!({
        "event": "ready",
        "model": loaded.model_name(),
        "device": { "id": loaded.profile().id(), "name": loaded.profile().name },
        "context": loaded.context(),
        "compute_mode": loaded.compute_mode(),
    });
    let mut chat = loaded.into_chat()?;
    screen.event(ready)?;
    let system = args.system.as_deref().filter(|text| !text.is_empty());
    if system.is_some() && !chat.template().knows_system(chat.session().model().tokenizer()) {
        tell("warning: the model's chat template leaves out system messages");
    }
    chat.set_system(system);
    let sampling = args.choice.sampling(&args.place, args.choice.seed());
    if !args.quiet && input.is_terminal() {
        tell("/help lists the commands, Ctrl-C breaks off an answer, /exit leaves");
    }
    let max_tokens = args.max_tokens;
    let totals = Totals::default();
    let awake_for = Duration::from_secs(u64::from(args.keep_awake));
    let awake =
        (args.keep_awake > 0).then(|| KeepAlive::if_needed(chat.session().device())).flatten();
    let mut talk = Talk { chat, screen, sampling, max_tokens, answers: 0, left_out: 0, totals };
    loop {
        // Keeps the GPU clock up while the user reads and types.
        awake.iter().for_each(|awake| awake.hold(awake_for));
        let line = input.line();
        awake.iter().for_each(KeepAlive::rest);
        let Some(line) = line? else { break };
        let done = chat_commands::parse(&line).map_err(anyhow::Error::msg);
        match done.and_then(|line| talk.line(line)) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => break,
            // A user at a terminal can retry; a script ends.
            Err(error) if input.is_terminal() && !output::is_closed(&error) => {
                tell(&format!("error: {error:#}"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Exit::Done)
}

/// The source of input lines.
enum Input {
    Terminal(Box<DefaultEditor>),
    Plain(std::io::Lines<std::io::StdinLock<'static>>),
}

impl Input {
    fn new(args: &ChatArgs) -> anyhow::Result<Input> {
        let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        Ok(match terminal && !args.json {
            true => Input::Terminal(Box::new(DefaultEditor::new().context("the terminal")?)),
            false => Input::Plain(std::io::stdin().lock().lines()),
        })
    }

    fn is_terminal(&self) -> bool {
        matches!(self, Input::Terminal(_))
    }

    /// Reads a line and the lines that continue it after a backslash; `None` at the end of input.
    fn line(&mut self) -> anyhow::Result<Option<String>> {
        let mut whole = String::new();
        loop {
            let prompt = if whole.is_empty() { "> " } else { "  " };
            let Some(line) = self.one(prompt)? else {
                return Ok(if whole.is_empty() { None } else { Some(whole) });
            };
            match line.strip_suffix('\\') {
                Some(part) => {
                    whole.push_str(part);
                    whole.push('\n');
                }
                None => {
                    whole.push_str(&line);
                    break;
                }
            }
        }
        if let Input::Terminal(editor) = self {
            let _ = editor.add_history_entry(whole.as_str());
        }
        Ok(Some(whole))
    }

    fn one(&mut self, prompt: &str) -> anyhow::Result<Option<String>> {
        let editor = match self {
            Input::Plain(lines) => {
                return lines.next().transpose().context("reading standard input");
            }
            Input::Terminal(editor) => editor,
        };
        let mut asked = false;
        loop {
            match editor.readline(prompt) {
                Ok(line) => return Ok(Some(line)),
                Err(ReadlineError::Eof) => return Ok(None),
                Err(ReadlineError::Interrupted) if asked => return Ok(None),
                Err(ReadlineError::Interrupted) => {
                    asked = true;
                    tell("Ctrl-C again or /exit leaves");
                }
                Err(error) => return Err(error).context("reading from the terminal"),
            }
        }
    }
}

/// The output: answers go to standard output, notes to standard error. If `json` is set, both are
/// JSON objects on standard output.
struct Screen {
    json: bool,
    quiet: bool,
    dim: bool,
}

impl Screen {
    fn event(&self, event: Value) -> anyhow::Result<()> {
        if self.json {
            let mut out = output::stdout();
            writeln!(out, "{event}").and_then(|()| out.flush()).context("writing")?;
        }
        Ok(())
    }

    fn text(&self, text: &str) -> anyhow::Result<()> {
        if self.json {
            return match text {
                "" => Ok(()),
                text => self.event(json!({ "event": "text", "text": text })),
            };
        }
        let mut out = output::stdout();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("writing")
    }

    /// Prints the result of a slash command.
    fn note(&self, text: &str) -> anyhow::Result<()> {
        if self.json {
            return self.event(json!({ "event": "note", "text": text }));
        }
        self.aside(text);
        Ok(())
    }

    /// Prints text to standard error.
    fn aside(&self, text: &str) {
        match self.dim {
            true => tell(&format!("\u{1b}[2m{text}\u{1b}[0m")),
            false => tell(text),
        }
    }
}

/// Totals over all answers.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    prompt_tokens: usize,
    prompt_seconds: f64,
    tokens: usize,
    seconds: f64,
}

/// A conversation and its settings.
struct Talk {
    chat: Chat,
    screen: Screen,
    sampling: Sampling,
    max_tokens: usize,
    /// Number of answers so far; added to the seed of the next one.
    answers: u64,
    left_out: usize,
    totals: Totals,
}

impl Talk {
    fn line(&mut self, line: Line) -> anyhow::Result<ControlFlow<()>> {
        match line {
            Line::Nothing => {}
            Line::Message(text) => self.answer(&text)?,
            Line::Help => self.screen.note(HELP)?,
            Line::System(None) => {
                let text = self.chat.system().unwrap_or("there is no system message").to_owned();
                self.screen.note(&text)?;
            }
            Line::System(Some(text)) => self.chat.set_system(text.as_deref()),
            Line::Reset => {
                self.chat.reset();
                self.left_out = 0;
            }
            Line::Undo => match self.chat.undo() {
                Some(said) => self.screen.note(&format!("taken back: {said}"))?,
                None => bail!("there is nothing to take back"),
            },
            Line::Retry => self.retry()?,
            Line::Set(None) => {
                let mut all = sampled(&self.sampling);
                all["max_tokens"] = numbers::shown(self.max_tokens);
                self.screen.note(&all.to_string())?;
            }
            Line::Set(Some((name, value))) => {
                let set =
                    chat_commands::set(&name, &value, &mut self.sampling, &mut self.max_tokens);
                set.map_err(anyhow::Error::msg)?;
                self.answers = 0;
            }
            Line::Stats => self.screen.note(&self.stats())?,
            Line::Tokens => {
                let session = self.chat.session();
                self.screen.note(&format!(
                    "{} of {} positions are filled; the conversation has {} messages and {} tokens",
                    session.past(),
                    session.context(),
                    self.chat.messages().len(),
                    if self.chat.messages().is_empty() {
                        0
                    } else {
                        self.chat.tokens(false)?.len()
                    },
                ))?;
            }
            Line::Save(path) => self.save(&path)?,
            Line::Load(path) => self.load(&path)?,
            Line::Exit => return Ok(ControlFlow::Break(())),
        }
        Ok(ControlFlow::Continue(()))
    }

    fn retry(&mut self) -> anyhow::Result<()> {
        let before = self.chat.messages().to_vec();
        let Some(said) = self.chat.undo() else { bail!("there is no message to answer again") };
        let done = self.answer(&said);
        if done.is_err() {
            self.chat.set_messages(before);
        }
        done
    }

    /// Sends a message and prints the answer as it is generated.
    fn answer(&mut self, text: &str) -> anyhow::Result<()> {
        let mut sampling = self.sampling.clone();
        sampling.seed = sampling.seed.wrapping_add(self.answers);
        let options = ChatOptions::default().max_tokens(self.max_tokens).sampling(sampling.clone());
        let mut failed = None;
        let screen = &self.screen;
        interrupt::writing();
        let reply = self.chat.send(text, &options, &mut |event| {
            let text = if let Event::Text(text) = event { text } else { "" };
            failed = screen.text(text).err();
            match failed.is_some() || interrupt::asked() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        interrupt::ended();
        if let Some(error) = failed {
            return Err(error);
        }
        let reply = reply?;
        self.answers += 1;
        self.report_end(&reply, &sampling)
    }

    /// Prints the end of an answer, with its statistics.
    fn report_end(&mut self, reply: &Reply, sampling: &Sampling) -> anyhow::Result<()> {
        let done = &reply.generated;
        let totals = &mut self.totals;
        totals.prompt_tokens += done.prompt_tokens;
        totals.prompt_seconds += done.first_token.as_secs_f64();
        totals.tokens += done.tokens.len();
        totals.seconds += done.decode.as_secs_f64();
        let newly = reply.left_out.saturating_sub(self.left_out);
        self.left_out = reply.left_out;
        if self.screen.json {
            return self.screen.event(json!({
                "event": "answer",
                "text": done.text,
                "tokens": done.tokens.len(),
                "prompt_tokens": done.prompt_tokens,
                "reused_tokens": reply.reused,
                "left_out_messages": reply.left_out,
                "finish": done.finish.name(),
                "sampling": sampled(sampling),
                "timings": {
                    "first_token_seconds": done.first_token.as_secs_f64(),
                    "prefill_tokens_per_second": done.prefill_rate(),
                    "decode_seconds": done.decode.as_secs_f64(),
                    "decode_tokens_per_second": done.decode_rate(),
                },
            }));
        }
        self.screen.text("\n")?;
        if newly > 0 {
            self.screen.aside(&format!(
                "the context is full: the {newly} oldest messages are dropped from here on"
            ));
        }
        if !self.screen.quiet {
            let why = match done.finish {
                Finish::Stop => String::new(),
                Finish::Length => "; broken off at --max-tokens".to_owned(),
                Finish::Context => "; the context is full".to_owned(),
                other => format!("; {}", other.name()),
            };
            self.screen.aside(&format!(
                "{} tokens, {:.1} tokens/s; read {} new, {:.1} tokens/s; {} of {} positions{why}",
                done.tokens.len(),
                done.decode_rate(),
                done.prompt_tokens,
                done.prefill_rate(),
                self.chat.session().past(),
                self.chat.session().context(),
            ));
        }
        Ok(())
    }

    fn stats(&self) -> String {
        let (t, session) = (&self.totals, self.chat.session());
        format!(
            "read {} tokens, {:.1} tokens/s; wrote {}, {:.1} tokens/s; {} of weights and cache on {}",
            t.prompt_tokens,
            units::rate(t.prompt_tokens as f64, t.prompt_seconds),
            t.tokens,
            units::rate(t.tokens as f64, t.seconds),
            units::bytes(session.device_bytes()),
            session.device().profile().id(),
        )
    }

    /// Saves the conversation to a file. An existing file is replaced only if it is a conversation.
    fn save(&self, path: &Path) -> anyhow::Result<()> {
        if path.exists() && read(path).is_err() {
            bail!("{}: exists and is not a conversation", path.display());
        }
        let name = self.chat.session().model().file().name();
        let all = json!({ "schema": 1, "model": name, "messages": self.chat.messages() });
        let mut text = serde_json::to_string_pretty(&all)?;
        text.push('\n');
        let new = path.with_extension("new");
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, path))
            .with_context(|| format!("{}: cannot write it", path.display()))?;
        let count = self.chat.messages().len();
        self.screen.note(&format!("{count} messages are in {}", path.display()))
    }

    fn load(&mut self, path: &Path) -> anyhow::Result<()> {
        let messages = read(path)?;
        self.screen.note(&format!("{} messages from {}", messages.len(), path.display()))?;
        self.chat.set_messages(messages);
        self.left_out = 0;
        Ok(())
    }
}

/// Reads the messages of a conversation file.
fn read(path: &Path) -> anyhow::Result<Vec<Message>> {
    #[derive(serde::Deserialize)]
    struct Saved {
        messages: Vec<Message>,
    }
    let name = path.display();
    let metadata = std::fs::metadata(path).with_context(|| format!("{name}: cannot find it"))?;
    if !metadata.is_file() || metadata.len() > MAX_FILE {
        bail!("{name}: not a conversation file, or larger than {MAX_FILE} bytes");
    }
    let text = std::fs::read(path).with_context(|| format!("{name}: cannot read it"))?;
    let saved: Saved =
        serde_json::from_slice(&text).with_context(|| format!("{name}: not a conversation"))?;
    Ok(saved.messages)
}
