//! The time limits of a connection, below HTTP.
//!
//! `hyper` reads and writes through a [`Watched`] stream. It knows when bytes come and go, and an
//! [`Activity`] knows the requests; from both follows how long a read or a write may take. So one
//! place bounds slow heads, idle connections and clients that read no response, for HTTP/1 and
//! HTTP/2, with TLS and without. Bodies have their own limit (`body`).

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep_until};

use super::after;
use super::error::late;
use super::options::Limits;

/// Maximum bytes and time for reading what a client still sends when its connection is closed.
const LINGER: (usize, Duration) = (1 << 20, Duration::from_secs(1));
/// Least time after which a connection looks at its requests again.
const LOOK: Duration = Duration::from_secs(1);
/// The beginning of a connection with HTTP/2.
const HTTP2: &[u8] = b"PRI ";

#[derive(Debug)]
struct State {
    /// Requests that have no response yet.
    preparing: usize,
    /// Responses that are being sent.
    sending: usize,
    /// When all responses must have been sent.
    until: Instant,
    /// When the connection began, or its last response ended.
    idle_since: Instant,
    /// When the first byte of a head came that is not complete.
    head_since: Option<Instant>,
    /// Whether there has been a request.
    has_asked: bool,
    is_http2: bool,
}

/// The requests of a connection.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
    limits: Limits,
}

impl Activity {
    pub(super) fn new(limits: &Limits) -> Arc<Activity> {
        let now = Instant::now();
        let state = State {
            preparing: 0,
            sending: 0,
            until: now,
            idle_since: now,
            head_since: None,
            has_asked: false,
            is_http2: false,
        };
        Arc::new(Activity { state: Mutex::new(state), limits: limits.clone() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Notes bytes that came.
    fn heard(&self, bytes: &[u8]) {
        let state = &mut *self.state();
        if bytes.is_empty() || state.preparing + state.sending > 0 {
            return;
        }
        if !state.has_asked && state.head_since.is_none() {
            state.is_http2 = bytes.starts_with(HTTP2);
        }
        // Frames of HTTP/2 may come between requests; they are no part of a head.
        if state.head_since.is_none() && !(state.is_http2 && state.has_asked) {
            state.head_since = Some(Instant::now());
        }
    }

    /// Returns the time at which the connection ends if no byte comes.
    fn due(&self) -> Option<Instant> {
        let state = self.state();
        let Limits { read, idle, .. } = self.limits;
        match (state.preparing, state.sending, state.head_since) {
            (0, 0, Some(since)) => Some(after(since, read)),
            (0, 0, None) if !state.has_asked => Some(after(state.idle_since, read)),
            (0, 0, None) => Some(after(state.idle_since, idle)),
            // A request is bounded by the limits of its body and of its answer.
            (1.., _, _) => None,
            _ => Some(state.until),
        }
    }

    /// Returns the response to a client that is late with a request; `None` if there is nothing to
    /// say, as to a client that has been idle.
    fn refusal(&self) -> Option<String> {
        let state = self.state();
        let is_idle = state.preparing + state.sending == 0;
        let is_late = state.head_since.is_some() || !state.has_asked;
        (is_idle && is_late && !state.is_http2).then(|| late(self.limits.read).to_http1())
    }
}

/// A request on a connection, from its head to the end of its response.
#[derive(Debug)]
pub(super) struct Exchange {
    activity: Arc<Activity>,
    is_sending: bool,
}

impl Exchange {
    pub(super) fn new(activity: Arc<Activity>) -> Exchange {
        let mut state = activity.state();
        state.preparing += 1;
        state.has_asked = true;
        state.head_since = None;
        drop(state);
        Exchange { activity, is_sending: false }
    }

    /// Begins its response, which must have been sent at `due`, or after twice the time in which a
    /// write must make progress.
    pub(super) fn send(&mut self, due: Option<Instant>) {
        let limit = self.activity.limits.write.saturating_mul(2);
        let due = due.unwrap_or_else(|| after(Instant::now(), limit));
        let mut state = self.activity.state();
        state.until = if state.sending == 0 { due } else { state.until.max(due) };
        state.preparing -= 1;
        state.sending += 1;
        self.is_sending = true;
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let mut state = self.activity.state();
        match self.is_sending {
            true => state.sending -= 1,
            false => state.preparing -= 1,
        }
        state.idle_since = Instant::now();
    }
}

/// A timer that can be moved.
#[derive(Default)]
struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Returns whether `due` has come, and wakes the task when it does.
    fn poll(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        let due = due.into();
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if sleep.deadline() != due {
            sleep.as_mut().reset(due);
        }
        sleep.as_mut().poll(cx)
    }
}

/// The stream of a connection, which fails when a limit of time is over.
pub(super) struct Watched<T> {
    stream: T,
    activity: Arc<Activity>,
    reading: Timer,
    writing: Timer,
    /// Since when the client takes no bytes.
    stalled: Option<Instant>,
    /// Once this side is closed: since when, and how many bytes came.
    closed: Option<(Instant, usize)>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Watched<T> {
    pub(super) fn new(stream: T, activity: Arc<Activity>) -> Watched<T> {
        let (reading, writing) = (Timer::default(), Timer::default());
        Watched { stream, activity, reading, writing, stalled: None, closed: None }
    }

    /// Ends a connection on which nothing more is waited for.
    fn end(&mut self, cx: &mut Context<'_>) -> Error {
        if let (Some(text), None) = (self.activity.refusal(), self.stalled) {
            // A connection without a response has room for one.
            if let Poll::Ready(Ok(_)) = Pin::new(&mut self.stream).poll_write(cx, text.as_bytes()) {
                let _ = Pin::new(&mut self.stream).poll_flush(cx);
            }
        }
        ErrorKind::TimedOut.into()
    }

    /// Fails if a write has made no progress for too long.
    fn progress<R>(&mut self, cx: &mut Context<'_>, written: Poll<Result<R>>) -> Poll<Result<R>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let since = *self.stalled.get_or_insert_with(Instant::now);
        ready!(self.writing.poll(cx, after(since, self.activity.limits.write)));
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buffer) {
            this.activity.heard(&buffer.filled()[before..]);
            return Poll::Ready(read);
        }
        loop {
            let (due, now) = (this.activity.due(), Instant::now());
            if due.is_some_and(|due| due <= now) {
                return Poll::Ready(Err(this.end(cx)));
            }
            // A request that begins or ends moves the time, and not always makes `hyper` read.
            let look = after(now, this.activity.limits.idle.max(LOOK));
            ready!(this.reading.poll(cx, due.map_or(look, |due| due.min(look))));
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.progress(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.progress(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.progress(cx, flushed)
    }

    /// Closes this side, and then briefly reads what the client still sends: with unread bytes, the
    /// system would reset the connection, and the client would lose the response.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        if this.closed.is_none() {
            let shut = Pin::new(&mut this.stream).poll_shutdown(cx);
            ready!(this.progress(cx, shut))?;
        }
        let (bytes, time) = LINGER;
        let (since, taken) = this.closed.get_or_insert_with(|| (Instant::now(), 0));
        let mut room = [0; 4 << 10];
        while *taken < bytes {
            let mut buffer = ReadBuf::new(&mut room);
            match Pin::new(&mut this.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    *taken += buffer.filled().len();
                }
                Poll::Ready(_) => break,
                Poll::Pending => {
                    ready!(this.reading.poll(cx, after(*since, time)));
                    break;
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}
