//! What `warploom download` takes.

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom download org/name                # the file that suits most, Q4_K_M where there is one
  warploom download org/name:Q4_K_M
  warploom download org/name:folder/model-Q8_0.gguf
  warploom generate -m org/name:Q4_K_M \"Once upon a time\"    # fetches it too, the first time

Files go to the cache of Hugging Face's own clients, which find them there. What broke off is taken
up again. HF_TOKEN opens private models, HF_HOME moves the cache, HF_ENDPOINT names another hub.")]
pub(crate) struct DownloadArgs {
    /// org/name, org/name:QUANTISATION or org/name:FILE
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Ask no server: say where the model is, if it is in the cache (also HF_HUB_OFFLINE=1)
    #[arg(long)]
    pub(crate) offline: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the path only
    #[arg(short, long)]
    pub(crate) quiet: bool,
}
