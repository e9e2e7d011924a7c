//! The options of `warploom serve`.

use crate::args::{Choice, Place, at_least_one};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use std::net::IpAddr;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom serve
  warploom serve -m model.gguf --parallel 16 --context 2048 --port 9000
  warploom serve -m org/name:Q4_K_M --host 0.0.0.0 --api-key SECRET
  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}], \"stream\": true}'

The base URL for OpenAI clients is http://127.0.0.1:8080/v1. Paths: /health, /v1/models,
/v1/chat/completions, /v1/completions; HEAD works like GET, and bodies may be gzip. An unsupported
field of a request is refused by name, unless its value has no effect. Messages: role, content,
tool_calls and tool_call_id are read; fields with more content (images, audio, files) are refused;
all others (name, id, reasoning_content, cache_control) are ignored. -1 means no limit for
max_tokens and top_k, and a random seed. Stop strings may have 16 KiB in total.

With int8, the default of CPUs and GPUs, the text at temperature 0 can depend on other requests: a
prompt cached from an earlier request, or a batch with other answers, changes the order of sums, and
a close choice between two tokens may fall the other way. --compute f32 makes that rare,
--deterministic rules it out; both are slower.

Ctrl-C or SIGTERM waits for running answers, at most --grace seconds; a second one exits at once.")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// Port to listen on, 0 for any free port
    #[arg(long, value_name = "PORT", default_value = "8080")]
    pub(crate) port: u16,
    /// Answers generated at the same time, each with its own context
    #[arg(long, value_name = "N", default_value = "8", value_parser = at_least_one)]
    pub(crate) parallel: usize,
    /// Length of the request queue; further requests get status 429
    #[arg(long, value_name = "N", default_value = "128", value_parser = at_least_one)]
    pub(crate) queue: usize,
    /// Maximum number of open connections
    #[arg(long, value_name = "N", default_value = "256", value_parser = at_least_one)]
    pub(crate) connections: usize,
    /// Model name shown to clients (default: the file name)
    #[arg(long, value_name = "NAME")]
    pub(crate) alias: Option<String>,
    /// Bearer token that clients must send (default: WARPLOOM_API_KEY, which other users of the
    /// machine cannot see, else no authentication)
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// Origin whose web pages may use the server, or * for any
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) cors_origin: Option<String>,
    /// Time limit of a request in seconds, including the wait in the queue
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = timeout())]
    pub(crate) timeout: u64,
    /// Seconds that running answers may take at shutdown
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    pub(crate) grace: u32,
    /// Seconds to keep the GPU clock high after each answer; 0 turns it off
    #[arg(long, value_name = "SECONDS", default_value = "120")]
    pub(crate) keep_awake: u32,
    // Defaults for requests that set no sampling options.
    #[command(flatten)]
    pub(crate) choice: Choice,
}

/// Seconds, up to 11 days.
fn timeout() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(1..=1_000_000)
}
