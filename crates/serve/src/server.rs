//! The listener: accepts connections, and serves them on a small runtime of its own.
//!
//! Connections are tasks of tokio, so an idle one costs memory alone. Nothing outside this crate
//! needs a runtime: a [`Server`] is started and stopped by blocking calls.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::{Router, http};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

use super::connection::{Activity, Exchange, Watched};
use super::error::ApiError;
use super::generate::Due;
use super::options::{Limits, ServeOptions};
use super::queue::Queue;
use super::routes::routes;
use super::service::{MAX_BLOCKING, Service, spawn, wait};
use super::{LAST_WORDS, after};
use warploom::{Error, Result};
use warploom_core::error::broken_invariant;
use warploom_llm::{Embedder, Session};

/// Threads that serve connections. What computes runs elsewhere.
const THREADS: usize = 2;
/// Connections that the system accepts before the server does.
const BACKLOG: u32 = 1024;
/// Maximum requests at once on a connection with HTTP/2.
const MAX_STREAMS: u32 = 100;
/// Bytes that a client with HTTP/2 may send of one body, and of all, before the server reads them.
const WINDOWS: (u32, u32) = (64 << 10, 256 << 10);

/// A server that runs on its own threads.
pub struct Server {
    address: SocketAddr,
    service: Service,
    /// Until when connections may go on, once the server stops.
    ending: watch::Sender<Option<Instant>>,
    listener: JoinHandle<()>,
}

warploom_core::base::debug_as!(Server, |this| address: this.address());

impl Server {
    /// Starts a server that answers with the model of `session`, using all its sequences.
    ///
    /// # Errors
    /// Io if the server cannot listen on the address or start its threads; invalid if an option is
    /// out of range.
    pub fn start(session: Session, options: ServeOptions) -> Result<Server> {
        Server::new(options, |options| Service::start(session, options))
    }

    /// Starts a server that answers `/v1/embeddings` with an encoder, and generates no text.
    ///
    /// # Errors
    /// Same as [`Server::start`].
    pub fn start_encoder(embedder: Embedder, options: ServeOptions) -> Result<Server> {
        Server::new(options, |options| Service::start_encoder(embedder, options))
    }

    fn new(
        options: ServeOptions,
        service: impl FnOnce(ServeOptions) -> Result<Service>,
    ) -> Result<Server> {
        options.check()?;
        let threads = Threads::new()?;
        let listener = listen(threads.runtime(), options.address);
        let failed = |e| Error::io(format!("cannot listen on {}", options.address), e);
        let listener = listener.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let service = service(options)?;
        let (ending, ended) = watch::channel(None);
        let connections = Connections::new(&service, ended);
        let accept = move || threads.runtime().block_on(connections.accept(listener));
        let listener = spawn("listener", accept)?;
        Ok(Server { address, service, ending, listener })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the name of the model in the API.
    pub fn model(&self) -> &str {
        self.service.model()
    }

    /// Returns whether the server's threads for connections and for the scheduler are running; if
    /// not, the server no longer answers.
    pub fn is_alive(&self) -> bool {
        self.service.is_alive() && !self.listener.is_finished()
    }

    /// Returns the queue of waiting and running requests.
    pub fn queue(&self) -> &Arc<Queue> {
        self.service.queue()
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
        self.service.wait(last)?;
        // The listener waits as long for its connections, and then drops them.
        wait(Some(&self.listener), after(last, Duration::from_secs(1)));
        Ok(())
    }

    fn begin_stop(&self, until: Instant) {
        self.service.begin_stop(until);
        self.ending.send_replace(Some(until));
    }
}

/// Stops the server without waiting.
impl Drop for Server {
    fn drop(&mut self) {
        if self.ending.borrow().is_none() {
            self.begin_stop(Instant::now());
        }
    }
}

/// The runtime of a server, which may be dropped anywhere: a bare one panics in a task, where a
/// program may well start a server that fails. What computes is not waited for, since its result
/// is not wanted any more.
struct Threads(Option<Runtime>);

impl Threads {
    fn new() -> Result<Threads> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(THREADS).max_blocking_threads(MAX_BLOCKING);
        let runtime = builder.thread_name("warploom-http").enable_io().enable_time().build();
        let failed = |e| Error::io("cannot start the threads of the server", e);
        Ok(Threads(Some(runtime.map_err(failed)?)))
    }

    fn runtime(&self) -> &Runtime {
        match &self.0 {
            Some(runtime) => runtime,
            None => broken_invariant("the runtime is taken on drop alone"),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn listen(runtime: &Runtime, address: SocketAddr) -> std::io::Result<TcpListener> {
    let _inside = runtime.enter();
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // On Windows the option would let two servers share an address.
    if !cfg!(windows) {
        socket.set_reuseaddr(true)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts and serves connections.
struct Connections {
    server: Arc<Http>,
    places: Arc<Semaphore>,
    most: u32,
    ended: watch::Receiver<Option<Instant>>,
}

/// What all connections share.
struct Http {
    router: Router,
    builder: auto::Builder<TokioExecutor>,
    tls: Option<TlsAcceptor>,
    limits: Limits,
}

impl Connections {
    fn new(service: &Service, ended: watch::Receiver<Option<Instant>>) -> Connections {
        let shared = service.shared();
        let limits = shared.options.limits.clone();
        let tls = shared.options.tls.as_ref().map(|tls| TlsAcceptor::from(tls.config.clone()));
        let most = u32::try_from(limits.connections).unwrap_or(u32::MAX);
        let router = routes(shared.clone());
        let server = Arc::new(Http { router, builder: protocols(&limits), tls, limits });
        Connections { server, places: Arc::new(Semaphore::new(most as usize)), most, ended }
    }

    /// Accepts connections until the server stops, and then waits for their end.
    async fn accept(mut self, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = self.ended.changed() => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // For example, there is no free file descriptor, which is temporary.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let _ = stream.set_nodelay(true);
            match self.places.clone().try_acquire_owned() {
                Ok(place) => {
                    let (server, ended) = (self.server.clone(), self.ended.clone());
                    tokio::spawn(server.connection(stream, ended, place));
                }
                Err(_) => self.server.turn_away(stream).await,
            }
        }
        drop(listener);
        let until = self.ended.borrow().unwrap_or_else(Instant::now);
        let last = after(until, LAST_WORDS).into();
        let _ = timeout_at(last, self.places.acquire_many(self.most)).await;
    }
}

/// Returns HTTP/1 and HTTP/2 with our limits.
fn protocols(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // `Watched` has the limits of time.
    builder.http1().max_buf_size(limits.head).header_read_timeout(None);
    builder
        .http2()
        .max_header_list_size(u32::try_from(limits.head).unwrap_or(u32::MAX))
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1);
    builder
}

impl Http {
    /// Sends the error for too many connections, without waiting for a request.
    async fn turn_away(&self, mut stream: TcpStream) {
        // No handshake for it: that is what clients beyond the limit must not cost.
        if self.tls.is_some() {
            return;
        }
        let text = format!("there are {} connections already", self.limits.connections);
        let error = ApiError::new(503, text).code("too_many_connections").to_http1();
        let _ = timeout(Duration::from_millis(100), stream.write_all(error.as_bytes())).await;
        // With unread bytes, the system would reset the connection, and the text would be lost.
        let _ = stream.try_read(&mut [0; 4 << 10]);
    }

    /// Serves a connection until one side ends it.
    async fn connection(
        self: Arc<Http>,
        stream: TcpStream,
        ended: watch::Receiver<Option<Instant>>,
        _place: OwnedSemaphorePermit,
    ) {
        let Some(tls) = &self.tls else { return self.http(stream, ended).await };
        match timeout(self.limits.read, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.http(stream, ended).await,
            Ok(Err(error)) => tracing::debug!(%error, "no TLS with a client"),
            Err(_) => tracing::debug!("a client is late with the handshake of TLS"),
        }
    }

    async fn http<T>(&self, stream: T, mut ended: watch::Receiver<Option<Instant>>)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = Activity::new(&self.limits);
        let stream = TokioIo::new(Watched::new(stream, activity.clone()));
        let service = service_fn(|request| {
            let exchange = Exchange::new(activity.clone());
            answer(self.router.clone(), request, exchange)
        });
        let mut connection = pin!(self.builder.serve_connection(stream, service));
        let stopping = async {
            let _ = ended.wait_for(Option::is_some).await;
        };
        let result = tokio::select! {
            result = connection.as_mut() => result,
            () = stopping => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, "a connection ended");
        }
    }
}

async fn answer(
    mut router: Router,
    request: http::Request<Incoming>,
    mut exchange: Exchange,
) -> Result<http::Response<Tracked>, Infallible> {
    let response = router.call(request).await?;
    exchange.send(response.extensions().get().map(|due: &Due| due.0));
    Ok(response.map(|body| Tracked { body, _exchange: exchange }))
}

/// The body of a response, with which its exchange ends.
struct Tracked {
    body: Body,
    _exchange: Exchange,
}

impl HttpBody for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
