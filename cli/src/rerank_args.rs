//! The options of `warploom rerank`.

use crate::args::{Place, at_least_one, bytes};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom rerank -m BAAI/bge-reranker-v2-m3 \"who wrote Faust\" \"Goethe wrote it.\" \"A cat sleeps.\"
  warploom rerank -m ms-marco-MiniLM-L6-v2 \"who wrote Faust\" --file passages.txt --top 3
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
    /// GGUF file, Hugging Face folder, or a model's name on Hugging Face: org/name or
    /// org/name:Q8_0
    #[arg(short, long, value_name = "FILE|NAME")]
    pub(crate) model: PathBuf,
    /// UTF-8 text file with one text a line; `-` reads standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "texts")]
    pub(crate) file: Option<PathBuf>,
    /// Print the N best texts only
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) top: Option<usize>,
    /// Cut texts that are too long for the model's context; otherwise they are an error
    #[arg(long)]
    pub(crate) truncate: bool,
    /// Device: auto, cpu, cuda, webgpu or opencl, or one device, such as webgpu:1 (default:
    /// WARPLOOM_DEVICE, then auto)
    #[arg(short, long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Precision of matrix products with weights: f32 (exact), int8 or f16 (faster)
    /// [default: f32]
    #[arg(long, value_name = "MODE")]
    pub(crate) compute: Option<warploom::ComputeMode>,
    /// Read the model file into memory instead of mapping it, in case the file changes while in use
    #[arg(long)]
    pub(crate) copy: bool,
    /// CPU threads (default: WARPLOOM_THREADS, then one per core)
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Limit on device memory in bytes; accepts suffixes K, M and G (default:
    /// WARPLOOM_MEMORY_BUDGET, then the device's memory)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) memory_budget: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl RerankArgs {
    /// Returns the model, the device and the precision as other commands have them.
    pub(crate) fn place(&self) -> Place {
        Place {
            model: Some(self.model.clone()),
            device: self.device.clone(),
            context: None,
            compute: self.compute,
            cache: None,
            deterministic: false,
            copy: self.copy,
            threads: self.threads,
            memory_budget: self.memory_budget,
        }
    }
}
