//! An HTTP endpoint that OpenAI's clients understand, over the sequences of one session.
//!
//! `connection` reads requests within their limits, `request` checks what they ask for, `routes`
//! answers them, each connection on a thread of its own. `queue` carries jobs to the one thread
//! of the `scheduler`, which knows nothing of HTTP and may be driven without it.
//!
//! Nobody is trusted: sizes, times, connections and the queue are bounded, a text that cannot fit
//! the context is refused before it is encoded, and the JSON of one request at a time is in memory.
//! There is no TLS and no user but the one of the key: what else is needed stands in front.

mod answer;
mod connection;
mod error;
mod fields;
mod inflate;
mod message;
mod queue;
mod request;
mod routes;
mod scheduler;
mod sequences;
mod stop;

#[cfg(test)]
mod tests;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

pub use connection::Limits;
pub use queue::{Done, Ended, Failure, Job, Piece, Queue, Ticket};
pub use scheduler::Scheduler;
pub use sequences::{Chosen, Sequences};

use warploom::error::{Error, Result};
use warploom::runtime::Awake;
use warploom_llm::chat::Template;
use warploom_llm::{Model, Sampling, Session};

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where to listen; port 0 takes a free one. Default `127.0.0.1:8080`.
    pub address: SocketAddr,
    /// What the model is called; none is the name of its file without folder and ending.
    pub model: Option<String>,
    /// What clients must send as `Authorization: Bearer`; none lets everybody in.
    pub api_key: Option<String>,
    /// The origin whose pages may read answers, or `*`; none sends no header about that.
    pub cors_origin: Option<String>,
    /// How tokens are chosen where a request does not say; for its seed there is `seed`.
    pub sampling: Sampling,
    /// The seed of requests that name none; none is another one each time.
    pub seed: Option<u64>,
    /// Requests that may wait for a sequence. Default 128.
    pub queue: usize,
    /// Most tokens of a prompt that are read between two tokens of other answers. Default 256.
    pub piece: usize,
    /// Time for one answer, with the wait before it; [`Duration::MAX`] is no bound. Default 10 minutes.
    pub time: Duration,
    /// How long a GPU that would lower its clock is kept awake while nobody asks anything ([`Awake`]); zero for never.
    /// Default 2 minutes.
    pub keep_awake: Duration,
    /// Bounds on clients.
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

/// Some years, which every clock can tell.
const LONGEST: Duration = Duration::from_secs(1 << 29);

/// So long after `begin`; what is longer than any server runs is not added in full.
fn after(begin: Instant, time: Duration) -> Instant {
    begin + time.min(LONGEST)
}

/// Time that clients have to take what was written when the server ends, beyond that for writing.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// What all connections see.
struct Shared {
    options: ServeOptions,
    model: Arc<Model>,
    /// What the model is called.
    name: String,
    /// Why the model cannot chat, where it cannot.
    template: Result<Template, String>,
    /// Positions of each sequence.
    context: usize,
    sequences: usize,
    /// Bytes of the longest text that one token can stand for.
    longest_token: usize,
    queue: Arc<Queue>,
    /// Held while a request is read and encoded: that is when it takes most memory.
    reading: Mutex<()>,
    stopping: AtomicBool,
    connections: Mutex<usize>,
    closed: Condvar,
    /// Seconds since 1970 at the start.
    since: u64,
    /// Numbers of answers, from a start that is another one each time.
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

/// A place among the connections, given back when it is dropped.
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

/// A server that runs on threads of its own.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

warploom::base::debug_as!(Server, |this| address: this.address());

impl Server {
    /// Listens, and answers with the model of `session`, all its sequences at once.
    ///
    /// # Errors
    /// Io, where the address cannot be listened on; invalid, for options out of range.
    pub fn start(session: Session, options: ServeOptions) -> Result<Server> {
        warploom_llm::Sampler::new(options.sampling.clone())?;
        let bad_key = |key: &String| key.is_empty() || !key.bytes().all(|b| b.is_ascii_graphic());
        if options.api_key.as_ref().is_some_and(bad_key) {
            return Err(Error::invalid("api_key: must be printable ASCII without spaces"));
        }
        if options.cors_origin.as_ref().is_some_and(bad_key) {
            return Err(Error::invalid("cors_origin: must be an origin or *"));
        }
        let listen = |e| Error::io(format!("cannot listen on {}", options.address), e);
        let listener = TcpListener::bind(options.address).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let shared = Arc::new(shared(&session, options)?);
        let awake_for = shared.options.keep_awake;
        let awake = (!awake_for.is_zero()).then(|| Awake::if_needed(session.device())).flatten();
        let mut scheduler = Scheduler::new(session, shared.queue.clone(), shared.options.piece)
            .keep_awake(awake, awake_for);
        let queue = shared.queue.clone();
        let run = move || {
            // If it should panic, nobody may wait for it.
            let _closed = CloseOnDrop(queue);
            scheduler.run();
        };
        let accepting = shared.clone();
        let accept = move || accept(&listener, &accepting);
        let threads = vec![spawn("scheduler", run)?, spawn("accept", accept)?];
        Ok(Server { address, shared, threads })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the model is called.
    pub fn model(&self) -> &str {
        &self.shared.name
    }

    /// Whether its threads are all there; if not, it answers no more.
    pub fn is_alive(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }

    /// The requests that wait and run.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.shared.queue
    }

    /// Ends: nothing new is taken, what runs has `grace` to end and is broken off then. A server
    /// that is dropped ends with no grace, and is not waited for.
    ///
    /// # Errors
    /// Device, where that is not over some seconds later because the device does not answer.
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
        // `accept` waits for a connection, so it gets one.
        let _ = TcpStream::connect_timeout(&reachable(self.address), Duration::from_secs(1));
    }
}

/// Ends without waiting.
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

/// An address that reaches a listener of this machine: one of no host is that of any.
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

fn shared(session: &Session, options: ServeOptions) -> Result<Shared> {
    use std::hash::{BuildHasher, RandomState};
    let model = session.model().clone();
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
    Ok(Shared {
        name,
        template: Template::of(&model).map_err(|error| error.to_string()),
        context: session.context(),
        sequences: Sequences::sequences(session),
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
                // No descriptor is free, say: that passes.
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
