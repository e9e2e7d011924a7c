//! OpenAI's and Anthropic's HTTP APIs over the sequences of one session, or over an encoder.
//!
//! [`Server`] listens on an address. An application that has a server of axum already takes the
//! routes of a [`Service`] into it ([`router`]).
//!
//! `server` accepts connections on a small runtime of tokio's, `connection` bounds their times,
//! `routes` and `body` check requests, `inflate` and `request` read them, `prepare` makes jobs of
//! them and `generate` answers, in the format of the interface (`answer`). `gate` bounds how many
//! requests compute at once, on threads that do not grow with the clients. `tools` knows the formats of tool calls, `embeddings` answers with the vectors
//! of an encoder, `constrain` and `grammars` compile what an answer must follow. `queue` passes jobs
//! to the single thread of the `scheduler`, which is independent of HTTP and can be used without
//! it.
//!
//! Clients are untrusted: sizes, times, connections and the queue are bounded, a text that cannot
//! fit the context is refused before it is encoded, and only one request at a time is parsed.
//! [`Tls`] encrypts connections. There is no authentication beyond one key: use a reverse proxy
//! for more.

mod answer;
mod body;
mod choice;
mod connection;
mod constrain;
mod embeddings;
mod error;
mod fields;
mod gate;
mod generate;
mod grammars;
mod guard;
mod inflate;
mod logits;
mod message;
mod metrics;
mod options;
mod prepare;
mod queue;
mod request;
mod reuse;
mod routes;
mod running;
mod scheduler;
mod sequences;
mod server;
mod service;
mod tls;
mod tokens;
mod tools;

#[cfg(test)]
mod constrained_tests;
#[cfg(test)]
mod reuse_tests;
#[cfg(test)]
mod test_rig;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

pub use guard::{Begin, Guard};
pub use logits::{LogitEdits, Logprob};
pub use options::{Limits, ServeOptions};
pub use queue::{Done, Ended, Failure, Job, Piece, Queue, Ticket};
pub use routes::router;
pub use scheduler::Scheduler;
pub use sequences::Sequences;
pub use server::Server;
pub use service::Service;
pub use tls::Tls;

/// Longest duration added to an [`Instant`]: about 17 years, which no clock overflows.
const LONGEST: Duration = Duration::from_secs(1 << 29);

/// Returns `begin + time`, with `time` clamped so that the sum cannot overflow.
fn after(begin: Instant, time: Duration) -> Instant {
    begin + time.min(LONGEST)
}

/// How long a stopping server waits for its threads and connections after the grace period.
const LAST_WORDS: Duration = Duration::from_secs(3);
