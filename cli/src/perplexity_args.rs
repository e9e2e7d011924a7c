//! The options of `warploom perplexity`.

use crate::args::{Place, at_least_one};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom perplexity -m model.gguf text.txt
  warploom perplexity -m model.gguf text.txt --compute f32      # without 8-bit activations
  warploom perplexity -m model.gguf text.txt --window 512 --skip 256 --json

The text is split into independent windows, so results with different window lengths or
tokenizers are not comparable.")]
pub(crate) struct PerplexityArgs {
    /// UTF-8 text file; `-` reads standard input
    #[arg(value_name = "FILE")]
    pub(crate) text: PathBuf,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Tokens per window (default: the context length)
    #[arg(short, long, value_name = "N", value_parser = at_least_one)]
    pub(crate) window: Option<usize>,
    /// Tokens at the start of each window that serve as context and are not scored
    #[arg(long, value_name = "N", default_value = "0", value_parser = crate::numbers::whole)]
    pub(crate) skip: usize,
    /// Parse names of control tokens in the text, such as <|im_end|>, as control tokens
    #[arg(long)]
    pub(crate) special: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
