//! An OpenAI-compatible HTTP endpoint over the sequences of one session, or over an encoder.
//!
//! `connection` reads requests within the limits, `request` checks them, `prepare` makes jobs of
//! them and `routes` answers them; each connection has its own thread. `tools` knows the formats of
//! tool calls, `embeddings` answers with the vectors of an encoder, `constrain` and `grammars` compile what an answer must follow. `queue` passes jobs
//! to the single thread of the `scheduler`, which is independent of HTTP and can be used without
//! it.
//!
//! Clients are untrusted: sizes, times, connections and the queue are bounded, a text that cannot
//! fit the context is refused before it is encoded, and only one request at a time is parsed. There
//! is no TLS, and no authentication beyond one key: use a reverse proxy for more.

mod answer;
mod choice;
mod client;
mod connection;
mod constrain;
mod embeddings;
mod error;
mod fields;
mod grammars;
mod guard;
mod inflate;
mod logits;
mod message;
mod metrics;
mod prepare;
mod queue;
mod request;
mod routes;
mod running;
mod scheduler;
mod sequences;
mod tokens;
mod tools;

#[cfg(test)]
mod constrained_tests;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

pub use connection::Limits;
pub use guard::{Begin, Guard};
pub use logits::{LogitEdits, Logprob};
pub use queue::{Done, Ended, Failure, Job, Piece, Queue, Ticket};
pub use scheduler::Scheduler;
pub use sequences::Sequences;

use embeddings::Encoder;
use grammars::Grammars;
use warploom::runtime::KeepAlive;
use warploom::{Error, Result};
use warploom_llm::chat::Template;
use warploom_llm::{Embedder, Model, Sampling, Session};

/// Server settings.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServeOptions {
    /// Address to listen on; port 0 picks a free one. Default `127.0.0.1:8080`.
    pub address: SocketAddr,
    /// Name of the model in the API; `None` uses the file name without folder and extension.
    pub model: Option<String>,
    /// Key that clients must send as `Authorization: Bearer`; `None` disables authentication.
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
    /// How long an idle server keeps the GPU clock up after the last answer ([`KeepAlive`]); zero
    /// disables it. Default 2 minutes.
    pub keep_awake: Duration,
    /// Limits on clients.
    pub limits: Limits,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions {
            address: SocketAddr::from(([127, 0, 0, 1], 8080)),
            model: None,
            api_key: None,
            cors_origin: None,
            sampling: Sampling::default(),
            seed: None,
            queue: 128,
            piece: 256,
            time: Duration::from_secs(600),
            keep_awake: Duration::from_secs(120),
            limits: Limits::default(),
        }
    }
}

warploom_llm::setters!(ServeOptions {
    address: SocketAddr,
    model: Option<String>,
    api_key: Option<String>,
    cors_origin: Option<String>,
    sampling: Sampling,
    seed: Option<u64>,
    queue: usize,
    piece: usize,
    time: Duration,
    keep_awake: Duration,
    limits: Limits,
});

/// Longest duration added to an [`Instant`]: about 17 years, which no clock overflows.
const LONGEST: Duration = Duration::from_secs(1 << 29);

/// Returns `begin + time`, with `time` clamped so that the sum cannot overflow.
fn after(begin: Instant, time: Duration) -> Instant {
    begin + time.min(LONGEST)
}

/// How long a stopping server waits for its threads and connections after the grace period.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// State shared by all connections.
struct Shared {
    options: ServeOptions,
    model: Arc<Model>,
    /// Name of the model.
    name: String,
    /// The chat template, or why the model cannot chat.
    template: Result<Template, String>,
    /// Whether the template writes tools.
    knows_tools: bool,
    /// The control tokens by name.
    controls: HashMap<String, u32>,
    grammars: Grammars,
    /// The encoder, in place of a session.
    encoder: Option<Encoder>,
    /// Number of positions of each sequence.
    context: usize,
    sequences: usize,
    /// Length in bytes of the longest text that one token can stand for.
    longest_token: usize,
    queue: Arc<Queue>,
    /// Held while a request is parsed and encoded, which needs the most memory.
    reading: Mutex<()>,
    stopping: AtomicBool,
    connections: Mutex<usize>,
    closed: Condvar,
    /// Start time, in seconds since the Unix epoch.
    since: u64,
    /// Id of the next answer; the first one is random.
    answers: AtomicU64,
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, usize> {
        self.connections.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A connection slot, released on drop.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Option<Place> {
        let mut count = shared.connections();
        if *count >= shared.options.limits.connections {
            return None;
        }
        *count += 1;
        Some(Place(shared.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.connections() -= 1;
        self.0.closed.notify_all();
    }
}

/// A server that runs on its own threads.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

warploom_core::base::debug_as!(Server, |this| address: this.address());

impl Server {
    /// Starts a server that answers with the model of `session`, using all its sequences.
    ///
    /// # Errors
    /// Io if the server cannot listen on the address or start its threads; invalid if an option is
    /// out of range.
    pub fn start(session: Session, options: ServeOptions) -> Result<Server> {
        let (listener, address) = listen(&options)?;
        let sequences = Sequences::sequences(&session);
        let shared = shared(session.model(), (session.context(), sequences), options)?;
        let shared = Arc::new(shared);
        let awake_for = shared.options.keep_awake;
        let awake =
            (!awake_for.is_zero()).then(|| KeepAlive::if_needed(session.device())).flatten();
        let mut scheduler = Scheduler::new(session, shared.queue.clone(), shared.options.piece)
            .keep_awake(awake, awake_for);
        let queue = shared.queue.clone();
        let run = move || {
            // After a panic, no request must wait for the scheduler.
            let _closed = CloseOnDrop(queue);
            scheduler.run();
        };
        let accepting = shared.clone();
        let accept = move || accept(&listener, &accepting);
        let threads = vec![spawn("scheduler", run)?, spawn("accept", accept)?];
        Ok(Server { address, shared, threads })
    }

    /// Starts a server that answers `/v1/embeddings` with an encoder, and generates no text.
    ///
    /// # Errors
    /// Same as [`Server::start`].
    pub fn start_encoder(embedder: Embedder, options: ServeOptions) -> Result<Server> {
        let (listener, address) = listen(&options)?;
        let mut shared = shared(embedder.model(), (embedder.context(), 1), options)?;
        shared.encoder = Some(Encoder::new(embedder));
        let shared = Arc::new(shared);
        let accepting = shared.clone();
        let threads = vec![spawn("accept", move || accept(&listener, &accepting))?];
        Ok(Server { address, shared, threads })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the name of the model in the API.
    pub fn model(&self) -> &str {
        &self.shared.name
    }

    /// Returns whether the server's threads for connections and for the scheduler are running; if
    /// not, the server no longer answers.
    pub fn is_alive(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }

    /// Returns the queue of waiting and running requests.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.shared.queue
    }

    /// Stops the server: refuses new requests, aborts running ones after `grace`, and waits until
    /// all have ended. Dropping a server stops it without grace and without waiting.
    ///
    /// # Errors
    /// Device if the server has not stopped a few seconds after `grace`, because the device does
    /// not respond.
    pub fn stop(self, grace: Duration) -> Result<()> {
        let until = after(Instant::now(), grace);
        self.begin_stop(until);
        let last = after(until, LAST_WORDS);
        while !self.threads.iter().all(JoinHandle::is_finished) {
            if Instant::now() >= last {
                return Err(Error::device("a run on the device has not ended"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut count = self.shared.connections();
        while *count > 0 {
            let left = last.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.closed.wait_timeout(count, left);
            count = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        Ok(())
    }
}

impl Server {
    fn begin_stop(&self, until: Instant) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.shared.queue.stop(until);
        // `accept` blocks until a connection arrives, so connect once.
        let _ = TcpStream::connect_timeout(&reachable(self.address), Duration::from_secs(1));
    }
}

/// Stops the server without waiting.
impl Drop for Server {
    fn drop(&mut self) {
        if !self.shared.is_stopping() {
            self.begin_stop(Instant::now());
        }
    }
}

struct CloseOnDrop(Arc<Queue>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.stop(Instant::now());
    }
}

/// Returns an address that reaches a listener on this machine: an unspecified IP address becomes
/// the loopback address.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        match address {
            SocketAddr::V4(_) => address.set_ip([127, 0, 0, 1].into()),
            SocketAddr::V6(_) => address.set_ip(std::net::Ipv6Addr::LOCALHOST.into()),
        }
    }
    address
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(format!("warploom-{name}"));
    thread.spawn(work).map_err(|e| Error::io(format!("cannot start the thread {name}"), e))
}

/// Checks the options, and listens on their address.
fn listen(options: &ServeOptions) -> Result<(TcpListener, SocketAddr)> {
    warploom_llm::Sampler::new(options.sampling.clone())?;
    let bad_key = |key: &String| key.is_empty() || !key.bytes().all(|b| b.is_ascii_graphic());
    if options.api_key.as_ref().is_some_and(bad_key) {
        return Err(Error::invalid("api_key: must be printable ASCII without spaces"));
    }
    if options.cors_origin.as_ref().is_some_and(bad_key) {
        return Err(Error::invalid("cors_origin: must be an origin or *"));
    }
    let failed = |e| Error::io(format!("cannot listen on {}", options.address), e);
    let listener = TcpListener::bind(options.address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

fn shared(
    model: &Arc<Model>,
    (context, sequences): (usize, usize),
    options: ServeOptions,
) -> Result<Shared> {
    use std::hash::{BuildHasher, RandomState};
    let model = model.clone();
    let tokenizer = model.tokenizer();
    let mut longest_token = tokenizer.control_names().map(str::len).max().unwrap_or(0);
    for id in 0..tokenizer.vocabulary() {
        longest_token = longest_token.max(tokenizer.token_bytes(id as u32)?.len());
    }
    let file = model.file().name();
    let file = file.strip_prefix("embedded ").unwrap_or(file);
    let file = file.rsplit(['/', '\\']).find(|part| !part.is_empty()).unwrap_or("model");
    let name = options.model.clone();
    let name = name.unwrap_or_else(|| file.strip_suffix(".gguf").unwrap_or(file).to_owned());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let template = Template::of(&model).map_err(|error| error.to_string());
    let controls = tokenizer.control_tokens().map(|(name, id)| (name.to_owned(), id));
    Ok(Shared {
        name,
        knows_tools: template.as_ref().is_ok_and(|template| template.knows_tools(tokenizer)),
        controls: controls.collect(),
        grammars: Grammars::new(model.shared_tokenizer().clone()),
        template,
        encoder: None,
        context,
        sequences,
        longest_token: longest_token.max(1),
        queue: Arc::new(Queue::new(options.queue)),
        reading: Mutex::new(()),
        stopping: AtomicBool::new(false),
        connections: Mutex::new(0),
        closed: Condvar::new(),
        since: now.map_or(0, |time| time.as_secs()),
        answers: AtomicU64::new(RandomState::new().hash_one(())),
        options,
        model,
    })
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let stream = listener.accept();
        if shared.is_stopping() {
            return;
        }
        let stream = match stream {
            Ok((stream, _)) => stream,
            Err(error) => {
                // For example, there is no free file descriptor, which is temporary.
                tracing::warn!(%error, "cannot accept a connection");
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        let Some(place) = Place::take(shared) else {
            routes::turn_away(stream, shared);
            continue;
        };
        let started = spawn("connection", move || routes::serve(&place.0, stream));
        if let Err(error) = started {
            tracing::warn!(%error, "cannot serve a connection");
        }
    }
}
