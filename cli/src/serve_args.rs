//! What `warploom serve` takes.

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

OpenAI's clients take http://127.0.0.1:8080/v1 as their base URL. Paths: /health, /v1/models,
/v1/chat/completions, /v1/completions; HEAD works where GET does, and bodies may be gzip. A field of a
request that is not supported is refused by name, unless its value asks for nothing. Of messages role,
content, tool_calls and tool_call_id are read; fields that hold more to read (images, audio, files) are
refused, and all others (name, id, reasoning_content, cache_control) are ignored. max_tokens, top_k and
seed of -1 are no limit and any seed. Stop strings may be 16 KiB together.

With int8, the default of CPUs and GPUs, the text of temperature 0 can depend on what the server did
before: a prompt that is cached from an earlier request, or other answers at the same time, change the
order of sums, and a close choice between two tokens may fall the other way. --compute f32 makes that
rare, --deterministic rules it out; both are slower.

Ctrl-C or SIGTERM lets running answers end, for at most --grace seconds; a second one ends at once.")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// Port to listen on, 0 for any that is free
    #[arg(long, value_name = "PORT", default_value = "8080")]
    pub(crate) port: u16,
    /// Answers that are written at the same time, each with a context of its own
    #[arg(long, value_name = "N", default_value = "8", value_parser = at_least_one)]
    pub(crate) parallel: usize,
    /// Requests that may wait for one of them; more get status 429
    #[arg(long, value_name = "N", default_value = "128", value_parser = at_least_one)]
    pub(crate) queue: usize,
    /// Connections at a time
    #[arg(long, value_name = "N", default_value = "256", value_parser = at_least_one)]
    pub(crate) connections: usize,
    /// What clients call the model (default: the name of its file)
    #[arg(long, value_name = "NAME")]
    pub(crate) alias: Option<String>,
    /// What clients must send as a bearer token (default: WARPLOOM_API_KEY, which other users of the
    /// machine cannot see; else everybody is let in)
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// Origin whose web pages may use the server, or *
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) cors_origin: Option<String>,
    /// Seconds for one answer, with the wait before it
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = timeout())]
    pub(crate) timeout: u64,
    /// Seconds that running answers have when the server ends
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    pub(crate) grace: u32,
    /// Seconds for which a GPU that would lower its clock is kept awake while nobody asks anything,
    /// 0 for none
    #[arg(long, value_name = "SECONDS", default_value = "120")]
    pub(crate) keep_awake: u32,
    // How tokens are chosen where a request does not say.
    #[command(flatten)]
    pub(crate) choice: Choice,
}

/// Seconds, up to some days.
fn timeout() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(1..=1_000_000)
}
