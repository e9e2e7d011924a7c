//! Routes and answers the requests on a connection.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::answer::{Answer, Kind};
use super::choice::Choice;
use super::client::Client;
use super::connection::{Connection, Head, NoRequest};
use super::embeddings::{Encoder, embeddings, rerank};
use super::error::{ApiError, no_model};
use super::inflate::inflated;
use super::prepare::Prepared;
use super::queue::{Piece, Ticket};
use super::tokens;
use super::{Shared, after};

/// How often a waiting request checks whether its client is still connected.
const LOOK: Duration = Duration::from_millis(100);

/// The endpoint of a request.
enum Route {
    Health,
    Models,
    Model(String),
    Metrics,
    Props,
    Tokenize,
    Detokenize,
    Embeddings,
    Rerank,
    Text(Kind),
    /// A browser's CORS preflight.
    Preflight,
}

/// Answers the requests of a connection until one side ends it.
pub(super) fn serve(shared: &Shared, stream: TcpStream) {
    let Ok(connection) = Connection::new(stream, shared.options.limits.clone()) else { return };
    let mut client = Client { shared, connection, keep_alive: true, is_1_1: true, is_head: false };
    while client.keep_alive {
        let head = match client.connection.head(&|| shared.is_stopping()) {
            Ok(head) => head,
            Err(reason) => return client.refuse(reason),
        };
        client.is_1_1 = head.is_1_1;
        client.is_head = head.method == "HEAD";
        client.keep_alive = head.keep_alive && !shared.is_stopping();
        let begin = Instant::now();
        match client.request(&head) {
            Ok(()) => {
                let (method, path) = (head.method.as_str(), head.path.as_str());
                tracing::debug!(method, path, seconds = begin.elapsed().as_secs_f32(), "answered");
            }
            Err(Broken::Refused(reason)) => return client.refuse(reason),
            // The client has closed the connection.
            Err(Broken::Gone) => return,
        }
    }
    client.connection.close();
}

/// Sends the error for too many connections, without waiting for a request.
pub(super) fn turn_away(stream: TcpStream, shared: &Shared) {
    let limits = shared.options.limits.clone().write(Duration::from_millis(100));
    let most = limits.connections;
    let Ok(connection) = Connection::new(stream, limits) else { return };
    let mut client = Client { shared, connection, keep_alive: false, is_1_1: true, is_head: false };
    let error = ApiError::new(503, format!("there are {most} connections already"));
    let _ = client.error(&error.code("too_many_connections"));
}

/// Why a connection ends.
enum Broken {
    Gone,
    Refused(NoRequest),
}

impl From<std::io::Error> for Broken {
    fn from(_: std::io::Error) -> Broken {
        Broken::Gone
    }
}

impl From<NoRequest> for Broken {
    fn from(reason: NoRequest) -> Broken {
        Broken::Refused(reason)
    }
}

impl Client<'_> {
    fn refuse(mut self, reason: NoRequest) {
        if let NoRequest::Refused(error) = reason {
            self.keep_alive = false;
            if self.error(&error).is_ok() {
                self.connection.close();
            }
        }
    }

    fn request(&mut self, head: &Head) -> Result<(), Broken> {
        let begin = Instant::now();
        // Errors of the head are answered without reading the body.
        let route = self.route(head).map_err(NoRequest::Refused)?;
        let body = self.connection.body(head)?;
        match route {
            Route::Health => self.health()?,
            Route::Models => {
                let data = json!([self.model()]);
                self.json(200, &json!({ "object": "list", "data": data }))?;
            }
            Route::Model(id) if id == self.shared.name => self.json(200, &self.model())?,
            Route::Model(id) => self.error(&no_model(&id))?,
            Route::Preflight => {
                let fields = head.allowed_fields();
                let more = [
                    ("access-control-allow-methods", "GET, HEAD, POST"),
                    ("access-control-allow-headers", fields.as_str()),
                    ("access-control-max-age", "3600"),
                ];
                self.whole(204, "text/plain", "", &more)?
            }
            Route::Metrics => {
                let text = self.shared.queue.metrics.text(&self.shared.queue);
                self.whole(200, "text/plain; version=0.0.4", &text, &[])?;
            }
            Route::Props => self.json(200, &tokens::props(self.shared))?,
            Route::Tokenize | Route::Detokenize | Route::Embeddings | Route::Rerank => {
                let limit = self.shared.options.limits.body;
                let body = head.coding.clone().and_then(|coding| inflated(coding, body, limit));
                let answer = body.and_then(|body| match route {
                    Route::Tokenize => tokens::tokenize(self.shared, &body),
                    Route::Embeddings => embeddings(self.shared, &body),
                    Route::Rerank => rerank(self.shared, &body),
                    _ => tokens::detokenize(self.shared, &body),
                });
                match answer {
                    Ok(value) => self.json(200, &value)?,
                    Err(error) => self.error(&error)?,
                }
            }
            Route::Text(_) if self.shared.encoder.is_some() => {
                let text = "this model is an encoder, which generates no text: use /v1/embeddings or /v1/rerank";
                self.error(&ApiError::new(400, text).code("no_text"))?;
            }
            Route::Text(kind) => match Prepared::new(self.shared, kind, head, body, begin) {
                Ok(prepared) => self.write(prepared)?,
                Err(error) => self.error(&error)?,
            },
        }
        Ok(())
    }

    fn route(&self, head: &Head) -> Result<Route, ApiError> {
        let method = head.method.as_str();
        let (route, want) = match head.path.as_str() {
            "/health" => (Route::Health, "GET"),
            "/v1/models" => (Route::Models, "GET"),
            "/metrics" => (Route::Metrics, "GET"),
            "/props" => (Route::Props, "GET"),
            "/tokenize" => (Route::Tokenize, "POST"),
            "/detokenize" => (Route::Detokenize, "POST"),
            "/v1/embeddings" => (Route::Embeddings, "POST"),
            "/v1/rerank" => (Route::Rerank, "POST"),
            "/v1/chat/completions" => (Route::Text(Kind::Chat), "POST"),
            "/v1/completions" => (Route::Text(Kind::Completion), "POST"),
            path => match path.strip_prefix("/v1/models/") {
                Some(id) => (Route::Model(unescaped(id)), "GET"),
                None => {
                    self.admit(head)?;
                    let text = format!("there is no {path} here");
                    return Err(ApiError::new(404, text).code("unknown_path"));
                }
            },
        };
        if method == "OPTIONS" && self.shared.options.cors_origin.is_some() {
            return Ok(Route::Preflight);
        }
        if !matches!(route, Route::Health) {
            self.admit(head)?;
        }
        if method != want && (method, want) != ("HEAD", "GET") {
            let text = format!("{} takes {want}, not {method}", head.path);
            let error = ApiError::new(405, text).code("wrong_method");
            let allow = if want == "GET" { "GET, HEAD" } else { want };
            return Err(ApiError { allow: Some(allow), ..error });
        }
        // A page of another origin may send a form or plain text without a preflight.
        let kind = head.content_type.as_deref().unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if want == "POST" && !kind.eq_ignore_ascii_case("application/json") {
            return Err(ApiError::new(415, "content-type: must be application/json"));
        }
        // Answered before the body is read.
        head.coding.clone()?;
        Ok(route)
    }

    fn admit(&self, head: &Head) -> Result<(), ApiError> {
        let Some(key) = &self.shared.options.api_key else { return Ok(()) };
        let given = head.authorization.as_deref().unwrap_or_default();
        let (scheme, given) = given.split_once(' ').unwrap_or_default();
        // Comparing hashes takes constant time and reveals no length.
        let same = blake3::hash(key.as_bytes()) == blake3::hash(given.trim().as_bytes());
        match same && scheme.eq_ignore_ascii_case("bearer") {
            true => Ok(()),
            false => Err(ApiError::new(401, "wrong or no API key").code("invalid_api_key")),
        }
    }

    fn health(&mut self) -> std::io::Result<()> {
        let queue = &self.shared.queue;
        let (status, word) = match (self.shared.is_stopping(), queue.is_failing()) {
            (true, _) => (503, "stopping"),
            (false, true) => (503, "failing"),
            (false, false) => (200, "ok"),
        };
        let state = json!({
            "status": word,
            "sequences": self.shared.sequences,
            "running": queue.running() + self.shared.encoder.as_ref().map_or(0, Encoder::requests),
            "waiting": queue.waiting(),
        });
        self.json(status, &state)
    }

    fn model(&self) -> Value {
        json!({
            "id": self.shared.name,
            "object": "model",
            "created": self.shared.since,
            "owned_by": "warploom",
        })
    }

    fn write(&mut self, prepared: Prepared) -> std::io::Result<()> {
        let Prepared { kind, jobs, replies, asked } = prepared;
        let limit = self.shared.options.limits.write;
        let due = jobs.first().map_or_else(Instant::now, |job| after(job.deadline, limit));
        let ticket = match self.shared.queue.submit_all(jobs) {
            Ok(ticket) => ticket,
            Err(failure) => return self.error(&failure.into()),
        };
        let number = self.shared.answers.fetch_add(1, Ordering::Relaxed);
        let name = if kind == Kind::Chat { "chatcmpl" } else { "cmpl" };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let answer = Answer {
            kind,
            id: format!("{name}-{number:016x}"),
            created: now.map_or(0, |time| time.as_secs()),
            model: &self.shared.name,
            include_usage: asked.include_usage,
            n: asked.n,
        };
        match asked.stream {
            true => self.stream(&answer, replies, &ticket, due),
            false => self.collect(&answer, replies, &ticket),
        }
    }

    /// Waits for the next part of an answer.
    ///
    /// # Errors
    /// Connection aborted if the client has gone.
    fn piece(&self, ticket: &Ticket, looked: &mut Instant) -> std::io::Result<(usize, Piece)> {
        loop {
            let piece = ticket.next_of_all(LOOK);
            if looked.elapsed() >= LOOK {
                *looked = Instant::now();
                if self.connection.is_gone() {
                    return Err(ErrorKind::ConnectionAborted.into());
                }
            }
            if let Some(piece) = piece {
                return Ok(piece);
            }
        }
    }

    fn collect(
        &mut self,
        answer: &Answer<'_>,
        mut replies: Vec<Choice>,
        ticket: &Ticket,
    ) -> std::io::Result<()> {
        let mut looked = Instant::now();
        while replies.iter().any(|reply| reply.done().is_none()) {
            let (index, piece) = self.piece(ticket, &mut looked)?;
            if let Piece::Failed(failure) = piece {
                return self.error(&failure.into());
            }
            let Some(reply) = replies.get_mut(index) else { continue };
            for delta in reply.take(piece) {
                reply.add(&delta);
            }
        }
        self.json(200, &answer.whole(&replies))
    }

    /// Streams answers. The head is sent with the first token, so that an earlier failure can have
    /// its own status.
    fn stream(
        &mut self,
        answer: &Answer<'_>,
        mut replies: Vec<Choice>,
        ticket: &Ticket,
        due: Instant,
    ) -> std::io::Result<()> {
        let mut looked = Instant::now();
        let mut next = Some(self.piece(ticket, &mut looked)?);
        if let Some((_, Piece::Failed(failure))) = next {
            return self.error(&failure.into());
        }
        self.begin_events(due)?;
        let first = replies.iter().filter_map(|reply| answer.first(reply));
        let first: Vec<String> = first.map(|event| event.to_string()).collect();
        if !first.is_empty() {
            self.events(&first, due)?;
        }
        while replies.iter().any(|reply| reply.done().is_none()) {
            let (index, piece) = match next.take() {
                Some(piece) => piece,
                None => self.piece(ticket, &mut looked)?,
            };
            if let Piece::Failed(failure) = piece {
                self.keep_alive = false;
                let error = ApiError::from(failure);
                self.events(&[error.to_json().to_string()], due)?;
                return self.end_events(due);
            }
            let Some(reply) = replies.get_mut(index) else { continue };
            let mut events = Vec::new();
            for delta in reply.take(piece) {
                reply.add(&delta);
                let logprobs = reply.unsent();
                events.push(answer.part(reply, &delta, &logprobs).to_string());
            }
            if let Some(done) = reply.done().copied() {
                let logprobs = reply.unsent();
                events.push(answer.last(reply, &done, &logprobs).to_string());
            }
            if !events.is_empty() {
                self.events(&events, due)?;
            }
        }
        let counts = answer.counts(&replies).map(|event| event.to_string());
        let last: Vec<String> = counts.into_iter().chain(["[DONE]".to_owned()]).collect();
        self.events(&last, due)?;
        self.end_events(due)
    }
}

/// Decodes the percent escapes of a part of a path.
fn unescaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.first_chunk::<2>().and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code.filter(|_| *first == b'%') {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
