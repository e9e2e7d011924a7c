//! The options of `warploom rerank`.

use crate::args::{EncoderPlace, at_least_one};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom rerank -m BAAI/bge-reranker-v2-m3 \"who wrote Faust\" \"Goethe wrote it.\" \"A cat sleeps.\"
  warploom rerank -m ms-marco-MiniLM-L6-v2 \"who wrote Faust\" --file passages.txt --top 3
  warploom rerank -m Qwen/Qwen3-Reranker-0.6B \"who wrote Faust\" --file passages.txt
  cat passages.txt | warploom rerank -m model.gguf \"who wrote Faust\" --json

A reranker reads the query and a text together, so its scores are better than the cosine of two
vectors, and each text is computed for each query.")]
pub(crate) struct RerankArgs {
    /// What is looked for
    #[arg(value_name = "QUERY")]
    pub(crate) query: String,
    /// Texts (default: the lines of --file, or of standard input)
    #[arg(value_name = "TEXT")]
    pub(crate) texts: Vec<String>,
    #[command(flatten)]
    pub(crate) place: EncoderPlace,
    /// UTF-8 text file with one text a line; `-` reads standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "texts")]
    pub(crate) file: Option<PathBuf>,
    /// Print the N best texts only
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) top: Option<usize>,
    /// Cut texts that are too long for the model's context; otherwise they are an error
    #[arg(long)]
    pub(crate) truncate: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
