//! What `warploom chat` takes.

use crate::args::{Choice, Place};
use crate::dashes::text;
use crate::numbers::tokens;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom chat
  warploom chat -m model.gguf --system \"Answer in one sentence.\" --temperature 0.3
  warploom chat -m org/name:Q4_K_M
  printf 'Hello\\nAnd in French?\\n' | warploom chat -m model.gguf --quiet
  warploom chat --json < questions.txt     # one JSON object a line

A line is a message; one that ends in a backslash goes on in the next. Lines that begin with / are
commands: /help lists them. Ctrl-C breaks off an answer, a second one or /exit leaves. When the
context is full, the oldest turns are left out, and it is said.")]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT", value_parser = text)]
    pub(crate) system: Option<String>,
    /// Most tokens of an answer, -1 for as many as the context holds
    #[arg(short = 'n', long, value_name = "N", default_value = "512", value_parser = tokens)]
    pub(crate) max_tokens: usize,
    /// Seconds for which a GPU that would lower its clock is kept awake while nobody asks anything,
    /// 0 for none
    #[arg(long, value_name = "SECONDS", default_value = "120")]
    pub(crate) keep_awake: u32,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Print what happens as one JSON object a line: ready, text, answer, note, error
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the answers only
    #[arg(short, long)]
    pub(crate) quiet: bool,
}
