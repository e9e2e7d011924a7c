//! The options of `warploom serve`.

use crate::args::{Choice, Place, at_least_one, bytes_or_none};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom serve
  warploom serve -m model.gguf --parallel 16 --context 2048 --port 9000
  warploom serve -m org/name:Q4_K_M --host 0.0.0.0 --api-key SECRET
  warploom serve --host 0.0.0.0 --port 8443 --tls-cert cert.pem --tls-key key.pem
  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}], \"stream\": true}'

The base URL for OpenAI clients is http://127.0.0.1:8080/v1, for Anthropic clients
http://127.0.0.1:8080 (ANTHROPIC_BASE_URL). Paths: /health, /v1/models, /v1/chat/completions,
/v1/responses, /v1/completions, /v1/messages, /v1/messages/count_tokens, /tokenize, /detokenize,
/props, and /metrics in Prometheus' format; HEAD works like GET, and request bodies may be
gzip-compressed. With --tls-cert and --tls-key the URL begins with https. Clients may use HTTP/1.1
or HTTP/2. A request with an unsupported field is rejected with an error that names it, unless the
value has no effect. In messages, the server reads role, content, tool_calls and reasoning_content,
and in tool messages also tool_call_id and name; it rejects fields with other kinds of content
(images, audio, files) or that change the request (prefix), and ignores all others (id,
cache_control). -1 means no limit for max_tokens and top_k, and a random value for seed. Stop
strings may total at most 16 KiB. The sampling options, --seed included, apply to requests that do
not set them.

response_format (json_object, json_schema) constrains the answer: it is valid unless max_tokens cuts
it. A schema with an unsupported keyword is rejected with an error that names it. tools are given to
the model's chat template, and calls are read in the format of the template: Hermes and Qwen, Qwen3
Coder, Llama 3, Mistral, gpt-oss. A template without tools gets them in a system message, in Hermes'
format; one without system messages gets their text in the first message of the user. With
tool_choice required or a function, the answer is constrained to a call; with auto, from the marker
of a call on. There the arguments may be any object if their schema is not supported, unless the
tool is strict. Text in <think>, and the channel analysis of gpt-oss, is returned as
reasoning_content; chat_template_kwargs and reasoning_effort reach the template. /v1/messages has
tools and schemas as Anthropic writes them, and its own format of errors; /v1/responses keeps
nothing between requests, so that a client sends the earlier items again, whose tokens are cached.

With int8, the default on CPUs and GPUs, the text at temperature 0 can depend on other requests: a
prompt cached from an earlier request, or a batch with other answers, changes the order of sums, and
a near tie between two tokens may resolve differently. --compute f32 makes that rare,
--deterministic rules it out; both are slower.

On Ctrl-C or SIGTERM the server waits for running answers, at most --grace seconds; a second one
ends it at once.")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// Port to listen on, 0 for any free port
    #[arg(long, value_name = "PORT", default_value = "8080")]
    pub(crate) port: u16,
    /// Maximum number of answers generated at once, each with its own context
    #[arg(long, value_name = "N", default_value = "8", value_parser = at_least_one)]
    pub(crate) parallel: usize,
    /// Maximum number of queued requests; further ones are answered with status 429
    #[arg(long, value_name = "N", default_value = "128", value_parser = at_least_one)]
    pub(crate) queue: usize,
    /// Maximum number of open connections, each of which is an open file (see ulimit -n)
    #[arg(long, value_name = "N", default_value = "10000", value_parser = at_least_one)]
    pub(crate) connections: usize,
    /// PEM file with the certificate for TLS, followed by those of its issuers
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Model name shown to clients (default: the file's name without extension)
    #[arg(long, value_name = "NAME")]
    pub(crate) alias: Option<String>,
    /// Key that clients must send, as bearer token or in x-api-key (default: WARPLOOM_API_KEY, else no
    /// authentication); prefer WARPLOOM_API_KEY: it does not show in process listings
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// Origin of the web pages that may use the server, or * for any
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) cors_origin: Option<String>,
    /// Time limit of a request in seconds, including the wait in the queue
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = timeout())]
    pub(crate) timeout: u64,
    /// Seconds to wait for running answers at shutdown
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    pub(crate) grace: u32,
    /// Host memory for conversations whose sequence was taken for others, which go on from there without
    /// reading their text again; accepts suffixes K, M and G, 0 keeps none
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = bytes_or_none)]
    pub(crate) prefix_memory: u64,
    /// Seconds to keep the GPU clock high after each answer; 0 disables this
    #[arg(long, value_name = "SECONDS", default_value = "120")]
    pub(crate) keep_awake: u32,
    // Defaults for requests that do not set these options.
    #[command(flatten)]
    pub(crate) choice: Choice,
}

/// Returns a parser of seconds, from 1 to 1,000,000 (11 days).
fn timeout() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(1..=1_000_000)
}
