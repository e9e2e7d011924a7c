//! The options of `warploom inspect`.

use crate::args::{at_least_one, cache_type};
use clap::Args;
use std::path::PathBuf;
use warploom_core::base::DType;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom inspect model.gguf
  warploom inspect model.gguf --context 32768     # memory that a long context needs
  warploom inspect SmolLM2-135M/ --tensors        # each tensor of a Hugging Face folder
  warploom inspect org/name:Q4_K_M --json

A file that cannot be run is described as far as it can be read, with the reason; the exit code is
1 then.")]
pub(crate) struct InspectArgs {
    /// GGUF file, Hugging Face folder, or a model's name on Hugging Face: org/name or
    /// org/name:Q4_K_M (default: the small model embedded in the command)
    #[arg(value_name = "FILE|NAME")]
    #[cfg_attr(not(feature = "embedded-model"), arg(required = true))]
    pub(crate) model: Option<PathBuf>,
    /// Positions of the KV cache whose memory is stated (default: the model's context, at most 4096)
    #[arg(short, long, value_name = "N", value_parser = at_least_one)]
    pub(crate) context: Option<usize>,
    /// Element type of that cache: f32 or f16
    #[arg(long, value_name = "TYPE", value_parser = cache_type, default_value = "f16")]
    pub(crate) cache: DType,
    /// List every tensor
    #[arg(long)]
    pub(crate) tensors: bool,
    /// List every key of the metadata; long lists are shortened
    #[arg(long)]
    pub(crate) metadata: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
