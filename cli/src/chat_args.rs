//! The options of `warploom chat`.

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
  warploom chat --json < questions.txt     # one JSON object per line

A line is a message; a backslash at its end continues it on the next line. Lines that begin with /
are commands: /help lists them. Ctrl-C stops an answer; a second one, or /exit, quits. When the
context is full, the oldest turns are dropped, with a note. /set shows the seed.")]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// System prompt
    #[arg(long, value_name = "TEXT", value_parser = text)]
    pub(crate) system: Option<String>,
    /// Maximum number of tokens per answer, -1 to fill the context
    #[arg(short = 'n', long, value_name = "N", default_value = "512", value_parser = tokens)]
    pub(crate) max_tokens: usize,
    /// Seconds to keep the GPU clock high after each answer; 0 disables this
    #[arg(long, value_name = "SECONDS", default_value = "120")]
    pub(crate) keep_awake: u32,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Print events as one JSON object per line: ready, text, answer, note, error
    #[arg(long)]
    pub(crate) json: bool,
    /// Print only the answers
    #[arg(short, long)]
    pub(crate) quiet: bool,
}
