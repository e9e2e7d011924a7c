//! The settings of a server, and the limits on its clients.

use std::net::SocketAddr;
use std::time::Duration;

use super::tls::Tls;
use warploom::{Error, Result};
use warploom_llm::Sampling;

/// Least value of [`Limits::head`]: the buffer in which a head is read.
const MIN_HEAD: usize = 8 << 10;

/// Server settings.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServeOptions {
    /// Address to listen on; port 0 picks a free one. Default `127.0.0.1:8080`.
    pub address: SocketAddr,
    /// Certificate and key with which connections are encrypted; `None` serves plain HTTP.
    pub tls: Option<Tls>,
    /// Name of the model in the API; `None` uses the file name without folder and extension.
    pub model: Option<String>,
    /// Key that clients must send as `Authorization: Bearer` or as `x-api-key`; `None` disables
    /// authentication.
    pub api_key: Option<String>,
    /// Origin of the pages that may read responses, or `*` for any origin; `None` sends no CORS
    /// header.
    pub cors_origin: Option<String>,
    /// Default sampling settings of requests. Their seed is not used; see [`ServeOptions::seed`].
    pub sampling: Sampling,
    /// Default seed of requests; `None` uses a random one per request.
    pub seed: Option<u64>,
    /// Maximum number of requests that wait for a sequence. Default 128.
    pub queue: usize,
    /// Maximum number of prompt tokens to run between two tokens of other answers. Default 256.
    pub piece: usize,
    /// Time limit for one answer, including its time in the queue; [`Duration::MAX`] means no
    /// limit. Default 10 minutes.
    pub time: Duration,
    /// Bytes of host memory for the caches of sequences that were taken for other requests, from which a
    /// conversation goes on without reading its tokens again. 0 keeps none. Default 1 GiB.
    pub prefix_memory: u64,
    /// How long an idle server keeps the GPU clock up after the last answer
    /// ([`KeepAlive`](warploom::runtime::KeepAlive)); zero disables it. Default 2 minutes.
    pub keep_awake: Duration,
    /// Limits on clients.
    pub limits: Limits,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions {
            address: SocketAddr::from(([127, 0, 0, 1], 8080)),
            tls: None,
            model: None,
            api_key: None,
            cors_origin: None,
            sampling: Sampling::default(),
            seed: None,
            queue: 128,
            piece: 256,
            time: Duration::from_secs(600),
            prefix_memory: 1 << 30,
            keep_awake: Duration::from_secs(120),
            limits: Limits::default(),
        }
    }
}

warploom_llm::setters!(ServeOptions {
    address: SocketAddr,
    tls: Option<Tls>,
    model: Option<String>,
    api_key: Option<String>,
    cors_origin: Option<String>,
    sampling: Sampling,
    seed: Option<u64>,
    queue: usize,
    piece: usize,
    time: Duration,
    prefix_memory: u64,
    keep_awake: Duration,
    limits: Limits,
});

impl ServeOptions {
    /// # Errors
    /// Invalid, naming the option that is out of range.
    pub(super) fn check(&self) -> Result<()> {
        warploom_llm::Sampler::new(self.sampling.clone())?;
        let is_bad = |key: &String| key.is_empty() || !key.bytes().all(|b| b.is_ascii_graphic());
        if self.api_key.as_ref().is_some_and(is_bad) {
            return Err(Error::invalid("api_key: must be printable ASCII without spaces"));
        }
        if self.cors_origin.as_ref().is_some_and(is_bad) {
            return Err(Error::invalid("cors_origin: must be an origin or *"));
        }
        let head = self.limits.head;
        if head < MIN_HEAD || u32::try_from(head).is_err() {
            let text =
                format!("limits.head: {head} bytes, must be from {MIN_HEAD} to {}", u32::MAX);
            return Err(Error::invalid(text));
        }
        Ok(())
    }
}

/// Limits on clients and their requests.
///
/// Those on bodies also apply to a [`router`](crate::router) in the server of an application;
/// `head`, `idle`, `write` and `connections` are about connections, which are that server's then.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum bytes of a request's head, from 8 KiB on. Default 16 KiB.
    pub head: usize,
    /// Maximum bytes of a request's body, both as received and after decompression. Default 1 MiB.
    ///
    /// All clients together may have 256 times as many bytes of bodies in memory.
    pub body: usize,
    /// Maximum time for a client to send the head of a request, and as much for its body and for
    /// the handshake of TLS. Default 20 seconds.
    pub read: Duration,
    /// Maximum time between two requests on a connection. Default 30 seconds.
    pub idle: Duration,
    /// Maximum time without progress while a response is sent. Default 20 seconds.
    pub write: Duration,
    /// Maximum concurrent connections of all clients. Default 10,000.
    ///
    /// An idle connection costs about 15 KiB and no thread. The limit is there for memory and for
    /// open files, of which each connection is one: the system's limit (`ulimit -n`) may be lower.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head: 16 << 10,
            body: 1 << 20,
            read: Duration::from_secs(20),
            idle: Duration::from_secs(30),
            write: Duration::from_secs(20),
            connections: 10_000,
        }
    }
}

warploom_llm::setters!(Limits {
    head: usize,
    body: usize,
    read: Duration,
    idle: Duration,
    write: Duration,
    connections: usize,
});
