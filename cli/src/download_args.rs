//! The options of `warploom download`.

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom download org/name                # Q4_K_M if available, else the next best
  warploom download org/name:Q4_K_M
  warploom download org/name:folder/model-Q8_0.gguf
  warploom generate -m org/name:Q4_K_M \"Once upon a time\"    # downloads on first use

Files go to the cache that Hugging Face's own clients use. Interrupted downloads resume. HF_TOKEN
gives access to private models, HF_HOME moves the cache, HF_ENDPOINT selects a different hub.")]
pub(crate) struct DownloadArgs {
    /// Model on Hugging Face: org/name, org/name:QUANTISATION or org/name:FILE
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Use only the cache: print the path of a cached model, or fail (same as HF_HUB_OFFLINE=1)
    #[arg(long)]
    pub(crate) offline: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Print only the path
    #[arg(short, long)]
    pub(crate) quiet: bool,
}
