//! The options of `warploom embed`.

use crate::args::{EncoderPlace, at_least_one};
use clap::Args;
use std::path::PathBuf;
use warploom_llm::TextKind;
use warploom_llm::config::Pooling;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom embed -m all-MiniLM-L6-v2 \"A cat sleeps.\" \"A kitten naps.\" \"Stocks fell.\"
  warploom embed -m sentence-transformers/all-MiniLM-L6-v2 --json \"one text\"
  warploom embed -m bge-small-en-v1.5-f16.gguf --file texts.txt --json > vectors.json
  cat texts.txt | warploom embed -m model.gguf        # one text a line
  warploom embed -m Qwen/Qwen3-Embedding-0.6B --as query \"who wrote Faust\"

Without --json it prints the cosine of each pair of texts. Encoders (bert) and language models both
give vectors; those of models that were trained for it mean something.")]
pub(crate) struct EmbedArgs {
    /// Texts (default: the lines of --file, or of standard input)
    #[arg(value_name = "TEXT")]
    pub(crate) texts: Vec<String>,
    #[command(flatten)]
    pub(crate) place: EncoderPlace,
    /// UTF-8 text file with one text a line; `-` reads standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "texts")]
    pub(crate) file: Option<PathBuf>,
    /// How the tokens of a text become one vector: mean, first or last (default: as the model's file
    /// says)
    #[arg(long, value_name = "POOLING", value_parser = pooling)]
    pub(crate) pooling: Option<Pooling>,
    /// Put before each text what the model expects before a query or a document, if that is known
    /// (Qwen3-Embedding, EmbeddingGemma)
    #[arg(long = "as", value_name = "KIND", value_parser = kind)]
    pub(crate) kind: Option<TextKind>,
    /// Keep the first N elements of each vector, for models that were trained for it
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) dimensions: Option<usize>,
    /// Do not divide vectors by their length
    #[arg(long)]
    pub(crate) no_normalize: bool,
    /// Cut texts that are longer than the model's context; otherwise they are an error
    #[arg(long)]
    pub(crate) truncate: bool,
    /// Print one JSON object, with the vectors
    #[arg(long)]
    pub(crate) json: bool,
}

fn kind(name: &str) -> Result<TextKind, String> {
    TextKind::of(name).map_err(|e| e.to_string())
}

fn pooling(name: &str) -> Result<Pooling, String> {
    Pooling::of(name).map_err(|e| e.to_string())
}
