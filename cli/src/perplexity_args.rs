//! What `warploom perplexity` takes.

use crate::args::{Place, at_least_one};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom perplexity -m model.gguf text.txt
  warploom perplexity -m model.gguf text.txt --compute f32      # without rounded activations
  warploom perplexity -m model.gguf text.txt --window 512 --skip 256 --json

The text is cut into windows that know nothing of each other, so figures of different windows or
tokenizers do not compare.")]
pub(crate) struct PerplexityArgs {
    /// Text, as UTF-8; `-` reads standard input
    #[arg(value_name = "FILE")]
    pub(crate) text: PathBuf,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Tokens of a window (default: as many as the context holds)
    #[arg(short, long, value_name = "N", value_parser = at_least_one)]
    pub(crate) window: Option<usize>,
    /// Tokens at the beginning of each window that are read and not counted
    #[arg(long, value_name = "N", default_value = "0", value_parser = crate::numbers::whole)]
    pub(crate) skip: usize,
    /// Take the names of control tokens in the text as these tokens, not as text
    #[arg(long)]
    pub(crate) special: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
