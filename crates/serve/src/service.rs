//! A model behind an API, without a listener.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use super::embeddings::Encoder;
use super::gate::Gate;
use super::grammars::Grammars;
use super::options::ServeOptions;
use super::queue::Queue;
use super::scheduler::Scheduler;
use super::sequences::Sequences;
use super::{LAST_WORDS, after};
use warploom::runtime::KeepAlive;
use warploom::{Error, Result};
use warploom_llm::chat::Template;
use warploom_llm::{Embedder, Model, Session};

/// How many grammars are compiled at once. One may take seconds, and others must not wait for it.
const COMPILERS: usize = 4;

/// Most threads on which requests compute at once: one request is parsed, some grammars are
/// compiled, one request is embedded.
pub(super) const MAX_BLOCKING: usize = COMPILERS + 2;

/// What all requests share.
pub(super) struct Shared {
    pub(super) options: ServeOptions,
    pub(super) model: Arc<Model>,
    /// Name of the model.
    pub(super) name: String,
    /// The chat template, or why the model cannot chat.
    pub(super) template: Result<Template, String>,
    /// Whether the template writes tools.
    pub(super) knows_tools: bool,
    /// Whether the template writes system messages, or refuses them.
    pub(super) knows_system: bool,
    /// The control tokens by name.
    pub(super) controls: HashMap<String, u32>,
    pub(super) grammars: Grammars,
    /// The encoder, in place of a session.
    pub(super) encoder: Option<Arc<Encoder>>,
    /// Number of positions of each sequence.
    pub(super) context: usize,
    pub(super) sequences: usize,
    /// Length in bytes of the longest text that one token can stand for.
    pub(super) longest_token: usize,
    pub(super) queue: Arc<Queue>,
    /// Admits the one request that is parsed and encoded, which needs the most memory.
    pub(super) reading: Gate,
    /// Admits requests whose grammars are compiled.
    pub(super) compiling: Gate,
    /// Bytes of bodies in memory.
    pub(super) bodies: AtomicUsize,
    stopping: AtomicBool,
    /// Start time, in seconds since the Unix epoch.
    pub(super) since: u64,
    /// Id of the next answer; the first one is random.
    pub(super) answers: AtomicU64,
}

impl Shared {
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn new(
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
            knows_system: template.as_ref().is_ok_and(|template| template.knows_system(tokenizer)),
            knows_tools: template.as_ref().is_ok_and(|template| template.knows_tools(tokenizer)),
            controls: controls.collect(),
            grammars: Grammars::new(model.shared_tokenizer().clone()),
            template,
            encoder: None,
            context,
            sequences,
            longest_token: longest_token.max(1),
            queue: Arc::new(Queue::new(options.queue)),
            reading: Gate::new(1),
            compiling: Gate::new(COMPILERS),
            bodies: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            since: now.map_or(0, |time| time.as_secs()),
            answers: AtomicU64::new(RandomState::new().hash_one(())),
            options,
            model,
        })
    }
}

/// A model behind an API, without a listener: its queue, its scheduler and what requests share.
///
/// [`router`](crate::router) gives its routes to the server of an application;
/// [`Server`](crate::Server) has a server of its own.
pub struct Service {
    shared: Arc<Shared>,
    scheduler: Option<JoinHandle<()>>,
}

warploom_core::base::debug_as!(Service, |this| model: this.model());

impl Service {
    /// Starts the scheduler of a session, on a thread of its own, with all its sequences.
    ///
    /// # Errors
    /// Io if the thread cannot be started; invalid if an option is out of range.
    pub fn start(session: Session, options: ServeOptions) -> Result<Service> {
        options.check()?;
        let sequences = Sequences::sequences(&session);
        let shared = Shared::new(session.model(), (session.context(), sequences), options)?;
        let shared = Arc::new(shared);
        let awake_for = shared.options.keep_awake;
        let awake =
            (!awake_for.is_zero()).then(|| KeepAlive::if_needed(session.device())).flatten();
        let mut scheduler = Scheduler::new(session, shared.queue.clone(), shared.options.piece)
            .prefix_memory(shared.options.prefix_memory)
            .keep_awake(awake, awake_for);
        let queue = shared.queue.clone();
        let run = move || {
            // After a panic, no request must wait for the scheduler.
            let _closed = CloseOnDrop(queue);
            scheduler.run();
        };
        let scheduler = Some(spawn("scheduler", run)?);
        Ok(Service { shared, scheduler })
    }

    /// Serves `/v1/embeddings` or `/v1/rerank` with an encoder, which generates no text.
    ///
    /// # Errors
    /// Invalid if an option is out of range.
    pub fn start_encoder(embedder: Embedder, options: ServeOptions) -> Result<Service> {
        options.check()?;
        let mut shared = Shared::new(embedder.model(), (embedder.context(), 1), options)?;
        shared.encoder = Some(Arc::new(Encoder::new(embedder)));
        Ok(Service { shared: Arc::new(shared), scheduler: None })
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the name of the model in the API.
    pub fn model(&self) -> &str {
        &self.shared.name
    }

    /// Returns whether the thread of the scheduler is running; if not, nothing is generated any
    /// more.
    pub fn is_alive(&self) -> bool {
        self.scheduler.as_ref().is_none_or(|thread| !thread.is_finished())
    }

    /// Returns the queue of waiting and running requests.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.shared.queue
    }

    /// Stops the service: refuses new requests, aborts running ones after `grace`, and waits until
    /// all have ended. Dropping a service stops it without grace and without waiting.
    ///
    /// # Errors
    /// Device if the scheduler has not stopped a few seconds after `grace`, because the device does
    /// not respond.
    pub fn stop(self, grace: Duration) -> Result<()> {
        let until = after(Instant::now(), grace);
        self.begin_stop(until);
        self.wait(after(until, LAST_WORDS))
    }

    /// Refuses new requests; running ones may go on until `until`.
    pub(super) fn begin_stop(&self, until: Instant) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.shared.queue.stop(until);
    }

    /// Waits until `last` for the end of the scheduler.
    pub(super) fn wait(&self, last: Instant) -> Result<()> {
        match wait(self.scheduler.as_ref(), last) {
            true => Ok(()),
            false => Err(Error::device("a run on the device has not ended")),
        }
    }
}

/// Stops the service without waiting.
impl Drop for Service {
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

pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(format!("warploom-{name}"));
    thread.spawn(work).map_err(|e| Error::io(format!("cannot start the thread {name}"), e))
}

/// Waits until `last` for the end of a thread; returns whether it has ended.
pub(super) fn wait(thread: Option<&JoinHandle<()>>, last: Instant) -> bool {
    let Some(thread) = thread else { return true };
    while !thread.is_finished() {
        if Instant::now() >= last {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}
